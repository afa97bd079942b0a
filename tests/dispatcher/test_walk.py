"""Retries, fallback and how a request ends."""

import asyncio
from datetime import timedelta

import pytest

from gateway.chat import Slot, Usage
from gateway.dispatcher.breaker import COOLDOWN_S, FAILURES_MAX
from gateway.errors import (
    BreakerOpen,
    CallerFault,
    ChainExhausted,
    ContentRefused,
    ContextTooLong,
    Exhausted,
    LedgerUnavailable,
    OutputParameterRefused,
    Refused,
    Unanswered,
    UnknownTarget,
)
from tests.dispatcher.rig import PRICED, Rig, priced, question, refused, requests, said, tokens, unanswered, usd
from tests.doubles.memory_store import MemoryStore
from tests.doubles.provider import Play


def now_s() -> float:
    """Virtual seconds since the test began."""
    return asyncio.get_running_loop().time()


async def test_each_retry_has_its_own_reservation_and_number():
    rig = Rig("a", "b", budgets=(requests("r", 10),))
    rig["a"].plays(refused(), refused())
    reply = await rig.ask()
    assert reply.slot.provider == "b"
    assert [row["attempt"] for row in rig.rows] == [1, 2, 3]
    assert len({row["id"] for row in rig.rows}) == 3
    assert rig.spent("r") == 3


async def test_a_retry_waits_a_jittered_moment():
    rig = Rig(models={"a": {"max_attempts": 3}})
    rig["a"].plays(refused(), refused())
    await rig.ask()
    assert 0.75 <= now_s() <= 1.5


async def test_case_25_a_storm_of_the_providers_own_503_leaves_the_budget_whole():
    rig = Rig(budgets=(tokens("t", 1000), requests("r", 1000)))
    rig["a"].default = Play(error=refused())
    asked = await asyncio.gather(*(rig.ask() for _ in range(50)), return_exceptions=True)
    assert all(isinstance(one, ChainExhausted) for one in asked)
    assert rig.spent("t") == 0
    assert rig.spent("r") == rig["a"].calls
    assert rig.held("t") == 0


async def test_case_25_no_connection_costs_no_request():
    rig = Rig(budgets=(requests("r", 10),), models={"a": {"max_attempts": 1}})
    rig["a"].plays(refused(None))
    with pytest.raises(ChainExhausted):
        await rig.ask()
    assert rig.spent("r") == 0
    assert rig.outcomes == ["not_sent"]


async def test_case_25_a_time_out_counts_at_its_worst_case():
    rig = Rig("a", "b", budgets=(tokens("t", 1000, provider="a"),), models={"a": {"max_attempts": 1}})
    rig["a"].plays(unanswered())
    reply = await rig.ask()
    assert reply.slot.provider == "b"
    assert rig.spent("t") == 110
    assert (rig.rows[0]["uncertain"], rig.rows[0]["estimated"]) == (True, True)


async def test_case_25_a_time_out_with_known_usage_counts_as_stated():
    rig = Rig("a", "b", budgets=(tokens("t", 1000, provider="a"),), models={"a": {"max_attempts": 1}})
    rig["a"].plays(unanswered(usage=Usage(12, 30)))
    await rig.ask()
    assert rig.spent("t") == 42
    assert rig.rows[0]["uncertain"]


async def test_case_28_a_wait_that_fits_is_obeyed():
    rig = Rig("a", "b")
    rig["a"].plays(refused(429, retry_after_s=2.0))
    reply = await rig.ask()
    assert reply.slot.provider == "a"
    assert 2 <= now_s() < 2.1


async def test_case_28_a_long_wait_goes_to_the_next_slot_at_once():
    rig = Rig("a", "b")
    rig["a"].plays(refused(429, retry_after_s=60.0))
    reply = await rig.ask()
    assert (reply.slot.provider, now_s()) == ("b", 0)
    await rig.ask()
    assert rig["a"].calls == 1


async def test_case_28_the_latest_wait_wins():
    rig = Rig(models={"a": {"max_attempts": 1}})
    rig["a"].default = Play(error=refused(429, retry_after_s=1.0), delay_s=1)
    first = asyncio.ensure_future(_caught(rig))
    await asyncio.sleep(0.5)
    rig["a"].default = Play(error=refused(429, retry_after_s=60.0), delay_s=1)
    second = await _caught(rig)
    await first
    assert second.available_at is not None
    assert second.available_at - rig.clock.now() == timedelta(seconds=60)
    refusal = (await _caught(rig)).causes[0].error
    assert isinstance(refusal, BreakerOpen)
    assert rig["a"].calls == 2


