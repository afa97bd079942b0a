"""The official `anthropic` client, unchanged, against `/v1/messages`, with providers of both wire formats behind it.

The ledger must equal the usage that the client printed.
"""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import anthropic
import pytest
from anthropic import AsyncAnthropic

from tests.doubles.upstream import Script, Upstream
from tests.e2e.rig import Gateway, budget, config, provider

HELLO: Any = [{"role": "user", "content": "say something"}]
WEATHER: Any = {"name": "weather", "description": "d", "input_schema": {"type": "object", "properties": {"city": {}}}}
CALL = {"id": "toolu_1", "name": "weather", "arguments": '{"city": "Oslo"}'}
PRICE = {"input": 1.0, "cached_input": 0.1, "output": 2.0}


@pytest.fixture(params=["openai", "anthropic"])
async def gateway(request: pytest.FixtureRequest, tmp_path: Path, up: Upstream) -> AsyncIterator[Gateway]:
    text = config(
        provider("p", up, api=request.param, price=PRICE, max_attempts=1, image_tokens=100),
        provider("blind", up, api=request.param),
        budget("tokens", tokens=5_000),
        chain=["p"],
    )
    async with Gateway(tmp_path, text) as running:
        yield running


@pytest.fixture
async def client(gateway: Gateway) -> AsyncIterator[AsyncAnthropic]:
    async with AsyncAnthropic(base_url=gateway.base, api_key=gateway.keys["user"], max_retries=1) as made:
        yield made


async def counted(gateway: Gateway) -> tuple[int, int, int]:
    """Prompt, cached and output tokens over all rows."""
    await gateway.until_nothing_is_held()
    rows = await gateway.rows()
    assert (await gateway.budget("tokens"))["spent"] == sum(int(row["prompt_tokens"]) + int(row["output_tokens"]) for row in rows)
    prompt, cached, output = (
        sum(int(row[name] or 0) for row in rows) for name in ("prompt_tokens", "cached_tokens", "output_tokens")
    )
    return prompt, cached, output


async def test_whole_and_streamed_answers_with_the_usage_that_the_ledger_has(
    gateway: Gateway, client: AsyncAnthropic, up: Upstream
) -> None:
    up.default = Script(prompt_tokens=30, cached_tokens=20)
    asked: Any = {"model": "default", "max_tokens": 50, "messages": HELLO, "system": "be brief"}
    more: Any = {"stop_sequences": ["END"], "metadata": {"user_id": "u"}, "extra_body": {"temperature": 0.5, "top_k": 4}}
    raw = await client.messages.with_raw_response.create(**asked, **more)
    whole = await raw.parse()
    assert whole.content[0].type == "text"
    assert whole.content[0].text == "w0 w1 w2 w3 w4 "
    assert (whole.stop_reason, whole.usage.input_tokens, whole.usage.output_tokens) == ("end_turn", 10, 5)
    assert (raw.headers["x-sluicegate-provider"], raw.headers["x-sluicegate-cost-micro-usd"]) == ("p", "22")
    assert raw.headers["request-id"] == raw.headers["x-sluicegate-request-id"]
    sent = up.seen[0].body
    both = {"temperature", "max_tokens", "model", "messages"}
    assert sent["temperature"] == 0.5
    assert sent.keys() in (both | {"stop"}, both | {"stop_sequences", "system", "top_k"})
    async with client.messages.stream(**asked) as stream:
        kinds = [event.type async for event in stream]
        streamed = await stream.get_final_message()
    assert streamed.content[0].type == "text"
    assert streamed.content[0].text == "w0 w1 w2 w3 w4 "
    assert kinds[0] == "message_start"
    assert kinds[-1] == "message_stop"
    printed = [(u.input_tokens + (u.cache_read_input_tokens or 0), u.cache_read_input_tokens, u.output_tokens)
               for u in (whole.usage, streamed.usage)]  # fmt: skip
    assert tuple(map(sum, zip(*printed, strict=True))) == (60, 40, 10) == await counted(gateway)
    assert up.meter.tokens == 70


