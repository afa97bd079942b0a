"""What both wire formats have in common: an answer comes whole or in chunks, says who served, and states its usage."""

import asyncio
import time
from collections.abc import Callable
from contextlib import aclosing
from typing import Any, cast

import pytest

from gateway.chat import Request, Usage
from gateway.errors import ProviderError, Refused, Unanswered
from gateway.providers import Provider
from tests.doubles.own_time import within
from tests.doubles.upstream import Script, Upstream
from tests.providers.calls import ASK, KEY, ask, collect, reservation, text

Make = Callable[..., Provider]


async def test_a_whole_answer(upstream: Upstream, make: Make, api: str) -> None:
    upstream.default = Script(text="Paris is the capital", model="m-2026")
    got = await make(api).complete(ASK, reservation())
    assert (got.text, got.finish_reason, got.model) == ("Paris is the capital", "stop", "m-2026")
    assert got.usage == Usage(prompt=3, output=4)
    assert got.body["choices"][0]["message"]["content"] == "Paris is the capital"
    assert got.body["object"] == "chat.completion"
    assert got.body["usage"]["total_tokens"] == 7


async def test_a_streamed_answer(upstream: Upstream, make: Make, api: str) -> None:
    upstream.default = Script(text="Paris is the capital", model="m-2026")
    chunks = await collect(make(api).stream(ASK, reservation()))
    assert text(chunks) == "Paris is the capital"
    assert [chunk.finish_reason for chunk in chunks if chunk.finish_reason] == ["stop"]
    assert [chunk.usage for chunk in chunks if chunk.usage] == [Usage(prompt=3, output=4)]
    assert {chunk.model for chunk in chunks} == {"m-2026"}
    assert all(chunk.body and chunk.body["object"] == "chat.completion.chunk" for chunk in chunks)
    assert not chunks[0].visible


async def test_the_output_limit_is_sent_and_the_clamp_is_seen(upstream: Upstream, make: Make, api: str) -> None:
    upstream.default = Script(pieces=50)
    got = await make(api).complete(ASK, reservation(output_tokens=7))
    assert got.finish_reason == "length"
    assert got.usage == Usage(3, 7)
    chunks = await collect(make(api).stream(ASK, reservation(output_tokens=7)))
    assert sum(chunk.deltas for chunk in chunks if chunk.text) == 7
    assert [seen.body["max_tokens"] for seen in upstream.seen] == [7, 7]


async def test_reasoning_is_no_visible_text(upstream: Upstream, make: Make, api: str) -> None:
    upstream.default = Script(text="yes", reasoning=3)
    chunks = await collect(make(api).stream(ASK, reservation()))
    assert text(chunks) == "yes"
    assert "".join(chunk.reasoning for chunk in chunks) == "r0 r1 r2 "
    assert not any(chunk.visible for chunk in chunks if chunk.reasoning)
    got = await make(api).complete(ASK, reservation())
    assert got.text == "yes"
    assert got.usage is not None
    assert got.usage.output == 4


async def test_tool_calls_are_visible_and_come_in_openai_shape(upstream: Upstream, make: Make, api: str) -> None:
    call = {"id": "call_1", "name": "weather", "arguments": '{"city": "Madrid"}'}
    upstream.default = Script(text="", finish="tool_calls", tool_calls=[call, {**call, "id": "call_2"}])
    got = await make(api).complete(ASK, reservation())
    said = got.body["choices"][0]["message"]["tool_calls"]
    assert [one["id"] for one in said] == ["call_1", "call_2"]
    assert said[0]["function"]["name"] == "weather"
    assert got.finish_reason == "tool_calls"
    chunks = await collect(make(api).stream(ASK, reservation()))
    deltas = [
        delta for chunk in chunks if chunk.visible for delta in (chunk.body or {})["choices"][0]["delta"].get("tool_calls", ())
    ]
    for index in (0, 1):
        arguments = "".join(delta["function"]["arguments"] for delta in deltas if delta["index"] == index)
        assert arguments == call["arguments"]
    assert {delta["id"] for delta in deltas if "id" in delta} == {"call_1", "call_2"}


async def test_unknown_fields_pass_untouched(upstream: Upstream, make: Make, api: str) -> None:
    extra = {"temperature": 0.3, "vendor_field": {"a": [1, None, "é"]}}
    await make(api).complete(Request(ASK.messages, extra=extra), reservation())
    sent = upstream.seen[0].body
    assert sent["temperature"] == 0.3
    assert sent["vendor_field"] == {"a": [1, None, "é"]}
    assert sent["model"] == "m"
    assert "stream" not in sent


