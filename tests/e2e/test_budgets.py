"""Budgets and windows through the endpoint: what the upstream's own meter counted, and what an admin reads."""

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from gateway.errors import ConfigError
from tests.doubles.clock import SettableClock
from tests.doubles.upstream import Script, Upstream
from tests.e2e.rig import Gateway, budget, config, provider

START = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)


async def test_case_1_a_used_up_hour_stays_used_up_over_a_restart(tmp_path: Path, up: Upstream, other: Upstream) -> None:
    hour = budget("moonshot-hour", provider="moonshot", tokens=250)
    alone = config(provider("moonshot", up), hour, chain=["moonshot"])
    up.default = Script(prompt_tokens=200, pieces=50)
    async with Gateway(tmp_path, alone, SettableClock(START)) as gateway:
        assert (await gateway.chat(max_tokens=50)).status == 200
        await gateway.restart()
        refused = await gateway.chat(max_tokens=50)
        assert (refused.status, refused.error["code"]) == (429, "budget_exhausted")
        assert refused.error["resets_at"] == "2026-03-02T13:01:00Z"
        await gateway.restart(config(provider("moonshot", up), provider("groq", other), hour, chain=["moonshot", "groq"]))
        answer = await gateway.chat()
        assert answer.headers["x-sluicegate-provider"] == "groq"
    assert (up.meter.requests, up.meter.tokens, other.meter.requests) == (1, 250, 1)


async def test_case_2_an_exhausted_provider_with_three_attempts_gets_no_call(tmp_path: Path, up: Upstream) -> None:
    text = config(provider("moonshot", up, max_attempts=3), budget("b", provider="moonshot", requests=0), chain=["moonshot"])
    async with Gateway(tmp_path, text) as gateway:
        for stream in (False, True):
            assert (await gateway.chat(stream=stream)).status == 429
    assert up.meter.requests == 0


async def test_case_3_a_stream_is_clamped_to_what_is_left(tmp_path: Path, up: Upstream) -> None:
    hour = budget("moonshot-hour", provider="moonshot", tokens=250_000)
    text = config(provider("moonshot", up, max_output_tokens=20_000), hour, chain=["moonshot"])
    up.queue.append(Script(prompt_tokens=2, output_tokens=248_998, ignore_limit=True))
    up.default = Script(pieces=16_924)
    async with Gateway(tmp_path, text) as gateway:
        await gateway.chat()
        assert (await gateway.budget("moonshot-hour"))["spent"] == 249_000
        answer = await gateway.chat(stream=True, max_tokens=16_924)
        assert answer.status == 200
        assert answer.events[-2]["choices"][0]["finish_reason"] == "length"
        await gateway.until_nothing_is_held()
        assert 249_000 < (await gateway.budget("moonshot-hour"))["spent"] <= 250_000
        assert (await gateway.rows())[-1]["outcome"] == "clamped"
    assert up.meter.tokens <= 250_000


async def test_case_4_of_fifty_at_once_with_room_for_ten_exactly_ten_go_out(tmp_path: Path, up: Upstream) -> None:
    text = config(provider("moonshot", up), budget("b", provider="moonshot", requests=10), chain=["moonshot"])
    up.default = Script(gate=True)
    async with Gateway(tmp_path, text) as gateway:
        calls = [asyncio.create_task(gateway.chat(stream=bool(index % 2))) for index in range(50)]
        await gateway.until(lambda: sum(call.done() for call in calls) == 40 and up.meter.waiting == 10)
        up.release()
        answers = await asyncio.gather(*calls)
    assert sorted(answer.status for answer in answers) == [200] * 10 + [429] * 40
    assert up.meter.requests == 10
    # Holds alone were in the way of the forty, so each may try again in a second.
    assert {answer.headers["retry-after"] for answer in answers if answer.status == 429} == {"1"}


async def test_case_5_a_refusal_by_the_second_budget_leaves_no_trace_in_the_first(tmp_path: Path, up: Upstream) -> None:
    budgets = budget("a-provider", provider="moonshot", tokens=100_000), budget("b-user", user="*", requests=1)
    async with Gateway(tmp_path, config(provider("moonshot", up), *budgets, chain=["moonshot"])) as gateway:
        assert (await gateway.chat()).status == 200
        before = await gateway.budget("a-provider")
        refused = await gateway.chat()
        assert (refused.status, refused.error["scope"], refused.error["unit"]) == (429, "user", "requests")
        assert await gateway.budget("a-provider") == before
        assert before["held"] == 0
    assert up.meter.requests == 1


