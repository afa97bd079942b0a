"""One request's way along its chain: which slot is asked next, what a failure leads to, and how it ends.

Rules:
- Each target is tried once per request, in chain order, with at most `max_attempts` calls; each has its own reservation.
- A budget refusal costs no call, no wait and no cooldown. When only holds are in the way the request waits for room, as
  long as its origin is patient, after every other slot was looked at.
- The caller's faults end the request, but for a prompt that is too long (a slot with a larger context may take it), vectors
  of a model that makes none (another one may) and a refused name of the output limit (asked again, once).
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from gateway.chat import Asked, Origin, Slot
from gateway.clock import Clock
from gateway.dispatcher.breaker import Breakers
from gateway.dispatcher.gate import Gate, checked
from gateway.dispatcher.observe import Alert, Observer
from gateway.errors import (
    BreakerOpen,
    CallerFault,
    CannotServe,
    Cause,
    ChainExhausted,
    ContentRefused,
    ContextTooLong,
    Exhausted,
    GatewayError,
    NoVectors,
    OutputParameterRefused,
    Paused,
    ProviderError,
    SlotRefusal,
    UnknownPrice,
)
from gateway.ledger import Reservation
from gateway.settings import Settings
from gateway.store import Store

BACKOFF_S = 0.5
"""The longest wait before the first retry; doubled by each further one, and drawn between half of it and the whole."""
BACKOFF_MAX_S = 10.0
WAIT_BEFORE_NEXT_S = 5.0
"""While another slot is left, a provider is not waited for longer than this."""
RETRY_AFTER_FAILURE_S = 1.0
"""When a slot that failed, and whose breaker is closed, is said to be worth another try."""
WAKE_JITTER_S = 0.05
"""Those who wait for the same room come back spread over this long."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What every walk uses."""

    store: Store
    gate: Gate
    breakers: Breakers
    settings: Settings
    clock: Clock
    chance: random.Random
    observer: Observer
    tell: Alert
    """Tells the operator, in the log too."""
    log: Any
    """A bound structlog logger."""


class Attempt(NamedTuple):
    """One call that the gate let through."""

    slot: Slot
    reservation: Reservation
    lowered: bool
    """True when its output limit is lower than what was wanted."""
    started_s: float
    """On the monotonic clock."""


def backoff_s(tries: int, chance: random.Random) -> float:
    """The wait before the next try after `tries` (≥ 1) failed ones, in seconds."""
    longest = min(BACKOFF_S * 2.0 ** (tries - 1), BACKOFF_MAX_S)
    return longest * chance.uniform(0.5, 1.0)


