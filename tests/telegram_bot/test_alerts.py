"""Alerts in admins' chats: once each, with a button that only an admin may press, and signed with who has."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from gateway.store.alerts import Alerts, Sign
from gateway.store.telegram_runs import Posts
from tests.doubles.botapi import Bubble, Fault
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
        assert mine.text == "⚠️ Budget team is at 81%: 812 of 1,000 tokens (per day)."
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
        kept = [(entry.actor, entry.action, entry.subject) for entry in await run.bot.books.audit()]
        assert kept == [(f"telegram:{ADMIN}", "acknowledge", "budget_warn:team")], "the one that counted"


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
        await run.idle()
        assert [alert.kind for alert in await Alerts(run.database, run.clock).newest()] == ["overrun"]
        assert run.api.made("sendMessage") == []


async def test_what_the_database_cannot_keep_is_said_without_it(tmp_path: Path, sqlite_url: str) -> None:
    async with rig(tmp_path, sqlite_url) as run:
        await run.bot.tell_admins("ledger_unavailable", {"reason": "the disk is full"})
        said = await bubble(run, "⚠️ The ledger cannot be used (the disk is full).")
        assert not said.buttons


async def test_who_became_an_admin_later_is_told_too_and_who_is_none_any_more_is_not(tmp_path: Path, sqlite_url: str) -> None:
    async with rig(tmp_path, sqlite_url, admins=()) as run:
        await note(run, "budget_exhausted:team", "budget_exhausted", **WARNING)
        await run.idle()
        assert run.api.made("sendMessage") == []
        # The first admin comes the same day: nobody has heard of it yet.
        run.admins = (ADMIN,)
        await run.restart()
        await bubble(run, "⚠️ Budget team is used up")
        await run.eventually(lambda: Posts(run.database, run.bot.bot_id).of("alert:1"), lambda posts: posts[0].state == "sent")
        # A day later somebody else has the office.
        run.admins = (SECOND,)
        await run.restart()
        run.clock.advance(hours=25)
        await Alerts(run.database, run.clock).note([])
        await bubble(run, "⚠️ Budget team is used up", SECOND)
        await run.idle()
        assert len(run.api.bubbles(ADMIN)) == 1
        assert {call.chat for call in run.api.made("sendMessage")} == {ADMIN, SECOND}


async def test_an_admin_who_has_blocked_the_bot_keeps_no_other_from_hearing(tmp_path: Path, sqlite_url: str) -> None:
    async with rig(tmp_path, sqlite_url, admins=(ADMIN, SECOND)) as run:
        blocked = "Forbidden: bot was blocked by the user"
        run.api.faults.append(Fault("sendMessage", blocked, 403, times=99, match=lambda fields: int(fields["chat_id"]) == ADMIN))
        await note(run, "budget_exhausted:team", "budget_exhausted", **WARNING)
        theirs = await bubble(run, "⚠️ Budget team is used up", SECOND)
        posts = Posts(run.database, run.bot.bot_id)
        ends = ("failed", "sent")
        states = await run.eventually(lambda: posts.of("alert:1"), lambda found: all(one.state in ends for one in found))
        assert {one.lane.chat_id: one.state.value for one in states} == {ADMIN: "failed", SECOND: "sent"}
        await run.bot.tell_admins("ledger_unavailable", {"reason": "the disk is full"})
        await bubble(run, "⚠️ The ledger cannot be used", SECOND)
        await run.api.tap(theirs, "Acknowledge", SECOND)
        await run.api.until(lambda: f"Acknowledged by P{SECOND}" in theirs.text)
