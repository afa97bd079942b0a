"""What the SQLite store remembers between its transactions is believed only while nobody else can have changed it."""

import sqlite3

import pytest
from sqlalchemy import Connection, update

from gateway.budget import Budget, Budgets, Lifetime, Unit
from gateway.errors import Exhausted
from gateway.store.database import Database
from gateway.store.ledger_store import LedgerStore
from gateway.store.tables import counters
from tests.contract.world import draft, settled
from tests.doubles.clock import SettableClock

TOKENS = Budgets([Budget("tokens", Unit.TOKENS, 1000, Lifetime())])
USED_UP = "UPDATE counters SET spent = 995, held = 0, buckets = '[[0, 995, 0]]'"


@pytest.fixture
def database_url(sqlite_url: str) -> str:
    """SQLite only: on PostgreSQL every row is read and locked each time."""
    return sqlite_url


@pytest.fixture
async def store(database: Database) -> LedgerStore:
    made = LedgerStore(database, TOKENS, SettableClock())
    await made.start()
    return made


def elsewhere(url: str, *statements: str) -> None:
    """Another process commits."""
    other = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)
    for statement in ("BEGIN IMMEDIATE", *statements, "COMMIT"):
        other.execute(statement)
    other.close()


async def test_a_counter_that_another_process_filled_is_full(store: LedgerStore, database_url: str) -> None:
    await store.reserve(draft(10))
    await store.reserve(draft(10))
    elsewhere(database_url, USED_UP)
    with pytest.raises(Exhausted):
        await store.reserve(draft(10))


async def test_a_counter_that_this_process_filled_otherwise_is_full(store: LedgerStore) -> None:
    await store.reserve(draft(10))

    def fill(connection: Connection) -> None:
        connection.execute(update(counters).values(spent=995, buckets="[[0, 995, 0]]"))

    await store.database.write(fill)
    with pytest.raises(Exhausted):
        await store.reserve(draft(10))


async def test_a_hold_that_another_process_ended_stays_ended(store: LedgerStore, database_url: str) -> None:
    hold = await store.reserve(draft(10))
    elsewhere(database_url, "UPDATE usage SET state = 'released'", "UPDATE counters SET held = 0, buckets = '[[0, 0, 0]]'")
    assert not await store.close(hold, settled(5))
    await store.reserve(draft(1000))


async def test_two_stores_on_one_connection_know_of_each_other(store: LedgerStore) -> None:
    other = LedgerStore(store.database, TOKENS, store.clock)
    first = await store.reserve(draft(600))
    with pytest.raises(Exhausted):
        await other.reserve(draft(600))
    assert await other.close(first, settled(0))
    await other.reserve(draft(600))
    with pytest.raises(Exhausted):
        await store.reserve(draft(600))
