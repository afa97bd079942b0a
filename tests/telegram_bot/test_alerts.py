"""Alerts in admins' chats: once each, with a button that only an admin may press, and signed with who has."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from gateway.store.alerts import Alerts, Sign
from gateway.store.telegram_runs import Posts
from tests.doubles.botapi import Bubble
from tests.telegram_bot.rig import ADMIN, OTHER, Rig, rig

SECOND = 2
WARNING = {
    "budget": "team", "key": "", "scope": {}, "unit": "tokens", "limit": 1000, "spent": 812, "window": "day", "part": 0.8,
    "leaves_ms": None,
}  # fmt: skip


async def note(run: Rig, subject: str, kind: str, **facts: object) -> None:
    await Alerts(run.database, run.clock).note([Sign(subject, kind, facts, 0)])


async def bubble(run: Rig, text: str, chat: int = ADMIN) -> Bubble:
    return await run.api.answered(text, chat)


async def test_case_14_every_admin_hears_once_and_an_acknowledgement_says_who(tmp_path: Path, sqlite_url: str) -> None:
    async with rig(tmp_path, sqlite_url, admins=(ADMIN, SECOND)) as run:
        await note(run, "budget_warn:team", "budget_warn", **WARNING)
        mine, theirs = await bubble(run, "⚠️ Budget team is at 81%"), await bubble(run, "⚠️ Budget team", SECOND)
        assert mine.text == "⚠️ Budget team is at 81%: 812 of 1,000 tokens (day)."
        assert list(mine.buttons) == ["✅ Acknowledge"]
        assert all(len(token.encode()) <= 64 for token in mine.buttons.values())
        await run.restart()
        await run.api.until(lambda: run.bot.ready)
        await note(run, "budget_warn:team", "budget_warn", **WARNING)
        # Whoever got hold of the button may not press it.
        for user in (OTHER, 99):
            await run.api.tap(mine, "Acknowledge", user)
            await run.api.alerted(f"P{user}")
        before = dict(mine.buttons)
        await run.api.tap(mine, "Acknowledge", ADMIN)
        for shown in (mine, theirs):
            await run.api.until(lambda shown=shown: f"✅ Acknowledged by P{ADMIN} at 12:00." in shown.text and not shown.buttons)
        mine.buttons = before
        await run.api.tap(mine, "Acknowledge", SECOND)
        await run.api.alerted(f"P{ADMIN} has acknowledged this already.")
        assert len(run.api.bubbles(ADMIN)) == 1
        assert len(run.api.bubbles(SECOND)) == 1


async def test_an_unacknowledged_alert_is_repeated_a_day_later_and_spoken_in_the_admins_language(
    tmp_path: Path, sqlite_url: str
) -> None:
    async with rig(tmp_path, sqlite_url) as run:
        await run.api.say("/id", ADMIN, **{"from": {"id": ADMIN, "is_bot": False, "first_name": "Ana", "language_code": "es"}})
        await run.idle()
        await note(run, "budget_exhausted:team", "budget_exhausted", **WARNING)
        first = await bubble(run, "⚠️ El presupuesto team está agotado")
        await run.eventually(lambda: Posts(run.database, run.bot.bot_id).of("alert:1"), lambda posts: posts[0].state == "sent")
        run.clock.advance(hours=25)
        await Alerts(run.database, run.clock).note([])
        await run.api.until(lambda: len([one for one in run.api.bubbles(ADMIN) if "agotado" in one.text]) == 2)
        again = run.api.bubbles(ADMIN)[-1]
        assert again is not first
        assert list(again.buttons) == ["✅ Visto"]


REPORT = """
[[reports]]
name = "{name}"
cron = "0 9 * * *"
to = "{to}"
language = "{language}"
"""


async def test_before_an_admin_has_written_alerts_are_in_the_language_of_their_reports(tmp_path: Path, sqlite_url: str) -> None:
    reports = ((f"telegram:{ADMIN}", "es"), ("telegram:-100200", "en"))
    text = "".join(REPORT.format(name=f"r{number}", to=to, language=spoken) for number, (to, spoken) in enumerate(reports))
    async with rig(tmp_path, sqlite_url, admins=(ADMIN, SECOND), budgets=text) as run:
        await note(run, "budget_exhausted:team", "budget_exhausted", **WARNING)
        await bubble(run, "⚠️ El presupuesto team está agotado")
        # Where the reports of others are in several languages they say nothing of this one.
        await bubble(run, "⚠️ Budget team is used up", SECOND)
        run.settings.become(replace(run.settings, reports=run.settings.reports[:1]))
        await note(run, "budget_exhausted:other", "budget_exhausted", **WARNING | {"budget": "other"})
        await bubble(run, "⚠️ El presupuesto other está agotado", SECOND)


async def test_without_an_admin_an_alert_waits_in_the_list_and_nobody_is_written_to(tmp_path: Path, sqlite_url: str) -> None:
    async with rig(tmp_path, sqlite_url, admins=()) as run:
        await note(run, "overrun:p:m", "overrun", slot="p:m", tokens=9, held_tokens=5, micro_usd=30_000, held_micro_usd=20_000)
        alerts = Alerts(run.database, run.clock)
        await run.eventually(alerts.untold, lambda found: not found)
        assert [alert.kind for alert in await alerts.newest()] == ["overrun"]
        assert run.api.made("sendMessage") == []


async def test_what_the_database_cannot_keep_is_said_without_it(tmp_path: Path, sqlite_url: str) -> None:
    async with rig(tmp_path, sqlite_url) as run:
        await run.bot.tell_admins("ledger_unavailable", {"reason": "the disk is full"})
        said = await bubble(run, "⚠️ The ledger cannot be used (the disk is full).")
        assert not said.buttons
