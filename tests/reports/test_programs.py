"""Two real programs on one database: a report that was missed while neither ran is made once, and is in its folder."""

import asyncio
from datetime import timedelta
from pathlib import Path

from gateway.app import App
from gateway.clock import SystemClock
from gateway.settings import load
from gateway.store.database import Database
from gateway.store.fires import Fires
from gateway.store.migrations import upgrade
from tests.cli.program import COMMAND, environment
from tests.doubles.clock import SettableClock
from tests.e2e.rig import UNTIL_S

CONFIG = """
[gateway]
listen = "127.0.0.1:0"
[providers.p]
api = "demo"
model = "scripted"
[[reports]]
name = "daily"
cron = "{minute} {hour} * * *"
to = "file:out"
"""


async def test_case_50_two_programs_that_start_at_once_make_a_missed_report_once(tmp_path: Path) -> None:
    now = SystemClock().now()
    missed = (now - timedelta(hours=2)).replace(second=0, microsecond=0)
    (tmp_path / "sluicegate.toml").write_text(CONFIG.format(minute=missed.minute, hour=missed.hour))
    settings = load(tmp_path / "sluicegate.toml", {})
    upgrade(settings.database_url)
    database = Database(settings.database_url)
    yesterday = SettableClock(now - timedelta(hours=20))
    await Fires(database, yesterday).first_seen("report:daily", f"{missed.minute} {missed.hour} * * * UTC")
    await database.close()
    programs = [
        await asyncio.create_subprocess_exec(
            *COMMAND, "serve", "--only", "scheduler", cwd=tmp_path, env=environment(), stderr=asyncio.subprocess.PIPE
        )
        for _ in range(2)
    ]
    app = App(settings)
    await app.open(gate=False)
    try:
        async with asyncio.timeout(UNTIL_S):
            while [one.state for one in await app.reports.sent(settings.reports[0], 9)] != ["sent"]:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        said = [await _until_greeted(program) for program in programs]
    finally:
        for program in programs:
            program.terminate()
        rest = [(await program.communicate())[1].decode() for program in programs]
    (notice,) = await app.reports.sent(settings.reports[0], 9)
    assert notice.step == f"report:daily:{missed:%Y-%m-%dT%H:%M:%SZ}"
    day = f"{missed - timedelta(days=1):%Y-%m-%d}"
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [f"daily-{day}.png", f"daily-{day}.txt"]
    assert "".join(said + rest).count("report_made") == 1
    await app.stop()


async def _until_greeted(program: asyncio.subprocess.Process) -> str:
    """What the program says until it is up."""
    assert program.stderr is not None
    said = ""
    async with asyncio.timeout(UNTIL_S):
        while "Reports: 1; the next is daily at " not in said:
            line = (await program.stderr.readline()).decode()
            assert line, said
            said += line
    return said
