"""The ledger's rules, hunted by a state machine."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gateway import ledger
from gateway.budget import Amounts, Budget, Unit
from gateway.errors import Exhausted
from gateway.ledger import Closing, Counter, Outcome, State
from tests.bank import MINUTE, WINDOWS, Bank, dumps, settling


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
        before, refused = dumps(self.bank), None
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
            assert dumps(self.bank) == before
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
