"""Conversations: memory, /new, /retry, /stop, /model, joined pieces, what cannot be read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.doubles.upstream import Script
from tests.telegram_bot.rig import PERSON, Rig, rig


def prompt(run: Rig, number: int = -1) -> list[tuple[str, Any]]:
    return [(m["role"], m["content"]) for m in run.first.seen[number].body["messages"]]


async def test_a_conversation_is_remembered_also_after_a_restart_until_new(tmp_path: Path, sqlite_url: str) -> None:
    async with rig(tmp_path, sqlite_url, telegram='system_prompt = "Be brief."') as run:
        await run.api.say("my name is Ada")
        await run.api.answered("Answer")
        await run.idle()
        await run.restart()
        await run.api.say("what is my name?")
        await run.api.until(lambda: len(run.api.bubbles()) == 2)
        assert prompt(run) == [
            ("system", "Be brief."), ("user", "my name is Ada"), ("assistant", "Answer from the first."),
            ("user", "what is my name?"),
        ]  # fmt: skip
        await run.api.say("/new")
        await run.api.answered("new conversation")
        await run.api.say("and now?")
        await run.api.until(lambda: run.first.meter.requests == 3)
        assert prompt(run) == [("system", "Be brief."), ("user", "and now?")]


async def test_the_oldest_turns_are_dropped_by_tokens_and_that_is_said_once(tmp_path: Path, sqlite_url: str) -> None:
    async with rig(tmp_path, sqlite_url, telegram="history_tokens = 150") as run:
        for n in range(5):
            await run.api.say(f"question {n} " + "word " * 40)
            await run.api.until(lambda n=n: len(run.api.bubbles()) == n + 1)
        await run.idle()
        said = [bubble for bubble in run.api.bubbles() if "no longer fit" in bubble.text]
        assert len(said) == 1
        last = prompt(run)
        assert "question 0" not in str(last)
        assert "question 3" in str(last)
        assert "no longer fit" not in str(last), "the history is what the model said"


async def test_case_48_stop_ends_a_long_answer_within_a_second_and_keeps_what_was_shown(tmp_path: Path, sqlite_url: str) -> None:
    async with rig(tmp_path, sqlite_url) as run:
        run.first.queue.append(Script(text=" ".join(f"word{n}" for n in range(400)), delay_s=0.05))
        await run.api.say("a long one")
        bubble = await run.api.answered("word3")
        await run.api.say("waits behind it")
        sent = run.first.seen[0].pieces
        await run.api.say("/stop")
        await run.first.until(lambda: run.first.meter.client_left == 1)
        # By the upstream's own pace, which a busy machine slows down as it does the bot: twenty words make a second.
        assert run.first.seen[0].pieces - sent <= 20
        await run.api.until(lambda: "Stopped" in bubble.text)
        kept = bubble.text.split("\n\n")[0].strip()
        assert kept.startswith("word0 word1")
        await run.api.answered("Answer from the first.")
        assert ("assistant", kept) in [(role, str(text).strip()) for role, text in prompt(run)]
        held = await run.store.balances() if hasattr(run.store, "balances") else []
        assert all(not balance.held for balance in held)


async def test_stop_with_nothing_to_stop(tmp_path: Path, sqlite_url: str) -> None:
    async with rig(tmp_path, sqlite_url) as run:
        await run.api.say("/stop")
        await run.api.answered("No answer is being written")


async def test_retry_asks_again_and_takes_the_place_of_the_old_answer(tmp_path: Path, sqlite_url: str) -> None:
    async with rig(tmp_path, sqlite_url) as run:
        await run.api.say("/retry")
        await run.api.answered("no earlier question")
        run.first.queue.extend([Script(text="First try."), Script(text="Second try.")])
        await run.api.say("question")
        await run.api.answered("First try.")
        await run.api.say("/retry")
        await run.api.answered("Second try.")
        assert prompt(run)[1:] == [("user", "question")]
        await run.api.say("next")
        await run.api.answered("Answer from the first.")
        assert prompt(run)[1:] == [("user", "question"), ("assistant", "Second try."), ("user", "next")]


async def test_model_is_chosen_by_button_and_by_name(tmp_path: Path, sqlite_url: str) -> None:
    async with rig(tmp_path, sqlite_url) as run:
        await run.api.say("/model")
        menu = await run.api.answered("default answers here")
        assert set(menu.buttons) == {"default", "moonshot", "groq"}
        await run.api.tap(menu, "groq")
        await run.api.until(lambda: "groq answers here" in menu.text)
        await run.api.say("hello")
        await run.api.answered("Answer from the second.")
        await run.api.say("/model nonsense")
        await run.api.answered("There is no nonsense")
        await run.api.say("/model default")
        await run.api.answered("default answers here from now on")
        await run.api.say("hello")
        await run.api.answered("Answer from the first.")


async def test_case_46_an_empty_reply_is_one_clear_sentence(tmp_path: Path, sqlite_url: str) -> None:
    async with rig(tmp_path, sqlite_url) as run:
        run.first.default = run.second.default = Script(text="", pieces=0)
        await run.api.say("question")
        await run.api.until(lambda: run.api.bubbles())
        await run.idle()
        assert [bubble.text for bubble in run.api.bubbles()] == ["The model gave an empty answer. /retry asks again."]


async def test_case_46_a_large_file_is_told_before_any_download(tmp_path: Path, sqlite_url: str) -> None:
    async with rig(tmp_path, sqlite_url) as run:
        file = {"file_id": "f", "file_unique_id": "u"}
        await run.api.say(None, document={**file, "file_size": 25 << 20, "file_name": "big.pdf"}, caption="read this")
        await run.api.answered("20 MB")
        await run.api.say(None, document={**file, "file_size": 1000})
        await run.api.answered("no files")
        await run.api.say(None, voice={**file, "duration": 3, "file_size": 1000})
        await run.api.answered("cannot listen")
        assert not run.api.made("getFile")
        assert run.first.meter.requests == 0


async def test_case_46_an_album_is_one_turn(tmp_path: Path, sqlite_url: str) -> None:
    async with rig(tmp_path, sqlite_url, provider="image_tokens = 100", start=False) as run:
        run.api.assets["pic"] = {"data": b"\x89PNG pixels"}
        photo = [{"file_id": "pic", "file_unique_id": "u", "width": 90, "height": 90, "file_size": 12}]
        for n in range(3):
            await run.api.say(None, photo=photo, media_group_id="album", caption="what are these?" if n == 0 else None)
        await run.start()
        await run.api.answered("Answer from the first.")
        await run.idle()
        assert run.first.meter.requests == 1
        content = run.first.seen[0].body["messages"][-1]["content"]
        assert [part["type"] for part in content] == ["text", "image_url", "image_url", "image_url"]
        assert content[1]["image_url"]["url"].startswith("data:image/png;base64,")


async def test_case_46_a_split_paste_is_one_turn(tmp_path: Path, sqlite_url: str) -> None:
    async with rig(tmp_path, sqlite_url, start=False) as run:
        await run.api.say("a" * 4096)
        await run.api.say("b" * 4090)
        await run.api.say("the end")
        await run.start()
        await run.api.answered("Answer from the first.")
        await run.idle()
        assert [text for role, text in prompt(run) if role == "user"] == ["a" * 4096 + "b" * 4090 + "\nthe end"]
        assert run.first.meter.requests == 1


async def test_case_32_a_stream_that_breaks_ends_clearly_and_is_kept_as_shown(tmp_path: Path, sqlite_url: str) -> None:
    async with rig(tmp_path, sqlite_url) as run:
        run.first.queue.append(Script(text="one two three four five six", delay_s=0.1, cut=4))
        await run.api.say("question")
        bubble = await run.api.answered("broke off")
        assert bubble.text.startswith("one two three four")
        assert len(run.api.bubbles()) == 1
        assert run.second.meter.requests == 0
        await run.api.say("next")
        await run.api.answered("Answer from the first.")
        assert ("assistant", "one two three four ") in prompt(run)


async def test_case_45_an_edited_message_is_not_answered_again(tmp_path: Path, sqlite_url: str) -> None:
    from tests.doubles.botapi import message

    async with rig(tmp_path, sqlite_url) as run:
        edited = {"update_id": 900, "edited_message": {**message(1, "changed"), "edit_date": 1767225601}}
        await run.bot._source.take([edited])
        await run.api.say("hello")
        await run.api.answered("Answer")
        assert run.first.meter.requests == 1


async def test_case_45_a_migrated_group_keeps_its_conversation(tmp_path: Path, sqlite_url: str) -> None:
    from tests.doubles.botapi import Fault

    async with rig(tmp_path, sqlite_url, telegram='groups = "all"') as run:
        await run.api.say("before", PERSON, -100200)
        await run.api.answered("Answer", -100200)
        moved = Fault(
            "sendMessage", "Bad Request: group chat was upgraded to a supergroup chat", 400, {"migrate_to_chat_id": -100300},
            times=9, match=lambda fields: int(fields["chat_id"]) == -100200,
        )  # fmt: skip
        run.api.faults.append(moved)
        await run.api.say("after", PERSON, -100200)
        await run.api.answered("Answer", -100300)


async def test_what_no_database_or_provider_takes_is_left_out_of_a_question(tmp_path: Path, sqlite_url: str) -> None:
    async with rig(tmp_path, sqlite_url) as run:
        await run.api.say("half \ud83d an\0 emoji")
        await run.api.answered("Answer from the first.")
        assert prompt(run)[1:] == [("user", "half \ufffd an emoji")]


async def test_start_help_and_unknown_commands(tmp_path: Path, sqlite_url: str) -> None:
    async with rig(tmp_path, sqlite_url) as run:
        for command, answer in (("/start", "Hello"), ("/help", "/retry"), ("/nonsense", "do not know this command")):
            await run.api.say(command)
            await run.api.answered(answer)
        assert run.first.meter.requests == 0
