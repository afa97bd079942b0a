"""The official `openai` client, unchanged, against the endpoint: answers, streams, tools, errors, and no hidden hammering."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI

from tests.doubles.clock import SettableClock
from tests.doubles.upstream import Script, Upstream
from tests.e2e.rig import Gateway, budget, config, provider

START = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
HELLO: Any = [{"role": "user", "content": "say something"}]
WEATHER: Any = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "d",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}


@pytest.fixture
async def gateway(tmp_path: Path, up: Upstream) -> AsyncIterator[Gateway]:
    text = config(
        provider("moonshot", up, price={"input": 1.0, "output": 2.0}, max_attempts=1),
        budget("person", user="*", requests=4),
        chain=["moonshot"],
    )
    async with Gateway(tmp_path, text, SettableClock(START)) as running:
        yield running


@pytest.fixture
async def client(gateway: Gateway) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(base_url=f"{gateway.base}/v1", api_key=gateway.keys["user"]) as made:
        yield made


async def counted(gateway: Gateway) -> list[tuple[int, int]]:
    """What the ledger has of each attempt: prompt and output tokens."""
    await gateway.until_nothing_is_held()
    return [(int(row["prompt_tokens"]), int(row["output_tokens"])) for row in await gateway.rows()]


async def test_a_whole_answer(client: AsyncOpenAI, gateway: Gateway, up: Upstream) -> None:
    raw = await client.chat.completions.with_raw_response.create(model="default", messages=HELLO, temperature=0.5, seed=7)
    answer = raw.parse()
    assert answer.choices[0].message.content == "w0 w1 w2 w3 w4 "
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert answer.usage.total_tokens == up.meter.tokens == 7
    assert raw.headers["x-sluicegate-provider"] == "moonshot"
    assert raw.headers["x-sluicegate-cost-micro-usd"] == "12"
    assert up.seen[0].body["temperature"] == 0.5
    assert up.seen[0].body["seed"] == 7
    assert await counted(gateway) == [(answer.usage.prompt_tokens, answer.usage.completion_tokens)]


async def test_a_stream_with_and_without_usage(client: AsyncOpenAI, gateway: Gateway, up: Upstream) -> None:
    stream = await client.chat.completions.create(model="moonshot", messages=HELLO, stream=True)
    chunks = [chunk async for chunk in stream]
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "w0 w1 w2 w3 w4 "
    assert all(chunk.choices and chunk.usage is None for chunk in chunks)
    options: Any = {"include_usage": True}
    stream = await client.chat.completions.create(model="moonshot", messages=HELLO, stream=True, stream_options=options)
    chunks = [chunk async for chunk in stream]
    last = chunks[-1]
    assert last.usage is not None
    assert last.usage.total_tokens == 7
    assert last.model_extra is not None
    assert last.model_extra["sluicegate"]["cost_micro_usd"] == 12
    assert up.meter.requests == 2
    assert await counted(gateway) == [(last.usage.prompt_tokens, last.usage.completion_tokens)] * 2


async def test_tools_pass_through_both_ways(client: AsyncOpenAI, up: Upstream) -> None:
    up.default = Script(tool_calls=[{"id": "call_1", "name": "weather", "arguments": '{"city": "Oslo"}'}], pieces=0)
    for stream in (False, True):
        if stream:
            async with client.chat.completions.stream(model="default", messages=HELLO, tools=[WEATHER]) as events:
                async for _ in events:
                    pass
                answer: Any = await events.get_final_completion()
        else:
            answer = await client.chat.completions.create(model="default", messages=HELLO, tools=[WEATHER], tool_choice="auto")
        call = answer.choices[0].message.tool_calls[0]
        assert (call.id, call.function.name, call.function.arguments) == ("call_1", "weather", '{"city": "Oslo"}')
    assert up.seen[0].body["tools"] == [WEATHER]
    assert up.seen[0].body["tool_choice"] == "auto"
    up.default = Script(text="sunny")
    history: Any = [
        *HELLO,
        {
            "role": "assistant",
            "tool_calls": [{"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": "sun"},
    ]
    await client.chat.completions.create(model="default", messages=history, tools=[WEATHER])
    assert up.seen[2].body["messages"] == history


async def test_a_long_refusal_is_an_error_at_once_and_not_hammered(client: AsyncOpenAI, gateway: Gateway, up: Upstream) -> None:
    for _ in range(4):
        await client.chat.completions.create(model="default", messages=HELLO)
    before = await gateway.answers()
    with pytest.raises(openai.RateLimitError) as caught:
        await client.chat.completions.create(model="default", messages=HELLO)
    assert await gateway.answers() - before == 1
    assert caught.value.code == "budget_exhausted"
    assert isinstance(caught.value.body, dict)
    assert caught.value.body["scope"] == "user"
    assert caught.value.body["resets_at"] == "2026-03-02T13:01:00Z"
    with pytest.raises(openai.RateLimitError):
        await client.chat.completions.create(model="default", messages=HELLO, stream=True)
    assert await gateway.answers() - before == 2
    assert up.meter.requests == 4


async def test_a_short_refusal_is_tried_again_by_the_client(tmp_path: Path, up: Upstream) -> None:
    text = config(provider("moonshot", up), budget("b", requests=1, per="minute"), chain=["moonshot"])
    clock = SettableClock(START.replace(second=59))
    async with Gateway(tmp_path, text, clock) as gateway, _client(gateway) as client:
        await client.chat.completions.create(model="default", messages=HELLO)
        with pytest.raises(openai.RateLimitError):
            await client.chat.completions.create(model="default", messages=HELLO)
        assert await gateway.answers() == 1 + 3


def _client(gateway: Gateway) -> AsyncOpenAI:
    return AsyncOpenAI(base_url=f"{gateway.base}/v1", api_key=gateway.keys["user"])


async def test_errors_are_the_clients_own_exceptions(gateway: Gateway, client: AsyncOpenAI, up: Upstream) -> None:
    with pytest.raises(openai.AuthenticationError) as unauthorized:
        await client.with_options(api_key="sk-nobody").chat.completions.create(model="default", messages=HELLO)
    assert unauthorized.value.code == "unauthorized"
    with pytest.raises(openai.NotFoundError) as unknown:
        await client.chat.completions.create(model="nobody", messages=HELLO)
    assert (unknown.value.code, unknown.value.param) == ("model_not_found", "model")
    with pytest.raises(openai.BadRequestError) as invalid:
        await client.chat.completions.create(model="default", messages=HELLO, max_tokens=0)
    assert invalid.value.param == "max_tokens"
    assert unauthorized.value.request_id is None or unauthorized.value.request_id
    fault = {"message": "bad tool", "type": "invalid_request_error", "param": "tools", "code": "bad_tool"}
    up.queue.append(Script(status=400, error=fault))
    with pytest.raises(openai.BadRequestError) as passed_on:
        await client.chat.completions.create(model="default", messages=HELLO)
    assert (passed_on.value.code, passed_on.value.param) == ("bad_tool", "tools")
    assert await gateway.answers() == 4


async def test_a_stream_that_breaks_is_an_error_after_what_was_shown(client: AsyncOpenAI, up: Upstream) -> None:
    up.default = Script(pieces=9, cut=4)
    stream = await client.chat.completions.create(model="default", messages=HELLO, stream=True)
    shown: list[str] = []

    async def read() -> None:
        async for chunk in stream:
            shown.append(chunk.choices[0].delta.content or "")

    with pytest.raises(openai.APIError) as caught:
        await read()
    assert "".join(shown) == "w0 w1 w2 w3 "
    assert caught.value.code == "providers_unavailable"
    assert up.meter.requests == 1


async def test_models_are_listed_and_found(client: AsyncOpenAI) -> None:
    names = [model.id async for model in client.models.list()]
    assert names == ["default", "moonshot", "moonshot:moonshot-model"]
    assert (await client.models.retrieve("moonshot:moonshot-model")).owned_by == "moonshot"


async def test_the_clients_own_idempotency_header_is_ours(client: AsyncOpenAI, up: Upstream) -> None:
    headers = {"Idempotency-Key": "order-5"}
    for _ in range(3):
        answer = await client.chat.completions.create(model="default", messages=HELLO, extra_headers=headers)
        assert answer.choices[0].message.content == "w0 w1 w2 w3 w4 "
    assert up.meter.requests == 1
