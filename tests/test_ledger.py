"""The ledger's rules, told as bank statements."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.budget import Budget, Raise, Rolling, Unit, Window, limit_at
from gateway.errors import Exhausted
from gateway.ledger import Counter
from tests.bank import MINUTE, NOON, WINDOWS, Bank, check


def test_the_unused_part_of_a_reservation_comes_back() -> None:
    check("""
        budget   p.tokens  100 per day
        reserve  r1  60    ok
        reserve  r2  60    Exhausted used=0 held=60
        settle   r1  25    ok
        reserve  r3  60    ok
        settle   r1  25    NotPending
        balance  p.tokens  pending=60 spent=25
    """)


def test_case_7_exactly_the_limit_and_not_one_more() -> None:
    check("""
        budget   b  100 per hour
        reserve  r1 100   ok
        settle   r1 100   ok
        reserve  r2 0     ok
        reserve  r3 1     Exhausted used=100 held=0 asked=1 resets=+60m
    """)


def test_case_6_nought_lets_nothing_through_not_even_what_is_free() -> None:
    check("""
        budget   b  0 per hour
        reserve  r1 0     Exhausted resets=never
        reserve  r2 1     Exhausted resets=never
    """)


def test_case_5_all_lines_or_none() -> None:
    check("""
        budget   a  100 per hour
        budget   z  10 per hour
        reserve  r1 50    Exhausted budget=z asked=50 resets=never
        balance  a  pending=0 spent=0
        reserve  r2 10    ok
        balance  a  pending=10 spent=0
    """)


def test_a_reservation_ends_once_and_the_first_end_wins() -> None:
    check("""
        budget   b  100 per hour
        reserve  r1 60    ok
        release  r1       ok
        settle   r1 60    NotPending
        expire   r1       NotPending
        release  r1       NotPending
        balance  b  pending=0 spent=0
    """)


def test_a_settle_after_expiry_records_the_difference_when_it_is_more() -> None:
    check("""
        budget   b  100 per hour
        reserve  r1 60    ok
        expire   r1       ok
        balance  b  pending=0 spent=60
        settle   r1 20    NotPending
        release  r1       NotPending
        balance  b  pending=0 spent=60
        settle   r1 75    ok
        balance  b  pending=0 spent=75
        settle   r1 75    NotPending
        settle   r1 80    ok
        balance  b  pending=0 spent=80
    """)


def test_an_overrun_is_seen_by_the_gate() -> None:
    check("""
        budget   b  100 per hour
        reserve  r1 60    ok
        settle   r1 150   ok
        balance  b  pending=0 spent=150
        reserve  r2 0     Exhausted used=150 resets=+60m
    """)


def test_case_16_a_call_counts_in_the_window_in_which_it_was_reserved() -> None:
    check("""
        budget   b  100 per hour
        clock    +59m
        reserve  r1 80    ok
        clock    +2m
        balance  b  pending=0 spent=0
        reserve  r2 90    ok
        settle   r1 80    ok
        balance  b  pending=90 spent=0
        settle   r2 90    ok
        balance  b  pending=0 spent=90
    """)


def test_a_rolling_window_gives_room_back_bucket_by_bucket_and_never_early() -> None:
    check("""
        budget   b  100 per rolling
        reserve  r1 60    ok
        settle   r1 60    ok
        clock    +10m
        reserve  r2 40    ok
        settle   r2 40    ok
        reserve  r3 60    Exhausted used=100 resets=+51m
        reserve  r4 61    Exhausted used=100 resets=+61m
        reserve  r5 101   Exhausted used=100 resets=never
        clock    +50m
        reserve  r6 1     Exhausted used=100 resets=+1m
        clock    +1m
        reserve  r7 60    ok
    """)


def test_a_rolling_hold_counts_until_it_is_closed_and_then_its_bucket_has_left() -> None:
    check("""
        budget   b  100 per rolling
        reserve  r1 100   ok
        clock    +3h
        reserve  r2 1     Exhausted used=0 held=100
        settle   r1 100   ok
        balance  b  pending=0 spent=0
        reserve  r3 100   ok
    """)


def test_a_clock_that_goes_back_opens_no_old_window() -> None:
    check("""
        budget   b  100 per hour
        budget   c  1000 per rolling
        clock    +60m
        reserve  r1 100   ok
        clock    -10m
        reserve  r2 1     Exhausted held=100
        settle   r1 100   ok
        reserve  r3 1     Exhausted used=100
    """)


def test_a_stretch_of_time_that_is_lived_twice_counts_once() -> None:
    check("""
        budget   b  100 per hour
        clock    +60m
        reserve  r1 50    ok
        settle   r1 50    ok
        clock    -10m
        reserve  r2 50    ok
        settle   r2 50    ok
        clock    +10m
        reserve  r3 1     Exhausted used=100
    """)


def test_case_11_each_window_says_when_it_opens() -> None:
    check("""
        budget   day   100 per day
        budget   hour  100 per hour
        reserve  r1 100   ok
        settle   r1 100   ok
        reserve  r2 1     Exhausted budget=day resets=+18h
    """)


def test_case_12_a_raise_ends_and_leaves_more_spent_than_the_limit() -> None:
    check("""
        budget   b  100 per day
        reserve  r1 100   ok
        settle   r1 100   ok
        raise    b +50 for 10m
        reserve  r2 50    ok
        settle   r2 50    ok
        reserve  r3 1     Exhausted used=150
        raise    b %100 for 5m
        reserve  r4 100   ok
        clock    +10m
        reserve  r5 0     Exhausted used=150 held=100
        raise    b =500 for 5m
        reserve  r6 250   ok
    """)


def test_a_limit_that_is_lowered_for_a_while_says_when_it_comes_back() -> None:
    check("""
        budget   b  100 per rolling
        raise    b =0 for 10m
        reserve  r1 100   Exhausted asked=100 resets=+10m
        reserve  r2 101   Exhausted asked=101 resets=never
        clock    +10m
        reserve  r3 100   ok
    """)


def test_a_raise_that_ends_before_the_window_opens_promises_nothing() -> None:
    check("""
        budget   b  100 per rolling
        reserve  r1 60    ok
        settle   r1 60    ok
        raise    b +30 for 2h
        reserve  r2 120   Exhausted used=60 asked=120 resets=+61m
        raise    b =110 for 30m
        reserve  r3 120   Exhausted used=60 asked=120 resets=+61m
        raise    b =200 for 30m
        reserve  r4 150   Exhausted used=60 asked=150 resets=never
    """)


@given(
    spends=st.lists(st.tuples(st.integers(0, 70), st.integers(0, 60)), max_size=4),
    raises=st.lists(st.tuples(st.sampled_from("+%="), st.integers(-60, 120), st.integers(1, 100)), max_size=3),
    amount=st.integers(0, 150),
    window=st.sampled_from([*WINDOWS]),
)
def test_the_time_named_is_the_first_minute_at_which_it_fits(
    spends: list[tuple[int, int]], raises: list[tuple[str, int, int]], amount: int, window: str
) -> None:
    bank = Bank({"b": Budget("b", Unit.TOKENS, 100, WINDOWS[window])})
    counter = bank.counters["b", ""] = Counter()
    for ago, spent in spends:
        counter.add(WINDOWS[window].bucket(NOON - ago * MINUTE), spent, 0)
    bank.raises["b"] = [Raise(i, "b", how, size, NOON, NOON + length * MINUTE) for i, (how, size, length) in enumerate(raises)]

    def fits(at_ms: int) -> bool:
        limit = limit_at(100, bank.raises["b"], at_ms)
        return 0 < limit >= counter.balance(WINDOWS[window], at_ms)[0] + amount

    first = next((NOON + minute * MINUTE for minute in range(60 * 25) if fits(NOON + minute * MINUTE)), None)
    try:
        bank.reserve("r", amount)
    except Exhausted as refused:
        resets_at = refused.blocks[0].resets_at
        assert (None if resets_at is None else int(resets_at.timestamp() * 1000)) == first
    else:
        assert first == NOON


def test_case_9_only_budgets_that_match_are_asked() -> None:
    check("""
        budget   b  100 per hour provider=other
        reserve  r1 500   ok
        reserve  r2 500 provider=other  Exhausted
    """)


def test_a_pause_stops_everything_until_it_ends() -> None:
    check("""
        budget   b  100 per hour
        pause    5m
        reserve  r1 1     Paused
        clock    +5m
        reserve  r2 1     ok
    """)


def test_requests_and_money_are_counted_beside_tokens() -> None:
    check("""
        budget   calls  2 per minute unit=requests
        budget   money  100 per hour unit=micro_usd
        reserve  r1 60    ok
        settle   r1 10    ok
        reserve  r2 60    ok
        reserve  r3 10    Exhausted budget=calls used=1 held=1 resets=+0m
        balance  calls  pending=1 spent=1
        balance  money  pending=60 spent=10
    """)


def test_a_lifetime_budget_never_opens() -> None:
    check("""
        budget   b  100 per lifetime
        reserve  r1 100   ok
        settle   r1 100   ok
        clock    +9999h
        reserve  r2 1     Exhausted resets=never
    """)


@pytest.mark.parametrize("window", WINDOWS.values(), ids=WINDOWS)
def test_a_hold_given_back_twice_is_our_bug(window: Window) -> None:
    counter = Counter()
    counter.add(window.bucket(NOON), 0, 10)
    counter.add(window.bucket(NOON), 0, -10)
    with pytest.raises(AssertionError):
        counter.add(window.bucket(NOON), 0, -1)


def test_a_counter_survives_being_written_and_read() -> None:
    counter = Counter([[0, 5, 1], [60_000, 7, 2]])
    counter.add(120_000, 1, 1)
    again = Counter(counter.dump())
    window = Rolling(3600, "rolling 1h")
    assert again.dump() == [[0, 5, 1], [60_000, 7, 2], [120_000, 1, 1]]
    assert again.balance(window, 130_000) == counter.balance(window, 130_000) == (13, 4)
