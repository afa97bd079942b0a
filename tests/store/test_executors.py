"""The locks by which workers know which of them live."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import make_url

from gateway.errors import LedgerUnavailable
from gateway.store.executors import Executors, engine_database

HOLDER = """
import asyncio, sys
from gateway.store.executors import Executors

async def main():
    print(await Executors(sys.argv[1]).take("w1"), flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


@pytest.fixture
async def executors(database_url: str) -> AsyncIterator[Executors]:
    """The locks of one process."""
    made = Executors(database_url)
    yield made
    await made.close()


async def test_a_living_worker_is_not_dead_and_a_killed_one_is(executors: Executors, database_url: str) -> None:
    command = sys.executable, "-c", HOLDER, database_url
    holder = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    assert holder.stdout is not None
    assert (await asyncio.wait_for(holder.stdout.readline(), 30)).strip() == b"True"
    async with executors.dead("w1") as dead:
        assert not dead
    holder.kill()
    await holder.wait()
    async with asyncio.timeout(30):
        # The server notices a moment later that the other end is gone.
        while not await executors.take("w1"):  # noqa: ASYNC110 - another process's end
            await asyncio.sleep(0.05)
    await executors.give("w1")
    async with executors.dead("w1") as dead:
        assert dead
        # While one sees to its runs nobody else does.
        other = Executors(database_url)
        assert not await other.take("w1")
        await other.close()


async def test_a_lock_is_given_back_and_a_close_gives_back_everything(executors: Executors, database_url: str) -> None:
    other = Executors(database_url)
    assert await other.take("w1")
    assert await other.take("w2")
    assert await other.hold()
    await other.give("w1")
    assert await executors.take("w1")
    assert not await executors.take("w2")
    await other.close()
    assert await executors.take("w2")


async def test_a_broken_connection_has_lost_its_locks_and_says_so(postgres_url: str) -> None:
    executors = Executors(postgres_url)
    assert await executors.take("w1")
    url = make_url(postgres_url)
    with psycopg.connect(host=str(url.query["host"]), user="postgres", dbname="postgres", autocommit=True) as admin:
        admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [url.database])
    assert not await executors.hold()
    assert await executors.take("w1")
    assert await executors.hold()
    await executors.close()


async def test_a_database_that_is_away_is_an_error_without_its_address(tmp_path: Path) -> None:
    executors = Executors(f"postgresql+psycopg://somebody:secret@/nothing?host={tmp_path}")
    with pytest.raises(LedgerUnavailable) as caught:
        await executors.take("w1")
    assert "secret" not in str(caught.value)
    await executors.close()


def test_the_engine_has_a_file_of_its_own_beside_sqlite_and_the_same_database_on_postgresql(tmp_path: Path) -> None:
    assert engine_database(f"sqlite:///{tmp_path}/my.db") == f"sqlite:///{tmp_path}/my-engine.db"
    assert os.listdir(tmp_path) == ["my-engine.db"]
    assert engine_database("postgresql+psycopg://h/db") == "postgresql+psycopg://h/db"
