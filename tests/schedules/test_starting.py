"""Schedules start runs: one for each fire, whatever the processes do, on both databases and through the real program."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import select
from structlog.testing import capture_logs

from gateway.app import App
from gateway.clock import SystemClock
from gateway.runs import Run, RunState, Starter
from gateway.settings import Settings, load
from gateway.store.migrations import upgrade
from gateway.store.run_tables import schedules
from tests.cli.program import COMMAND, environment
from tests.doubles.clock import SettableClock

CONFIG = """
[gateway]
timezone = "Europe/Madrid"
listen = "127.0.0.1:0"
[providers.p]
api = "demo"
model = "scripted"
[[schedules]]
name = "morning"
cron = "{cron}"
workflow = "greet"
params = {{ times = 2 }}
to = "{to}"
"""
GREET = """
from gateway.workflow import Context, workflow


@workflow
async def greet(ctx: Context, name: str = "you", times: int = 1) -> str:
    written = await ctx.write("greeting.md", name * times)
    await ctx.notify(f"Greeted {name}.", file=written.name, name="tell them")
    return name * times
"""
EVENING = datetime(2026, 6, 1, 18, tzinfo=UTC)
SCHEDULER = frozenset({"scheduler"})


def prepared(folder: Path, url: str = "", cron: str = "0 8 * * *", to: str = "telegram:-100200/7") -> Settings:
    (folder / "workflows").mkdir(exist_ok=True)
    (folder / "workflows" / "greet.py").write_text(GREET)
    (folder / "sluicegate.toml").write_text(CONFIG.format(cron=cron, to=to))
    return load(folder / "sluicegate.toml", {"DATABASE_URL": url} if url else {})


@pytest.fixture
def settings(empty_url: str, tmp_path: Path) -> Settings:
    """The configuration on an empty database at the newest migration."""
    found = prepared(tmp_path, empty_url)
    upgrade(found.database_url)
    return found


async def until(condition: Callable[[], object], timeout_s: float = 30) -> None:
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def runs_of(app: App, count: int) -> list[Run]:
    """The runs there are once there are so many, the oldest first."""
    async with asyncio.timeout(30):
        while len(found := await app.runs.newest()) < count:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    return found[::-1]


async def known(app: App) -> None:
    """Returns once the schedule was looked at."""
    query = select(schedules.c.name)
    async with asyncio.timeout(30):
        while await app.database.read(lambda connection: connection.execute(query).first()) is None:  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def test_case_50_a_fire_is_one_run_over_two_processes_and_is_caught_up_once_after_both_were_down(
    settings: Settings,
) -> None:
    clock = SettableClock(EVENING)
    async with App(settings, clock, roles=SCHEDULER).running() as first, App(settings, clock, roles=SCHEDULER).running():
        await known(first)
        clock.set(datetime(2026, 6, 2, 6, 0, tzinfo=UTC))
        (run,) = await runs_of(first, 1)
        assert (run.workflow, run.params, run.state) == ("greet", {"name": "you", "times": 2}, RunState.QUEUED)
        assert run.starter == Starter("schedule", "morning", chat="-100200", thread=7)
        assert run.key == "schedule:morning:2026-06-02T06:00:00Z"
        await first.runs.set_state(run.id, RunState.SUCCEEDED)
        clock.advance(days=1)
        await first.runs.set_state((await runs_of(first, 2))[1].id, RunState.SUCCEEDED)
    # Down for three days and the machine's clock goes on: of three missed fires, the last one.
    clock.advance(days=3)
    async with App(settings, clock, roles=SCHEDULER).running() as first, App(settings, clock, roles=SCHEDULER).running():
        await first.runs.set_state((await runs_of(first, 3))[2].id, RunState.SUCCEEDED)
        clock.advance(days=1)
        found = await runs_of(first, 4)
    assert [run.key for run in found] == [f"schedule:morning:2026-06-0{day}T06:00:00Z" for day in (2, 3, 6, 7)]


async def test_while_a_run_of_a_schedule_goes_on_its_next_fire_is_passed_over(settings: Settings) -> None:
    clock = SettableClock(EVENING)
    with capture_logs() as told:
        async with App(settings, clock, roles=SCHEDULER).running() as app:
            await known(app)
            clock.advance(days=1)
            (run,) = await runs_of(app, 1)
            clock.advance(days=1)
            await until(lambda: any(one["event"] == "schedule_passed_over" for one in told))
            await app.runs.set_state(run.id, RunState.SUCCEEDED)
            clock.advance(days=1)
            found = await runs_of(app, 2)
    assert [run.key for run in found] == ["schedule:morning:2026-06-02T06:00:00Z", "schedule:morning:2026-06-04T06:00:00Z"]
    (passed,) = [one for one in told if one["event"] == "schedule_passed_over"]
    assert (passed["schedule"], passed["run"], passed["state"]) == ("morning", run.id, "queued")


async def test_what_a_scheduled_run_tells_may_go_to_files(tmp_path: Path) -> None:
    settings = prepared(tmp_path, to="file:var/told")
    upgrade(settings.database_url)
    clock = SettableClock(EVENING)
    async with App(settings, clock, roles=frozenset({"scheduler", "worker"})).running() as app:
        await known(app)
        clock.advance(days=1)
        (run,) = await runs_of(app, 1)
        assert run.starter == Starter("schedule", "morning", to=f"file:{tmp_path}/var/told")
        told = tmp_path / "var" / "told"
        await until(lambda: (told / f"{run.id}-tell-them.txt").exists())
        assert (told / f"{run.id}-tell-them.txt").read_text() == "Greeted you.\n"
        assert (told / f"{run.id}-tell-them-greeting.md").read_text() == "youyou"
        async with asyncio.timeout(30):
            while await app.runs.notices("file"):  # noqa: ASYNC110
                await asyncio.sleep(0.05)


async def test_without_the_role_nothing_is_started(tmp_path: Path) -> None:
    settings = prepared(tmp_path)
    upgrade(settings.database_url)
    async with App(settings, roles=frozenset({"web"})).running() as app:
        names = [job.args[0] for job in app._jobs._scheduler.get_jobs()]
    assert "_sweep" in names
    assert "look" not in names


async def test_case_50_two_programs_that_start_at_once_catch_a_missed_fire_up_once(tmp_path: Path) -> None:
    now = SystemClock().now()
    missed = (now - timedelta(hours=2)).replace(second=0, microsecond=0)
    settings = prepared(tmp_path, cron=f"{missed.minute} {missed.hour} * * *")
    file = tmp_path / "sluicegate.toml"
    file.write_text(file.read_text().replace("Europe/Madrid", "UTC"))
    settings = load(file, {})
    upgrade(settings.database_url)
    yesterday = SettableClock(now - timedelta(hours=20))
    async with App(settings, yesterday, roles=SCHEDULER).running() as app:
        await known(app)
    programs = [
        await asyncio.create_subprocess_exec(
            *COMMAND, "serve", "--only", "scheduler", cwd=tmp_path, env=environment(), stderr=asyncio.subprocess.PIPE
        )
        for _ in range(2)
    ]
    app = App(settings)
    try:
        said = await asyncio.gather(*(_until_greeted(program) for program in programs))
        await app.open(gate=False)
        (run,) = await runs_of(app, 1)
        assert run.key == f"schedule:morning:{missed:%Y-%m-%dT%H:%M:%SZ}"
    finally:
        for program in programs:
            program.terminate()
        rest = [(await program.communicate())[1].decode() for program in programs]
    assert [run.id for run in await app.runs.newest()] == [run.id]
    await app.stop()
    for text in map("".join, zip(said, rest, strict=True)):
        assert "Schedules: 1; the next is morning at " in text
        # On a busy machine one may wait too long for the other's transaction, and tries again; they do not trip each other up.
        assert [line for line in text.splitlines() if "alarm_delayed" in line and "LedgerUnavailable" not in line] == []


async def _until_greeted(program: asyncio.subprocess.Process) -> str:
    """What the program says until it is up."""
    assert program.stderr is not None
    said = ""
    async with asyncio.timeout(60):
        while "Schedules: " not in said:
            line = (await program.stderr.readline()).decode()
            assert line, said
            said += line
    return said