async def test_tools_both_ways_and_their_results(gateway: Gateway, client: AsyncAnthropic, up: Upstream) -> None:
    asked: Any = {"model": "default", "max_tokens": 50, "tools": [WEATHER], "tool_choice": {"type": "any"}}
    up.default = Script(text="let me see", tool_calls=[CALL, {**CALL, "id": "toolu_2"}], finish="tool_calls")
    whole = await client.messages.create(**asked, messages=HELLO)
    async with client.messages.stream(**asked, messages=HELLO) as stream:
        streamed = await stream.get_final_message()
    for answer in (whole, streamed):
        assert answer.stop_reason == "tool_use"
        text, first, second = answer.content
        assert (text.type, first.type, second.type) == ("text", "tool_use", "tool_use")
        assert (first.id, first.name, first.input) == ("toolu_1", "weather", {"city": "Oslo"})
        assert second.id == "toolu_2"
    up.default = Script(text="sunny")
    results: Any = [
        {"type": "tool_result", "tool_use_id": "toolu_1", "content": "sun"},
        {"type": "tool_result", "tool_use_id": "toolu_2", "content": [{"type": "text", "text": "rain"}], "is_error": True},
        {"type": "text", "text": "and now?"},
    ]
    history: Any = [*HELLO, {"role": "assistant", "content": whole.content}, {"role": "user", "content": results}]
    await client.messages.create(**asked, messages=history)
    said = up.seen[-1].body["messages"]
    if "tool_calls" in said[1]:
        assert [message["role"] for message in said] == ["user", "assistant", "tool", "tool", "user"]
        assert said[1]["tool_calls"][0]["function"] == {"name": "weather", "arguments": '{"city":"Oslo"}'}
        assert said[3] == {"role": "tool", "tool_call_id": "toolu_2", "content": "rain"}
        assert up.seen[-1].body["tool_choice"] == "required"
    else:
        assert [message["role"] for message in said] == ["user", "assistant", "user", "user"]
        assert said[2]["content"][1] == {"type": "tool_result", "tool_use_id": "toolu_2", "content": "rain", "is_error": True}
        assert up.seen[-1].body["tools"] == [WEATHER]
        assert up.seen[-1].body["tool_choice"] == {"type": "any"}
    await counted(gateway)


async def test_images_count_by_their_declared_bound_and_are_refused_without_one(client: AsyncAnthropic, up: Upstream) -> None:
    source = {"type": "base64", "media_type": "image/png", "data": "aGk="}
    seen: Any = [{"role": "user", "content": [{"type": "image", "source": source}, {"type": "text", "text": "what?"}]}]
    await client.messages.create(model="default", max_tokens=9, messages=seen)
    sent = up.seen[0].body["messages"][0]["content"][0]
    assert sent in (
        {"type": "image", "source": source},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}},
    )
    counted_ = await client.messages.count_tokens(model="default", messages=seen)
    assert 100 < counted_.input_tokens < 200
    with pytest.raises(anthropic.BadRequestError, match="no image_tokens is configured"):
        await client.messages.create(model="blind", max_tokens=9, messages=seen)
    assert up.meter.requests == 1


async def test_errors_are_the_clients_own_with_our_fields_inside(gateway: Gateway, client: AsyncAnthropic, up: Upstream) -> None:
    with pytest.raises(anthropic.AuthenticationError) as unauthorized:
        await client.with_options(api_key="sk-nobody").messages.create(model="default", max_tokens=9, messages=HELLO)
    body: Any = unauthorized.value.body
    assert (body["type"], body["error"]["type"], body["error"]["code"]) == ("error", "authentication_error", "unauthorized")
    search: Any = {"type": "web_search_20250305", "name": "web_search"}
    with pytest.raises(anthropic.BadRequestError, match=r"tools\[0\]"):
        await client.messages.create(model="default", max_tokens=9, messages=HELLO, tools=[search])
    before = await gateway.answers()
    with pytest.raises(anthropic.RateLimitError) as refused:
        await client.messages.create(model="default", max_tokens=9, messages=[{"role": "user", "content": "x y " * 6000}])
    body = refused.value.body
    assert (body["error"]["type"], body["error"]["code"]) == ("rate_limit_error", "prompt_too_large_for_budget")
    assert body["error"]["request_id"] == body["request_id"] == refused.value.request_id
    assert await gateway.answers() - before == 1
    up.default = Script(pieces=9, cut=4)
    shown = ""
    with pytest.raises(anthropic.APIStatusError, match="broke off"):  # noqa: PT012 - what came before it counts
        async with client.messages.stream(model="default", max_tokens=50, messages=HELLO) as stream:
            async for text in stream.text_stream:
                shown += text
    assert shown == "w0 w1 w2 w3 "


