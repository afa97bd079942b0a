"""Streams: what is shown, when another slot takes over, when it is cut off, and how it is settled."""

import asyncio
from contextlib import aclosing

import pytest

from gateway.chat import Chunk, Completion, Usage
from gateway.dispatcher import Begun, Reply, StreamBroken
from gateway.errors import CallerFault, ChainExhausted, Refused, Unanswered
from tests.dispatcher.rig import PRICED, Heard, Rig, question, refused, requests, said, tokens, unanswered, usd
from tests.doubles.provider import Play, ScriptedProvider


async def leave_after(rig: Rig, chunks: int, **parts: object) -> Heard:
    """Reads a stream until so many chunks with text came, then closes it."""
    heard = Heard()
    async with aclosing(rig.dispatcher.stream(question(), "default", rig.origin(**parts))) as events:
        async for event in events:
            heard.take(event)
            if sum(1 for chunk in heard.chunks if chunk.text) >= chunks:
                break
    return heard


async def test_a_stream_is_begun_then_chunks_then_a_reply():
    rig = Rig(budgets=(usd("m", 1000),), models={"a": PRICED})
    heard = await rig.read()
    assert heard.order == ["Begun", *["Chunk"] * 5, "Priced", "Chunk", "Reply"]
    assert heard.reply is not None
    assert heard.reply.completion.text == heard.text == "Hello there!"
    assert heard.priced[0].cost_micro_usd == heard.reply.cost_micro_usd == rig.spent("m") == 16
    assert heard.reply.completion.body["choices"][0]["message"]["content"] == "Hello there!"


async def test_the_settling_is_done_when_the_reply_comes_and_not_before_the_last_chunk():
    rig = Rig(budgets=(tokens("t", 1000),))
    async with aclosing(rig.dispatcher.stream(question(), "default", rig.origin())) as events:
        async for event in events:
            assert rig.held("t") == (0 if isinstance(event, Reply) else 110)
    assert rig.spent("t") == 13


async def test_nothing_is_yielded_before_something_is_visible():
    rig = Rig()
    rig["a"].plays(Play(reasoning=(" hm", " so"), pause_s=5, delay_s=1))
    stream = rig.dispatcher.stream(question(), "default", rig.origin())
    first = await anext(stream)
    assert isinstance(first, Begun)
    assert asyncio.get_running_loop().time() == 11
    rest = [event async for event in stream]
    assert [chunk.reasoning for chunk in rest[:3]] == ["", " hm", " so"]  # type: ignore[union-attr]


async def test_case_31_metadata_then_an_error_moves_on_silently():
    rig = Rig("a", "b", models={"a": {"max_attempts": 1}})
    rig["a"].plays(Play(error=refused(), after=0, bills_anyway=True))
    heard = await rig.read()
    assert heard.text == "Hello there!"
    assert heard.begun is not None
    assert heard.begun.slot.provider == "b"
    assert [type(cause.error) for cause in heard.begun.skipped] == [Refused]


async def test_reasoning_alone_counts_as_nothing_shown():
    rig = Rig("a", "b", models={"a": {"max_attempts": 1}}, budgets=(tokens("t", 1000, provider="a"),))
    rig["a"].plays(Play(reasoning=said(20), error=unanswered(), after=20))
    heard = await rig.read()
    assert heard.error is None
    assert heard.text == "Hello there!"
    assert all(not chunk.reasoning for chunk in heard.chunks)
    assert rig.spent("t") == 110


async def test_case_32_a_stream_cut_before_output_moves_on():
    rig = Rig("a", "b", models={"a": {"max_attempts": 1}})
    rig["a"].plays(unanswered())
    heard = await rig.read()
    assert heard.text == "Hello there!"


async def test_case_32_a_stream_cut_after_output_ends_clearly():
    rig = Rig("a", "b", budgets=(tokens("t", 1000),))
    rig["a"].plays(Play(words=said(60), error=unanswered(), after=40))
    heard = await rig.read()
    assert isinstance(heard.error, StreamBroken)
    assert len(heard.error.text.split()) == 40
    assert heard.error.text == heard.text
    assert isinstance(heard.error.error, Unanswered)
    assert rig["b"].calls == 0
    assert (rig.spent("t"), rig.held("t"), rig.rows[0]["uncertain"]) == (110, 0, True)


async def test_usage_stated_before_a_break_is_not_the_whole_of_it():
    rig = Rig(budgets=(tokens("t", 1000),))
    rig["a"].plays(Play(words=said(60), error=unanswered(usage=Usage(12, 1)), after=40))
    await rig.read()
    assert rig.spent("t") == 110


async def test_an_error_after_the_finish_reason_takes_nothing_away():
    class Resets:
        name = "a"

        async def stream(self, request, reservation):
            async for chunk in inner.stream(request, reservation):
                yield chunk
                if chunk.finish_reason:
                    raise unanswered()

    rig = Rig(budgets=(tokens("t", 1000),))
    inner = rig["a"]
    rig.providers["a"] = Resets()
    heard = await rig.read()
    assert heard.reply is not None
    assert (heard.reply.completion.text, heard.reply.estimated) == ("Hello there!", True)
    assert rig.spent("t") == 110