async def test_case_29_each_target_once_per_request():
    a, b = Slot("a", "m"), Slot("b", "m")
    rig = Rig("a", "b", chains={"loop": (a, b, a, b)}, models={"a": {"max_attempts": 1}, "b": {"max_attempts": 1}})
    rig["a"].default = rig["b"].default = Play(error=refused())
    with pytest.raises(ChainExhausted) as caught:
        await rig.ask(target="loop")
    assert (rig["a"].calls, rig["b"].calls) == (1, 1)
    assert [cause.slot for cause in caught.value.causes] == [a, b]


async def test_case_30_the_callers_fault_neither_falls_back_nor_trips_the_breaker():
    rig = Rig("a", "b", budgets=(tokens("t", 1000),))
    fault = CallerFault("a", "m", "bad tool", 400, body={"message": "bad tool"})
    for _ in range(10):
        rig["a"].plays(fault)
        with pytest.raises(CallerFault) as caught:
            await rig.ask()
        assert caught.value is fault
    reply = await rig.ask()
    assert reply.slot.provider == "a"
    assert rig["b"].calls == 0
    assert rig.outcomes[0] == "caller_fault"
    assert rig.spent("t") == 13


async def test_refused_content_settles_the_prompt_where_it_is_billed():
    rig = Rig("a", "b", budgets=(tokens("t", 1000),))
    rig["a"].plays(ContentRefused("a", "m", "policy", 400, usage=Usage(12, 0)), ContentRefused("a", "m", "policy", 400))
    for _ in range(2):
        with pytest.raises(ContentRefused):
            await rig.ask()
    assert rig.spent("t") == 12
    assert rig["b"].calls == 0
    assert rig.outcomes == ["content_refused"] * 2


async def test_a_prompt_too_long_goes_to_a_larger_context():
    rig = Rig("a", "b", "c", models={"a": {"context_tokens": 200}, "b": {"context_tokens": 100}, "c": {"context_tokens": 900}})
    rig["a"].plays(ContextTooLong("a", "m", "too long", 400))
    reply = await rig.ask()
    assert reply.slot.provider == "c"
    assert rig["b"].calls == 0


async def test_a_prompt_too_long_for_all_is_the_callers_fault():
    rig = Rig("a", "b", models={"a": {"context_tokens": 200}, "b": {"context_tokens": 100}})
    fault = ContextTooLong("a", "m", "too long", 400)
    rig["a"].plays(fault)
    with pytest.raises(ContextTooLong) as caught:
        await rig.ask()
    assert caught.value is fault


async def test_case_65_a_refused_output_parameter_is_asked_again_once():
    rig = Rig("a", "b", models={"a": {"max_attempts": 1}}, budgets=(requests("r", 10),))
    fault = OutputParameterRefused("a", "m", "use max_completion_tokens", 400)
    rig["a"].plays(fault)
    reply = await rig.ask()
    assert reply.slot.provider == "a"
    assert rig.spent("r") == 2
    rig["a"].plays(fault, fault)
    with pytest.raises(OutputParameterRefused):
        await rig.ask()
    assert rig["a"].calls == 4


async def test_a_refused_output_parameter_is_no_try():
    rig = Rig("a", "b", models={"a": {"max_attempts": 2}})
    rig["a"].plays(OutputParameterRefused("a", "m", "use max_completion_tokens", 400), refused())
    reply = await rig.ask()
    assert (reply.slot.provider, rig["a"].calls) == ("a", 3)


async def test_the_callers_fault_shows_that_the_provider_works():
    rig = Rig("a", "b", models={"a": {"max_attempts": 1}})
    for _ in range(3):
        rig["a"].plays(*[refused()] * (FAILURES_MAX - 1), CallerFault("a", "m", "bad", 400))
        for _ in range(FAILURES_MAX - 1):
            await rig.ask()
        with pytest.raises(CallerFault):
            await rig.ask()
    assert rig["a"].calls == 3 * FAILURES_MAX


@pytest.mark.parametrize("streams", [False, True])
async def test_a_probe_that_came_to_nothing_leaves_the_way_free(streams: bool):
    rig = Rig(budgets=(requests("r", 7),), models={"a": {"max_attempts": 1}})
    rig["a"].plays(*[refused()] * FAILURES_MAX, Play(delay_s=60))
    for _ in range(FAILURES_MAX):
        await _caught(rig)
    await asyncio.sleep(COOLDOWN_S)
    asking = asyncio.ensure_future(rig.read() if streams else rig.ask())
    await asyncio.sleep(1)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    await rig.store.raise_limit("r", "=", 6, rig.store.now_ms + 1000, "admin")
    assert isinstance((await _caught(rig)).causes[0].error, Exhausted)
    await asyncio.sleep(2)
    assert (await rig.ask()).slot.provider == "a"


