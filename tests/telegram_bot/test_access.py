"""Default deny, the first admin's pairing code, and what admins do by command."""

from __future__ import annotations

import asyncio
from pathlib import Path

from sqlalchemy import select

from gateway.store.tables import tg_pairing
from tests.telegram_bot.rig import ADMIN, OTHER, PERSON, STRANGER, rig


async def test_a_stranger_gets_one_polite_sentence_with_the_id_and_no_model(tmp_path: Path, sqlite_url: str) -> None:
    async with rig(tmp_path, sqlite_url) as run:
        for n in range(5):
            await run.api.say(f"let me in {n}", STRANGER)
        await run.api.answered(str(STRANGER), STRANGER)
        await run.api.say("/id", STRANGER)
        await run.api.answered(f"Your id: {STRANGER}", STRANGER)
        await run.api.say("/budget", STRANGER)
        await run.api.say("/raise x +1", STRANGER)
        await asyncio.sleep(0.5)
        assert len(run.api.bubbles(STRANGER)) == 2
        assert run.first.meter.requests == 0
        assert not run.api.made("sendChatAction", STRANGER)


async def test_the_pairing_code_makes_the_first_admin_once(tmp_path: Path, sqlite_url: str) -> None:
    async with rig(tmp_path, sqlite_url, telegram="", admins=()) as run:
        code = await run.bot.pairing_code()
        assert code is not None
        rows = await run.database.read(lambda c: c.execute(select(tg_pairing.c.code_hash)).scalars().all())
        assert code not in str(rows), "only its hash is kept"
        await run.api.say("/start wrong", STRANGER)
        await run.api.answered("only people on its list", STRANGER)
        await run.api.say(f"/start {code}", 77)
        await run.api.answered("first admin", 77)
        await run.api.say(f"/start {code}", OTHER + 1)
        await run.api.answered("only people on its list", OTHER + 1)
        assert await run.bot.pairing_code() is None
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
        await asyncio.sleep(1)
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
        await run.api.say("/allow nobody", ADMIN)
        await run.api.answered("Whom?", ADMIN)
        await run.api.say("/allow 42", ADMIN)
        await run.api.answered("42 is let in", ADMIN)
        await run.api.say("hello again", PERSON)
        await run.api.answered("Answer from the first.", PERSON)


async def test_admin_commands_of_others_are_refused_by_name(tmp_path: Path, sqlite_url: str) -> None:
    async with rig(tmp_path, sqlite_url) as run:
        for command in ("/allow 99", "/deny 43", "/raise x +1", "/pause", "/resume"):
            await run.api.say(command, PERSON)
        await run.api.until(lambda: len(run.api.bubbles()) == 5, 12)
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
