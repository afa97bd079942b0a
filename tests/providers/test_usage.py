"""What providers state as usage, in every shape and place; over HTTP and as plain values."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from gateway.amounts import AMOUNT_MAX
from gateway.chat import Request, Usage
from gateway.errors import Unanswered
from gateway.providers import Provider, usage
from tests.doubles.upstream import Script, Upstream
from tests.providers.calls import ASK, collect, reservation, text

Make = Callable[..., Provider]

PLACES = [
    pytest.param(Script(), Usage(3, 5), id="last chunk with empty choices"),
    pytest.param(Script(usage="choice"), Usage(3, 5), id="in the choice (Moonshot)"),
    pytest.param(Script(usage="x_groq"), Usage(3, 5), id="x_groq"),
    pytest.param(Script(usage="none"), None, id="case 20: none"),
    pytest.param(Script(usage="zero"), Usage(0, 0), id="case 20: explicit zero"),
    pytest.param(Script(usage="cost_zero"), Usage(3, 5), id="case 21: cost 0 with real tokens"),
    pytest.param(Script(usage="cost", cost=0.0012), Usage(3, 5, stated_cost_micro_usd=1200), id="stated cost"),
    pytest.param(Script(usage="cost", cost=1e300), Usage(3, 5, stated_cost_micro_usd=AMOUNT_MAX), id="a cost beyond all sums"),
    pytest.param(Script(usage="cost", cost="1e999999"), Usage(3, 5), id="a cost that is no number"),  # type: ignore[arg-type]
    pytest.param(Script(prompt_tokens=262_960, cached_tokens=257_955), Usage(262_960, 5, cached=257_955), id="case 22: details"),
    pytest.param(
        Script(prompt_tokens=262_960, cached_tokens=257_955, cached_shape="top"),
        Usage(262_960, 5, cached=257_955),
        id="case 22: Moonshot's cached_tokens",
    ),
    pytest.param(
        Script(prompt_tokens=900, cached_tokens=800, cached_shape="deepseek"), Usage(900, 5, cached=800), id="case 22: DeepSeek"
    ),
    pytest.param(Script(prompt_tokens=10, cached_tokens=12), Usage(10, 5, cached=10), id="case 22: remainder clamped at 0"),
    pytest.param(Script(reasoning=4, pieces=2), Usage(3, 6, reasoning=4), id="case 23: reasoning inside, once"),
    pytest.param(Script(reasoning=4, pieces=2, reasoning_outside=True), Usage(3, 6), id="case 23: thoughts outside, counted"),
]


@pytest.mark.parametrize(("script", "expected"), PLACES)
async def test_cases_20_to_23_streamed(upstream: Upstream, make: Make, script: Script, expected: Usage | None) -> None:
    upstream.default = script
    chunks = await collect(make().stream(ASK, reservation()))
    stated = [chunk.usage for chunk in chunks if chunk.usage is not None]
    assert stated == ([] if expected is None else [expected])


@pytest.mark.parametrize(("script", "expected"), PLACES)
async def test_cases_20_to_23_whole(upstream: Upstream, make: Make, script: Script, expected: Usage | None) -> None:
    upstream.default = script
    assert (await make().complete(ASK, reservation())).usage == expected


async def test_case_24_cumulative_usage_the_last_wins(upstream: Upstream, make: Make) -> None:
    upstream.default = Script(usage="cumulative")
    chunks = await collect(make().stream(ASK, reservation()))
    stated = [chunk.usage for chunk in chunks if chunk.usage is not None]
    assert [one.output for one in stated] == [1, 2, 3, 4, 5, 5]


async def test_case_24_usage_is_always_asked_for_once(upstream: Upstream, make: Make) -> None:
    asked = Request(ASK.messages, extra={"stream_options": {"include_usage": False, "vendor": 1}})
    chunks = await collect(make().stream(asked, reservation()))
    assert upstream.seen[0].body["stream_options"] == {"include_usage": True, "vendor": 1}
    assert sum(chunk.usage is not None for chunk in chunks) == 1
    await make().complete(asked, reservation())
    assert "stream_options" not in upstream.seen[1].body


async def test_usage_on_the_way_is_not_taken_for_the_final_one(upstream: Upstream, make: Make) -> None:
    upstream.default = Script(usage="cumulative", cut=3)
    with pytest.raises(Unanswered) as caught:
        await collect(make().stream(ASK, reservation()))
    assert caught.value.usage is None


async def test_final_usage_of_an_unfinished_stream_is_kept(upstream: Upstream, make: Make) -> None:
    upstream.default = Script(finish=None)
    with pytest.raises(Unanswered) as caught:
        await collect(make().stream(ASK, reservation()))
    assert caught.value.usage == Usage(3, 5)


async def test_anthropic_cached_tokens_count_in_the_prompt_once(upstream: Upstream, make: Make) -> None:
    upstream.default = Script(prompt_tokens=262_960, cached_tokens=257_955)
    expected = Usage(262_960, 5, cached=257_955)
    assert (await make("anthropic").complete(ASK, reservation())).usage == expected
    chunks = await collect(make("anthropic").stream(ASK, reservation()))
    assert chunks[-1].usage == expected


@pytest.mark.parametrize(("kind", "expected"), [("none", None), ("zero", Usage(0, 0))])
async def test_case_20_anthropic(upstream: Upstream, make: Make, kind: str, expected: Usage | None) -> None:
    upstream.default = Script(usage=kind)
    assert (await make("anthropic").complete(ASK, reservation())).usage == expected
    chunks = await collect(make("anthropic").stream(ASK, reservation()))
    assert [chunk.usage for chunk in chunks if chunk.usage] == ([] if expected is None else [expected])
    assert text(chunks)


async def test_anthropic_usage_at_the_beginning_alone_is_no_usage(upstream: Upstream, make: Make) -> None:
    upstream.default = Script(cut=3)
    with pytest.raises(Unanswered) as caught:
        await collect(make("anthropic").stream(ASK, reservation()))
    assert caught.value.usage is None


async def test_anthropic_usage_that_is_never_finished_is_no_usage(upstream: Upstream, make: Make) -> None:
    start = {"type": "message_start", "message": {"id": "1", "model": "m", "usage": {"input_tokens": 9, "output_tokens": 1}}}
    block = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "a long answer"}}
    end = [{"type": "message_delta", "delta": {"stop_reason": "end_turn"}}, {"type": "message_stop"}]
    upstream.default = Script(events=[f"data: {json.dumps(event)}\n\n" for event in (start, block, *end)])
    chunks = await collect(make("anthropic").stream(ASK, reservation()))
    assert text(chunks) == "a long answer"
    assert not any(chunk.usage for chunk in chunks)


@pytest.mark.parametrize(
    ("stated", "expected"),
    [
        (None, None),
        ({}, None),
        ([], None),
        ({"total_tokens": 9}, None),
        ({"prompt_tokens": 9}, None),
        ({"prompt_tokens": None, "completion_tokens": 4}, None),
        ({"prompt_tokens": True, "completion_tokens": 4}, None),
        ({"prompt_tokens": float("nan"), "completion_tokens": 4}, None),
        ({"prompt_tokens": -3, "completion_tokens": 4.0}, Usage(0, 4)),
        ({"prompt_tokens": 9, "total_tokens": 12}, Usage(9, 3)),
        ({"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 5}, Usage(9, 3)),
        ({"input_tokens": 9, "output_tokens": 3}, Usage(9, 3)),
        ({"prompt_tokens": 9, "completion_tokens": 3, "completion_tokens_details": {"reasoning_tokens": 7}}, Usage(9, 10, 0, 7)),
        (
            {"prompt_tokens": 9, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 2, "cache_write_tokens": 5}},
            Usage(9, 3, cached=2, cache_written=5),
        ),
        ({"prompt_tokens": 9, "completion_tokens": 3, "cost": "0.0000011"}, Usage(9, 3, stated_cost_micro_usd=2)),
        ({"prompt_tokens": 9, "completion_tokens": 3, "cost": -1}, Usage(9, 3)),
        ({"prompt_tokens": 9, "completion_tokens": 3, "cost": "free"}, Usage(9, 3)),
        ({"prompt_tokens": 9, "completion_tokens": 3, "cost": float("inf")}, Usage(9, 3)),
        ({"prompt_tokens": 9, "completion_tokens": 3, "cost": 0.01, "is_byok": True}, Usage(9, 3)),
        ({"prompt_tokens": 0, "completion_tokens": 0, "cost": 0}, Usage(0, 0, stated_cost_micro_usd=0)),
    ],
)
def test_odd_values(stated: Any, expected: Usage | None) -> None:
    assert usage.openai(stated) == expected


def test_anthropic_cache_writes_are_prompt_too() -> None:
    stated = {"input_tokens": 5, "cache_read_input_tokens": 100, "cache_creation_input_tokens": 20, "output_tokens": 7}
    assert usage.anthropic(stated) == Usage(125, 7, cached=100, cache_written=20)
    assert usage.anthropic({"input_tokens": 5}) is None
