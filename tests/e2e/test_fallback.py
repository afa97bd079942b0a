"""Retries and fallback through the endpoint: who was called, how often, and what the client was told."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.doubles.clock import SettableClock
from tests.doubles.upstream import Script, Upstream
from tests.e2e.rig import Gateway, budget, config, provider

START = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
OVERLOADED = {"message": "slow down", "type": "rate_limit_error", "code": "rate_limit_exceeded"}


HASTY = {"first_token_timeout_s": 2, "idle_timeout_s": 2}
"""For an upstream that stalls."""


def pair(up: Upstream, other: Upstream, **fields: Any) -> str:
    """Two providers with one attempt each; `fields` are the first one's."""
    return config(
        provider("moonshot", up, **{"max_attempts": 1} | fields),
        provider("groq", other, max_attempts=1),
        budget("tokens", tokens=1_000_000),
        chain=["moonshot", "groq"],
    )


@pytest.mark.parametrize(
    ("headers", "wait_s"),
    [
        ({"Retry-After": "7"}, 7),
        ({"Retry-After": "Mon, 02 Mar 2026 12:00:20 GMT"}, 20),
        ({"Retry-After": "-5"}, 1),
        ({"Retry-After": "Mon, 02 Mar 2026 11:00:00 GMT"}, 1),
        ({"retry-after-ms": "2500"}, 3),
        ({}, 1),
    ],
)
async def test_case_28_a_providers_wait_is_obeyed_in_every_form(
    tmp_path: Path, up: Upstream, headers: dict[str, str], wait_s: int
) -> None:
    up.default = Script(status=429, headers=headers, error=OVERLOADED)
    clock = SettableClock(START)
    async with Gateway(tmp_path, config(provider("moonshot", up, max_attempts=1), chain=["moonshot"]), clock) as gateway:
        answer = await gateway.chat()
        assert (answer.status, answer.error["code"], answer.headers["retry-after"]) == (503, "providers_unavailable", str(wait_s))


async def test_case_28_of_several_waits_the_latest_wins(tmp_path: Path, up: Upstream) -> None:
    clock = SettableClock(START)
    async with Gateway(tmp_path, config(provider("moonshot", up, max_attempts=1), chain=["moonshot"]), clock) as gateway:
        for wait_s in (1, 10, 60):
            up.queue.append(Script(status=429, headers={"Retry-After": str(wait_s)}, error=OVERLOADED))
            calls = up.meter.requests
            assert (await gateway.chat()).headers["retry-after"] == str(wait_s)
            clock.advance(wait_s - 0.5)
            assert (await gateway.chat()).status == 503
            assert up.meter.requests == calls + 1
            clock.advance(1)
        assert (await gateway.chat()).status == 200


async def test_case_28_a_short_wait_is_waited_for_and_a_long_one_is_not(tmp_path: Path, up: Upstream, other: Upstream) -> None:
    async with Gateway(tmp_path, pair(up, other, max_attempts=2)) as gateway:
        up.queue.append(Script(status=429, headers={"Retry-After": "0.2"}, error=OVERLOADED))
        assert (await gateway.chat()).headers["x-sluicegate-provider"] == "moonshot"
        assert (up.meter.requests, other.meter.requests) == (2, 0)
        up.queue.append(Script(status=429, headers={"Retry-After": "30"}, error=OVERLOADED))
        assert (await gateway.chat()).headers["x-sluicegate-provider"] == "groq"
        assert (up.meter.requests, other.meter.requests) == (3, 1)


async def test_case_29_each_target_is_tried_once_and_there_is_an_end(tmp_path: Path, up: Upstream, other: Upstream) -> None:
    up.default = other.default = Script(status=503)
    text = config(
        provider("a", up, max_attempts=1, aliases=["a-again"]),
        provider("b", other, max_attempts=1),
        chain=["a", "b"],
        more={"back": ["b", "a"]},
    )
    async with Gateway(tmp_path, text) as gateway:
        for model in ("default", "back"):
            assert (await gateway.chat(model=model)).status == 503
    assert (up.meter.requests, other.meter.requests) == (2, 2)


@pytest.mark.parametrize("stream", [False, True])
async def test_case_30_a_callers_fault_neither_falls_back_nor_trips_the_breaker(
    tmp_path: Path, up: Upstream, other: Upstream, stream: bool
) -> None:
    fault = {
        "message": "Invalid value for temperature",
        "type": "invalid_request_error",
        "param": "temperature",
        "code": "bad_value",
    }
    async with Gateway(tmp_path, pair(up, other)) as gateway:
        for _ in range(8):
            up.queue.append(Script(status=400, error=fault))
            answer = await gateway.chat(stream=stream, temperature=99)
            assert (answer.status, answer.error["code"], answer.error["param"]) == (400, "bad_value", "temperature")
            assert answer.error["message"] == fault["message"]
        assert (await gateway.chat(stream=stream)).headers["x-sluicegate-provider"] == "moonshot"
        await gateway.until_nothing_is_held()
        assert (await gateway.budget("tokens"))["spent"] == up.meter.tokens
    assert (up.meter.requests, other.meter.requests) == (9, 0)


METADATA = 'data: {"id":"1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"role":"assistant"}}]}\n\n'