async def test_a_bearer_is_a_key_too_and_a_repeated_idempotency_key_is_free(gateway: Gateway, up: Upstream) -> None:
    async with AsyncAnthropic(base_url=gateway.base, auth_token=gateway.keys["user"]) as client:
        headers = {"Idempotency-Key": "order-5"}
        asked: Any = {"model": "default", "max_tokens": 9, "messages": HELLO, "extra_headers": headers}
        answers = [await client.messages.create(**asked) for _ in range(2)]
        async with client.messages.stream(**asked) as stream:
            answers.append(await stream.get_final_message())
        assert [answer.content[0].text for answer in answers] == ["w0 w1 w2 w3 w4 "] * 3  # type: ignore[union-attr]
    assert up.meter.requests == 1


async def test_case_17_a_client_that_leaves_mid_stream_closes_the_upstream(gateway: Gateway, up: Upstream) -> None:
    up.default = Script(pieces=2_000, delay_s=0.02)
    body = {"model": "default", "max_tokens": 2_000, "messages": HELLO, "stream": True}
    headers = {"x-api-key": gateway.keys["user"]}
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{gateway.base}/v1/messages", json=body, headers=headers) as reply,
    ):
        while b"w3" not in await reply.content.readuntil(b"\n\n"):
            pass
        reply.close()
    await up.until(lambda: up.seen[0].client_left is not None)
    await gateway.until_nothing_is_held()
    (row,) = await gateway.rows()
    assert (row["outcome"], row["estimated"]) == ("cancelled", "1")
    assert up.meter.output_tokens <= int(row["output_tokens"]) < 2_000


async def test_thinking_keeps_its_signature_on_the_way_there_and_back(tmp_path: Path, up: Upstream) -> None:
    def event(kind: str, **fields: Any) -> str:
        return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n"

    def block(index: int, block: dict[str, Any], *deltas: dict[str, Any]) -> list[str]:
        said = [event("content_block_delta", index=index, delta=delta) for delta in deltas]
        return [event("content_block_start", index=index, content_block=block), *said, event("content_block_stop", index=index)]

    thinking = {"type": "thinking", "thinking": "", "signature": ""}
    up.queue.append(
        Script(
            events=[
                event(
                    "message_start",
                    message={"id": "m", "model": "claude-model", "usage": {"input_tokens": 9, "output_tokens": 1}},
                ),
                *block(0, thinking, {"type": "thinking_delta", "thinking": "hm"}, {"type": "signature_delta", "signature": "s"}),
                *block(1, {"type": "redacted_thinking", "data": "d"}),
                *block(2, {"type": "text", "text": ""}, {"type": "text_delta", "text": "a"}),
                event(
                    "message_delta", delta={"stop_reason": "stop_sequence", "stop_sequence": "END"}, usage={"output_tokens": 5}
                ),
                event("message_stop"),
            ]
        )
    )
    async with (
        Gateway(tmp_path, config(provider("claude", up, api="anthropic"), chain=["claude"])) as gateway,
        AsyncAnthropic(base_url=gateway.base, api_key=gateway.keys["user"]) as client,
    ):
        asked: Any = {"model": "default", "max_tokens": 50, "thinking": {"type": "adaptive"}}
        async with client.messages.stream(**asked, messages=HELLO) as stream:
            answer = await stream.get_final_message()
        kinds = [(part.type, part.model_dump(exclude_none=True)) for part in answer.content]
        assert kinds[0] == ("thinking", {"type": "thinking", "thinking": "hm", "signature": "s"})
        assert kinds[1] == ("redacted_thinking", {"type": "redacted_thinking", "data": "d"})
        assert (answer.stop_reason, answer.stop_sequence, answer.usage.output_tokens) == ("stop_sequence", "END", 5)
        said: Any = {"role": "assistant", "content": answer.content}
        await client.messages.create(**asked, messages=[*HELLO, said, *HELLO])
        sent = up.seen[1].body
        assert sent["messages"][1]["content"] == [kind[1] for kind in kinds[:2]] + [{"type": "text", "text": "a"}]
        assert sent["thinking"] == {"type": "adaptive"}
