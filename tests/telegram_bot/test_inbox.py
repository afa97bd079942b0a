"""Nothing is lost and nothing is answered twice: redelivery, restarts, crashes in mid-answer, order, two bots."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from sqlalchemy import select

from gateway.store.tables import tg_updates
from gateway.store.telegram import Arrival, Inbox, Lane
from tests.doubles.botapi import Fault, message
from tests.doubles.upstream import Script
from tests.telegram_bot.rig import GROUP, HOURLY, OTHER, PERSON, Rig, rig


async def states(run: Rig) -> list[tuple[str, str]]:
    statement = select(tg_updates.c.state, tg_updates.c.outcome).order_by(tg_updates.c.update_id)
    rows = await run.database.read(lambda connection: connection.execute(statement).all())
    return [(row.state, row.outcome) for row in rows]


async def become(run: Rig, wanted: list[tuple[str, str]]) -> None:
    found = await states(run)
    for _ in range(1000):
        if found == wanted:
            break
        await asyncio.sleep(0.02)
        found = await states(run)
    assert found == wanted


async def done(run: Rig) -> list[tuple[str, str]]:
    await run.idle()
    return await states(run)


async def test_case_36_an_update_delivered_twice_is_answered_once(tmp_path: Path, sqlite_url: str) -> None:
    async with rig(tmp_path, sqlite_url) as run:
        raw = {"update_id": 7, "message": message(1, "hello")}
        await run.bot._source.take([raw])
        await run.bot._source.take([raw, raw])
        await run.api.answered("Answer from the first.")
        await done(run)
        await run.restart()
        await run.api.until(lambda: run.bot.ready)
        await run.bot._source.take([raw])
        await run.api.say("another")
        await run.api.until(lambda: len(run.api.bubbles()) == 2)
        await run.idle()
        assert (len(run.api.bubbles()), run.first.meter.requests) == (2, 2)


async def test_case_36_messages_sent_while_down_are_answered_in_order(tmp_path: Path, sqlite_url: str) -> None:
    async with rig(tmp_path, sqlite_url, start=False) as run:
        for n in range(4):
            await run.api.say(f"question {n}")
        run.first.default = Script(text="Yes.", start_delay_s=0.1)
        await run.start()
        await run.api.until(lambda: len(run.api.bubbles()) == 4)
        asked = [seen.body["messages"][-1]["content"] for seen in run.first.seen]
        assert asked == [f"question {n}" for n in range(4)]


async def test_case_36_what_was_stored_but_not_answered_is_answered_after_the_start(tmp_path: Path, sqlite_url: str) -> None:
    async with rig(tmp_path, sqlite_url) as run:
        await run.stop()
        await run.start()
        bot, run.bot._lanes.put = run.bot, lambda *_: None  # type: ignore[method-assign]
        await run.api.until(lambda: bot.ready)
        await run.api.say("stored only")
        await become(run, [("received", "")])
        assert run.api.bubbles() == []
        await run.restart()
        await run.api.answered("Answer from the first.")
        assert (await done(run)) == [("done", "answered")]


async def test_case_36_after_a_crash_in_mid_answer_the_same_bubble_gets_the_new_answer(tmp_path: Path, sqlite_url: str) -> None:
    async with rig(tmp_path, sqlite_url) as run:
        run.first.queue.append(Script(text="Half of " + "an answer " * 50, delay_s=0.1))
        await run.api.say("question")
        bubble = await run.api.answered("Half of")
        await run.stop()
        assert len(run.api.bubbles()) == 1
        await run.start()
        await run.api.answered("Answer from the first.")
        await done(run)
        assert [b.message_id for b in run.api.bubbles()] == [bubble.message_id]
        assert bubble.text == "Answer from the first."
        assert run.first.meter.requests == 2


async def test_a_crash_after_the_answer_was_settled_spends_nothing_again(tmp_path: Path, sqlite_url: str) -> None:
    async with rig(tmp_path, sqlite_url) as run:
        # The answer is paid for, and Telegram cannot be reached to show it.
        run.api.faults.append(Fault("sendMessage", "Too Many Requests: retry after 60", 429, {"retry_after": 60}, 99))
        await run.api.say("question")
        await run.first.until(lambda: run.first.meter.answered == 1)
        await run.settled()
        await run.stop()
        run.api.faults.clear()
        await run.start()
        await run.api.answered("Answer from the first.")
        assert run.first.meter.requests == 1


async def test_order_inside_a_chat_and_none_between_chats(tmp_path: Path, sqlite_url: str) -> None:
    async with rig(tmp_path, sqlite_url) as run:
        run.first.queue.append(Script(text="slow", gate=True))
        await run.api.say("one", PERSON)
        await run.first.until(lambda: run.first.meter.requests == 1)
        await run.api.say("two", PERSON)
        await run.api.say("other", OTHER)
        await run.api.answered("Answer from the first.", OTHER)
        assert run.api.bubbles(PERSON) == [], "the other chat did not wait"
        run.first.release()
        await run.api.answered("Answer from the first.", PERSON)
        assert [bubble.text for bubble in run.api.bubbles(PERSON)] == ["slow", "Answer from the first."]


async def test_case_49_two_people_at_once_and_one_person_in_two_chats_do_not_mix(tmp_path: Path, sqlite_url: str) -> None:
    async with rig(tmp_path, sqlite_url, telegram='groups = "all"') as run:
        group = -100200
        await asyncio.gather(
            run.api.say("mine is red", PERSON), run.api.say("mine is blue", OTHER), run.api.say("ours is green", PERSON, group)
        )
        await run.api.until(lambda: all(run.api.bubbles(chat) for chat in (PERSON, OTHER, group)))
        await done(run)
        await asyncio.gather(run.api.say("which?", PERSON), run.api.say("which?", OTHER), run.api.say("which?", PERSON, group))
        await run.api.until(lambda: all(len(run.api.bubbles(chat)) == 2 for chat in (PERSON, OTHER, group)))
        last = [" ".join(str(m["content"]) for m in seen.body["messages"]) for seen in run.first.seen[3:]]
        assert sorted((("red" in text), ("blue" in text), ("green" in text)) for text in last) == [
            (False, False, True), (False, True, False), (True, False, False),
        ]  # fmt: skip


async def test_case_49_each_chat_and_each_person_has_an_allowance_of_its_own(tmp_path: Path, sqlite_url: str) -> None:
    scopes = {"chat": "*", "user": "*", "surface": "telegram"}
    budgets = "".join(
        f'[[budgets]]\nname = "{kind}"\n{kind} = "{wanted}"\nrequests = 3\nper = "day"\n' for kind, wanted in scopes.items()
    )
    async with rig(tmp_path, sqlite_url, telegram='groups = "all"', budgets=budgets) as run:
        for user, chat in ((PERSON, PERSON), (PERSON, GROUP), (OTHER, GROUP)):
            before = len(run.api.bubbles(chat))
            await run.api.say("hello", user, chat)
            await run.api.until(lambda chat=chat, before=before: len(run.api.bubbles(chat)) > before)  # type: ignore[misc]
        await done(run)
        assert {(balance.name, balance.key): balance.spent for balance in await run.store.balances()} == {
            ("chat", f"chat={PERSON}"): 1, ("chat", f"chat={GROUP}"): 2,
            ("user", f"user={PERSON}"): 2, ("user", f"user={OTHER}"): 1,
            ("surface", ""): 3,
        }  # fmt: skip
        await run.api.say("one more", PERSON, PERSON)
        await run.api.answered("is used up", PERSON)


async def test_case_49_two_bots_in_one_database_do_not_mix(tmp_path: Path, sqlite_url: str) -> None:
    async with rig(tmp_path, sqlite_url) as run:
        arrival = Arrival(7, Lane(PERSON), PERSON, {"update_id": 7, "message": message(1, "hello")})
        one, two = Inbox(run.database, 1), Inbox(run.database, 2)
        assert await one.add([arrival], 0) == [7]
        assert await two.add([arrival], 0) == [7], "the same number of another bot is another update"
        await one.finish(7, "answered")
        assert [letter.update_id for letter in await two.unfinished()] == [7]
        assert await one.unfinished() == []


async def test_the_offset_moves_on_only_after_the_commit(tmp_path: Path, sqlite_url: str) -> None:
    async with rig(tmp_path, sqlite_url) as run:
        await run.api.say("hello")
        await run.api.answered("Answer")
        polls = [item for item in run.api.requests if item["method"] == "getUpdates"]
        assert all("allowed_updates" in item["fields"] for item in polls)
        await run.api.until(lambda: not run.api.unread)  # what is committed is acknowledged


async def test_an_update_that_nobody_can_read_is_passed_over(tmp_path: Path, sqlite_url: str) -> None:
    async with rig(tmp_path, sqlite_url) as run:
        await run.bot._source.take([{"update_id": 901, "message": {"chat": {"id": PERSON}, "text": 5}}, {"update_id": 902}])
        await run.api.say("hello")
        await run.api.answered("Answer")
        assert [state for state, _ in await done(run)] == ["done"] * 3


async def test_after_a_restart_with_another_configuration_the_question_is_asked_anew(tmp_path: Path, sqlite_url: str) -> None:
    async with rig(tmp_path, sqlite_url) as run:
        run.api.faults.append(Fault("sendMessage", "Too Many Requests: retry after 60", 429, {"retry_after": 60}, 99))
        await run.api.say("question")
        await run.first.until(lambda: run.first.meter.answered == 1)
        await run.settled()
        await run.stop()
        run.api.faults.clear()
        run.telegram = 'system_prompt = "Another one."'
        await run.start()
        await run.api.answered("Answer from the first.")
        assert await done(run) == [("done", "answered")]
        assert run.first.meter.requests == 2


async def test_a_graceful_stop_lets_answers_under_way_end(tmp_path: Path, sqlite_url: str) -> None:
    async with rig(tmp_path, sqlite_url) as run:
        run.first.default = Script(text="one two three four five", delay_s=0.2)
        await run.api.say("question")
        await run.api.until(lambda: run.first.meter.requests == 1)
        await run.stop(settle_s=30)
        assert [bubble.text for bubble in run.api.bubbles()] == ["one two three four five"]
        await run.start()
        assert await done(run) == [("done", "answered")]
        assert run.first.meter.requests == 1


@pytest.mark.parametrize("said", ["question", "/help", "/stop"])
async def test_case_36_a_stop_while_telegram_confirms_a_message_does_not_bring_it_twice(
    tmp_path: Path, sqlite_url: str, said: str
) -> None:
    async with rig(tmp_path, sqlite_url) as run:
        run.api.confirms.clear()
        await run.api.say(said)
        await run.api.until(lambda: run.api.bubbles())
        bot, stop = run.bot, asyncio.create_task(run.stop())
        await run.api.until(lambda: bot._desk.stopping.is_set())
        run.api.confirms.set()
        await stop
        await run.start()
        assert [state for state, _ in await done(run)] == ["done"]
        assert len(run.api.bubbles()) == 1
        assert run.first.meter.requests == (1 if said == "question" else 0)


async def test_case_36_a_stop_while_telegram_confirms_a_notice_does_not_bring_it_twice(tmp_path: Path, sqlite_url: str) -> None:
    async with rig(tmp_path, sqlite_url, budgets=HOURLY.replace("requests = 1", "requests = 0")) as run:
        run.api.confirms.clear()
        await run.api.say("question")
        await run.api.until(lambda: run.api.bubbles())
        bot, stop = run.bot, asyncio.create_task(run.stop())
        await run.api.until(lambda: bot._desk.stopping.is_set())
        run.api.confirms.set()
        await stop
        await run.start()
        await run.api.until(lambda: run.bot.ready)
        await run.api.say("/help")
        await run.api.answered("/retry")
        await become(run, [("offered", ""), ("done", "told")])
        assert len(run.api.bubbles()) == 2


async def test_one_update_that_cannot_be_kept_does_not_hold_up_the_others(tmp_path: Path, sqlite_url: str) -> None:
    async with rig(tmp_path, sqlite_url) as run:
        too_large = {"id": 1 << 70, "is_bot": False, "first_name": "P"}
        await run.api.say("poison", **{"from": too_large})
        await run.api.say("question")
        await run.api.answered("Answer from the first.")


async def test_a_database_that_is_gone_for_a_while_loses_no_message(tmp_path: Path, sqlite_url: str) -> None:
    async with rig(tmp_path, sqlite_url) as run:
        from gateway.errors import LedgerUnavailable

        inbox, real = run.bot._desk.inbox, run.bot._desk.inbox.add

        tried = asyncio.Event()

        async def gone(*_: object) -> list[int]:
            tried.set()
            raise LedgerUnavailable("gone")

        inbox.add = gone  # type: ignore[method-assign]
        await run.api.say("question")
        await tried.wait()
        assert run.api.unread, "it is not acknowledged"
        inbox.add = real  # type: ignore[method-assign]
        await run.api.answered("Answer from the first.")