class Walk:
    """One request over its slots. `next` admits the next attempt; `failed` says how the last one ended."""

    def __init__(self, parts: Parts, request: Asked, chain: str, slots: tuple[Slot, ...], origin: Origin) -> None:
        self.request = checked(request)
        self.chain = chain
        self.origin = origin
        self.answered = False
        """Set once a reply is on its way into the ledger: the request's id is used up."""
        self._parts = parts
        self._left = deque(dict.fromkeys(slots))
        self._causes: dict[Slot, GatewayError] = {}
        self._attempts = 0
        self._tries = 0
        self._renamed: Slot | None = None
        self._larger_than: int | None = None
        self._rooms = parts.store.rooms
        """As Store.rooms, before the first of the slots that are left was asked: what came since may be room for it."""
        started_s = parts.clock.monotonic()
        self._deadline_s = started_s + parts.settings.chain_timeout_s
        self._patient_until_s = min(started_s + origin.patience_s, self._deadline_s)

    @property
    def left_s(self) -> float:
        """Seconds until the request's total deadline; not above it."""
        return self._deadline_s - self._parts.clock.monotonic()

    @property
    def skipped(self) -> tuple[Cause, ...]:
        """Why earlier slots did not serve."""
        return tuple(Cause(slot, error) for slot, error in self._causes.items())

    async def next(self) -> Attempt:
        """The next attempt that the gate lets through. Raises ChainExhausted or the caller's fault when none is left."""
        while True:
            while self._left and (self.left_s > 0 or not self._attempts):
                slot = self._left[0]
                try:
                    attempt = await self._admit(slot)
                except SlotRefusal as refusal:
                    await self._skip(slot, refusal)
                else:
                    self._causes.pop(slot, None)
                    return attempt
            if self._left or not await self._room_came():
                raise self._end()

    async def failed(self, attempt: Attempt, error: ProviderError) -> None:
        """An attempt ended without an answer. Returns when `next` may go on; raises the caller's faults."""
        slot, parts = attempt.slot, self._parts
        parts.log.info(
            "provider_failed", request=self.origin.request_id, id=attempt.reservation.id, slot=str(slot),
            kind=type(error).__name__, status=error.status, code=error.code,
        )  # fmt: skip
        if isinstance(error, CallerFault | ContentRefused):
            parts.breakers.succeeded(slot)
            self._fault(slot, error)
            return
        parts.breakers.failed(slot, error)
        wait_s = self._wait_s(slot, error)
        if wait_s is None:
            self._pass_over(slot, error)
        else:
            await asyncio.sleep(wait_s)

    def broken(self, attempt: Attempt, error: ProviderError) -> None:
        """A stream failed after something of it was shown: the breaker hears of it, no other slot is asked."""
        self._parts.breakers.failed(attempt.slot, error)

    def left(self, attempt: Attempt) -> None:
        """The caller left, or the gateway failed: nothing is known of the slot."""
        self._parts.breakers.leave(attempt.slot)

    async def _admit(self, slot: Slot) -> Attempt:
        parts = self._parts
        bound = parts.gate.bound(self.request, slot, self._larger_than)
        parts.breakers.enter(slot)
        try:
            admission = await parts.gate.admit(bound, self.origin, self.chain, slot, self._attempts + 1)
        except BaseException:
            parts.breakers.leave(slot)
            raise
        self._attempts += 1
        self._tries += 1
        return Attempt(slot, admission.reservation, admission.lowered, parts.clock.monotonic())

    async def _skip(self, slot: Slot, refusal: SlotRefusal) -> None:
        parts = self._parts
        parts.observer.refused(slot, refusal)
        parts.log.info("slot_skipped", request=self.origin.request_id, slot=str(slot), kind=type(refusal).__name__)
        self._pass_over(slot, refusal)
        if not isinstance(refusal, Exhausted | Paused):
            # The store notes budget refusals itself, in the transaction that refused.
            await parts.store.note_refusal(self.origin, self.chain, slot, refusal)

    def _pass_over(self, slot: Slot, error: GatewayError) -> None:
        self._causes[slot] = error
        self._left.popleft()
        self._tries = 0

    def _fault(self, slot: Slot, error: CallerFault | ContentRefused) -> None:
        if isinstance(error, OutputParameterRefused) and self._renamed != slot:
            self._renamed = slot
            self._tries -= 1
        elif isinstance(error, ContextTooLong):
            context = self._parts.settings.model(slot).context_tokens
            self._larger_than = max(self._larger_than or 0, context or 0)
            self._pass_over(slot, error)
        elif isinstance(error, NoVectors):
            self._pass_over(slot, error)
        else:
            raise error

    def _wait_s(self, slot: Slot, error: ProviderError) -> float | None:
        """How long to wait before this slot is tried again; None when the next slot is to be asked instead."""
        if self._tries >= self._parts.settings.model(slot).max_attempts:
            return None
        asked_s = error.retry_after_s
        if asked_s is None:
            if self._parts.breakers.until(slot) is not None:
                return None
            wait_s = backoff_s(self._tries, self._parts.chance)
        else:
            # A little later than asked, so that clocks that differ by a hair do not find the door still closed.
            wait_s = asked_s + self._parts.chance.uniform(0.001, WAKE_JITTER_S)
        fits_s = self.left_s if len(self._left) == 1 else min(self.left_s, WAIT_BEFORE_NEXT_S)
        return wait_s if wait_s < fits_s else None

    async def _room_came(self) -> bool:
        """Waits for room while only holds are in the way of some slot; False when it is not worth it."""
        waiting = [slot for slot, error in self._causes.items() if isinstance(error, Exhausted) and error.held_only]
        wait_s = self._patient_until_s - self._parts.clock.monotonic()
        if not waiting or wait_s <= 0:
            return False
        await self._parts.store.wait_for_room(wait_s, self._rooms)
        await asyncio.sleep(self._parts.chance.uniform(0.001, WAKE_JITTER_S))
        self._rooms = self._parts.store.rooms
        self._left.extend(waiting)
        return True

    def _end(self) -> GatewayError:
        errors = self._causes.values()
        fault = next((error for error in errors if isinstance(error, ContextTooLong)), None)
        if fault is not None and all(isinstance(error, CallerFault | CannotServe) for error in errors):
            return fault
        now = self._parts.clock.now()
        opens = [at for slot, error in self._causes.items() if (at := self._opens_at(slot, error, now)) is not None]
        return ChainExhausted(self.origin.request_id, self.chain, self.skipped, min(opens, default=None))

    def _opens_at(self, slot: Slot, error: GatewayError, now: datetime) -> datetime | None:
        """The earliest time at which this slot can serve; None for never or unknown."""
        if isinstance(error, Exhausted):
            return error.resets_at
        if isinstance(error, Paused | BreakerOpen):
            return error.until
        if isinstance(error, CannotServe | UnknownPrice | CallerFault):
            return None
        return self._parts.breakers.until(slot) or now + timedelta(seconds=RETRY_AFTER_FAILURE_S)
