"""Groups: who is addressed, topics, one notice per window."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.doubles.botapi import message
from tests.doubles.upstream import Script
from tests.telegram_bot.rig import ADMIN, GROUP, OTHER, PERSON, STRANGER, Rig, rig


def mention(offset: int, name: str = "@test_bot") -> dict[str, Any]:
    return {"entities": [{"type": "mention", "offset": offset, "length": len(name)}]}


def asked(run: Rig) -> list[str]:
    return [seen.body["messages"][-1]["content"] for seen in run.first.seen]


async def test_case_41_only_what_is_addressed_reaches_a_model(tmp_path: Path, sqlite_url: str) -> None:
    async with rig(tmp_path, sqlite_url) as run:
        say = run.api.say
        await say("nobody's line", PERSON, GROUP)
        await say("@bot_other hi", PERSON, GROUP, **mention(0, "@bot_other"))
        await say("@test_bot_other hi", PERSON, GROUP, **mention(0, "@test_bot_other"))
        await say("foo@test_bot.example", PERSON, GROUP, entities=[{"type": "email", "offset": 0, "length": 20}])
        await say("@test_bot without an entity", PERSON, GROUP, entities=[])
        await say("/start@other", PERSON, GROUP)
        await say("/unheard_of", PERSON, GROUP)
        await say("someone else", PERSON, GROUP, reply_to_message=message(5, "x", user=OTHER, chat=GROUP))
        await say("😀 @test_bot hi", PERSON, GROUP, **mention(3))
        await run.api.until(lambda: len(run.api.bubbles(GROUP)) == 1)
        await say("@TEST_BOT shout", PERSON, GROUP, **mention(0))
        await run.api.until(lambda: len(run.api.bubbles(GROUP)) == 2)
        ours = message(run.api.bubbles(GROUP)[0].message_id, "x", user=123456, chat=GROUP)
        await say("a reply", PERSON, GROUP, reply_to_message=ours)
        await run.api.until(lambda: len(run.api.bubbles(GROUP)) == 3)
        assert asked(run) == ["😀  hi", "shout", "a reply"]
        await say("/new@test_bot", PERSON, GROUP)
        await run.api.answered("new conversation", GROUP)
        await say("/unheard_of@test_bot", PERSON, GROUP)
        await run.api.answered("do not know this command", GROUP)
        assert all(bubble.reply_to for bubble in run.api.bubbles(GROUP))


async def test_case_41_a_mention_in_a_caption_addresses_the_bot(tmp_path: Path, sqlite_url: str) -> None:
    async with rig(tmp_path, sqlite_url) as run:
        photo = [{"file_id": "f", "file_unique_id": "u", "width": 90, "height": 90}]
        entities = [{"type": "mention", "offset": 0, "length": 9}]
        await run.api.say(None, PERSON, GROUP, photo=photo, caption="@test_bot what is it?", caption_entities=entities)
        await run.api.say(None, PERSON, GROUP, photo=photo, caption="not for you")
        await run.api.answered("cannot read pictures", GROUP)
        await run.idle()
        assert len(run.api.bubbles(GROUP)) == 1


async def test_case_42_answer_typing_and_commands_stay_in_the_topic(tmp_path: Path, sqlite_url: str) -> None:
    async with rig(tmp_path, sqlite_url) as run:
        run.first.default = Script(pieces=20, delay_s=0.1)
        opened = message(3, None, user=PERSON, chat=GROUP, forum_topic_created={"name": "T", "icon_color": 1})
        topic = {"message_thread_id": 3, "is_topic_message": True, "reply_to_message": opened}
        await run.api.say("in the topic, to nobody", PERSON, GROUP, **topic)
        await run.api.say("@test_bot in the topic", PERSON, GROUP, **topic, **mention(0))
        await run.api.until(lambda: run.api.bubbles(GROUP))
        await run.api.say("/new@test_bot", PERSON, GROUP, **topic)
        await run.api.answered("new conversation", GROUP)
        assert {bubble.thread for bubble in run.api.bubbles(GROUP)} == {3}
        assert {call.thread for call in run.api.made("sendChatAction", GROUP)} == {3}
        assert run.first.meter.requests == 1


async def test_case_42_general_and_a_plain_replys_thread_are_no_topic(tmp_path: Path, sqlite_url: str) -> None:
    async with rig(tmp_path, sqlite_url) as run:
        await run.api.say("@test_bot in general", PERSON, GROUP, **mention(0))
        await run.api.until(lambda: len(run.api.bubbles(GROUP)) == 1)
        await run.api.say("@test_bot a reply", PERSON, GROUP, message_thread_id=77, **mention(0))
        await run.api.until(lambda: len(run.api.bubbles(GROUP)) == 2)
        assert {bubble.thread for bubble in run.api.bubbles(GROUP)} == {None}
        assert "in general" in str(run.first.seen[1].body["messages"]), "one conversation"


async def test_topics_are_conversations_of_their_own(tmp_path: Path, sqlite_url: str) -> None:
    async with rig(tmp_path, sqlite_url, telegram='groups = "all"') as run:
        await run.api.say("alpha", PERSON, GROUP, message_thread_id=3, is_topic_message=True)
        await run.api.until(lambda: len(run.api.bubbles(GROUP)) == 1)
        await run.api.say("beta", PERSON, GROUP, message_thread_id=4, is_topic_message=True)
        await run.api.until(lambda: len(run.api.bubbles(GROUP)) == 2)
        assert "alpha" not in str(run.first.seen[1].body["messages"])


async def test_mode_commands_answers_only_commands(tmp_path: Path, sqlite_url: str) -> None:
    async with rig(tmp_path, sqlite_url, telegram='groups = "commands"') as run:
        await run.api.say("@test_bot hi", PERSON, GROUP, **mention(0))
        await run.api.say("/id", PERSON, GROUP)
        await run.api.answered(str(GROUP), GROUP)
        assert run.first.meter.requests == 0


async def test_case_47_one_notice_per_window_then_a_reaction_and_an_answer_after_a_raise(tmp_path: Path, sqlite_url: str) -> None:
    budgets = '[[budgets]]\nname = "team-hour"\nrequests = 1\nper = "hour"\n'
    async with rig(tmp_path, sqlite_url, budgets=budgets, telegram='groups = "all"') as run:
        await run.api.say("one", PERSON, GROUP)
        await run.api.answered("Answer from the first.", GROUP)
        asked_ids = [await run.api.say(f"more {user}", user, GROUP) for user in (PERSON, OTHER, PERSON)]
        notice = await run.api.answered("is used up", GROUP)
        await run.api.until(lambda: len(run.api.made("setMessageReaction", GROUP)) == 2)
        assert "13:00" in notice.text
        assert len(run.api.bubbles(GROUP)) == 2
        assert [int(call.fields["message_id"]) for call in run.api.made("setMessageReaction", GROUP)] == asked_ids[1:]
        await run.api.say("/raise team-hour +5 2h", ADMIN)
        await run.api.answered("team-hour", ADMIN)
        await run.api.say("again", PERSON, GROUP)
        await run.api.until(lambda: run.first.meter.requests == 2)


async def test_a_group_that_nobody_let_in_is_told_once_and_reaches_no_model(tmp_path: Path, sqlite_url: str) -> None:
    async with rig(tmp_path, sqlite_url) as run:
        for _ in range(3):
            await run.api.say("@test_bot hi", PERSON, -100999, **mention(0))
        await run.api.answered("-100999", -100999)
        await run.api.say("/allow", ADMIN, -100999)
        await run.api.answered("let in", -100999)
        assert run.first.meter.requests == 0
        await run.api.say("@test_bot hi", PERSON, -100999, **mention(0))
        await run.api.answered("Answer from the first.", -100999)
        assert len([b for b in run.api.bubbles(-100999) if "does not answer" in b.text]) == 1


async def test_case_45_bots_anonymous_admins_and_messages_from_nobody(tmp_path: Path, sqlite_url: str) -> None:
    async with rig(tmp_path, sqlite_url, telegram='groups = "all"') as run:
        chat = {"id": GROUP, "type": "supergroup", "title": "G"}
        bot = {"id": 555, "is_bot": True, "first_name": "B"}
        anonymous = {"id": 1087968824, "is_bot": True, "first_name": "Group"}
        await run.api.say("from a bot", PERSON, GROUP, **{"from": bot})
        await run.api.say(
            "from a channel", PERSON, GROUP, **{"from": None}, sender_chat={"id": -1007, "type": "channel", "title": "C"}
        )
        await run.api.say("from an anonymous admin", PERSON, GROUP, **{"from": anonymous}, sender_chat=chat)
        await run.api.answered("Answer from the first.", GROUP)
        await run.api.say("/raise x +1", PERSON, GROUP, **{"from": anonymous}, sender_chat=chat)
        await run.api.answered("only an admin", GROUP)
        assert asked(run) == ["from an anonymous admin"]


async def test_a_guest_of_an_allowed_group_is_answered_as_a_guest(tmp_path: Path, sqlite_url: str) -> None:
    budgets = '[[budgets]]\nname = "person"\nuser = "*"\nrequests = 5\nper = "day"\nlimits = { guests = 0 }\n'
    async with rig(tmp_path, sqlite_url, budgets=budgets, telegram='groups = "all"') as run:
        await run.api.say("a guest asks", STRANGER, GROUP)
        await run.api.until(lambda: run.api.bubbles(GROUP))
        assert run.first.meter.requests == 0
        await run.api.say("a listed person asks", PERSON, GROUP)
        await run.api.answered("Answer from the first.", GROUP)
