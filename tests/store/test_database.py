"""The database: one writer that commits what waits together, readers beside it, errors without secrets."""

import asyncio
import sqlite3
from pathlib import Path

import pytest
from sqlalchemy import Connection, insert, select, text
from sqlalchemy.exc import IntegrityError

from gateway.errors import LedgerUnavailable
from gateway.store.database import Database
from gateway.store.tables import owners
from tests.doubles.own_time import within

END_OTHERS = """
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid()
"""


def add(name: str):  # type: ignore[no-untyped-def]
    return lambda connection: connection.execute(insert(owners).values(id=name, seen=1))


def names(connection: Connection) -> list[str]:
    return list(connection.scalars(select(owners.c.id).order_by(owners.c.id)))


async def test_what_was_written_is_read(database: Database) -> None:
    await database.write(add("a"))
    assert await database.read(names) == ["a"]


async def test_writes_that_wait_together_share_transactions_and_keep_their_own_results(database: Database) -> None:
    transactions: set[object] = set()

    def work(number: int):  # type: ignore[no-untyped-def]
        def run(connection: Connection) -> int:
            transactions.add(connection.get_transaction())
            connection.execute(insert(owners).values(id=f"{number:03}", seen=1))
            return number

        return run

    assert await asyncio.gather(*(database.write(work(number)) for number in range(100))) == list(range(100))
    assert len(await database.read(names)) == 100
    assert len(transactions) < 50


async def test_a_failing_write_undoes_only_itself(database: Database) -> None:
    def fails(connection: Connection) -> None:
        add("half")(connection)
        raise ValueError("stop")

    await database.write(add("twice"))
    results = await asyncio.gather(
        database.write(add("a")),
        database.write(fails),
        database.write(add("twice")),
        database.write(add("b")),
        return_exceptions=True,
    )
    assert isinstance(results[1], ValueError)
    assert isinstance(results[2], IntegrityError)
    assert await database.read(names) == ["a", "b", "twice"]


async def test_a_write_alone_that_fails_leaves_nothing(database: Database) -> None:
    def fails(connection: Connection) -> None:
        add("half")(connection)
        raise ValueError("stop")

    with pytest.raises(ValueError, match="stop"):
        await database.write(fails)
    assert await database.read(names) == []


async def test_a_cancelled_write_does_not_stop_the_others(database: Database) -> None:
    tasks = [asyncio.create_task(database.write(add(f"{number}"))) for number in range(5)]
    await asyncio.sleep(0)
    tasks[2].cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(results[2], asyncio.CancelledError)
    assert set(await database.read(names)) >= {"0", "1", "3", "4"}


async def test_sqlite_is_durable_and_waits(sqlite_url: str) -> None:
    database = Database(sqlite_url)
    try:
        pragmas = await database.write(
            lambda connection: [
                connection.execute(text(f"PRAGMA {name}")).scalar_one()
                for name in ("journal_mode", "synchronous", "foreign_keys")
            ]
        )
        assert pragmas == ["wal", 2, 1]
    finally:
        await database.close()


async def test_a_locked_sqlite_file_is_unavailable_within_seconds_and_works_again_afterwards(
    sqlite_url: str, tmp_path: Path
) -> None:
    database = Database(sqlite_url)
    other = sqlite3.connect(tmp_path / "sluicegate.db", isolation_level=None)
    try:
        other.execute("BEGIN IMMEDIATE")
        async with within(5):
            with pytest.raises(LedgerUnavailable, match="locked"):
                await database.write(add("a"))
        other.execute("COMMIT")
        await database.write(add("b"))
        assert await database.read(names) == ["b"]
    finally:
        other.close()
        await database.close()


@pytest.mark.parametrize("method", ["read", "write"])
async def test_an_error_never_shows_the_password(method: str) -> None:
    database = Database("postgresql+psycopg://someone:hunter2@127.0.0.1:1/none")
    try:
        with pytest.raises(LedgerUnavailable) as caught:
            await getattr(database, method)(names)
        assert "hunter2" not in str(caught.value)
        assert "127.0.0.1" not in str(caught.value)
    finally:
        await database.close()


async def test_postgresql_that_dropped_the_connection_is_used_again(postgres_url: str) -> None:
    database = Database(postgres_url)
    try:
        await database.write(add("a"))
        assert await database.read(names) == ["a"]
        other = Database(postgres_url)
        await other.write(lambda connection: connection.execute(text(END_OTHERS)))
        await other.close()
        await database.write(add("b"))
        assert await database.read(names) == ["a", "b"]
    finally:
        await database.close()


async def test_a_database_without_tables_is_unavailable(tmp_path: Path) -> None:
    database = Database(f"sqlite:///{tmp_path}/deep/er/empty.db")
    try:
        with pytest.raises(LedgerUnavailable, match="no such table"):
            await database.write(add("a"))
    finally:
        await database.close()
