"""What is counted for each way in which a call can end, through the endpoint; the upstream's meter is the other side."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.doubles.own_time import within
from tests.doubles.upstream import Script, Upstream
from tests.e2e.rig import Gateway, budget, config, provider

PRICE = {"input": 1.0, "cached_input": 0.1, "output": 2.0}
"""USD per million tokens: a prompt token costs one micro-USD, an output token two."""


def counting(up: Upstream, **fields: Any) -> str:
    return config(
        provider("moonshot", up, price=PRICE, max_attempts=1, **fields),
        budget("tokens", tokens=1_000_000),
        budget("usd", usd=5),
        chain=["moonshot"],
    )


@pytest.fixture
async def gateway(tmp_path: Path, up: Upstream) -> AsyncIterator[Gateway]:
    async with Gateway(tmp_path, counting(up)) as running:
        yield running


async def counted(gateway: Gateway) -> tuple[int, int]:
    """Tokens and micro-USD as the budgets have them; nothing may be held any more."""
    await gateway.until_nothing_is_held()
    return (await gateway.budget("tokens"))["spent"], (await gateway.budget("usd"))["spent"]


async def last_row(gateway: Gateway) -> dict[str, Any]:
    await gateway.until_nothing_is_held()
    return (await gateway.rows())[-1]


async def test_case_17_a_client_that_leaves_mid_stream_closes_the_upstream_within_a_second(
    gateway: Gateway, up: Upstream
) -> None:
    up.default = Script(pieces=500, delay_s=0.02)
    async with gateway.open_stream() as response:
        for _ in range(6):
            await response.content.readuntil(b"\n\n")
        sent = up.seen[0].pieces
        response.close()
    await up.until(lambda: up.seen[0].client_left is not None)
    # By the upstream's own pace, which a busy machine slows down as it does the gateway: fifty pieces make a second.
    assert up.seen[0].pieces - sent <= 50
    assert up.meter.open_now == 0
    row = await last_row(gateway)
    assert (row["outcome"], row["estimated"]) == ("cancelled", "1")
    tokens, _ = await counted(gateway)
    assert up.meter.tokens <= tokens < 500


@pytest.mark.parametrize("stream", [True, False])
async def test_case_18_a_client_that_leaves_before_the_first_token_is_never_free(
    gateway: Gateway, up: Upstream, stream: bool
) -> None:
    up.default = Script(gate=True)
    call = asyncio.create_task(gateway.chat(stream=stream, max_tokens=100))
    await up.until(lambda: up.meter.waiting == 1)
    held = (await gateway.budget("tokens"))["held"]
    async with within(1):
        call.cancel()
        await up.until(lambda: up.seen[0].client_left is not None)
    assert (await counted(gateway))[0] == held > 100
    assert (await last_row(gateway))["estimated"] == "1"


async def test_case_19_a_client_that_leaves_after_the_last_chunk_had_a_success(gateway: Gateway, up: Upstream) -> None:
    up.default = Script(pieces=5)
    async with gateway.open_stream() as response:
        while b"[DONE]" not in await response.content.readuntil(b"\n\n"):
            pass
        response.close()
    row = await last_row(gateway)
    assert (row["outcome"], row["estimated"]) == ("answered", "0")
    assert (await counted(gateway))[0] == up.meter.tokens


@pytest.mark.parametrize("stream", [True, False])
async def test_case_20_missing_usage_is_estimated_and_an_explicit_nought_is_kept(
    gateway: Gateway, up: Upstream, stream: bool
) -> None:
    up.queue.append(Script(usage="zero"))
    assert (await gateway.chat(stream=stream)).status == 200
    assert await counted(gateway) == (0, 0)
    up.queue.append(Script(usage="none"))
    assert (await gateway.chat(stream=stream)).status == 200
    tokens, _ = await counted(gateway)
    assert tokens >= up.seen[1].prompt_billed + up.seen[1].output_billed > 0
    assert (await last_row(gateway))["estimated"] == "1"


@pytest.mark.parametrize("stream", [True, False])
async def test_case_21_a_stated_cost_of_nought_with_real_tokens_is_priced_from_the_tokens(
    gateway: Gateway, up: Upstream, stream: bool
) -> None:
    up.default = Script(usage="cost_zero", prompt_tokens=100, output_tokens=10)
    answer = await gateway.chat(stream=stream, usage=stream)
    assert (await counted(gateway))[1] == 120
    assert answer.cost_micro_usd == 120


@pytest.mark.parametrize("shape", ["details", "top", "deepseek"])
@pytest.mark.parametrize("stream", [True, False])
async def test_case_22_cached_tokens_are_priced_once_at_their_rate(
    gateway: Gateway, up: Upstream, shape: str, stream: bool
) -> None:
    up.default = Script(prompt_tokens=262_960, cached_tokens=257_955, cached_shape=shape, output_tokens=10)
    await gateway.chat(stream=stream)
    tokens, cost = await counted(gateway)
    assert tokens == 262_970
    assert cost == (262_960 - 257_955) + 25_796 + 20
    assert (await last_row(gateway))["cached_tokens"] == "257955"


async def test_case_22_more_cached_than_prompt_is_clamped(gateway: Gateway, up: Upstream) -> None:
    up.default = Script(prompt_tokens=100, cached_tokens=150, output_tokens=0)
    await gateway.chat()
    tokens, cost = await counted(gateway)
    assert (tokens, cost) == (100, 10)


@pytest.mark.parametrize(("outside", "output"), [(False, 10), (True, 10)])
async def test_case_23_reasoning_is_counted_once(gateway: Gateway, up: Upstream, outside: bool, output: int) -> None:
    up.default = Script(reasoning=6, pieces=4, prompt_tokens=20, reasoning_outside=outside)
    for stream in (False, True):
        await gateway.chat(stream=stream)
    assert (await counted(gateway))[0] == 2 * (20 + output) == up.meter.tokens


async def test_case_24_of_cumulative_usage_events_the_last_wins(gateway: Gateway, up: Upstream) -> None:
    up.default = Script(usage="cumulative", pieces=9, prompt_tokens=20)
    answer = await gateway.chat(stream=True, usage=True)
    assert (await counted(gateway))[0] == 29
    assert len(await gateway.rows()) == 1
    assert sum("sluicegate" in event for event in answer.events if event != "[DONE]") == 1


@pytest.mark.parametrize(
    "fault", [{"stall": "headers"}, {"cut": "headers"}, {"cut": "first"}, {"status": 502, "body": "<html>bad gateway"}]
)
async def test_case_25_what_may_have_been_billed_counts_at_the_worst_case(
    tmp_path: Path, up: Upstream, fault: dict[str, Any]
) -> None:
    up.default = Script(**fault)
    async with Gateway(tmp_path, counting(up, timeout_s=2, first_token_timeout_s=1)) as gateway:
        answer = await gateway.chat(max_tokens=100)
        assert (answer.status, answer.error["code"]) == (503, "providers_unavailable")
        row = await last_row(gateway)
        assert (row["outcome"], row["uncertain"]) == ("unanswered", "1")
        tokens, cost = await counted(gateway)
        assert tokens > 100
        assert cost > 200


async def test_case_25_a_storm_of_fifty_refusals_leaves_the_budget_whole(gateway: Gateway, up: Upstream) -> None:
    up.default = Script(status=503)
    answers = await asyncio.gather(*(gateway.chat() for _ in range(50)))
    assert {answer.status for answer in answers} == {503}
    assert await counted(gateway) == (0, 0)
    assert up.meter.requests >= 1


async def test_case_27_a_usd_budget_lets_no_unpriced_model_through(tmp_path: Path, up: Upstream) -> None:
    text = config(provider("moonshot", up, price=None), budget("usd", usd=5), chain=["moonshot"])
    async with Gateway(tmp_path, text) as gateway:
        for stream in (False, True):
            refused = await gateway.chat(stream=stream)
            assert (refused.status, refused.error["code"]) == (402, "unpriced_model")
            assert "[providers.moonshot]" in refused.error["message"]
            assert "price = " in refused.error["message"]
    assert up.meter.requests == 0


async def test_case_27_a_misspelt_model_gets_the_providers_own_404_and_is_released(tmp_path: Path, up: Upstream) -> None:
    error = {
        "message": "The model `kimmi` does not exist",
        "type": "invalid_request_error",
        "param": None,
        "code": "model_not_found",
    }
    up.models["kimmi"] = Script(status=404, error=error)
    text = config(provider("moonshot", up), budget("tokens", tokens=100_000), chain=["moonshot"])
    async with Gateway(tmp_path, text) as gateway:
        answer = await gateway.chat(model="moonshot:kimmi")
        assert (answer.status, answer.error["code"], answer.error["message"]) == (404, "model_not_found", error["message"])
        assert (await gateway.budget("tokens"))["spent"] == 0
        assert (await gateway.chat()).status == 200


async def test_case_26_a_database_that_is_gone_for_three_seconds_costs_nobody_the_answer(gateway: Gateway, up: Upstream) -> None:
    up.default = Script(gate=True, pieces=5, prompt_tokens=20)
    calls = [asyncio.create_task(gateway.chat(stream=stream)) for stream in (False, True)]
    await up.until(lambda: up.meter.waiting == 2)
    async with gateway.database_gone():
        up.release()
        async with within(3):
            answers = await asyncio.gather(*calls)
        assert [answer.status for answer in answers] == [200, 200]
        assert [answer.text.split()[0] for answer in answers] == ["w0", "w0"]
        # Longer than one transaction waits for its turn: what could not be written is kept, and tried again.
        await asyncio.sleep(4)
    assert (await counted(gateway))[0] == 50 == up.meter.tokens
    assert len(await gateway.rows()) == 2


async def test_a_request_that_a_lost_database_turned_away_can_be_made_again(tmp_path: Path, up: Upstream) -> None:
    same = {"Idempotency-Key": "once"}
    up.queue.append(Script(status=503, error={"message": "overloaded", "type": "server_error"}, gate=True))
    async with Gateway(tmp_path, config(provider("moonshot", up, max_attempts=1), chain=["moonshot"])) as gateway:
        first = asyncio.create_task(gateway.chat(headers=same))
        await up.until(lambda: up.meter.waiting == 1)
        async with gateway.database_gone():
            up.release()
            assert (await first).status == 503
        async with asyncio.timeout(30):
            assert (await gateway.chat(headers=same)).status == 200


async def test_a_client_that_stops_reading_does_not_fill_the_memory(gateway: Gateway, up: Upstream) -> None:
    up.default = Script(text=" ".join(["x" * 20_000] * 2_000))
    async with gateway.open_stream(max_tokens=2_000) as response:
        await response.content.readuntil(b"\n\n")
        await asyncio.sleep(0.5)
        assert not up.seen[0].done, "the upstream was read to its end although the client was not reading"
        response.close()
    await gateway.until_nothing_is_held()


async def test_what_a_model_billed_above_its_bound_is_held_for_from_then_on_also_after_a_restart(
    gateway: Gateway, up: Upstream
) -> None:
    up.default = Script(prompt_tokens=9000, output_tokens=5)
    assert (await gateway.chat()).status == 200
    assert int((await last_row(gateway))["overrun"]) > 0
    await gateway.stop()
    await gateway.start()
    assert (await gateway.chat()).status == 200
    assert (await last_row(gateway))["overrun"] == "0"