@pytest.mark.parametrize("streamed", [False, True])
async def test_case_18_leaving_before_the_first_token_closes_the_connection(
    upstream: Upstream, make: Make, api: str, streamed: bool
) -> None:
    upstream.default = Script(stall="headers")
    provider = make(api)
    call = asyncio.ensure_future(
        collect(provider.stream(ASK, reservation())) if streamed else provider.complete(ASK, reservation())
    )
    await upstream.until(lambda: upstream.meter.open_now == 1)
    async with within(1):
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await upstream.until(lambda: upstream.meter.client_left == 1)


async def test_case_17_leaving_in_the_middle_closes_the_connection(upstream: Upstream, make: Make, api: str) -> None:
    upstream.default = Script(endless=True, delay_s=0.01)
    stream = make(api).stream(ASK, reservation())
    async with aclosing(cast(Any, stream)):
        async for chunk in stream:
            if chunk.text:
                break
    async with within(1):
        await upstream.until(lambda: upstream.meter.client_left == 1)
    assert upstream.meter.output_tokens < 200


async def test_a_cancelled_task_in_the_middle_closes_the_connection(upstream: Upstream, make: Make, api: str) -> None:
    upstream.default = Script(stall=2)
    shown = asyncio.Event()

    async def read() -> None:
        async for chunk in make(api).stream(ASK, reservation()):
            if chunk.text:
                shown.set()

    call = asyncio.ensure_future(read())
    await asyncio.wait_for(shown.wait(), 30)
    call.cancel()
    await upstream.until(lambda: upstream.meter.client_left == 1)


async def test_case_19_the_answer_is_whole_once_its_finish_reason_came(upstream: Upstream, make: Make, api: str) -> None:
    chunks = await collect(make(api).stream(ASK, reservation()))
    assert upstream.meter.client_left == 0
    assert chunks[-1].usage == Usage(3, 5)


async def test_case_66_a_limit_that_is_ignored_can_be_cut_off(upstream: Upstream, make: Make, api: str) -> None:
    upstream.default = Script(pieces=1000, ignore_limit=True, delay_s=0.002)
    stream = make(api).stream(ASK, reservation(output_tokens=10))
    came = 0
    async with aclosing(cast(Any, stream)):
        async for chunk in stream:
            came += bool(chunk.text)
            if came > 10:
                break
    await upstream.until(lambda: upstream.meter.client_left == 1)
    assert upstream.meter.output_tokens < 200


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("cut", ["headers", "first"])
async def test_case_25_a_reset_after_the_request_left_is_unanswered(
    upstream: Upstream, make: Make, api: str, streamed: bool, cut: str
) -> None:
    upstream.default = Script(cut=cut)
    with pytest.raises(Unanswered) as caught:
        await ask(make(api), streamed)
    assert caught.value.sent
    assert upstream.meter.requests == 1


async def test_half_a_body_is_unanswered(upstream: Upstream, make: Make, api: str) -> None:
    upstream.default = Script(cut=1)
    with pytest.raises(Unanswered):
        await make(api).complete(ASK, reservation())


@pytest.mark.parametrize("streamed", [False, True])
async def test_case_25_a_time_out_is_unanswered(upstream: Upstream, make: Make, api: str, streamed: bool) -> None:
    upstream.default = Script(stall="headers")
    with pytest.raises(Unanswered, match="within"):
        await ask(make(api, timeout_s=0.3, first_token_timeout_s=0.2), streamed)
    await upstream.until(lambda: upstream.meter.client_left == 1)


@pytest.mark.parametrize("streamed", [False, True])
async def test_no_connection_is_refused_and_nothing_was_sent(make: Make, api: str, streamed: bool) -> None:
    with pytest.raises(Refused) as caught:
        await ask(make(api, base_url="http://127.0.0.1:9/v1"), streamed)
    assert not caught.value.sent
    assert caught.value.message.startswith("no connection")


async def test_an_unknown_host_is_refused_and_nothing_was_sent(make: Make) -> None:
    with pytest.raises(Refused) as caught:
        await ask(make(base_url="http://no-such-host.invalid/v1", timeout_s=20), False)
    assert not caught.value.sent


