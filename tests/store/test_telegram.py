"""The inbox's transactions, on SQLite and on PostgreSQL."""

from __future__ import annotations

from gateway.store.database import Database
from gateway.store.telegram import Arrival, Button, Inbox, Lane, State, Turn
from gateway.store.telegram_talk import People, Role, Talk

LANE = Lane(-100_200_300_400, 7)
DAY = 86_400_000


def arrival(update_id: int, lane: Lane = LANE, user: int = 1 << 40) -> Arrival:
    return Arrival(update_id, lane, user, {"update_id": update_id, "message": {"text": "a\u0000b\ud800 😀"}})


async def test_an_update_is_kept_once_with_its_text_as_it_came(database: Database) -> None:
    inbox = Inbox(database, 1)
    assert await inbox.add([arrival(1), arrival(2)], 5) == [1, 2]
    assert await inbox.add([arrival(2), arrival(3)], 6) == [3]
    letters = await inbox.unfinished()
    assert [letter.update_id for letter in letters] == [1, 2, 3]
    assert letters[0].raw == arrival(1).raw
    assert letters[0].lane == LANE


async def test_pieces_are_joined_and_end_together(database: Database) -> None:
    inbox = Inbox(database, 1)
    await inbox.add([arrival(n) for n in (1, 2, 3)], 5)
    await inbox.begin(1, [2, 3])
    await inbox.shown(1, [10, 11])
    letter = await inbox.load(1)
    assert letter is not None
    assert [piece["update_id"] for piece in letter.pieces] == [2, 3]
    assert letter.bubbles == (10, 11)
    assert [one.update_id for one in await inbox.unfinished()] == [1], "a crash brings the pieces with the first"
    await inbox.finish(1, "answered")
    for number in (1, 2, 3):
        ended = await inbox.load(number)
        assert ended is not None
        assert (ended.state, ended.raw) == (State.DONE, {}), "nothing of the text is kept"


async def test_a_done_update_is_not_begun_again(database: Database) -> None:
    inbox = Inbox(database, 1)
    await inbox.add([arrival(1)], 5)
    await inbox.finish(1, "answered")
    await inbox.begin(1)
    letter = await inbox.load(1)
    assert letter is not None
    assert letter.state is State.DONE


async def test_parked_questions_come_due_oldest_first_and_are_taken_once(database: Database) -> None:
    inbox = Inbox(database, 1)
    for number, received in ((1, 30), (2, 10), (3, 20)):
        await inbox.add([arrival(number)], received)
        await inbox.begin(number)
        await inbox.offer(number, 1000 + number, [], received)
        await inbox.noticed(number, 77)
        assert await inbox.park(number, 1000 + number, 50)
    assert await inbox.due(1000) == []
    assert [letter.update_id for letter in await inbox.due(1003)] == [2, 3, 1]
    assert await inbox.parked() == 3
    assert await inbox.take(2, [State.PARKED])
    assert not await inbox.take(2, [State.PARKED])
    assert await inbox.wake(60) == 2
    assert [letter.update_id for letter in await inbox.due(60)] == [3, 1]
    assert await inbox.park(2, None, 99), "met no room: waits on"
    letter = await inbox.load(2)
    assert letter is not None
    assert letter.parked_ms == 50, "its time to expire does not move"
    assert sorted(late.update_id for late in await inbox.overdue(51)) == [1, 2, 3]
    assert len(await inbox.waiting(LANE.chat_id, 1 << 40)) == 3
    assert await inbox.waiting(LANE.chat_id, 9) == []


async def test_an_offer_whose_notice_was_not_sent_is_made_again_after_a_crash(database: Database) -> None:
    inbox = Inbox(database, 1)
    await inbox.add([arrival(1), arrival(2)], 5)
    for number in (1, 2):
        await inbox.begin(number)
        await inbox.offer(number, None, [], 5)
    await inbox.noticed(2, 9)
    assert [letter.update_id for letter in await inbox.unfinished()] == [1]


