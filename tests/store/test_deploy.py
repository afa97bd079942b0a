"""Two configurations on one database for a while."""

import pytest

from gateway.budget import Budget, Budgets, Lifetime, Unit
from gateway.errors import Exhausted
from gateway.store.books import Books
from gateway.store.database import Database
from gateway.store.ledger_store import LedgerStore
from tests.contract.world import draft, settled
from tests.doubles.clock import SettableClock


async def test_what_a_process_did_not_know_to_count_is_counted_once_it_has_left(database_url: str) -> None:
    """A new configuration is started before the old one is stopped, as hosts do: the added budget misses nothing."""
    shared, added = Budget("shared", Unit.TOKENS, 1000, Lifetime()), Budget("added", Unit.TOKENS, 100, Lifetime())
    clock = SettableClock()
    old, new = (LedgerStore(Database(database_url), Budgets(each), clock) for each in ((shared,), (shared, added)))
    await old.start()
    await new.start()
    await new.close(await new.reserve(draft(10)), settled(10))
    await old.close(await old.reserve(draft(80)), settled(80))
    await old.stop()
    with pytest.raises(Exhausted):
        await new.reserve(draft(11))
    await new.reserve(draft(10))
    assert await Books(new.database, new.budgets, clock).check() == []
    for store in (old, new):
        await store.database.close()
