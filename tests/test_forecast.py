"""Forecast: at the present pace, when a budget runs out; what leaves a rolling window gives its room back."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.budget import Calendar, Lifetime, Rolling
from gateway.clock import to_ms
from gateway.forecast import Pace, forecast

HOUR = 3_600_000
MINUTE = 60_000
DAY = Calendar("day", ZoneInfo("Europe/Madrid"))
LAST_HOUR = Rolling(3600, "rolling 1h")
MORNING = to_ms(datetime(2026, 3, 2, 5, tzinfo=UTC))
"""Six in Madrid."""
TODAY = DAY.bucket(MORNING)


@pytest.mark.parametrize(
    ("limit", "spent", "held", "hours"),
    [
        (100, 50, 0, 6),  # Half of it in six hours: the other half by noon.
        (100, 50, 20, 3.6),
        (100, 20, 0, None),  # Eighty by midnight.
        (100, 25, 0, None),  # All of it at midnight, when the next day begins.
        (100, 26, 0, 17.0769),
        (100, 0, 0, None),
        (100, 100, 0, 0),
        (100, 70, 30, 0),
        (100, 130, 0, 0),
        (0, 0, 0, 0),
    ],
)
def test_a_day_goes_on_as_it_went_since_it_began(limit: int, spent: int, held: int, hours: float | None) -> None:
    found = forecast(DAY, limit, {TODAY: spent}, held, MORNING)
    assert (found is None) == (hours is None)
    if hours is not None and found is not None:
        assert found - MORNING == pytest.approx(hours * HOUR, abs=1000)


def test_yesterday_says_nothing_of_today() -> None:
    assert forecast(DAY, 100, {DAY.bucket(TODAY - 1): 90}, 0, MORNING) is None


def test_before_a_twentieth_of_the_day_nothing_is_said_but_that_it_is_gone() -> None:
    assert forecast(DAY, 100, {TODAY: 50}, 0, TODAY + 72 * MINUTE - 1) is None
    assert forecast(DAY, 100, {TODAY: 50}, 0, TODAY + 72 * MINUTE) == TODAY + 144 * MINUTE
    assert forecast(DAY, 100, {TODAY: 100}, 0, TODAY + 1000) == TODAY + 1000


def test_a_rolling_window_goes_by_its_last_quarter_and_gets_room_back() -> None:
    now = LAST_HOUR.bucket(MORNING)
    # Fifteen minutes at 2 a minute: 70 of 100 are free, for 35 minutes.
    spends = {now - minutes * MINUTE: 2 for minutes in range(1, 16)}
    assert forecast(LAST_HOUR, 100, spends, 0, now) == now + 35 * MINUTE
    # Of 60 more the room comes back in two minutes.
    assert forecast(LAST_HOUR, 100, {**spends, now - 59 * MINUTE: 60}, 0, now) == now + 35 * MINUTE
    # The 60 that leave in half an hour come too late.
    assert forecast(LAST_HOUR, 100, {**spends, now - 30 * MINUTE: 60}, 0, now) == now + 5 * MINUTE
    # At this pace 122 would be in the window for ever.
    assert forecast(LAST_HOUR, 123, spends, 0, now) is None
    # What was spent before the last quarter is no pace.
    assert forecast(LAST_HOUR, 100, {now - 40 * MINUTE: 99}, 0, now) is None


def test_a_lifetime_goes_by_its_recent_pace() -> None:
    ever = Lifetime()
    assert forecast(ever, 1000, {0: 400}, 0, MORNING) is None
    assert forecast(ever, 1000, {0: 400}, 0, MORNING, Pace(50, HOUR)) == MORNING + 12 * HOUR
    assert forecast(ever, 1000, {0: 400}, 0, MORNING, Pace(0, HOUR)) is None
    assert forecast(ever, 10**15, {0: 400}, 0, MORNING, Pace(1, HOUR)) is None


@given(
    st.lists(st.tuples(st.integers(0, 61), st.integers(0, 1000)), max_size=62),
    st.integers(0, 20_000),
    st.integers(0, 100),
    st.integers(0, MINUTE - 1),
)
def test_it_is_the_first_instant_at_which_the_window_is_full(
    spent: list[tuple[int, int]], limit: int, held: int, into: int
) -> None:
    current = LAST_HOUR.bucket(MORNING)
    spends = {current - age * MINUTE: amount for age, amount in spent}
    now = current + into
    found = forecast(LAST_HOUR, limit, spends, held, now)
    quarter = {start: amount for start, amount in spends.items() if start >= current - 15 * MINUTE}

    def used(at: int) -> float:
        still = sum(amount for start, amount in spends.items() if start >= current - HOUR and LAST_HOUR.leaves_at(start) > at)
        return still + held + sum(quarter.values()) * (at - now) / (now - current + 15 * MINUTE)

    horizon = LAST_HOUR.leaves_at(current)
    looked = [*range(now, horizon if found is None else found, 30_000)]
    assert all(used(at) < limit + 1e-6 for at in looked)
    if found is not None:
        assert now <= found < horizon
        assert used(found) >= limit - 1e-6
