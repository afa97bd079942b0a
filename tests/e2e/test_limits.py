"""The limits of a single request through the endpoint: its size, its parts, its output."""

import asyncio
import base64
import json
from pathlib import Path
from typing import Any

import pytest

from tests.doubles.upstream import Script, Upstream
from tests.e2e.rig import Gateway, budget, config, provider


def alone(up: Upstream, *budgets: str, **fields: Any) -> str:
    return config(provider("moonshot", up, **fields), *budgets, chain=["moonshot"])


async def asked_of(gateway: Gateway, **fields: Any) -> int:
    """What the gate would hold for a request, from the refusal of a budget without room."""
    return int((await gateway.chat(key="admin", **fields)).error["asked"])


async def test_case_60_answers_and_tools_are_counted(tmp_path: Path, up: Upstream) -> None:
    tools = [{"type": "function", "function": {"name": f"f{i}", "description": "d" * 400}} for i in range(50)]
    async with Gateway(tmp_path, alone(up, budget("b", tokens=1))) as gateway:
        one = await asked_of(gateway, max_tokens=60)
        assert await asked_of(gateway, max_tokens=60, n=5) == one + 4 * 60
        assert await asked_of(gateway, max_tokens=60, tools=tools) > one + 2_000
    assert up.meter.requests == 0


@pytest.mark.parametrize("field", ["service_tier", "models", "route", "plugins", "prediction", "web_search_options"])
async def test_case_60_fields_that_change_price_or_destination_are_refused_by_name(
    tmp_path: Path, up: Upstream, field: str
) -> None:
    async with Gateway(tmp_path, alone(up)) as gateway:
        answer = await gateway.chat(**{field: ["priority"]})
        assert (answer.status, answer.error["code"], answer.error["param"]) == (400, "invalid_request", field)
        assert field in answer.error["message"]
    assert up.meter.requests == 0


PIXELS = "data:image/png;base64," + base64.b64encode(bytes(750_000)).decode()


def picture(url: str) -> list[dict[str, Any]]:
    return [
        {"role": "user", "content": [{"type": "text", "text": "what is it"}, {"type": "image_url", "image_url": {"url": url}}]}
    ]


@pytest.mark.parametrize("url", [PIXELS, "https://pictures.example/cat.png"], ids=["base64", "url"])
async def test_case_61_an_image_is_bounded_by_its_declaration_or_refused(tmp_path: Path, up: Upstream, url: str) -> None:
    async with Gateway(tmp_path, alone(up)) as gateway:
        refused = await gateway.chat(messages=picture(url))
        assert (refused.status, refused.error["code"]) == (400, "invalid_request")
        assert "image_tokens" in refused.error["message"]
        assert up.meter.requests == 0
        await gateway.restart(alone(up, budget("b", tokens=5_000), image_tokens=1_500, max_output_tokens=100))
        assert (await gateway.chat(messages=picture(url))).status == 200
        assert up.seen[0].body["messages"] == picture(url)
        await gateway.restart(alone(up, budget("b", tokens=1_500), image_tokens=1_500))
        assert (await gateway.chat(messages=picture(url))).error["code"] == "prompt_too_large_for_budget"
    assert up.meter.requests == 1