async def test_case_6_nought_is_nothing_allowed_and_negative_stops_the_start(tmp_path: Path, up: Upstream) -> None:
    for unit in ("tokens", "requests", "usd"):
        text = config(provider("moonshot", up), budget("b", **{unit: 0}), chain=["moonshot"])
        async with Gateway(tmp_path / unit, text) as gateway:
            refused = await gateway.chat()
            assert (refused.status, refused.error["code"], refused.error["resets_at"]) == (429, "budget_exhausted", None)
            assert refused.headers["x-should-retry"] == "false"
        with pytest.raises(ConfigError, match=r"negative|at least 0"):
            async with Gateway(tmp_path / "negative", text.replace(f"{unit} = 0", f"{unit} = -1")):
                pass
    assert up.meter.requests == 0


async def test_case_7_exactly_the_limit_is_allowed_and_one_more_is_not(tmp_path: Path, up: Upstream) -> None:
    def text(tokens: int) -> str:
        return config(provider("moonshot", up), budget("b", tokens=tokens), chain=["moonshot"])

    async with Gateway(tmp_path, text(1)) as gateway:
        asked = (await gateway.chat(key="admin", max_tokens=5)).error["asked"]
        await gateway.restart(text(asked - 1))
        assert (await gateway.chat(max_tokens=5)).status == 429
        await gateway.restart(text(asked))
        assert (await gateway.chat(max_tokens=5)).status == 200
    assert up.meter.requests == 1


async def test_case_8_an_alias_and_the_name_count_into_one_budget(tmp_path: Path, up: Upstream) -> None:
    text = config(provider("moonshot", up, aliases=["kimi"]), budget("b", provider="kimi", requests=3), chain=["kimi"])
    async with Gateway(tmp_path, text) as gateway:
        for model in ("kimi", "moonshot", "kimi:moonshot-model"):
            assert (await gateway.chat(model=model)).status == 200
        for model in ("kimi", "moonshot", "default", "moonshot:moonshot-model"):
            assert (await gateway.chat(model=model)).status == 429
        assert (await gateway.budget("b"))["spent"] == 3
    assert up.meter.requests == 3


async def test_case_9_a_fallbacks_own_budget_is_checked(tmp_path: Path, up: Upstream, other: Upstream) -> None:
    up.default = Script(status=503)
    text = config(
        provider("home", up, max_attempts=1),
        provider("paid", other),
        budget("b", provider="paid", requests=1),
        chain=["home", "paid"],
    )
    async with Gateway(tmp_path, text) as gateway:
        assert (await gateway.chat()).headers["x-sluicegate-provider"] == "paid"
        refused = await gateway.chat()
        assert (refused.status, refused.error["code"]) == (503, "providers_unavailable")
    assert (up.meter.requests, other.meter.requests) == (2, 1)


@pytest.mark.parametrize(
    ("per", "resets", "now", "opens"),
    [
        # Clocks go forward on 29 March (a day of 23 hours) and back on 25 October 2026 (one of 25).
        ("day", "00:00", "2026-03-28T23:30:00", "2026-03-29T22:00:00Z"),
        ("day", "00:00", "2026-10-24T22:30:00", "2026-10-25T23:00:00Z"),
        # 02:30 does not exist on 29 March: the day begins where the gap ends.
        ("day", "02:30", "2026-03-28T22:00:00", "2026-03-29T01:00:00Z"),
        ("day", "06:00", "2026-03-02T05:30:00", "2026-03-03T05:00:00Z"),
        ("month", "00:00", "2026-02-10T12:00:00", "2026-02-28T23:00:00Z"),
        # 4 March 2026 is a Wednesday; the week begins on Monday.
        ("week", "00:00", "2026-03-04T12:00:00", "2026-03-08T23:00:00Z"),
        ("hour", None, "2026-03-29T00:59:00", "2026-03-29T01:00:00Z"),
    ],
)
async def test_case_10_windows_keep_the_zones_days(
    tmp_path: Path, up: Upstream, per: str, resets: str | None, now: str, opens: str
) -> None:
    edges = {"resets": resets} if resets else {}
    text = config(
        provider("moonshot", up), budget("b", requests=1, **{"per": per, **edges}), chain=["moonshot"], timezone="Europe/Madrid"
    )
    clock = SettableClock(datetime.fromisoformat(now).replace(tzinfo=UTC))
    async with Gateway(tmp_path, text, clock) as gateway:
        assert (await gateway.chat()).status == 200
        assert (await gateway.chat()).error["resets_at"] == opens
        edge = datetime.fromisoformat(opens)
        clock.set(edge - timedelta(milliseconds=1))
        assert (await gateway.chat()).status == 429
        clock.set(edge)
        assert (await gateway.chat()).status == 200


async def test_case_11_of_two_windows_the_later_reset_is_named(tmp_path: Path, up: Upstream) -> None:
    budgets = budget("hour", requests=1, per="hour"), budget("day", requests=1, per="day")
    async with Gateway(tmp_path, config(provider("moonshot", up), *budgets, chain=["moonshot"]), SettableClock(START)) as gateway:
        await gateway.chat()
        refused = await gateway.chat(key="admin")
    assert refused.error["resets_at"] == "2026-03-03T00:00:00Z"
    assert refused.error["budget"] == "day"