async def test_case_33_all_cooling_down_says_the_soonest_time():
    rig = Rig("a", "b", models={"b": {"max_attempts": 1}})
    rig["a"].plays(refused(429, retry_after_s=90.0))
    rig["b"].plays(refused(429, retry_after_s=40.0))
    first = await _caught(rig)
    assert not first.budgets_only
    assert first.available_at is not None
    assert first.available_at - rig.clock.now() == timedelta(seconds=40)
    again = await _caught(rig)
    assert all(isinstance(cause.error, BreakerOpen) for cause in again.causes)


async def test_case_33_a_refused_key_is_told_once_and_closes_the_provider():
    slots = (Slot("a", "m"), Slot("a", "other"), Slot("b", "m"))
    rig = Rig("a", "b", chains={"two": slots})
    rig["a"].default = Play(error=refused(401, code="invalid_api_key"))
    for _ in range(3):
        reply = await rig.ask(target="two")
        assert reply.slot.provider == "b"
    assert rig["a"].calls == 1
    assert [event for event, _ in rig.alerts] == ["provider_key_refused"]
    assert rig.alerts[0][1]["provider"] == "a"


async def test_an_empty_account_is_not_tried_again():
    rig = Rig("a", "b", models={"a": {"max_attempts": 3}})
    rig["a"].plays(refused(429, code="insufficient_quota"))
    await rig.ask()
    await asyncio.sleep(1800)
    await rig.ask()
    assert rig["a"].calls == 1
    assert [event for event, _ in rig.alerts] == ["provider_account_empty"]


async def test_mixed_causes_are_no_budget_exhaustion():
    rig = Rig("a", "b", budgets=(tokens("t", 0, provider="a"),), models={"b": {"max_attempts": 1}})
    rig["b"].plays(refused())
    caught = await _caught(rig)
    assert not caught.budgets_only
    assert [type(cause.error) for cause in caught.causes] == [Exhausted, Refused]
    assert caught.available_at is not None


async def test_the_total_deadline_ends_a_slow_call_and_the_chain():
    rig = Rig("a", "b", chain_timeout_s=10, budgets=(tokens("t", 1000),))
    rig["a"].plays(Play(delay_s=60))
    caught = await _caught(rig)
    assert now_s() == 10
    assert isinstance(caught.causes[0].error, Unanswered)
    assert rig["b"].calls == 0
    assert rig.spent("t") == 110


async def test_case_18_a_caller_that_leaves_a_whole_answer_pays_the_worst_case():
    rig = Rig(budgets=(tokens("t", 1000),))
    rig["a"].plays(Play(delay_s=60))
    asking = asyncio.ensure_future(rig.ask())
    await asyncio.sleep(2)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert rig["a"].bills[0].closed_at == 2
    assert (rig.spent("t"), rig.held("t")) == (110, 0)
    assert (rig.outcomes, rig.rows[0]["estimated"]) == (["cancelled"], True)


async def test_a_caller_that_leaves_while_the_closing_is_written_leaves_no_hold():
    rig = Rig(budgets=(tokens("t", 1000),))

    async def slow(name: str) -> None:
        if name == "close":
            await asyncio.sleep(3)

    rig.store._door = slow
    asking = asyncio.ensure_future(rig.ask())
    await asyncio.sleep(1)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert rig.held("t") == 110
    await rig.dispatcher.drain()
    assert (rig.spent("t"), rig.held("t")) == (13, 0)


async def test_an_answer_need_not_wait_for_its_settling_which_is_ahead_of_what_comes_next():
    rig = Rig(budgets=(tokens("t", 130),))

    async def slow(name: str) -> None:
        if name == "close":
            await asyncio.sleep(3)

    rig.store._door = slow
    began = rig.clock.monotonic()
    await rig.dispatcher.complete(question("hi", None), "default", rig.origin(), settle_first=False)
    assert rig.clock.monotonic() == began
    assert rig.held("t") == 110
    await rig.dispatcher.settled()
    assert (rig.spent("t"), rig.held("t")) == (13, 0)
    await rig.dispatcher.complete(
        question("hi", None), "default", rig.origin(request_id="again", dedupe=True), settle_first=False
    )
    assert rig.held("t") == 0