async def test_a_stream_that_simply_ends_is_no_answer():
    class Ends:
        name = "a"

        async def stream(self, request, reservation):
            async for chunk in inner.stream(request, reservation):
                if chunk.finish_reason or chunk.usage:
                    return
                yield chunk

    rig = Rig()
    inner = rig["a"]
    rig.providers["a"] = Ends()
    heard = await rig.read()
    assert isinstance(heard.error, StreamBroken)


async def test_case_17_a_caller_that_leaves_mid_stream_pays_what_came():
    rig = Rig(budgets=(tokens("t", 1000),))
    rig["a"].plays(Play(words=said(60), pause_s=1))
    await leave_after(rig, 5)
    assert rig["a"].bills[0].closed_at == 4
    assert rig["a"].bills[0].tokens <= rig.spent("t") == 10 + 2 * 5
    assert rig.held("t") == 0
    assert (rig.outcomes, rig.rows[0]["estimated"]) == (["cancelled"], True)


async def test_case_17_a_cancelled_reader_is_settled_too():
    rig = Rig(budgets=(tokens("t", 1000),))
    rig["a"].plays(Play(words=said(60), pause_s=1))
    reading = asyncio.ensure_future(rig.read())
    await asyncio.sleep(4.5)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert rig["a"].bills[0].closed_at == 4.5
    assert rig.spent("t") == 10 + 2 * 5


async def test_case_18_a_caller_that_leaves_before_the_first_token_pays_the_worst_case():
    rig = Rig(budgets=(tokens("t", 1000),))
    rig["a"].plays(Play(delay_s=30))
    reading = asyncio.ensure_future(rig.read())
    await asyncio.sleep(2)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert rig["a"].bills[0].closed_at == 2
    assert (rig.spent("t"), rig.held("t")) == (110, 0)


async def test_a_caller_that_leaves_while_the_model_reasons_pays_the_worst_case():
    rig = Rig(budgets=(tokens("t", 1000),))
    rig["a"].plays(Play(reasoning=said(30), pause_s=1))
    reading = asyncio.ensure_future(rig.read())
    await asyncio.sleep(10.5)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert rig.spent("t") == 110


async def test_case_19_leaving_right_after_the_end_is_a_success_with_its_usage():
    rig = Rig(budgets=(tokens("t", 1000),))
    async with aclosing(rig.dispatcher.stream(question(), "default", rig.origin())) as events:
        async for event in events:
            if getattr(event, "finish_reason", None):
                break
    assert (rig.outcomes, rig.spent("t")) == (["answered"], 13)
    assert not rig.rows[0]["estimated"]


async def test_case_20_a_stream_without_usage_keeps_the_estimate():
    rig = Rig(budgets=(tokens("t", 1000),))
    rig["a"].plays(Play(states_usage=False), Play(states=Usage(0, 0)))
    heard = await rig.read()
    assert heard.reply is not None
    assert (heard.reply.estimated, rig.spent("t")) == (True, 110)
    await rig.read()
    assert rig.spent("t") == 110


async def test_case_24_the_last_usage_wins():
    class Cumulates:
        name = "a"

        async def stream(self, request, reservation):
            total = 0
            async for chunk in inner.stream(request, reservation):
                if chunk.text:
                    total += 1
                    yield type(chunk)(text=chunk.text, visible=True, usage=Usage(10, total))
                else:
                    yield chunk

    rig = Rig(budgets=(tokens("t", 1000),))
    inner = rig["a"]
    rig.providers["a"] = Cumulates()
    heard = await rig.read()
    assert heard.reply is not None
    assert rig.spent("t") == heard.reply.usage.tokens == 13
    assert len(rig.rows) == 1


async def test_case_66_a_stream_that_ignores_its_limit_is_cut_off():
    rig = Rig(budgets=(tokens("t", 1000),))
    rig["a"].plays(Play(words=said(1000), obeys_limit=False))
    heard = await rig.read()
    assert heard.error is None
    assert heard.reply is not None
    assert heard.chunks[-1].finish_reason == heard.reply.completion.finish_reason == "length"
    assert len(heard.text.split()) == 101
    assert rig["a"].bills[0].output == 101
    assert rig["a"].bills[0].closed_at == 0
    assert (rig.outcomes, rig.spent("t"), rig.rows[0]["overrun"]) == (["cut_off"], 111, 1)
    assert heard.order[-3:] == ["Priced", "Chunk", "Reply"]


async def test_case_66_reasoning_without_end_is_cut_off_too():
    rig = Rig(budgets=(tokens("t", 1000),))
    rig["a"].plays(Play(reasoning=said(1000), obeys_limit=False))
    heard = await rig.read()
    assert heard.reply is not None
    assert (heard.text, heard.reply.completion.finish_reason) == ("", "length")
    assert rig["a"].bills[0].tokens == rig.spent("t") == 111


