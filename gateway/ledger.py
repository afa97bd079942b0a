"""The ledger: the pure rules that move counters and reservations. No IO, no clock, no chance.

Rules:
- A reservation holds all its lines or none.
- pending + spent never passes the limit by a reservation.
- A reservation ends once: settled, released or expired. Closing twice changes nothing; the first close wins. A settle
  after expiry records the difference when it is more.
- A line settles into the bucket in which it was reserved. If that bucket has left, settling only clears `pending`.
- Bucket time never goes back, even when the clock does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from gateway.amounts import AMOUNT_MAX
from gateway.budget import PAUSE, Amounts, Budget, Raise, Unit, Window, counter_name, limit_at, limits_after
from gateway.chat import Origin, Slot, Usage
from gateway.clock import from_ms
from gateway.errors import Block, Exhausted, Paused

CounterId = tuple[str, str]
"""A counter's budget name and key."""


class State(StrEnum):
    """Where a reservation stands."""

    PENDING = "pending"
    SETTLED = "settled"
    RELEASED = "released"
    EXPIRED = "expired"


class Outcome(StrEnum):
    """How an attempt ended, on its usage row."""

    PENDING = "pending"
    ANSWERED = "answered"
    CLAMPED = "clamped"
    """Answered, and stopped by an output limit that we had lowered."""
    REFUSED = "refused"
    CALLER_FAULT = "caller_fault"
    CONTENT_REFUSED = "content_refused"
    UNANSWERED = "unanswered"
    CANCELLED = "cancelled"
    CUT_OFF = "cut_off"
    """The provider ignored the output limit and the connection was closed."""
    NOT_SENT = "not_sent"
    EXPIRED = "expired"


class Counter:
    """One counter of a budget: per live bucket what is spent and what is held.

    `buckets` maps a bucket's start to [spent, held]; only `add` and `prune` change it, since the sums are kept beside
    it. Mutable: the store owns it for the length of one transaction.
    """

    __slots__ = ("_held", "_held_ever", "_oldest", "_pruned", "_spent", "buckets", "newest")

    def __init__(self, buckets: Iterable[Sequence[int]] = ()) -> None:
        """From `[start, spent, held]` triples, as `dump` makes them."""
        self.buckets = {start: [spent, held] for start, spent, held in buckets}
        self.newest = max(self.buckets, default=0)
        """The newest bucket's start, 0 when there is none: bucket time never goes back behind it."""
        self._held_ever = sum(held for _, held in self.buckets.values())
        self._oldest: int | None = None
        self._pruned: int | None = None
        self._spent = self._held = 0

    def dump(self) -> list[list[int]]:
        """The buckets as `[start, spent, held]`."""
        return [[start, *amounts] for start, amounts in self.buckets.items()]

    def live(self, window: Window, bucket: int) -> tuple[int, int]:
        """What is spent and held while `bucket` is the current one.

        Spent in the buckets that count then; held by every open hold in a rolling window, by those of the current bucket
        in a calendar one.
        """
        oldest = window.live_from(bucket)
        if oldest != self._oldest:
            self._look_from(oldest)
        return self._spent, self._held_ever if window.holds_outlive else self._held

    def balance(self, window: Window, at_ms: int) -> tuple[int, int]:
        """What is spent and held at an instant, or at the newest bucket if the clock has gone back behind it."""
        bucket = window.bucket(max(at_ms, self.newest))
        return self.live(window, bucket)

    def add(self, bucket: int, spent: int, held: int) -> None:
        """Moves one bucket's amounts. What is held never becomes negative: a hold is given back once."""
        amounts = self.buckets.get(bucket)
        if amounts is None:
            amounts = self.buckets[bucket] = [0, 0]
            self.newest = max(self.newest, bucket)
        amounts[0] += spent
        amounts[1] += held
        assert amounts[1] >= 0, "a hold was given back twice"
        self._held_ever += held
        if self._oldest is not None and bucket >= self._oldest:
            self._spent += spent
            self._held += held

    def prune(self, window: Window) -> None:
        """Drops the buckets that have left and hold nothing, always keeping the newest (bucket time never goes back)."""
        if self.newest == self._pruned:
            return
        self._pruned = self.newest
        oldest = window.live_from(self.newest)
        for start in [start for start, amounts in self.buckets.items() if start < oldest and not amounts[1]]:
            del self.buckets[start]

    def _look_from(self, oldest: int) -> None:
        if oldest == self._oldest:
            return
        self._oldest = oldest
        self._spent = self._held = 0
        for start, (spent, held) in self.buckets.items():
            if start >= oldest:
                self._spent += spent
                self._held += held


