"""The whole story in a chat, with a real worker: started, asked, parked until a raise, finished with a file, cancelled."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from gateway.app import BOT, WORKER, App
from tests.doubles.botapi import TOKEN, BotApi
from tests.doubles.clock import SettableClock
from tests.doubles.upstream import Script, Upstream
from tests.e2e.rig import budget, config, prepared, provider, section

REPORT = '''
from gateway.workflow import Context, workflow

@workflow(title="Report")
async def report(ctx: Context, topic: str) -> str:
    """Writes a report."""
    first = await ctx.ask(f"What is {topic}?", name="what")
    if not await ctx.approve("Write it down?"):
        return "not written"
    second = await ctx.ask(f"Why is {topic}?", name="why")
    await ctx.write("REPORT.md", first + second)
    await ctx.notify("**Done** with it", file=ctx.folder / "REPORT.md")
    return "written"

'''
SLEEPY = '''
import sys
from gateway.workflow import Context, workflow

@workflow
async def sleepy(ctx: Context) -> None:
    """Never ends by itself."""
    await ctx.shell([sys.executable, "-c", "import time; time.sleep(600)"], name="hang", timeout=900)
'''


@contextlib.asynccontextmanager
async def serving(folder: Path, api: BotApi, upstream: Upstream, clock: SettableClock) -> AsyncIterator[App]:
    """A process with the bot and a worker."""
    flows = folder / "flows"
    flows.mkdir(exist_ok=True)
    (flows / "report.py").write_text(REPORT)
    (flows / "sleepy.py").write_text(SLEEPY)
    telegram = section("[telegram]", {"api_root": api.url, "admins": [1], "allowed_users": [42]})
    text = config(
        provider("main", upstream, max_attempts=1),
        budget("main-hour", provider="main", requests=1, per="hour"),
        telegram,
        section("[workflows]", {"path": str(flows)}),
        chain=["main"],
    )
    settings = await asyncio.to_thread(prepared, folder, text, {"TELEGRAM_BOT_TOKEN": TOKEN})
    app = App(settings, clock, roles=frozenset({BOT, WORKER}))
    async with app.running():
        yield app
        assert await app.books.check() == []


async def test_case_52_a_run_from_a_chat_is_approved_waits_until_a_raise_and_sends_its_file(tmp_path: Path) -> None:
    clock = SettableClock()
    async with BotApi() as api, Upstream(Script(text="Because.")) as upstream:
        async with serving(tmp_path, api, upstream, clock):
            await api.say('/run report topic="the sea"')
            card = await api.answered("report · ")
            asked = await api.answered("✋ report asks:")
            await api.until(lambda: "✋ report · waiting for approval" in card.text)
        async with serving(tmp_path, api, upstream, clock) as app:
            await api.tap(asked, "Approve")
            await api.until(lambda: "✅ Approved by P42." in asked.text)
            await api.until(lambda: card.text.startswith("⏳ report · waiting for budget until 13:00"))
            assert "⏳ why · until 13:00" in card.text
            assert upstream.meter.requests == 1
            await api.say("/raise main-hour +5 for 2h", 1)
            file = await api.answered("Done with it")
            assert file.file == ("REPORT.md", b"Because.Because.")
            await api.until(
                lambda: card.text.startswith("✅ report · done") and card.text.endswith("written") and not card.buttons
            )
            assert upstream.meter.requests == 2
            assert len(api.bubbles()) == 3
            (run,) = await app.runs.newest()
            assert run.starter.name == "telegram:42"


async def test_cancel_stops_a_step_that_hangs_within_a_moment(tmp_path: Path) -> None:
    async with BotApi() as api, Upstream(Script()) as upstream, serving(tmp_path, api, upstream, SettableClock()):
        await api.say("/run sleepy")
        card = await api.answered("sleepy · ")
        await api.until(lambda: "▶️ hang" in card.text)
        await api.say("/cancel")
        await api.until(lambda: card.text.startswith("🚫 sleepy · cancelled") and "🚫 hang" in card.text)
