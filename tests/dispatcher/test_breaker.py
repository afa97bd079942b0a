"""Breakers: failures in a row open, one probe closes or reopens."""

from datetime import timedelta

import pytest

from gateway.chat import Slot
from gateway.dispatcher.breaker import (
    ACCOUNT_EMPTY_S,
    COOLDOWN_MAX_S,
    COOLDOWN_S,
    FAILURES_MAX,
    KEY_REFUSED_S,
    REMEMBERED_MAX,
    Breakers,
)
from gateway.errors import BreakerOpen
from tests.dispatcher.rig import Counted, refused, unanswered
from tests.doubles.clock import SettableClock

A, B = Slot("a", "m"), Slot("a", "other")


class Bench:
    """Breakers with a settable clock."""

    def __init__(self) -> None:
        self.clock, self.observer, self.alerts = SettableClock(), Counted(), []
        self.breakers = Breakers(self.clock, self.observer, lambda event, fields: self.alerts.append(event))

    def fail(self, slot: Slot = A, times: int = 1, **parts: object) -> None:
        """So many failed calls."""
        for _ in range(times):
            self.breakers.enter(slot)
            self.breakers.failed(slot, refused(**parts))

    def is_open(self, slot: Slot = A) -> bool:
        """True when a call would be refused; a probe that gets through is given back."""
        try:
            self.breakers.enter(slot)
        except BreakerOpen:
            return True
        self.breakers.leave(slot)
        return False


def test_failures_in_a_row_open_one_slot_only():
    bench = Bench()
    bench.fail(times=FAILURES_MAX - 1)
    assert not bench.is_open()
    bench.fail()
    assert bench.is_open()
    assert not bench.is_open(B)
    assert bench.observer.breaker_ == [(A, True)]
    bench.clock.advance(COOLDOWN_S)
    bench.fail()
    assert bench.alerts == ["breaker_open"], "told once until it answers"


def test_a_success_in_between_starts_the_count_again():
    bench = Bench()
    bench.fail(times=FAILURES_MAX - 1)
    bench.breakers.succeeded(A)
    bench.fail(times=FAILURES_MAX - 1)
    assert not bench.is_open()


def test_after_the_wait_one_probe_goes_out_and_closes_it():
    bench = Bench()
    bench.fail(times=FAILURES_MAX)
    bench.clock.advance(COOLDOWN_S)
    bench.breakers.enter(A)
    with pytest.raises(BreakerOpen):
        bench.breakers.enter(A)
    bench.breakers.succeeded(A)
    assert not bench.is_open()
    assert bench.observer.breaker_ == [(A, True), (A, False)]


def test_a_failed_probe_doubles_the_wait_up_to_its_most():
    bench = Bench()
    bench.fail(times=FAILURES_MAX)
    wait_s = COOLDOWN_S
    for _ in range(8):
        bench.clock.advance(wait_s)
        bench.fail()
        wait_s = min(wait_s * 2, COOLDOWN_MAX_S)
        assert bench.breakers.until(A) == bench.clock.now() + timedelta(seconds=wait_s)


def test_a_probe_that_no_budget_let_through_is_given_back():
    bench = Bench()
    bench.fail(times=FAILURES_MAX)
    bench.clock.advance(COOLDOWN_S)
    bench.breakers.enter(A)
    bench.breakers.leave(A)
    assert not bench.is_open()


def test_a_success_from_before_does_not_end_a_wait_that_was_asked_for():
    bench = Bench()
    bench.fail(status=429, retry_after_s=60.0)
    bench.breakers.succeeded(A)
    assert bench.is_open()


def test_a_wait_of_nought_is_no_wait():
    bench = Bench()
    bench.fail(status=429, retry_after_s=0.0)
    assert not bench.is_open()


@pytest.mark.parametrize(
    ("parts", "wait_s", "event"),
    [
        ({"status": 401}, KEY_REFUSED_S, "provider_key_refused"),
        ({"status": 403}, KEY_REFUSED_S, "provider_key_refused"),
        ({"status": 402}, ACCOUNT_EMPTY_S, "provider_account_empty"),
        ({"status": 429, "code": "insufficient_quota"}, ACCOUNT_EMPTY_S, "provider_account_empty"),
    ],
)
def test_a_refused_key_or_an_empty_account_closes_every_model_and_is_told_once(parts, wait_s: float, event: str):
    bench = Bench()
    bench.fail(**parts)
    assert bench.is_open(A)
    assert bench.is_open(B)
    bench.clock.advance(wait_s)
    bench.fail(B, **parts)
    assert bench.alerts == [event]
    bench.clock.advance(wait_s)
    bench.breakers.enter(A)
    bench.breakers.succeeded(A)
    assert not bench.is_open(B)
    bench.fail(**parts)
    assert bench.alerts == [event, event]


def test_time_outs_count_too():
    bench = Bench()
    for _ in range(FAILURES_MAX):
        bench.breakers.enter(A)
        bench.breakers.failed(A, unanswered())
    assert bench.is_open()


def test_what_is_remembered_of_closed_slots_is_bounded():
    bench = Bench()
    bench.fail(times=FAILURES_MAX)
    for number in range(3 * REMEMBERED_MAX):
        bench.fail(Slot("a", f"made-up-{number}"))
    assert len(bench.breakers._states) <= REMEMBERED_MAX + 1
    assert bench.is_open()
