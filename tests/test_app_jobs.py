"""The composition root: what runs beside the surfaces for as long as the program does."""

import asyncio
from pathlib import Path

import aiohttp
from sqlalchemy import func, insert, select
from structlog.testing import capture_logs

from gateway import jobs
from gateway.app import App
from gateway.budget import Budgets
from gateway.chat import Origin, Request
from gateway.clock import SystemClock, to_ms
from gateway.errors import LedgerUnavailable
from gateway.store.database import Database
from gateway.store.ledger_store import LedgerStore
from gateway.store.tables import requests
from tests.contract.world import draft
from tests.e2e.rig import prepared

CONFIG = """
[gateway]
listen = "127.0.0.1:0"
[providers.p]
api = "demo"
model = "scripted"
[[budgets]]
name = "all"
tokens = 1000
per = "lifetime"
"""


async def test_a_running_program_sweeps_what_others_left_and_drops_what_is_old(tmp_path: Path) -> None:
    settings = prepared(tmp_path, CONFIG, {})
    clock = SystemClock()
    other = LedgerStore(Database(settings.database_url), settings.budgets, clock)
    await other.start()
    old = {"id": "old", "fingerprint": "f", "owner": "gone", "expires": to_ms(clock.now()) - 1}
    await other.database.write(lambda connection: connection.execute(insert(requests).values(old)))
    async with App(settings, roles=frozenset({"web"})).running() as app:
        await other.reserve(draft(100))
        await other.stop()
        # The lease is given back, so what the other process holds is left behind.
        async with asyncio.timeout(60):
            while (await app.books.balances())[0].held or await other.database.read(_count):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        assert (await app.books.balances())[0].spent == 100
        async with aiohttp.ClientSession(
            headers={"Authorization": f"Bearer {await app.keys.create('ops', True, 'test')}"}
        ) as client:
            text = await (await client.get(f"{app.address}/metrics")).text()
        assert "\nsluicegate_holds_expired_total 1.0\n" in text
    await other.database.close()


def _count(connection) -> int:  # type: ignore[no-untyped-def]
    return int(connection.execute(select(func.count()).select_from(requests)).scalar_one())


async def test_a_job_runs_alone_and_a_ledger_that_is_gone_only_delays_it() -> None:
    running, begun, ended = asyncio.Lock(), asyncio.Event(), asyncio.Event()
    runs = 0

    async def slow() -> None:
        nonlocal runs
        runs += 1
        begun.set()
        await ended.wait()
        raise LedgerUnavailable("gone")

    first = asyncio.create_task(jobs._alone("slow", slow, running))
    await begun.wait()
    await jobs._alone("slow", slow, running)
    assert runs == 1
    ended.set()
    with capture_logs() as told:
        await first
    assert told == [{"event": "job_delayed", "job": "slow", "reason": "gone", "log_level": "warning"}]


async def test_what_the_store_tells_has_fields(tmp_path: Path) -> None:
    settings = prepared(tmp_path, CONFIG, {})
    store = LedgerStore(Database(settings.database_url), Budgets(settings.budgets.all), SystemClock())
    await store.start()
    await store.reserve(draft(100))
    await store.stop()
    with capture_logs() as told:
        assert await store.sweep() == 1
    assert told == [{"event": "holds_expired", "count": 1, "log_level": "warning"}]
    await store.database.close()


async def test_case_14_a_running_program_tells_a_threshold_once_also_beside_another_and_after_a_restart(tmp_path: Path) -> None:
    settings = prepared(tmp_path, f"{CONFIG}warn_at = [0.01]\n", {})
    request = Request(messages=[{"role": "user", "content": "Hello"}], max_output_tokens=100)
    async with App(settings).running() as first, App(settings).running() as second:
        await first.dispatcher.complete(request, "p", Origin("r1", "http"))
        await _alerted(second)
    async with App(settings).running() as third:
        await third.dispatcher.complete(request, "p", Origin("r2", "http"))
        await third.alert_watch.watch()
        assert await _alerted(third) == ["budget_warn:all:0.01@0:"]


async def _alerted(app: App) -> list[str]:
    async with asyncio.timeout(60):
        while not (found := await app.alerts.newest()):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    return [alert.subject for alert in found]