@pytest.mark.parametrize("place", ["headers", "first"])
async def test_case_32_a_stall_before_the_first_token(upstream: Upstream, make: Make, api: str, place: str) -> None:
    upstream.default = Script(stall=place, comments=True)
    got: list[Any] = []
    began = time.monotonic()
    async with within(1.5):
        with pytest.raises(Unanswered, match=r"(no first token|no answer) within 0\.3 s"):
            await collect(make(api, first_token_timeout_s=0.3).stream(ASK, reservation()), got)
    assert time.monotonic() - began > 0.25
    assert not text(got)


async def test_case_32_a_stall_after_output(upstream: Upstream, make: Make, api: str) -> None:
    upstream.default = Script(stall=2)
    got: list[Any] = []
    with pytest.raises(Unanswered, match=r"nothing came for 0\.8 s"):
        await collect(make(api, idle_timeout_s=0.8).stream(ASK, reservation()), got)
    assert text(got) == "w0 w1 "
    await upstream.until(lambda: upstream.meter.client_left == 1)


async def test_the_whole_deadline_ends_a_stream_that_never_stalls(upstream: Upstream, make: Make, api: str) -> None:
    upstream.default = Script(endless=True, delay_s=0.02)
    with pytest.raises(Unanswered, match=r"not finished within 1\.2 s"):
        await collect(make(api, timeout_s=1.2).stream(ASK, reservation()))


@pytest.mark.parametrize("script", [Script(pieces=60, cut=40), Script(finish=None, done=True), Script(finish=None, done=False)])
async def test_case_32_a_stream_that_breaks_or_simply_ends_is_unanswered(
    upstream: Upstream, make: Make, api: str, script: Script
) -> None:
    upstream.default = script
    got: list[Any] = []
    with pytest.raises(Unanswered):
        await collect(make(api).stream(ASK, reservation()), got)
    assert text(got)


async def test_case_32_a_malformed_chunk_is_unanswered(upstream: Upstream, make: Make, api: str) -> None:
    upstream.default = Script(malformed=5)
    got: list[Any] = []
    with pytest.raises(Unanswered, match="malformed"):
        await collect(make(api).stream(ASK, reservation()), got)
    assert text(got).startswith("w0 ")


@pytest.mark.parametrize("streamed", [False, True])
async def test_an_empty_or_foreign_200_is_unanswered(upstream: Upstream, make: Make, api: str, streamed: bool) -> None:
    for body in ("", "<html><title>Welcome</title></html>", "all is well", '"text"', "[1]", "{}", '{"choices": [1]}'):
        upstream.queue.append(Script(body=body))
        with pytest.raises(Unanswered):
            await ask(make(api), streamed)


async def test_comments_crlf_and_spread_payloads(upstream: Upstream, make: Make, api: str) -> None:
    for script in (Script(comments=True), Script(crlf=True), Script(multiline=True, crlf=True, comments=True)):
        upstream.queue.append(script)
        chunks = await collect(make(api).stream(ASK, reservation()))
        assert text(chunks) == "w0 w1 w2 w3 w4 "
        assert chunks[-1].usage == Usage(3, 5)


async def test_one_connection_serves_many_calls(upstream: Upstream, make: Make, api: str) -> None:
    provider = make(api)
    await provider.complete(ASK, reservation())
    for _ in range(3):
        await collect(provider.stream(ASK, reservation()))
    await provider.complete(ASK, reservation())
    assert upstream.connections == 1


async def test_a_provider_is_never_asked_twice(upstream: Upstream, make: Make, api: str) -> None:
    for script in (Script(cut="headers"), Script(status=503), Script(status=429, headers={"Retry-After": "0"})):
        upstream.queue.append(script)
        before = upstream.meter.requests
        with pytest.raises(ProviderError):
            await make(api).complete(ASK, reservation())
        assert upstream.meter.requests == before + 1


async def test_the_key_is_sent_and_never_in_an_error(upstream: Upstream, make: Make, api: str) -> None:
    for status, key in ((400, KEY), (401, "no-known-form/0123"), (500, KEY)):
        said = {"error": {"message": f"key {key} and sk-other-1234567890 are wrong", "type": "x"}}
        upstream.queue.append(Script(status=status, body=said))
        with pytest.raises(ProviderError) as caught:
            await make(api, api_key=key).complete(ASK, reservation())
        assert key not in repr(caught.value) + str(caught.value) + str(caught.value.body)
        assert "sk-" not in repr(caught.value) + str(caught.value) + str(caught.value.body)
        assert "[key]" in caught.value.message
    sent = upstream.seen[0].headers
    assert KEY in (
        sent.get("Authorization", ""),
        sent.get("x-api-key", ""),
        sent.get("Authorization", "").removeprefix("Bearer "),
    )
