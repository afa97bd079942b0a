"""/report: an admin's own, in private, with its picture, once; and reports that are due arrive in their chat and topic."""

from __future__ import annotations

from pathlib import Path

from gateway.runs import NoticeState
from gateway.settings import ReportSettings
from tests.doubles.botapi import Fault, person
from tests.doubles.upstream import Script
from tests.reports.office import setting
from tests.reports.pixels import SIGNATURE
from tests.telegram_bot.rig import ADMIN, GROUP, PERSON, Rig, rig

BUDGETS = """
[[budgets]]
name = "moonshot-hour"
provider = "moonshot"
tokens = 100_000
per = "hour"
"""


async def answered(run: Rig) -> None:
    run.first.default = Script(text="Yes.", prompt_tokens=24_999, output_tokens=1)
    await run.api.say("question", PERSON)
    await run.api.answered("Yes.", PERSON)
    await run.idle()
    run.clock.advance(minutes=1)


async def test_an_admin_gets_the_report_with_its_picture_in_their_language(tmp_path: Path, sqlite_url: str) -> None:
    async with rig(tmp_path, sqlite_url, budgets=BUDGETS) as run:
        await answered(run)
        await run.api.say("/report", ADMIN)
        bubble = await run.api.answered("📊 Daily report", ADMIN)
        assert "⏱ Since then, until 12:01\n25K tokens · 1 call" in bubble.text
        assert "▓▓▓░░░░░░░ 25% moonshot-hour" in bubble.text
        assert bubble.file is not None
        assert (bubble.file[0], bubble.file[1][:8]) == ("day-report-2026-03-01.png", SIGNATURE)
        await run.api.say("/report week csv", ADMIN, **{"from": person(ADMIN, "es")})
        await run.api.answered("📊 Informe semanal", ADMIN)
        table = await run.api.until(lambda: [b for b in run.api.bubbles(ADMIN) if b.file and b.file[0].endswith(".csv")])
        assert b"present,moonshot,kimi,42,," in table[0].file[1]


async def test_nobody_else_gets_it_and_no_group_reads_it(tmp_path: Path, sqlite_url: str) -> None:
    async with rig(tmp_path, sqlite_url, budgets=BUDGETS) as run:
        await run.api.say("/report", PERSON)
        await run.api.answered("only an admin can do that")
        await run.api.say("/report@test_bot", ADMIN, GROUP)
        await run.api.answered("private chat", GROUP)
        await run.api.say("/report yearly", ADMIN)
        await run.api.answered("/report week", ADMIN)
        assert not run.api.made("sendPhoto")
        assert await run.bot._desk.outbox.newest("") == []


async def test_case_50_a_report_that_was_due_while_the_bot_was_down_arrives_once_in_its_topic(
    tmp_path: Path, sqlite_url: str
) -> None:
    async with rig(tmp_path, sqlite_url, budgets=BUDGETS) as run:
        await answered(run)
        report: ReportSettings = setting(f"telegram:{GROUP}/7")
        await run.stop()
        run.clock.advance(days=1)
        await run.start()
        await run.reports.ring(report, run.clock.now())
        await run.reports.ring(report, run.clock.now())
        bubble = await run.api.answered("📊 Daily report · Monday, March 2, 2026", GROUP)
        assert (bubble.thread, "💬 25,000 tokens · 1 call" in bubble.text) == (7, True)

        async def state() -> str:
            return (await run.reports.sent(report))[0].state.value

        await run.eventually(state, lambda found: found == NoticeState.SENT)
        await run.restart()
        await run.api.until(lambda: run.bot.ready)
        await run.reports.ring(report, run.clock.now())
        await run.idle()
        assert len(run.api.bubbles(GROUP)) == 1


async def test_why_a_report_did_not_arrive_is_kept_with_it(tmp_path: Path, sqlite_url: str) -> None:
    kicked, broken = "Forbidden: bot was kicked from the supergroup chat", "Bad Request: file is too odd"
    async with rig(tmp_path, sqlite_url, budgets=BUDGETS) as run:
        report: ReportSettings = setting(f"telegram:{GROUP}")

        async def ended() -> tuple[str, str]:
            notice = (await run.reports.sent(report))[0]
            return notice.state.value, notice.detail

        run.api.faults += [Fault("sendPhoto", kicked, 403)]
        await run.reports.send_now(report, "test")
        assert await run.eventually(ended, lambda found: found[0] == "failed") == ("failed", kicked)
        run.clock.advance(1)
        run.api.faults += [Fault("sendDocument", broken)]
        await run.reports.send_now(setting(f"telegram:{GROUP}", csv=True), "test")
        state = await run.eventually(ended, lambda found: found[0] == "failed")
        assert state == ("failed", "1 of 2 messages arrived: File is too odd")
        run.clock.advance(1)
        run.api.faults += [Fault("sendPhoto", "Bad Gateway", 502, times=1)]
        await run.reports.send_now(report, "test")
        assert await run.eventually(ended, lambda found: found[1] != "") == ("pending", "Bad Gateway")
        assert await run.eventually(ended, lambda found: found[0] == "sent") == ("sent", "")
