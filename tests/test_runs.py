"""The values of workflows."""

from decimal import Decimal

import pytest

from gateway.runs import Caps, RunState, StepState


def test_caps_keep_money_exact_and_say_what_is_not_capped():
    caps = Caps(tokens=60_000, usd=0.1)
    assert (caps.micro_usd, caps.requests) == (100_000, None)
    assert Caps.of_json(caps.as_json()) == Caps(60_000, Decimal("0.1"))
    assert Caps.of_json({}) == Caps()


def test_caps_of_a_run_go_before_those_of_its_workflow():
    assert Caps(tokens=5).over(Caps(tokens=9, requests=3)) == Caps(tokens=5, requests=3)
    assert Caps(tokens=0).over(Caps(tokens=9)) == Caps(tokens=0), "0 allows nothing"
    assert Caps(tokens=5).over(None) == Caps(tokens=5)


@pytest.mark.parametrize("wrong", [{"tokens": -1}, {"usd": -0.5}, {"requests": 10**12}, {"usd": float("nan")}])
def test_a_cap_that_is_no_amount_is_refused_by_name(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Caps(**wrong)


def test_an_ended_state_is_one_that_nothing_leaves_by_itself():
    assert {state for state in RunState if state.ended} == {"succeeded", "failed", "cancelled"}
    assert {state for state in StepState if not state.ended} == {"running", "waiting"}
