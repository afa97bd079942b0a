"""Bodies that were made to hurt: each is answered, or refused as the caller's fault. None is a fault of ours."""

import json
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.doubles.upstream import Upstream
from tests.e2e.rig import Gateway, budget, config, provider

ODD: list[Any] = [
    None, True, False, 0, -1, 1, 2**31, 2**63 - 1, 2**64, 10**40, 0.5, -1e308,
    "", " ", "x", "\x00", "\U0001f600" * 100, "a" * 10_000,
    [], [[]], [None], [1], ["x"], [{}], {}, {"": ""}, {"type": []}, {"type": {}}, {"type": "function"}, {"role": "user"},
    {"type": "text"}, [{"type": None}], [{"type": ["text"]}],
    [{"type": "function", "function": None}], [{"type": "function", "function": []}],
    [{"type": "image_url", "image_url": {"url": 5}}], [{"type": "image_url", "image_url": {"url": ""}}],
    [{"type": "file", "file": {}}],
]  # fmt: skip

FIELDS = (
    "model", "messages", "max_tokens", "max_completion_tokens", "n", "stream", "stream_options", "tools", "tool_choice",
    "functions", "temperature", "top_p", "stop", "logit_bias", "response_format", "user", "metadata", "modalities", "audio",
    "store", "seed", "service_tier", "models", "route", "provider", "plugins", "prediction", "web_search_options", "", "\x00",
    "__proto__",
)  # fmt: skip

RAW = [
    b"",
    b"null",
    b"[]",
    b"{",
    b'{"model": "default", "messages": [{"role": "user", "content": "x"}]',
    b'{"model": NaN}',
    b'{"model": "default", "temperature": Infinity, "messages": []}',
    b'{"model": "default", "max_tokens": 1e999, "messages": [{"role": "user", "content": "x"}]}',
    b'{"model": "default", "messages": [{"role": "user", "content": "\xff\xfe"}]}',
    b'{"model": "default", "messages": [{"role": "user", "content": "\\ud800"}]}',
    b"[" * 100_000,
    b'{"a":' * 50_000,
    b'{"model": "default", "messages": ' + b"[" * 600 + b"]" * 600 + b"}",
    b'{"model": "default", "x": ' + b'{"a":' * 250 + b"1" + b"}" * 250 + b', "messages": [{"role": "user", "content": "x"}]}',
    b'{"model": "default", "x": ' + b"[" * 98 + b"]" * 98 + b', "messages": [{"role": "user", "content": "x"}]}',
    b'{"model": "default", "x": ' + b"9" * 5_000 + b', "messages": [{"role": "user", "content": "x"}]}',
    b"\x1f\x8b\x08",
    b"\x00" * 1_000,
    b"\xef\xbb\xbf{}",
]


@pytest.fixture
async def gateway(tmp_path: Path, up: Upstream) -> AsyncIterator[Gateway]:
    text = config(
        provider("moonshot", up, image_tokens=100, max_attempts=1, max_output_tokens=100),
        budget("b", tokens=1_000_000_000_000),
        chain=["moonshot"],
    )
    async with Gateway(tmp_path, text) as running:
        yield running


async def send(gateway: Gateway, raw: bytes) -> int:
    answer = await gateway.call("POST", "/v1/chat/completions", data=raw, headers={"Content-Type": "application/json"})
    assert answer.headers["x-sluicegate-request-id"], raw[:200]
    assert answer.status < 500, (raw[:300], answer.body[:300])
    if answer.status != 200:
        assert answer.error["message"], raw[:200]
        assert answer.error["request_id"] == answer.headers["x-sluicegate-request-id"]
    return answer.status


async def settled(gateway: Gateway) -> None:
    await gateway.until_nothing_is_held()


@pytest.mark.parametrize("raw", RAW, ids=lambda raw: repr(raw[:30]))
async def test_a_broken_body_is_the_callers_fault(gateway: Gateway, raw: bytes) -> None:
    await send(gateway, raw)
    await settled(gateway)


@pytest.mark.parametrize("stream", [False, True])
async def test_no_value_of_any_field_is_a_fault_of_ours(gateway: Gateway, stream: bool) -> None:
    statuses = set()
    for field in FIELDS:
        for value in ODD:
            body = {"model": "default", "messages": [{"role": "user", "content": "x"}], "stream": stream, field: value}
            statuses.add(await send(gateway, json.dumps(body).encode()))
    assert statuses >= {200, 400}
    await settled(gateway)


async def test_no_value_inside_a_message_is_a_fault_of_ours(gateway: Gateway) -> None:
    places = (
        "role",
        "content",
        "name",
        "tool_calls",
        "tool_call_id",
        "function_call",
        "audio",
        "refusal",
        "reasoning_content",
        "x",
    )
    for place in places:
        for value in ODD:
            for role in ("user", "assistant", "tool"):
                message = {"role": role, "content": "x", place: value}
                await send(gateway, json.dumps({"model": "default", "messages": [message]}).encode())
    await settled(gateway)


async def test_random_damage_to_a_good_body_is_never_a_fault_of_ours(gateway: Gateway) -> None:
    chance = random.Random(5)
    good = json.dumps(
        {
            "model": "default",
            "messages": [
                {"role": "system", "content": "be brief"},
                {
                    "role": "user",
                    "content": [{"type": "text", "text": "hé 😀"}, {"type": "image_url", "image_url": {"url": "data:,x"}}],
                },
                {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f"}}],
                },
                {"role": "tool", "tool_call_id": "1", "content": "42"},
            ],
            "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
            "max_tokens": 10,
        }
    ).encode()
    for _ in range(500):
        raw = bytearray(good)
        for _ in range(chance.randint(1, 3)):
            at = chance.randrange(len(raw))
            match chance.randrange(3):
                case 0:
                    raw[at] = chance.randrange(256)
                case 1:
                    del raw[at : at + chance.randint(1, 12)]
                case _:
                    raw[at:at] = raw[at - 5 : at]
        await send(gateway, bytes(raw))
    await settled(gateway)


@pytest.mark.parametrize("key", ["\xff" * 10, "x" * 7_000])
async def test_odd_header_values_are_refused(gateway: Gateway, key: str) -> None:
    for headers in ({"Idempotency-Key": key}, {"Authorization": f"Bearer {key}"}):
        answer = await gateway.chat(headers=headers)
        assert 400 <= answer.status < 500