async def test_case_26_a_ledger_lost_after_the_call_does_not_take_the_answer():
    rig = Rig(budgets=(tokens("t", 1000),))
    rig["a"].plays(Play(delay_s=1))
    asking = asyncio.ensure_future(rig.ask())
    await asyncio.sleep(0.5)
    rig.disk.down = Exception("gone")
    reply = await asking
    assert reply.completion.text == "Hello there!"
    rig.disk.down = None
    rig.store.write_kept()
    assert (rig.spent("t"), rig.held("t")) == (13, 0)


async def test_case_26_a_closing_that_cannot_even_be_kept_does_not_take_the_answer():
    class Broken(MemoryStore):
        async def close(self, reservation, closing):
            raise LedgerUnavailable("gone")

    rig = Rig(store=Broken)
    assert (await rig.ask()).completion.text == "Hello there!"
    assert (await rig.read()).reply is not None


async def test_case_20_missing_usage_keeps_the_estimate_and_a_stated_nought_is_kept():
    rig = Rig(budgets=(tokens("t", 1000),))
    rig["a"].plays(Play(states_usage=False), Play(states=Usage(0, 0)))
    reply = await rig.ask()
    assert (reply.estimated, reply.usage.tokens, rig.spent("t")) == (True, 110, 110)
    reply = await rig.ask()
    assert (reply.estimated, reply.usage.tokens, rig.spent("t")) == (False, 0, 110)


@pytest.mark.parametrize("streams", [True, False])
async def test_missing_usage_of_an_answer_that_ignored_its_limit_is_estimated_from_its_text(streams: bool):
    rig = Rig(budgets=(tokens("t", 1000), usd("m", 10_000)), models={"a": PRICED})
    words = ("one two three four five",) * 50
    rig["a"].plays(Play(words=words, states_usage=False, obeys_limit=False))
    await (rig.read if streams else rig.ask)()
    assert rig.spent("t") >= 10 + 2 * 200
    assert (rig.rows[0]["overrun"], rig.rows[0]["estimated"]) == (rig.spent("t") - 110, True)
    assert rig.spent("m") > rig.rows[0]["held_micro_usd"]


async def test_case_22_cached_tokens_cost_their_own_rate():
    rig = Rig(budgets=(usd("m", 10_000),), models={"a": priced(10, 20, 1)})
    rig["a"].plays(Play(states=Usage(100, 10, cached=90)))
    reply = await rig.ask()
    assert reply.cost_micro_usd == 10 * 10 + 90 * 1 + 10 * 20


async def test_case_21_a_stated_cost_wins():
    rig = Rig(budgets=(usd("m", 10_000),), models={"a": PRICED})
    rig["a"].plays(Play(states=Usage(10, 3, stated_cost_micro_usd=77)))
    reply = await rig.ask()
    assert (reply.cost_micro_usd, rig.spent("m")) == (77, 77)


async def test_usage_above_the_prompt_bound_is_learnt_from():
    rig = Rig()
    rig["a"].plays(Play(prompt=44))
    await rig.ask()
    await rig.ask()
    assert rig.estimator.learnt == [44]


async def test_an_error_that_no_provider_may_raise_settles_and_passes():
    rig = Rig(budgets=(tokens("t", 1000),))
    rig["a"].plays(Play(crash=ValueError("bug")))
    with pytest.raises(ValueError, match="bug"):
        await rig.ask()
    assert (rig.spent("t"), rig.held("t")) == (110, 0)
    assert rig.outcomes == ["unanswered"]


async def test_an_unknown_target_says_so():
    with pytest.raises(UnknownTarget):
        await Rig().ask(target="nobody")


async def test_the_observer_counts_settlings_and_refusals():
    rig = Rig("a", "b", budgets=(tokens("t", 0, provider="a"),))
    await rig.ask()
    assert [slot.provider for slot, _ in rig.observer.refused_] == ["a"]
    assert [closing.outcome for _, closing in rig.observer.settled_] == ["answered"]


async def test_a_whole_answer_keeps_the_providers_object():
    rig = Rig()
    rig["a"].plays(Play(words=said(2), tool_calls=({"id": "c1"},)))
    reply = await rig.ask()
    assert reply.completion.body["choices"][0]["message"]["tool_calls"] == [{"id": "c1"}]


async def _caught(rig: Rig, **parts: float) -> ChainExhausted:
    with pytest.raises(ChainExhausted) as caught:
        await rig.ask(**parts)
    return caught.value