async def test_case_61_a_part_without_any_bound_is_refused(tmp_path: Path, up: Upstream) -> None:
    audio = [{"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}]}]
    async with Gateway(tmp_path, alone(up, image_tokens=1_500)) as gateway:
        refused = await gateway.chat(messages=audio)
        assert (refused.status, refused.error["code"]) == (400, "invalid_request")
        assert "audio" in refused.error["message"]
    assert up.meter.requests == 0


async def test_case_62_a_long_prompt_is_admitted_refused_or_too_large(tmp_path: Path, up: Upstream) -> None:
    prose = ("The quick brown fox jumps over the lazy dog, and nobody minds it at all. " * 5_500)[:400_000]

    def text(limit: int) -> str:
        return alone(up, budget("b", tokens=limit, per="day"), max_output_tokens=500)

    up.queue += [
        Script(prompt_tokens=0, output_tokens=30_000, ignore_limit=True),
        Script(prompt_tokens=1_000, output_tokens=0),
        Script(prompt_tokens=0, output_tokens=29_000, ignore_limit=True),
    ]
    async with Gateway(tmp_path, text(150_000)) as gateway:
        await gateway.chat()
        assert (await gateway.budget("b"))["left"] == 120_000
        assert (await gateway.chat(content=prose)).status == 200
        await gateway.chat()
        assert (await gateway.budget("b"))["left"] == 90_000
        refused = await gateway.chat(content=prose)
        assert (refused.status, refused.error["code"]) == (429, "budget_exhausted")
        await gateway.restart(text(60_000))
        too_large = await gateway.chat(content=prose)
        assert (too_large.status, too_large.error["code"]) == (429, "prompt_too_large_for_budget")
        assert too_large.headers["x-should-retry"] == "false"
    assert up.meter.requests == 3


async def test_case_63_forty_tokens_left_make_no_stump(tmp_path: Path, up: Upstream, other: Upstream) -> None:
    other.default = Script(pieces=100)
    text = config(
        provider("moonshot", up), provider("groq", other), budget("b", provider="moonshot", tokens=0), chain=["moonshot", "groq"]
    )
    async with Gateway(tmp_path, text.replace("tokens = 0", "tokens = 1")) as gateway:
        prompt = await asked_of(gateway, model="moonshot", max_tokens=64) - 64
        await gateway.restart(text.replace("tokens = 0", f"tokens = {prompt + 40}"))
        for stream in (False, True):
            answer = await gateway.chat(stream=stream)
            assert answer.headers["x-sluicegate-provider"] == "groq"
            assert len(answer.text.split()) == 100
    assert (up.meter.requests, other.meter.requests) == (0, 2)


async def test_case_64_room_taken_by_holds_only_is_a_moments_wait(tmp_path: Path, up: Upstream) -> None:
    up.default = Script(gate=True)
    async with Gateway(tmp_path, alone(up, budget("b", requests=1))) as gateway:
        first = asyncio.create_task(gateway.chat())
        await up.until(lambda: up.meter.waiting == 1)
        held = await gateway.chat()
        assert (held.status, held.headers["retry-after"]) == (429, "1")
        assert "used up" not in held.error["message"]
        up.release()
        await first
        spent = await gateway.chat()
        assert (spent.status, spent.headers["x-should-retry"]) == (429, "false")
        assert "used up" in spent.error["message"]
    assert up.meter.requests == 1


@pytest.mark.parametrize("stream", [False, True])
async def test_case_65_a_model_that_wants_the_other_name_is_answered(tmp_path: Path, up: Upstream, stream: bool) -> None:
    up.default = Script(refuse_max_tokens=True)
    async with Gateway(tmp_path, alone(up, budget("b", tokens=10_000), max_attempts=1)) as gateway:
        for _ in range(3):
            assert (await gateway.chat(stream=stream, max_tokens=50)).status == 200
        await gateway.until_nothing_is_held()
        outcomes = [row["outcome"] for row in await gateway.rows()]
        assert outcomes == ["caller_fault", "answered", "answered", "answered"]
        assert (await gateway.budget("b"))["spent"] == up.meter.tokens
    assert [seen.body.get("max_completion_tokens") for seen in up.seen] == [None, 50, 50, 50]


async def test_case_66_a_stream_that_ignores_its_limit_is_cut_and_the_connection_closed(tmp_path: Path, up: Upstream) -> None:
    up.default = Script(ignore_limit=True, endless=True, delay_s=0.002)
    async with Gateway(tmp_path, alone(up, budget("b", tokens=100_000))) as gateway:
        answer = await gateway.chat(stream=True, max_tokens=64)
        assert answer.status == 200
        assert 64 <= len(answer.text.split()) <= 70
        assert answer.events[-2]["choices"][0]["finish_reason"] == "length"
        assert answer.events[-1] == "[DONE]"
        await up.until(lambda: up.seen[0].client_left is not None)
        await gateway.until_nothing_is_held()
        row = (await gateway.rows())[-1]
        assert row["outcome"] == "cut_off"
        assert (await gateway.budget("b"))["spent"] + 10 >= up.meter.tokens
    assert up.meter.open_now == 0


async def test_case_66_tokens_past_the_limit_that_come_in_one_block_are_each_counted(tmp_path: Path, up: Upstream) -> None:
    token = {"choices": [{"index": 0, "delta": {"content": "w "}, "finish_reason": None}]}
    up.default = Script(events=[f"data: {json.dumps(token)}\n\n" * 3000, "data: [DONE]\n\n"])
    async with Gateway(tmp_path, alone(up, budget("b", tokens=100_000))) as gateway:
        answer = await gateway.chat(stream=True, max_tokens=64)
        assert (answer.status, answer.events[-2]["choices"][0]["finish_reason"]) == (200, "length")
        came = len(answer.text.split())
        assert came > 64
        await gateway.until_nothing_is_held()
        row = (await gateway.rows())[-1]
        assert row["outcome"] == "cut_off"
        assert int(row["output_tokens"]) == came
        assert (await gateway.budget("b"))["spent"] >= came
