"""The same request id means the same request: one call, one reply."""

import asyncio

import pytest

from gateway.chat import Chunk, Completion, Slot, Usage
from gateway.dispatcher import Reply
from gateway.dispatcher.replies import as_events
from gateway.errors import CallerFault, ChainExhausted, RequestConflict
from tests.dispatcher.rig import Rig, question, refused, requests, said, tokens, unanswered
from tests.doubles.provider import Play

SAME = {"request_id": "key:k:1", "dedupe": True}


async def test_case_34_the_same_id_twice_is_one_call_and_the_same_reply():
    rig = Rig(budgets=(tokens("t", 1000),))
    first = await rig.ask(**SAME)
    again = await rig.ask(**SAME)
    assert rig["a"].calls == 1
    assert (again.repeated, again.cost_micro_usd, first.repeated) == (True, 0, False)
    assert again.completion.text == first.completion.text
    assert again.completion.body == first.completion.body
    assert (again.usage, again.slot, again.chain) == (first.usage, first.slot, first.chain)
    assert rig.spent("t") == 13


async def test_case_34_concurrent_twins_share_one_call():
    rig = Rig()
    rig["a"].plays(Play(delay_s=8))
    replies = await asyncio.gather(*(rig.ask(**SAME) for _ in range(5)))
    assert rig["a"].calls == 1
    assert [reply.repeated for reply in replies] == [False, True, True, True, True]
    assert asyncio.get_running_loop().time() < 9


async def test_case_34_after_a_restart_the_reply_is_still_there():
    before = Rig()
    await before.ask(**SAME)
    after = Rig(disk=before.disk, owner="owner-2")
    assert (await after.ask(**SAME)).repeated
    assert after["a"].calls == 0


async def test_case_34_another_body_is_a_conflict():
    rig = Rig()
    await rig.ask("one", **SAME)
    with pytest.raises(RequestConflict):
        await rig.ask("two", **SAME)
    with pytest.raises(RequestConflict):
        await rig.ask("one", limit=5, **SAME)
    assert rig["a"].calls == 1


async def test_without_an_answer_the_id_can_be_used_again():
    rig = Rig(budgets=(requests("r", 100),), models={"a": {"max_attempts": 1}})
    rig["a"].plays(refused(), CallerFault("a", "m", "bad", 400), unanswered())
    for error in (ChainExhausted, CallerFault, ChainExhausted):
        with pytest.raises(error):
            await rig.ask(**SAME)
    assert not (await rig.ask(**SAME)).repeated
    assert rig["a"].calls == 4


async def test_a_twin_takes_over_when_the_first_ended_without_an_answer():
    rig = Rig(models={"a": {"max_attempts": 1}})
    rig["a"].plays(Play(delay_s=5, error=refused()))
    first, second = await asyncio.gather(rig.ask(**SAME), rig.ask(**SAME), return_exceptions=True)
    assert isinstance(first, ChainExhausted)
    assert not isinstance(second, BaseException)
    assert rig["a"].calls == 2


async def test_a_cancelled_caller_gives_the_id_back():
    rig = Rig()
    rig["a"].plays(Play(delay_s=60))
    asking = asyncio.ensure_future(rig.ask(**SAME))
    await asyncio.sleep(1)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    await rig.dispatcher.drain()
    assert not (await rig.ask(**SAME)).repeated


async def test_a_caller_cancelled_while_it_claims_gives_the_id_back():
    rig = Rig()

    async def slow(name: str) -> None:
        if name == "claimed":
            await asyncio.sleep(3)

    rig.store._door = slow
    asking = asyncio.ensure_future(rig.ask(**SAME))
    await asyncio.sleep(1)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    await rig.dispatcher.drain()
    assert rig.disk.requests == {}


async def test_a_repeated_stream_is_one_chunk_and_costs_nothing():
    rig = Rig(budgets=(tokens("t", 1000),))
    first = await rig.read(**SAME)
    again = await rig.read(**SAME)
    assert again.order == ["Begun", "Priced", "Chunk", "Reply"]
    assert again.text == first.text
    assert again.reply is not None
    assert again.reply.repeated
    assert again.priced[0].cost_micro_usd == 0
    body = again.chunks[0].body
    assert body is not None
    assert body["choices"][0]["delta"]["content"] == "Hello there!"
    assert rig["a"].calls == 1
    assert (await rig.ask(**SAME)).completion.text == first.text


async def test_a_stream_left_after_its_end_keeps_its_reply():
    rig = Rig()
    stream = rig.dispatcher.stream(question(), "default", rig.origin(**SAME))
    async for event in stream:
        if getattr(event, "finish_reason", None):
            break
    await stream.aclose()
    assert (await rig.read(**SAME)).reply.repeated  # type: ignore[union-attr]


async def test_a_broken_stream_can_be_asked_again():
    rig = Rig()
    rig["a"].plays(Play(words=said(30), error=unanswered(), after=5))
    await rig.read(**SAME)
    again = await rig.read(**SAME)
    assert again.reply is not None
    assert not again.reply.repeated


async def test_an_answered_id_is_not_given_back():
    rig = Rig()
    doors: list[str] = []

    async def door(name: str) -> None:
        doors.append(name)

    rig.store._door = door
    await rig.ask(**SAME)
    assert doors == ["claim", "claimed", "reserve", "reserved", "close", "closed"]


async def test_without_dedupe_the_same_id_is_two_calls():
    rig = Rig()
    await rig.ask(request_id="x")
    await rig.ask(request_id="x")
    assert rig["a"].calls == 2


def test_a_stored_answer_with_tool_calls_is_streamed_as_clients_expect_it():
    calls = [{"id": name, "type": "function", "function": {"name": name, "arguments": "{}"}} for name in ("a", "b")]
    message = {"role": "assistant", "content": None, "tool_calls": calls}
    body = {"id": "c", "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]}
    usage = Usage(1, 1)
    whole = Reply(Completion("", "tool_calls", "m", usage, body), Slot("p", "m"), "default", usage, 0, False, False, (), "r")
    chunk = next(event for event in as_events(whole) if isinstance(event, Chunk))
    assert chunk.body is not None
    assert chunk.body["choices"][0]["delta"]["tool_calls"] == [{"index": 0, **calls[0]}, {"index": 1, **calls[1]}]