async def test_case_12_a_raise_takes_effect_at_once_and_ends_by_itself(tmp_path: Path, up: Upstream) -> None:
    clock = SettableClock(START)
    text = config(provider("moonshot", up), budget("b", requests=1, per="day"), chain=["moonshot"])
    async with Gateway(tmp_path, text, clock) as gateway:
        await gateway.chat()
        assert (await gateway.chat()).status == 429
        raised = await gateway.call("POST", "/api/budgets/b/raise", key="admin", json={"change": "+2", "for": "2h"})
        assert raised.status == 200
        assert (await gateway.budget("b"))["limit"] == 3
        assert [(await gateway.chat()).status for _ in range(3)] == [200, 200, 429]
        clock.advance(hours=2)
        assert (await gateway.budget("b"))["limit"] == 1
        assert (await gateway.chat()).error["resets_at"] == "2026-03-03T00:00:00Z"
    assert up.meter.requests == 3


async def test_case_12a_above_a_lowered_limit_nothing_goes_out_until_enough_has_left(tmp_path: Path, up: Upstream) -> None:
    clock = SettableClock(START)

    def text(tokens: int) -> str:
        return config(provider("moonshot", up), budget("hour", provider="moonshot", tokens=tokens), chain=["moonshot"])

    up.default = Script(prompt_tokens=2, output_tokens=99_998, ignore_limit=True)
    async with Gateway(tmp_path, text(400_000), clock) as gateway:
        for _ in range(3):
            assert (await gateway.chat(max_tokens=10)).status == 200
            clock.advance(minutes=10)
        assert (await gateway.budget("hour"))["spent"] == 300_000
        await gateway.restart(text(250_000))
        refused = await gateway.chat(max_tokens=10)
        assert refused.status == 429
        # The first 100,000 were spent in the bucket of 12:00, which leaves at 13:01.
        assert refused.error["resets_at"] == "2026-03-02T13:01:00Z"
        clock.set(datetime(2026, 3, 2, 13, 0, 59, tzinfo=UTC))
        assert (await gateway.chat(max_tokens=10)).status == 429
        assert up.meter.requests == 3
        clock.set(datetime(2026, 3, 2, 13, 1, tzinfo=UTC))
        assert (await gateway.chat(max_tokens=10)).status == 200
    assert up.meter.requests == 4


async def test_case_13_a_changed_limit_keeps_usage_and_a_new_window_counts_from_the_rows(tmp_path: Path, up: Upstream) -> None:
    clock = SettableClock(START)

    def text(*budgets: str) -> str:
        return config(provider("moonshot", up), *budgets, chain=["moonshot"])

    async with Gateway(tmp_path, text(budget("b", requests=5, per="day")), clock) as gateway:
        for _ in range(2):
            await gateway.chat()
        clock.advance(days=1)
        await gateway.chat()
        await gateway.restart(text(budget("b", requests=9, per="day"), budget("week", requests=9, per="week")))
        assert (await gateway.budget("b"))["spent"] == 1
        await gateway.restart(text(budget("b", requests=9, per="week"), budget("hour", requests=9, per="hour")))
        assert (await gateway.budget("b"))["spent"] == 3
        assert (await gateway.budget("hour"))["spent"] == 1
        clock.advance(hours=1)
        await gateway.restart(text(budget("late", requests=9, per="hour")))
        assert (await gateway.budget("late"))["spent"] == 0


async def test_case_15_a_call_refused_by_one_limit_uses_up_no_other(tmp_path: Path, up: Upstream) -> None:
    budgets = budget("rpm", requests=3, per="minute"), budget("tokens", tokens=1, per="day")
    async with Gateway(tmp_path, config(provider("moonshot", up), *budgets, chain=["moonshot"]), SettableClock(START)) as gateway:
        for _ in range(5):
            assert (await gateway.chat()).error["code"] == "prompt_too_large_for_budget"
        assert (await gateway.budget("rpm"))["spent"] == 0
        assert (await gateway.budget("rpm"))["held"] == 0
    assert up.meter.requests == 0


async def test_case_16_a_call_counts_in_the_window_in_which_it_was_reserved(tmp_path: Path, up: Upstream) -> None:
    clock = SettableClock(START - timedelta(seconds=1))
    up.default = Script(gate=True)
    text = config(provider("moonshot", up), budget("hour", requests=5, per="hour"), chain=["moonshot"])
    async with Gateway(tmp_path, text, clock) as gateway:
        call = asyncio.create_task(gateway.chat())
        await up.until(lambda: up.meter.waiting == 1)
        clock.advance(6)
        up.release()
        assert (await call).status == 200
        assert (await gateway.budget("hour"))["spent"] == 0
        assert (await gateway.rows())[-1]["started"].startswith("2026-03-02T11:59:59")
        clock.set(START - timedelta(seconds=1))
