"""A workflow is started by questions, one per parameter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.doubles.botapi import Bubble, message
from tests.telegram_bot.rig import ADMIN, GROUP, OTHER, PERSON, rig
from tests.telegram_bot.workflows import FILES, RULES, started


def to(bubble: Bubble) -> dict[str, Any]:
    """A reply to a message of the bot."""
    bot = {"id": 123456, "is_bot": True, "first_name": "Test bot"}
    return {"reply_to_message": message(bubble.message_id, bubble.text, chat=bubble.chat, **{"from": bot})}


async def test_what_is_missing_is_asked_for_by_text_buttons_and_defaults_and_a_restart_forgets_nothing(
    tmp_path: Path, sqlite_url: str
) -> None:
    async with rig(tmp_path, sqlite_url, files=FILES) as run:
        await run.api.say("/run news limit=3")
        first = await run.api.answered("topic: What it is about.")
        assert list(first.buttons) == ["Cancel"]
        await run.restart()
        await run.api.until(lambda: run.bot.ready)
        await run.api.say("oil  prices & <gas>")
        await run.api.until(lambda: first.text == "☑️ topic")
        second = await run.api.answered("depth")
        assert list(second.buttons) == ["short", "long", "Keep: short", "▶️ Start with the defaults", "Cancel"]
        assert all(len(token.encode()) <= 64 for token in second.buttons.values())
        await run.api.tap(second, "long")
        await run.api.until(lambda: "quiet" in second.text)
        await run.restart()
        await run.api.until(lambda: run.bot.ready)
        await run.api.tap(second, "Keep: No")
        await run.api.until(lambda: second.text == "▶️ News: started." and not second.buttons)
        made = await started(run)
        assert made.params == {"topic": "oil  prices & <gas>", "depth": "long", "quiet": False, "limit": 3}
        assert made.key is not None
        assert run.first.meter.requests == 0, "an answer to a form is no question to the model"
        await run.api.say("a question")
        await run.api.answered("Answer from the first.")


async def test_a_wrong_answer_is_named_and_asked_again(tmp_path: Path, sqlite_url: str) -> None:
    async with rig(tmp_path, sqlite_url, files=FILES) as run:
        await run.api.say("/run news depth=long quiet=yes")
        await run.api.answered("topic:")
        await run.api.say("oil")
        limit = await run.api.answered("limit")
        assert "A whole number." in limit.text
        await run.api.say("many")
        await run.api.answered("⚠️ limit: must be a whole number")
        await run.api.say("4")
        assert (await started(run)).params == {"topic": "oil", "depth": "long", "quiet": True, "limit": 4}


async def test_only_the_asker_answers_and_of_two_taps_the_first_counts(tmp_path: Path, sqlite_url: str) -> None:
    async with rig(tmp_path, sqlite_url, files=FILES, telegram='groups = "commands"') as run:
        await run.api.say("/run news", PERSON, GROUP)
        asked = await run.api.answered("Reply to this message", GROUP)
        await run.api.say("hijacked", OTHER, GROUP, **to(asked))
        await run.api.say("not a reply", PERSON, GROUP)
        for user in (OTHER, ADMIN):
            await run.api.tap(asked, "Cancel", user)
            await run.api.alerted(f"P{user}")
        await run.api.say("mine", PERSON, GROUP, **to(asked))
        depth = await run.api.answered("depth", GROUP)
        before = dict(depth.buttons)
        await run.api.tap(depth, "long", PERSON)
        await run.api.until(lambda: "quiet" in depth.text)
        after, depth.buttons = dict(depth.buttons), before
        await run.api.tap(depth, "short", PERSON)
        await run.api.alerted("answered already")
        depth.buttons = after
        await run.api.tap(depth, "Start with the defaults", PERSON)
        made = await started(run)
        assert (made.params["topic"], made.params["depth"]) == ("mine", "long")
        assert run.first.meter.requests == 0


async def test_a_form_is_cancelled_at_any_time_and_a_newer_one_takes_its_place(tmp_path: Path, sqlite_url: str) -> None:
    async with rig(tmp_path, sqlite_url, files=FILES) as run:
        await run.api.say("/run news")
        first = await run.api.answered("topic:")
        await run.api.say("/run news")
        await run.api.until(lambda: first.text == "Another form was begun." and not first.buttons)
        second = await run.api.until(lambda: len(run.api.bubbles()) == 2 and run.api.bubbles()[-1])
        await run.api.tap(second, "Cancel")
        await run.api.until(lambda: second.text == "Cancelled.")
        await run.api.say("/run news")
        third = await run.api.until(lambda: len(run.api.bubbles()) == 3 and run.api.bubbles()[-1])
        await run.api.say("/cancel")
        await run.api.until(lambda: third.text == "Cancelled.")
        await run.api.say("a question")
        await run.api.answered("Answer from the first.")
        assert await run.runs.newest() == []


async def test_in_private_an_old_form_is_answered_by_a_reply_only(tmp_path: Path, sqlite_url: str) -> None:
    async with rig(tmp_path, sqlite_url, files=FILES) as run:
        await run.api.say("/run news depth=long quiet=no limit=1")
        asked = await run.api.answered("topic:")
        run.clock.advance(hours=2)
        await run.api.say("what is new?")
        await run.api.answered("Answer from the first.")
        await run.api.say("oil", **to(asked))
        assert (await started(run)).params["topic"] == "oil"


async def test_a_permission_that_was_taken_away_ends_the_form(tmp_path: Path, sqlite_url: str) -> None:
    async with rig(tmp_path, sqlite_url, files=FILES) as run:
        await run.api.say("/run news")
        asked = await run.api.answered("topic:")
        await run.stop()
        run.workflows = RULES.replace("secret", "news")
        await run.start()
        await run.api.until(lambda: run.bot.ready)
        await run.api.say("oil")
        await run.api.answered("may not start news")
        await run.api.until(lambda: asked.text == "Cancelled.")
        assert await run.runs.newest() == []


HOSTILE = '''
from enum import Enum
from gateway.workflow import workflow
class Many(Enum):
    {members}
@workflow(title="x\\u202e\\n✅ Approved by admin" * 20)
async def hostile(ctx, pick: Many, also: list[Many] = [], name: str = "d" * 500):
    """Help
    Args:
        pick: {help}
    """
'''


async def test_hostile_titles_help_and_choices_stay_in_their_place(tmp_path: Path, sqlite_url: str) -> None:
    members = "\n    ".join(f'A{n} = "choice {n} " + "é" * 30' for n in range(20)) + '\n    EVIL = "x\\n\\u202eevil"'
    source = HOSTILE.format(members=members, help="h " * 2000)
    async with rig(tmp_path, sqlite_url, files={"hostile": source}) as run:
        await run.api.say("/workflows")
        await run.api.answered("hostile: ")
        await run.api.say("/run hostile")
        asked = await run.api.answered("pick: h h")
        assert len(asked.buttons) == 22
        assert "\u202e" not in asked.text
        assert all("\n" not in label and "\u202e" not in label for label in asked.buttons)
        await run.api.tap(asked, "evil")
        await run.api.until(lambda: "also" in asked.text)
        await run.api.tap(asked, "Start with the defaults")
        assert (await started(run)).params["pick"] == "x\n\u202eevil"