@pytest.mark.parametrize(
    "script",
    [
        Script(events=[METADATA, 'data: {"error":{"message":"overloaded","code":503}}\n\n']),
        Script(error_at=0),
        Script(malformed=0),
        Script(stall="headers"),
        Script(stall="first"),
        Script(cut="headers"),
        Script(cut="first"),
        Script(events=[METADATA]),
        Script(status=200, body="<html>hello", content_type="text/html"),
    ],
    ids=lambda script: str({k: v for k, v in vars(script).items() if v != getattr(Script(), k)})[:40],
)
async def test_case_31_a_stream_that_fails_before_anything_was_shown_moves_on_silently(
    tmp_path: Path, up: Upstream, other: Upstream, script: Script
) -> None:
    up.default = script
    other.default = Script(text="from the other")
    async with Gateway(tmp_path, pair(up, other, **HASTY if script.stall else {})) as gateway:
        answer = await gateway.chat(stream=True)
        assert (answer.status, answer.text) == (200, "from the other")
        assert answer.headers["x-sluicegate-provider"] == "groq"
        assert answer.events[-1] == "[DONE]"
    assert (up.meter.requests, other.meter.requests) == (1, 1)


@pytest.mark.parametrize(
    "fault", [{"cut": 40}, {"stall": 40}, {"malformed": 41}, {"error_at": 41}], ids=["cut", "stall", "malformed", "error"]
)
async def test_case_32_a_stream_that_fails_after_output_ends_clearly_and_nobody_else_is_asked(
    tmp_path: Path, up: Upstream, other: Upstream, fault: dict[str, Any]
) -> None:
    up.default = Script(pieces=60, **fault)
    async with Gateway(tmp_path, pair(up, other, **HASTY if "stall" in fault else {})) as gateway:
        answer = await gateway.chat(stream=True)
        assert answer.status == 200
        assert answer.text == "".join(f"w{index} " for index in range(40))
        last = answer.events[-1]
        assert last["choices"][0]["finish_reason"] == "error"
        assert last["error"]["code"] == "providers_unavailable"
        assert last["error"]["request_id"] == answer.headers["x-sluicegate-request-id"]
        await gateway.until_nothing_is_held()
        assert (await gateway.rows())[-1]["uncertain"] == "1"
        assert (await gateway.budget("tokens"))["spent"] >= up.meter.tokens
    assert other.meter.requests == 0


async def test_case_33_while_all_are_left_alone_the_soonest_time_is_named(tmp_path: Path, up: Upstream, other: Upstream) -> None:
    up.default = Script(status=429, headers={"Retry-After": "90"}, error=OVERLOADED)
    other.default = Script(status=429, headers={"Retry-After": "40"}, error=OVERLOADED)
    clock = SettableClock(START)
    async with Gateway(tmp_path, pair(up, other), clock) as gateway:
        for _ in range(3):
            answer = await gateway.chat()
            assert (answer.status, answer.error["code"], answer.headers["retry-after"]) == (503, "providers_unavailable", "40")
    assert (up.meter.requests, other.meter.requests) == (1, 1)


async def test_case_33_a_refused_key_is_told_to_the_operator_once(
    tmp_path: Path, up: Upstream, other: Upstream, capsys: Any
) -> None:
    up.default = Script(status=401, error={"message": "bad key", "type": "auth", "code": "invalid_api_key"})
    async with Gateway(tmp_path, pair(up, other)) as gateway:
        for _ in range(4):
            assert (await gateway.chat()).headers["x-sluicegate-provider"] == "groq"
    assert up.meter.requests == 1
    printed = capsys.readouterr()
    assert (printed.out + printed.err).count("provider_key_refused") == 1


@pytest.mark.parametrize("stream", [False, True])
async def test_case_34_one_idempotency_key_is_one_call(tmp_path: Path, up: Upstream, stream: bool) -> None:
    up.default = Script(gate=True, text="one answer only")
    text = config(provider("moonshot", up), budget("tokens", tokens=100_000), chain=["moonshot"])
    async with Gateway(tmp_path, text) as gateway:
        named = {"headers": {"Idempotency-Key": "order-5"}, "stream": stream}
        twins = [asyncio.create_task(gateway.chat(**named)) for _ in range(2)]
        await up.until(lambda: up.meter.waiting == 1)
        await asyncio.sleep(0.2)
        up.release()
        answers = [*await asyncio.gather(*twins), await gateway.chat(**named)]
        await gateway.restart()
        answers.append(await gateway.chat(**named))
        assert [answer.status for answer in answers] == [200] * 4
        assert {answer.text for answer in answers} == {"one answer only"}
        assert {answer.headers["x-sluicegate-request-id"] for answer in answers} == {"key:user:order-5"}
        conflict = await gateway.chat(**named, content="something else")
        assert (conflict.status, conflict.error["code"]) == (409, "idempotency_conflict")
        assert conflict.headers["x-should-retry"] == "false"
        spent = (await gateway.budget("tokens"))["spent"]
        # Another key's same words are another request.
        assert (await gateway.chat(**named, key="admin")).status == 200
    assert up.meter.requests == 2
    assert spent * 2 == up.meter.tokens


async def test_case_34_a_call_that_failed_may_be_made_again(tmp_path: Path, up: Upstream) -> None:
    up.queue.append(Script(status=503))
    async with Gateway(tmp_path, config(provider("moonshot", up, max_attempts=1), chain=["moonshot"])) as gateway:
        named = {"headers": {"Idempotency-Key": "order-6"}}
        assert (await gateway.chat(**named)).status == 503
        assert (await gateway.chat(**named)).status == 200
    assert up.meter.requests == 2