async def test_stated_usage_above_the_limit_cuts_off():
    class States:
        name = "a"

        async def stream(self, request, reservation):
            async for chunk in inner.stream(request, reservation):
                yield type(chunk)(text=chunk.text, visible=chunk.visible, usage=Usage(10, 500)) if chunk.text else chunk

    rig = Rig(budgets=(tokens("t", 1000),))
    inner = rig["a"]
    rig.providers["a"] = States()
    heard = await rig.read()
    assert heard.text == "Hello"
    assert (rig.outcomes, rig.spent("t")) == (["cut_off"], 510)


async def test_usage_above_the_limit_after_the_end_is_an_overrun_and_no_cut():
    rig = Rig(budgets=(tokens("t", 1000),))
    rig["a"].plays(Play(states=Usage(10, 150)))
    heard = await rig.read()
    assert heard.reply is not None
    assert heard.reply.completion.finish_reason == "stop"
    assert (rig.outcomes, rig.spent("t"), rig.rows[0]["overrun"]) == (["answered"], 160, 50)


async def test_the_operator_is_told_of_a_models_first_overrun():
    rig = Rig()
    rig["a"].default = Play(states=Usage(10, 150))
    await rig.read()
    await rig.ask()
    assert [(event, fields["tokens"], fields["held_tokens"]) for event, fields in rig.alerts] == [("overrun", 160, 110)]


async def test_case_46_an_empty_answer_is_an_answer():
    rig = Rig()
    rig["a"].plays(Play(words=()))
    heard = await rig.read()
    assert heard.error is None
    assert heard.reply is not None
    assert heard.reply.completion.text == ""
    assert heard.begun is not None


async def test_tool_calls_are_visible_and_put_together():
    parts = (
        {"index": 0, "id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"a"'}},
        {"index": 0, "function": {"arguments": ": 1}"}},
    )
    rig = Rig()
    rig["a"].plays(Play(words=(), tool_calls=parts, finish_reason="tool_calls"))
    heard = await rig.read(extra={"tools": [{"type": "function", "function": {"name": "look"}}]})
    assert heard.reply is not None
    message = heard.reply.completion.body["choices"][0]["message"]
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"a": 1}'}}
    assert message["tool_calls"] == [call]
    assert heard.reply.completion.finish_reason == "tool_calls"


async def test_the_callers_fault_passes_as_it_is():
    rig = Rig("a", "b")
    fault = CallerFault("a", "m", "bad", 400)
    rig["a"].plays(fault)
    heard = await rig.read()
    assert heard.error is fault
    assert rig["b"].calls == 0


async def test_a_stream_that_never_begins_ends_as_the_chain_does():
    rig = Rig("a", "b", budgets=(requests("r", 0),))
    heard = await rig.read()
    assert isinstance(heard.error, ChainExhausted)
    assert heard.order == []


async def test_the_total_deadline_holds_before_output():
    rig = Rig(chain_timeout_s=10, budgets=(tokens("t", 1000),))
    rig["a"].plays(Play(delay_s=60))
    heard = await rig.read()
    assert isinstance(heard.error, ChainExhausted)
    assert asyncio.get_running_loop().time() == 10
    assert (rig.spent("t"), rig.held("t")) == (110, 0)


async def test_a_bug_in_a_provider_settles_and_passes():
    rig = Rig(budgets=(tokens("t", 1000),))

    class Breaks:
        name = "a"

        async def stream(self, request, reservation):
            raise ValueError("bug")
            yield

    rig.providers["a"] = Breaks()
    with pytest.raises(ValueError, match="bug"):
        await rig.read()
    assert (rig.spent("t"), rig.held("t"), rig.outcomes) == (110, 0, ["unanswered"])


@pytest.mark.parametrize("streams", [True, False])
async def test_a_reply_that_cannot_be_put_together_leaves_no_hold_and_no_claim(streams: bool):
    rig = Rig(budgets=(tokens("t", 1000),))

    class Mumbles:
        name = "a"

        async def complete(self, request, reservation):
            return Completion("hi", "stop", "m", Usage(1, 1), {"choices": object()})

        async def stream(self, request, reservation):
            yield Chunk("hi", True, body={"choices": [{"delta": {"tool_calls": [5]}}]})
            yield Chunk(finish_reason="stop", body={})

    rig.providers["a"] = Mumbles()
    with pytest.raises((TypeError, AttributeError)):
        await (rig.read if streams else rig.ask)(dedupe=True, request_id="same")
    assert (rig.spent("t"), rig.held("t"), rig.outcomes) == (110, 0, ["unanswered"])
    rig.providers["a"] = ScriptedProvider("a")
    assert (await rig.ask(dedupe=True, request_id="same")).completion.text


async def test_the_times_of_a_stream_are_kept():
    rig = Rig()
    rig["a"].plays(Play(words=said(4), delay_s=2, pause_s=1))
    await rig.read()
    assert (rig.rows[0]["latency_to_first_token_ms"], rig.rows[0]["total_latency_ms"]) == (2000, 6000)