async def test_pruning_forgets_what_is_old_and_nothing_that_waits(database: Database) -> None:
    inbox = Inbox(database, 1)
    await inbox.add([arrival(n) for n in range(1, 6)], 0)
    await inbox.finish(1, "answered")
    for number in (2, 3):
        await inbox.begin(number, [4] if number == 3 else [])
        await inbox.offer(number, 10, [], 0)
        await inbox.noticed(number, 9)
    await inbox.park(3, 10, 0)
    await inbox.prune(4 * DAY, DAY)
    left = [number for number in range(1, 6) if await inbox.load(number) is not None]
    assert left == [3, 4, 5]


async def test_a_button_works_once(database: Database) -> None:
    inbox = Inbox(database, 1)
    await inbox.add_buttons([Button("t", "cancel", "x", 5, -1, 42)], 0)
    found = await inbox.button("t")
    assert found is not None
    assert (found.action, found.argument, found.update_id, found.used) == ("cancel", "x", 5, False)
    assert await inbox.use("t", 1)
    assert not await inbox.use("t", 2)
    assert await inbox.button("other") is None
    assert await Inbox(database, 2).button("t") is None, "another bot's"


async def test_text_that_a_database_cannot_keep_is_kept_without_it(database: Database) -> None:
    inbox, talk = Inbox(database, 1), Talk(database, 1)
    await inbox.finish(1, "answered", LANE, Turn("r", "what\0 is \ud800this", "an\0swer", 10, 1))
    last = await talk.last(LANE)
    assert last is not None
    assert (last.question, last.answer) == ("what\ufffd is ?this", "an\ufffdswer")


async def test_turns_are_bounded_by_tokens_replaced_and_forgotten(database: Database) -> None:
    inbox, talk = Inbox(database, 1), Talk(database, 1)
    for number in range(1, 5):
        await inbox.finish(number, "answered", LANE, Turn(f"r{number}", f"q{number}", f"a{number}", 10, number))
    turns, dropped = await talk.history(LANE, 25, "r4")
    assert ([turn.request_id for turn in turns], dropped) == (["r2", "r3"], 1)
    assert (await talk.history(LANE, 100, "none"))[0][0].request_id == "r2", "what was dropped is gone"
    await inbox.finish(5, "answered", LANE, Turn("r5", "q4", "better", 10, 5), instead_of="r4")
    last = await talk.last(LANE)
    assert last is not None
    assert (last.request_id, last.answer) == ("r5", "better")
    assert (await talk.history(Lane(LANE.chat_id), 100, ""))[0] == [], "another topic"
    await talk.forget(LANE)
    assert await talk.last(LANE) is None


async def test_something_is_said_once_until_its_time(database: Database) -> None:
    talk = Talk(database, 1)
    assert await talk.say_once(5, "notice", 10, 100)
    assert not await talk.say_once(5, "notice", 99, 200)
    assert await talk.say_once(6, "notice", 99, 200)
    assert await talk.say_once(5, "notice", 100, 200)


async def test_a_group_that_becomes_a_supergroup_keeps_everything(database: Database) -> None:
    inbox, talk, people = Inbox(database, 1), Talk(database, 1), People(database, 1)
    await inbox.add([arrival(1, Lane(-5))], 0)
    await inbox.finish(2, "answered", Lane(-5), Turn("r", "q", "a", 1, 1))
    await talk.choose(Lane(-5), "groq")
    await people.set_role(-5, Role.ALLOWED, 1, 0)
    await inbox.migrate(-5, -1005)
    letter, last = await inbox.load(1), await talk.last(Lane(-1005))
    assert letter is not None
    assert letter.lane == Lane(-1005)
    assert last is not None
    assert await talk.choice(Lane(-1005)) == "groq"
    assert await people.roles() == {-1005: Role.ALLOWED}


async def test_the_pairing_code_makes_one_admin(database: Database) -> None:
    people = People(database, 1)
    await people.new_code("right", 0)
    assert not await people.pair("wrong", 5, 1)
    assert await people.pair("right", 5, 1)
    assert not await people.pair("right", 6, 2)
    assert await people.roles() == {5: Role.ADMIN}
    await people.new_code("again", 3)
    assert not await people.pair("again", 6, 4), "there is an admin"