class Line(NamedTuple):
    """One budget's part of a reservation. Amounts in the budget's unit; `spent` and `held` are as they stood before."""

    budget: str
    key: str
    unit: Unit
    bucket: int
    amount: int
    limit: int
    spent: int
    held: int


class Draft(NamedTuple):
    """One attempt that asks to be let through the gate.

    `held` is its worst case; `output_tokens` the output limit that it will send; `deadline_ms` the instant after which
    the sweep may expire it.
    """

    id: str
    origin: Origin
    attempt: int
    """1 for the first attempt of the request, counted over all slots."""
    chain: str
    slot: Slot
    held: Amounts
    output_tokens: int
    prompt_tokens: int
    deadline_ms: int

    def scope_values(self) -> dict[str, str]:
        """The attributes that budgets match on."""
        origin = self.origin
        values = {"surface": origin.surface, "chain": self.chain, "provider": self.slot.provider, "model": self.slot.model}
        for kind, value in (
            ("user", origin.user),
            ("chat", origin.chat),
            ("workflow", origin.workflow),
            ("run", origin.run),
            ("key", origin.key),
        ):
            if value is not None:
                values[kind] = value
        return values


class Reservation(NamedTuple):
    """A committed hold on all the budgets that one attempt touches. Only `Store.reserve` makes one.

    `started_ms` is the instant that the gate used: never before the newest bucket of any of its counters.
    """

    draft: Draft
    owner: str
    started_ms: int
    lines: tuple[Line, ...]

    @property
    def id(self) -> str:
        """The id of the attempt and of its usage row."""
        return self.draft.id

    @property
    def slot(self) -> Slot:
        """The provider and model that this reservation lets be called, once."""
        return self.draft.slot

    @property
    def output_tokens(self) -> int:
        """The output limit that the call must send."""
        return self.draft.output_tokens


class Closing(NamedTuple):
    """How a reservation ends: what was spent, and what its usage row says."""

    state: State
    spent: Amounts
    outcome: Outcome
    usage: Usage | None = None
    model_served: str | None = None
    price_source: str = ""
    estimated: bool = False
    uncertain: bool = False
    first_token_ms: int | None = None
    total_ms: int | None = None
    detail: str = ""
    """The provider's error in short, bounded, without secrets; "" when answered."""
    reply: bytes | None = None
    """For a deduplicated request: the answer, stored in the same transaction."""


class Match(NamedTuple):
    """A budget that a draft counts in, with its counter and the limit that holds at the time."""

    budget: Budget
    key: str
    limit: int
    later: tuple[tuple[int, int], ...] = ()
    """When raises end, with the limit from then on."""

    @property
    def id(self) -> CounterId:
        """The counter's id."""
        return (self.budget.name, self.key)


Raises = Mapping[str, Sequence[Raise]]
"""Every raise that has not ended, by budget, in the order in which they were made; PAUSE among them."""


def match(found: Iterable[tuple[Budget, str]], raises: Raises, guest: bool, at_ms: int) -> tuple[Match, ...]:
    """The matching budgets of `Budgets.matching` with their limits at an instant. Raises Paused while a pause is in force."""
    paused = pause(raises, at_ms)
    if paused is not None:
        raise paused
    return with_limits(found, raises, guest, at_ms)


def pause(raises: Raises, at_ms: int) -> Paused | None:
    """The pause in force at an instant."""
    for change in raises.get(PAUSE, ()):
        if change.in_force(at_ms):
            return Paused(None if change.ends_ms is None else from_ms(change.ends_ms))
    return None


def changes_of(raises: Raises, budget: Budget, key: str) -> Sequence[Raise]:
    """The changes of one counter's limit: those of its budget, and those of this counter alone, in the order they were made."""
    common = raises.get(budget.name, ())
    own = raises.get(counter_name(budget.name, key), ()) if "run" in budget.scope else ()
    return sorted((*common, *own), key=lambda change: change.id) if own else common


def with_limits(found: Iterable[tuple[Budget, str]], raises: Raises, guest: bool, at_ms: int) -> tuple[Match, ...]:
    """The matching budgets with their limits at an instant, whether paused or not."""
    matches = []
    for budget, key in found:
        base, changes = budget.base_limit(key, guest), changes_of(raises, budget, key)
        if changes:
            matches.append(Match(budget, key, limit_at(base, changes, at_ms), limits_after(base, changes, at_ms)))
        else:
            matches.append(Match(budget, key, base))
    return tuple(matches)


def reserve(counters: Mapping[CounterId, Counter], draft: Draft, matches: Sequence[Match], owner: str, at_ms: int) -> Reservation:
    """Holds the draft's worst case on every matching counter, or raises Exhausted and changes nothing.

    `counters` must have every matching counter.
    """
    started, lines, blocks = weigh(counters, draft, matches, at_ms)
    if blocks:
        raise Exhausted(blocks)
    for line in lines:
        counters[line.budget, line.key].add(line.bucket, 0, line.amount)
    return Reservation(draft, owner, started, lines)


