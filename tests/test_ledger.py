"""The ledger's rules, told as bank statements, and hunted by a state machine."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from datetime import time
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gateway import ledger
from gateway.budget import PAUSE, Amounts, Budget, Budgets, Calendar, Lifetime, Raise, Rolling, Unit, Window, limit_at
from gateway.chat import Origin, Slot
from gateway.errors import Exhausted, Paused
from gateway.ledger import Closing, Counter, CounterId, Draft, Outcome, Reservation, State

HOUR, MINUTE = 3_600_000, 60_000
NOON = 1_772_452_800_000  # 2026-03-02 12:00 UTC
UTC = ZoneInfo("UTC")
WINDOWS: dict[str, Window] = {
    "minute": Calendar("minute", UTC),
    "hour": Calendar("hour", UTC),
    "day": Calendar("day", UTC, time(6)),
    "rolling": Rolling(3600, "rolling 1h"),
    "lifetime": Lifetime(),
}


@dataclass
class Bank:
    """Counters, rows and a clock: what a store would keep."""

    budgets: dict[str, Budget] = field(default_factory=dict)
    counters: dict[CounterId, Counter] = field(default_factory=dict)
    raises: dict[str, list[Raise]] = field(default_factory=dict)
    reservations: dict[str, Reservation] = field(default_factory=dict)
    standing: dict[str, tuple[State, Amounts]] = field(default_factory=dict)
    now_ms: int = NOON

    def reserve(self, name: str, amount: int, provider: str = "p", guest: bool = False) -> Reservation:
        origin = Origin(name, "http", user="ada", guest=guest)
        held = Amounts(1, amount, amount)
        draft = Draft(name, origin, 1, "default", Slot(provider, "m"), held, amount, 0, self.now_ms + HOUR)
        found = Budgets(self.budgets.values()).matching(draft.scope_values())
        matches = ledger.match(found, self.raises, guest, self.now_ms)
        for each in matches:
            self.counters.setdefault(each.id, Counter())
        reservation = ledger.reserve(self.counters, draft, matches, "owner", self.now_ms)
        self.reservations[name] = reservation
        self.standing[name] = State.PENDING, Amounts()
        return reservation

    def end(self, name: str, closing: Closing) -> bool:
        state, spent = self.standing[name]
        ended = ledger.close(self.counters, self.reservations[name].lines, state, spent, closing)
        if ended is not None:
            self.standing[name] = ended
        return ended is not None

    def balance(self, budget: str) -> tuple[int, int]:
        found = self.budgets[budget]
        return self.counters.get((budget, ""), Counter()).balance(found.window, self.now_ms)


def settling(amount: int) -> Closing:
    return Closing(State.SETTLED, Amounts(1, amount, amount), Outcome.ANSWERED)


def check(statement: str) -> None:
    """Plays a bank statement, line by line; each says what it does and what comes of it.

    budget NAME LIMIT per WINDOW [unit=…] [provider=…] · reserve R N [provider=…] RESULT · settle/release/expire R [N] RESULT
    · raise NAME ±N for SPAN · pause SPAN · clock ±SPAN · balance NAME pending=N spent=N. RESULT is `ok`, `NotPending`,
    or `Exhausted` with any of budget= used= held= asked= resets=+SPAN.
    """
    bank = Bank()
    for line in filter(None, map(str.strip, statement.splitlines())):
        verb, *words = shlex.split(line)
        plain = [word for word in words if "=" not in word[1:]]
        facts = dict(word.split("=", 1) for word in words if "=" in word[1:])
        try:
            _play(bank, verb, plain, facts)
        except AssertionError as error:
            raise AssertionError(f"{line}: {error}") from None


def _play(bank: Bank, verb: str, plain: list[str], facts: dict[str, str]) -> None:
    if verb == "budget":
        name, limit, _, window = plain
        scope = {"provider": facts["provider"]} if "provider" in facts else {}
        bank.budgets[name] = Budget(name, Unit(facts.get("unit", "tokens")), int(limit), WINDOWS[window], scope)
    elif verb == "reserve":
        _reserve(bank, plain, facts)
    elif verb in ("settle", "release", "expire"):
        name, *amount, result = plain
        worst = bank.reservations[name].draft.held
        closings = {"release": Closing(State.RELEASED, Amounts(), Outcome.REFUSED), "expire": ledger.expiry(worst)}
        closing = settling(int(amount[0])) if verb == "settle" else closings[verb]
        assert bank.end(name, closing) == (result == "ok"), "ended otherwise"
    elif verb == "raise":
        name, change, _, span = plain
        made = Raise(1, name, change[0], int(change[1:]), bank.now_ms, bank.now_ms + _span(span))
        bank.raises.setdefault(name, []).append(made)
    elif verb == "pause":
        bank.raises[PAUSE] = [Raise(1, PAUSE, "=", 0, bank.now_ms, bank.now_ms + _span(plain[0]))]
    elif verb == "clock":
        bank.now_ms += _span(plain[0])
    else:
        assert verb == "balance", f"unknown verb {verb}"
        spent, pending = bank.balance(plain[0])
        assert (pending, spent) == (int(facts["pending"]), int(facts["spent"])), f"pending={pending} spent={spent}"


def _reserve(bank: Bank, plain: list[str], facts: dict[str, str]) -> None:
    name, amount, result = plain
    before, refused = _dumps(bank), None
    try:
        bank.reserve(name, int(amount), facts.get("provider", "p"))
    except (Exhausted, Paused) as error:
        refused = error
    assert (type(refused).__name__ if refused else "ok") == result, repr(refused)
    if refused is not None:
        assert _dumps(bank) == before, "a refusal changed something"
    if isinstance(refused, Exhausted):
        block = refused.blocks[0]
        resets = None if block.resets_at is None else int(block.resets_at.timestamp() * 1000) - bank.now_ms
        said = {"budget": block.budget, "used": block.spent, "held": block.held, "asked": block.asked, "resets": resets}
        for fact in said.keys() & facts.keys():
            value: object = facts[fact]
            if fact == "resets":
                value = None if value == "never" else _span(facts[fact])
            assert str(said[fact]) == str(value), f"{fact} is {said[fact]}"


def _dumps(bank: Bank) -> dict[CounterId, list[list[int]]]:
    return {counter_id: dump for counter_id, counter in bank.counters.items() if (dump := counter.dump())}


def _span(text: str) -> int:
    return int(text[:-1]) * {"s": 1000, "m": MINUTE, "h": HOUR}[text[-1]]


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


class LedgerMachine(RuleBasedStateMachine):
    """Anything may happen in any order; an auditor with its own arithmetic compares."""

    def __init__(self) -> None:
        super().__init__()
        self.bank = Bank()
        for name, window in WINDOWS.items():
            self.bank.budgets[name] = Budget(name, Unit.TOKENS, 100, window)
        self.bank.budgets["calls"] = Budget("calls", Unit.REQUESTS, 6, WINDOWS["rolling"])
        self.excess = False
        """True once something other than a reservation may have taken a counter past its limit."""
        self.count = 0

    @rule(amount=st.integers(0, 120))
    def reserve(self, amount: int) -> None:
        self.count += 1
        before, refused = _dumps(self.bank), None
        try:
            made = self.bank.reserve(f"r{self.count}", amount)
        except Exhausted as error:
            refused = error
        if refused is None:
            assert all(line.spent + line.held + line.amount <= line.limit for line in made.lines)
            assert all(
                line.bucket >= max((start for start, *_ in before.get((line.budget, ""), ())), default=0) for line in made.lines
            )
        else:
            assert refused.blocks
            assert _dumps(self.bank) == before
            self._would_fit_when_it_says(refused)

    def _would_fit_when_it_says(self, refused: Exhausted) -> None:
        for block in refused.blocks:
            if block.resets_at is None or block.held:
                continue
            budget, counter = self.bank.budgets[block.budget], self.bank.counters[block.budget, ""]
            opens = int(block.resets_at.timestamp() * 1000)
            for at_ms, fits in ((opens, True), (opens - 1, False)):
                if at_ms >= self.bank.now_ms:
                    spent, _ = counter.balance(budget.window, at_ms)
                    assert (spent + block.asked <= block.limit) == fits

    @precondition(lambda self: self.bank.reservations)
    @rule(data=st.data(), amount=st.integers(0, 150), how=st.sampled_from(["settle", "release", "expire"]))
    def end(self, data: st.DataObject, amount: int, how: str) -> None:
        name = data.draw(st.sampled_from(sorted(self.bank.reservations)))
        held = self.bank.reservations[name].draft.held
        state, spent = self.bank.standing[name]
        if how == "settle":
            changed = self.bank.end(name, settling(amount))
            self.excess |= amount > held.tokens
            late = state is State.EXPIRED and (amount > spent.tokens or amount > spent.micro_usd)
            assert changed == (state is State.PENDING or late)
        else:
            closing = ledger.expiry(held) if how == "expire" else Closing(State.RELEASED, Amounts(), Outcome.REFUSED)
            assert self.bank.end(name, closing) == (state is State.PENDING)

    @rule(minutes=st.integers(-30, 90))
    def clock(self, minutes: int) -> None:
        self.bank.now_ms += minutes * MINUTE

    @rule()
    def prune(self) -> None:
        for (name, _), counter in self.bank.counters.items():
            counter.prune(self.bank.budgets[name].window)

    @rule()
    def write_and_read(self) -> None:
        self.bank.counters = {key: Counter(counter.dump()) for key, counter in self.bank.counters.items()}

    @rule(limit=st.integers(0, 200), name=st.sampled_from([*WINDOWS]))
    def change_limit(self, name: str, limit: int) -> None:
        old = self.bank.budgets[name]
        self.bank.budgets[name] = Budget(name, old.unit, limit, old.window)
        self.excess |= limit < old.limit

    @invariant()
    def counters_are_the_sum_of_the_rows(self) -> None:
        for (name, key), counter in self.bank.counters.items():
            window = self.bank.budgets[name].window
            at_ms = max(self.bank.now_ms, counter.newest)
            bucket = window.bucket(at_ms)
            oldest = window.live_from(bucket)
            spent = held = 0
            for reservation_name, reservation in self.bank.reservations.items():
                state, amounts = self.bank.standing[reservation_name]
                line = next(line for line in reservation.lines if line.budget == name)
                assert line.bucket == window.bucket(reservation.started_ms)
                if line.bucket >= oldest:
                    spent += amounts.of(line.unit)
                if state is State.PENDING and (line.bucket >= oldest or window.holds_outlive):
                    held += line.amount
            assert counter.balance(window, self.bank.now_ms) == (spent, held), (name, key)

    @invariant()
    def nothing_is_past_its_limit(self) -> None:
        if self.excess:
            return
        for (name, _), counter in self.bank.counters.items():
            budget = self.bank.budgets[name]
            assert sum(counter.balance(budget.window, self.bank.now_ms)) <= budget.limit

    @invariant()
    def counters_stay_small(self) -> None:
        for (name, _), counter in self.bank.counters.items():
            counter.prune(self.bank.budgets[name].window)
            holding = sum(1 for _, held in counter.buckets.values() if held)
            assert len(counter.buckets) <= 61 + holding


TestLedgerMachine = LedgerMachine.TestCase
TestLedgerMachine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
