"""Planted bugs. The general audit must catch each; no check is written for any of them."""

from collections.abc import Callable
from dataclasses import replace

from gateway import ledger
from gateway.budget import Amounts, Budgets
from gateway.dispatcher import Dispatcher
from gateway.dispatcher.gate import Bound
from gateway.dispatcher.walk import Attempt, Walk
from gateway.errors import Exhausted, Unanswered
from gateway.ledger import Closing, Counter, Draft, Outcome, Reservation, State
from tests.doubles.memory_store import MemoryStore
from tests.sim.world import Bug


class ChecksThenActs(MemoryStore):
    """Looks whether there is room, waits a moment, and then takes it whatever happened meanwhile."""

    async def reserve(self, draft: Draft) -> Reservation:
        """As Store.reserve, in two steps."""
        await self._enter("reserve")
        ledger.match(self._found(draft), self._raises(), draft.origin.guest, self.now_ms)
        matches = ledger.with_limits(self._found(draft), {}, draft.origin.guest, self.now_ms)
        _, _, blocks = ledger.weigh(self._counters(matches), draft, matches, self.now_ms)
        if blocks:
            raise Exhausted(blocks)
        await self._door("between")
        budgets, self.budgets = self.budgets, _without_limits(self)
        try:
            reservation = self._reserve(draft)
        finally:
            self.budgets = budgets
        await self._door("reserved")
        return reservation


def _without_limits(store: MemoryStore):
    return Budgets(replace(budget, limit=10**9) for budget in store.budgets.all)


class IgnoresPending(MemoryStore):
    """Weighs a draft against what is spent only."""

    def _counters(self, matches):
        real = super()._counters(matches)
        return {counter_id: _Blind(counter) for counter_id, counter in real.items()}


class _Blind(Counter):
    """A counter that shows no hold."""

    def __init__(self, real: Counter) -> None:
        super().__init__(real.dump())
        self._real = real

    def live(self, window, bucket):
        return super().live(window, bucket)[0], 0

    def add(self, bucket, spent, held):
        self._real.add(bucket, spent, held)


class SettlesIntoTheCurrentWindow(MemoryStore):
    """Counts what was spent when the call ended, not when it was reserved."""

    def _close(self, attempt_id: str, closing: Closing) -> bool:
        row = self.disk.rows[attempt_id]
        before = {counter_id: counter.dump() for counter_id, counter in self.disk.counters.items()}
        changed = super()._close(attempt_id, closing)
        for counter_id, counter in self.disk.counters.items():
            window = self.budgets.by_name[counter_id[0]].window
            then, now = window.bucket(row["started"]), window.bucket(max(self.now_ms, counter.newest))
            was = next((spent for start, spent, _ in before.get(counter_id, ()) if start == then), 0)
            moved = counter.buckets[then][0] - was if then in counter.buckets else 0
            if moved and now != then:
                counter.add(then, -moved, 0)
                counter.add(now, moved, 0)
        return changed


class RefundsOnExpiry(MemoryStore):
    """Gives an expired hold back, as if a call without an answer had cost nothing."""

    def _close(self, attempt_id: str, closing: Closing) -> bool:
        if closing.state is State.EXPIRED:
            closing = closing._replace(spent=Amounts())
        return super()._close(attempt_id, closing)


class ClosesTwice(MemoryStore):
    """Applies a closing to a reservation that has ended before."""

    def _close(self, attempt_id: str, closing: Closing) -> bool:
        changed = super()._close(attempt_id, closing)
        row = self.disk.rows[attempt_id]
        if not changed and row["state"] == State.EXPIRED:
            for budget, key in self.budgets.matching(_values(row)):
                counter = self.disk.counters.get((budget.name, key))
                bucket = budget.window.bucket(row["started"])
                if counter is not None and bucket in counter.buckets:
                    counter.add(bucket, closing.spent.of(budget.unit), 0)
        return changed


def _values(row):
    kinds = ("surface", "chain", "provider", "user")
    return {kind: row[kind] for kind in kinds if row[kind] is not None} | {"model": row["model_asked"]}


def releases_on_time_out(dispatcher: Dispatcher) -> None:
    """Takes a time-out for a call that was not made."""
    real = dispatcher._now.desk.failure

    def failure(attempt, error, timing, *, whole):
        if isinstance(error, Unanswered):
            return Closing(State.RELEASED, Amounts(), Outcome.UNANSWERED)
        return real(attempt, error, timing, whole=whole)

    dispatcher._now.desk.failure = failure  # type: ignore[method-assign]


def with_walks(change: Callable[[Walk], None]) -> Callable[[Dispatcher], None]:
    """Tampers with every walk of a dispatcher."""

    def tamper(dispatcher: Dispatcher) -> None:
        real = dispatcher._now.walk

        def walk(request, target, origin):
            made = real(request, target, origin)
            change(made)
            return made

        dispatcher._now.walk = walk  # type: ignore[method-assign]

    return tamper


def reuses_on_retry(walk: Walk) -> None:
    """A retry goes out under the reservation of the attempt before it."""
    real, last = walk.next, []

    async def admitted() -> Attempt:
        if last and walk._left and walk._left[0] == last[-1].slot:
            return last[-1]
        last.append(await real())
        return last[-1]

    walk.next = admitted  # type: ignore[method-assign]


def borrows_on_fallback(walk: Walk) -> None:
    """The next slot is called under the reservation of the first one."""
    real, first = walk.next, []

    async def admitted() -> Attempt:
        attempt = await real()
        first.append(attempt)
        return attempt._replace(reservation=first[0].reservation)

    walk.next = admitted  # type: ignore[method-assign]


def forgets_the_prompt(dispatcher: Dispatcher) -> None:
    """Holds the output only."""
    real = dispatcher._now.gate.draft

    def draft(bound: Bound, *rest):
        made = real(bound, *rest)
        held = made.held._replace(tokens=made.held.tokens - bound.prompt_tokens)
        return made._replace(held=held)

    dispatcher._now.gate.draft = draft  # type: ignore[method-assign]


BUGS = (
    Bug("checks, then acts", ChecksThenActs),
    Bug("ignores pending", IgnoresPending),
    Bug("settles into the current window", SettlesIntoTheCurrentWindow),
    Bug("refunds on expiry", RefundsOnExpiry),
    Bug("closes twice", ClosesTwice),
    Bug("releases on a time-out", tamper=releases_on_time_out),
    Bug("a retry reuses its reservation", tamper=with_walks(reuses_on_retry)),
    Bug("a fallback borrows the first reservation", tamper=with_walks(borrows_on_fallback)),
    Bug("a worst case without the prompt", tamper=forgets_the_prompt),
    Bug("no sweep", sweeps=False),
)