def weigh(
    counters: Mapping[CounterId, Counter], draft: Draft, matches: Sequence[Match], at_ms: int
) -> tuple[int, tuple[Line, ...], tuple[Block, ...]]:
    """What a reservation would be: its start, its lines, and the budgets without room. Changes nothing."""
    started, asked = at_ms, draft.held
    involved = [counters[found.budget.name, found.key] for found in matches]
    for counter in involved:
        if counter.newest > started:
            started = counter.newest
    lines, blocks = [], []
    for found, counter in zip(matches, involved, strict=True):
        budget, key, limit, _ = found
        window, unit = budget.window, budget.unit
        amount, bucket = asked.of(unit), window.bucket(started)
        spent, held = counter.live(window, bucket)
        if spent + held + amount > limit or limit == 0:
            blocks.append(_block(found, counter, spent, held, amount, started))
        lines.append(Line(budget.name, key, unit, bucket, amount, limit, spent, held))
    return started, tuple(lines), tuple(blocks)


def close(
    counters: Mapping[CounterId, Counter],
    lines: Iterable[Line],
    state: State,
    spent_before: Amounts,
    closing: Closing,
) -> tuple[State, Amounts] | None:
    """Ends a reservation that stands in `state`; None when nothing changes (it had ended before).

    Returns the new state and the spent amounts that the usage row now carries. Counters that are gone (their budget
    was removed or rebuilt) are passed over. After expiry only an excess over what was charged is recorded.
    """
    spent = _bounded_amounts(closing.spent)
    if state is State.PENDING:
        for line in lines:
            counter = counters.get((line.budget, line.key))
            if counter is not None and line.bucket in counter.buckets:
                counter.add(line.bucket, spent.of(line.unit), -line.amount)
        return closing.state, spent
    if state is State.EXPIRED and closing.state is State.SETTLED:
        total = Amounts(
            max(spent_before.requests, spent.requests),
            max(spent_before.tokens, spent.tokens),
            max(spent_before.micro_usd, spent.micro_usd),
        )
        if total == spent_before:
            return None
        for line in lines:
            counter = counters.get((line.budget, line.key))
            if counter is not None and line.bucket in counter.buckets:
                counter.add(line.bucket, total.of(line.unit) - spent_before.of(line.unit), 0)
        return State.EXPIRED, total
    return None


def expiry(held: Amounts) -> Closing:
    """How the sweep ends a hold: at its worst case, since the call may have been billed."""
    return Closing(State.EXPIRED, held, Outcome.EXPIRED, estimated=True, uncertain=True)


def bounded(amount: int) -> int:
    """An amount that a provider stated, within what a sum of many can hold: no answer may break the ledger."""
    return amount if 0 <= amount <= AMOUNT_MAX else min(max(amount, 0), AMOUNT_MAX)


def _bounded_amounts(amounts: Amounts) -> Amounts:
    return Amounts(*map(bounded, amounts))


def _block(found: Match, counter: Counter, spent: int, held: int, amount: int, at_ms: int) -> Block:
    resets_ms = fits_at(counter, found, amount, at_ms)
    return Block(
        budget=found.budget.name,
        label=found.budget.label,
        scope_kinds=found.budget.scope_kinds,
        unit=str(found.budget.unit),
        limit=found.limit,
        spent=spent,
        held=held,
        asked=amount,
        resets_at=None if resets_ms is None else from_ms(resets_ms),
        window=found.budget.window.text,
    )


def fits_at(counter: Counter, found: Match, amount: int, at_ms: int) -> int | None:
    """The first instant, holds aside, at which `amount` more fits; `at_ms` if it does now; None if never.

    What is spent changes when a bucket leaves, the limit when a raise ends.
    """
    window, limit = found.budget.window, found.limit
    bucket = window.bucket(at_ms)
    oldest, spent = window.live_from(bucket), counter.live(window, bucket)[0]
    changes: list[tuple[int, int, int | None]] = [(ends, 0, limit) for ends, limit in found.later]
    for start, amounts in counter.buckets.items():
        if start >= oldest and (leaves := window.leaves_at(start)) is not None:
            changes.append((leaves, amounts[0], None))
    # Of one instant's changes the limit's comes first: what leaves at the end of a raise meets the limit behind it.
    changes.sort(key=lambda change: (change[0], change[2] is None))
    for instant, leaving, following in [(at_ms, 0, limit), *changes]:
        spent -= leaving
        limit = limit if following is None else following
        if 0 < limit >= spent + amount:
            return instant
    return None
