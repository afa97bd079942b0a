"""Default deny, the first admin's pairing code, and what admins do by command."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import select

from gateway.store.tables import tg_pairing
from tests.telegram_bot.rig import ADMIN, GROUP, OTHER, PERSON, STRANGER, rig


async def test_a_stranger_gets_one_polite_sentence_with_the_id_and_no_model(tmp_path: Path, sqlite_url: str) -> None:
    async with rig(tmp_path, sqlite_url) as run:
        for n in range(5):
            await run.api.say(f"let me in {n}", STRANGER)
        await run.api.answered(str(STRANGER), STRANGER)
        await run.api.say("/id", STRANGER)
        await run.api.answered(f"Your id: {STRANGER}", STRANGER)
        await run.api.say("/budget", STRANGER)
        await run.api.say("/raise x +1", STRANGER)
        await run.idle()
        assert len(run.api.bubbles(STRANGER)) == 2
        assert run.first.meter.requests == 0
        assert not run.api.made("sendChatAction", STRANGER)


async def test_the_pairing_code_makes_the_first_admin_once(tmp_path: Path, sqlite_url: str) -> None:
    async with rig(tmp_path, sqlite_url, telegram="", admins=()) as run:
        code = await run.bot.pairing_code()
        assert code is not None
        rows = await run.database.read(lambda c: c.execute(select(tg_pairing.c.code_hash)).scalars().all())
        assert code not in str(rows), "only its hash is kept"
        await run.api.say("hello", STRANGER)
        await run.api.answered("has no admin yet", STRANGER)
        await run.api.say("/start wrong", STRANGER)
        await run.api.answered("This is not the code", STRANGER)
        menus = len(run.api.made("setMyCommands"))
        await run.api.say(f"/start {code.upper()}", 77)
        await run.api.answered("first admin", 77)
        await run.api.until(lambda: any("raise" in call.fields["commands"] for call in run.api.made("setMyCommands")[menus:]))
        await run.api.say(f"/start {code}", OTHER + 1)
        await run.api.answered("only people on its list", OTHER + 1)
        assert await run.bot.pairing_code() is None
        for command in ("/deny 77", "/allow 77"):
            await run.api.say(command, 77)
        await run.api.until(lambda: [b.text for b in run.api.bubbles(77)][1:] == ["77 is an admin and stays one."] * 2)
        await run.api.say("/allow 99", 77)
        await run.api.answered("99 is let in", 77)
        await run.api.say("hello", STRANGER)
        await run.api.answered("Answer from the first.", STRANGER)
        await run.restart()
        await run.api.until(lambda: run.bot.ready)
        await run.api.say("still here", 77)
        await run.api.answered("Answer from the first.", 77)


async def test_a_pairing_code_cannot_be_guessed_for_long(tmp_path: Path, sqlite_url: str) -> None:
    async with rig(tmp_path, sqlite_url, admins=()) as run:
        code = await run.bot.pairing_code()
        for n in range(5):
            await run.api.say(f"/start guess{n}", STRANGER)
        await run.api.say(f"/start {code}", STRANGER)
        await run.api.answered("has no admin yet", STRANGER)
        assert [bubble.text[:20] for bubble in run.api.bubbles(STRANGER)[:5]] == ["This is not the code"] * 5
        assert await run.bot._desk.admins() == [], "too many tries by one person"
        for user in range(200, 215):
            await run.bot._desk.people.pair(f"guess{user}", user, 0)
        assert not await run.bot._desk.people.pair(str(code), 300, 0), "the code is void after twenty tries"


async def test_with_an_admin_there_is_no_pairing(tmp_path: Path, sqlite_url: str) -> None:
    async with rig(tmp_path, sqlite_url) as run:
        assert await run.bot.pairing_code() is None
        await run.bot._desk.people.new_code("known", 0)
        await run.api.say("/start known", STRANGER)
        await run.api.answered("only people on its list", STRANGER)
        assert await run.bot._desk.admins() == [ADMIN]


async def test_admins_let_in_and_shut_out_by_id_and_by_reply(tmp_path: Path, sqlite_url: str) -> None:
    async with rig(tmp_path, sqlite_url) as run:
        await run.api.say("/deny 42", ADMIN)
        await run.api.answered("42 is shut out", ADMIN)
        await run.api.say("hello", PERSON)
        await run.api.answered("only people on its list", PERSON)
        await run.api.say("/deny 1", ADMIN)
        await run.api.answered("stays one", ADMIN)
        for nobody in ("nobody", "0", "9" * 30):
            await run.api.say(f"/allow {nobody}", ADMIN)
        await run.api.until(lambda: len([bubble for bubble in run.api.bubbles(ADMIN) if "Whom?" in bubble.text]) == 3)
        await run.api.say("/allow 42", ADMIN)
        await run.api.answered("42 is let in", ADMIN)
        await run.api.say("hello again", PERSON)
        await run.api.answered("Answer from the first.", PERSON)


async def test_admin_commands_of_others_are_refused_by_name(tmp_path: Path, sqlite_url: str) -> None:
    async with rig(tmp_path, sqlite_url) as run:
        for command in ("/allow 99", "/deny 43", "/raise x +1", "/pause", "/resume"):
            await run.api.say(command, PERSON)
        await run.api.until(lambda: len(run.api.bubbles()) == 5)
        assert all(bubble.text == "P42, only an admin can do that." for bubble in run.api.bubbles())
        await run.api.say("hello", PERSON)
        await run.api.answered("Answer from the first.", PERSON)


async def test_pause_and_resume(tmp_path: Path, sqlite_url: str) -> None:
    async with rig(tmp_path, sqlite_url) as run:
        await run.api.say("/pause 2h", ADMIN)
        await run.api.answered("Paused until 14:00", ADMIN)
        await run.api.say("hello", PERSON)
        notice = await run.api.answered("paused all answers")
        assert run.first.meter.requests == 0
        await run.api.tap(notice, "Answer me")
        await run.api.until(lambda: list(notice.buttons) == ["Cancel"])
        await run.api.say("/resume", ADMIN)
        await run.api.answered("Answers go on", ADMIN)
        await run.api.answered("Answer from the first.", PERSON)


async def test_commands_are_set_per_scope_and_language(tmp_path: Path, sqlite_url: str) -> None:
    async with rig(tmp_path, sqlite_url) as run:
        calls = await run.api.until(
            lambda: (
                [c for c in run.api.made("setMyCommands") if "chat" in c.fields["scope"]][3:] and run.api.made("setMyCommands")
            )
        )
        admins = [call for call in calls if '"chat_id": 1' in call.fields["scope"] or '"chat_id":1' in call.fields["scope"]]
        assert admins
        assert all("raise" in call.fields["commands"] for call in admins)
        others = [call for call in calls if call not in admins]
        assert all("raise" not in call.fields["commands"] for call in others)
        assert {call.fields.get("language_code") for call in calls} == {None, "es"}


async def test_who_is_shut_out_is_not_told_that_the_group_is(tmp_path: Path, sqlite_url: str) -> None:
    async with rig(tmp_path, sqlite_url, telegram='groups = "all"') as run:
        await run.api.say("/deny 42", ADMIN)
        await run.api.answered("42 is shut out", ADMIN)
        await run.api.say("hello", PERSON, GROUP)
        told = await run.api.answered("Your id is 42", GROUP)
        assert "this group" not in told.text
        await run.api.say("hello", OTHER, GROUP)
        await run.api.answered("Answer from the first.", GROUP)


BUDGETS = """
[[budgets]]
name = "Team hour"
tokens = 1000
per = "hour"
[[budgets]]
name = "money"
usd = 5
per = "month"
"""


@pytest.mark.parametrize(
    ("command", "answer"),
    [
        ("/raise", "Write it like this: /raise NAME +50k for 2h. Budgets: Team hour, money"),
        ("/raise nope +5", "There is no budget nope. Budgets: Team hour, money"),
        ("/raise team hour", "Write it like this: /raise NAME +50k for 2h. Budgets: Team hour, money"),
        ("/raise team hour +50k", "✅ Team hour: +50,000 until 13:00."),
        ("/raise Team hour + 50 000 for 2 h", "✅ Team hour: +50,000 until 14:00."),
        ("/raise money $1.5 90m", "✅ money: +$1.50 until 13:30."),
        ("/raise money +20% for 1d", "✅ money: +20% until Tuesday at 12:00."),
        ("/raise money =7 for", "✅ money: =$7.00 until 13:00."),
        ("/raise money lots", "“lots” is no change of this budget. Write it as +50k, +20% or =300k."),
        ("/raise money +5 for ever", "“ever” is no span of time. Write it as 30m, 2h or 1d."),
        ("/raise money +5 for 9999999d", "“9999999d” is no span of time. Write it as 30m, 2h or 1d."),
        ("/pause for 2 h", "⏸ Paused until 14:00: nothing is answered before, unless you /resume."),
        ("/pause later", "“later” is no span of time. Write it as 30m, 2h or 1d."),
    ],
)
async def test_admins_write_as_people_do(tmp_path: Path, sqlite_url: str, command: str, answer: str) -> None:
    async with rig(tmp_path, sqlite_url, budgets=BUDGETS) as run:
        await run.api.say(command, ADMIN)
        told = await run.api.until(lambda: run.api.bubbles(ADMIN))
        assert told[0].text == answer


async def test_the_audit_keeps_what_an_admin_does_in_chats(tmp_path: Path, sqlite_url: str) -> None:
    budgets = '[[budgets]]\nname = "team"\ntokens = 1000\nper = "day"\n'
    async with rig(tmp_path, sqlite_url, budgets=budgets, admins=()) as run:
        code = await run.bot.pairing_code()
        for command, answer in (
            (f"/start {code}", "first admin"),
            ("/allow 99", "99 is let in"),
            ("/deny 99", "99 is shut out"),
            ("/raise team +5", "team: +5"),
            ("/pause 2h", "Paused until"),
            ("/resume", "Answers go on"),
            ("/report", "Daily report"),
        ):
            await run.api.say(command, 77)
            await run.api.answered(answer, 77)
        await run.api.say("/raise team +5", STRANGER)
        await run.idle()
        kept = [(entry.actor, entry.action, entry.subject) for entry in await run.bot.books.audit()]
        assert kept[::-1] == [
            ("telegram:77", "make admin", "telegram:77"),
            ("telegram:77", "allow", "telegram:99"),
            ("telegram:77", "deny", "telegram:99"),
            ("telegram:77", "raise", "team"),
            ("telegram:77", "pause", "*"),
            ("telegram:77", "resume", "*"),
            ("telegram:77", "send report", "day-report"),
        ]
