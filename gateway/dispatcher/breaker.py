"""Breakers: a slot that failed lately is left alone for a while, then one call at a time may try it.

Rules:
- Failures in a row open a slot (provider and model); a wait that the provider asked for leaves it alone that long.
- A refused key or an empty account opens the whole provider, and the operator is told once, until a call succeeds.
- The caller's faults and budget refusals never count.
- The operator is told of a slot that has failed FAILURES_MAX times in a row, once until it answers.
- After the wait one probe goes out; its success closes the breaker, its failure opens it for twice as long.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from gateway.chat import Slot
from gateway.clock import Clock
from gateway.dispatcher.observe import Alert, Observer
from gateway.errors import BreakerOpen, ProviderError

FAILURES_MAX = 5
"""Failures in a row that open a slot."""
COOLDOWN_S = 5.0
"""How long the first opening lasts; doubled by each failed probe."""
COOLDOWN_MAX_S = 120.0
KEY_REFUSED_S = 300.0
ACCOUNT_EMPTY_S = 3600.0
PROBE_S = 1.0
"""What the others are told to wait while a probe is out."""

REMEMBERED_MAX = 1000

EMPTY_CODES = ("insufficient_quota", "insufficient_balance", "billing_hard_limit_reached", "exceeded_current_quota_error")


@dataclass(slots=True)
class _State:
    """One slot's or one provider's breaker. Times in seconds of the monotonic clock."""

    failures: int = 0
    until: float = 0.0
    cooldown_s: float = COOLDOWN_S
    reason: str = ""
    open: bool = False
    probing: bool = False


def provider_wide(error: ProviderError) -> tuple[str, float] | None:
    """The event, and the seconds for which this error closes the whole provider; None where it is only the slot's."""
    if error.status == 402 or error.code in EMPTY_CODES:
        return "provider_account_empty", ACCOUNT_EMPTY_S
    return ("provider_key_refused", KEY_REFUSED_S) if error.status in (401, 403) else None


class Breakers:
    """The breakers of one process."""

    def __init__(self, clock: Clock, observer: Observer, alert: Alert) -> None:
        self._clock = clock
        self._observer = observer
        self._alert = alert
        self._states: dict[Slot | str, _State] = {}

    def enter(self, slot: Slot) -> None:
        """Lets a call through, or raises BreakerOpen. Each entry ends in one of `leave`, `succeeded` or `failed`."""
        if not self._states:
            return
        states = self._of(slot)
        for state in states:
            if state.open and (error := self._refusal(slot, state)) is not None:
                raise error
        for state in states:
            state.probing = state.open

    def leave(self, slot: Slot) -> None:
        """The call says nothing of the slot: it was refused by a budget, or cancelled."""
        for state in self._of(slot):
            state.probing = False

    def succeeded(self, slot: Slot) -> None:
        """The provider answered, be it with the caller's fault."""
        if not self._states:
            return
        for key in (slot, slot.provider):
            state = self._states.get(key)
            # A call that began before the breaker opened must not close it: the wait that was asked for still runs.
            if state is None or (state.open and state.until > self._clock.monotonic()):
                continue
            del self._states[key]
            if state.open:
                self._observer.breaker(slot, False)

    def failed(self, slot: Slot, error: ProviderError) -> None:
        """A call did not end in an answer, and not by the caller's fault."""
        self.leave(slot)
        wide = provider_wide(error)
        if wide is not None:
            self._open_provider(slot, error, *wide)
            return
        if len(self._states) > REMEMBERED_MAX:
            # Model names come from clients too: what is remembered of them is bounded.
            self._states = {key: state for key, state in self._states.items() if state.open}
        state = self._states.setdefault(slot, _State())
        state.failures += 1
        if error.retry_after_s is not None:
            # The latest wait wins, also when it is the shorter one.
            self._open(slot, state, error.retry_after_s, error.message)
        elif state.open or state.failures >= FAILURES_MAX:
            self._open(slot, state, state.cooldown_s, error.message)
            state.cooldown_s = min(state.cooldown_s * 2, COOLDOWN_MAX_S)
        if state.failures == FAILURES_MAX:
            # A wait that was asked for once is no news; failing again and again is.
            self._alert("breaker_open", {"provider": slot.provider, "slot": str(slot), "message": error.message})

    def forget(self, provider: str) -> None:
        """Knows nothing any more of a provider that is another one now."""
        for key in [key for key in self._states if key == provider or (isinstance(key, Slot) and key.provider == provider)]:
            del self._states[key]

    def until(self, slot: Slot) -> datetime | None:
        """When the slot may be tried again; None if it may be now."""
        waits = [state.until - self._clock.monotonic() for state in self._of(slot) if state.open]
        wait_s = max(waits, default=0.0)
        return self._clock.now() + timedelta(seconds=wait_s) if wait_s > 0 else None

    def _of(self, slot: Slot) -> list[_State]:
        return [state for key in (slot, slot.provider) if (state := self._states.get(key)) is not None]

    def _refusal(self, slot: Slot, state: _State) -> BreakerOpen | None:
        wait_s = state.until - self._clock.monotonic()
        if wait_s <= 0:
            if not state.probing:
                return None
            wait_s = PROBE_S
        return BreakerOpen(slot.provider, self._clock.now() + timedelta(seconds=wait_s), state.reason)

    def _open_provider(self, slot: Slot, error: ProviderError, event: str, wait_s: float) -> None:
        state = self._states.setdefault(slot.provider, _State())
        told = state.open
        self._open(slot, state, max(wait_s, error.retry_after_s or 0.0), error.message)
        if not told:
            self._alert(event, {"provider": slot.provider, "status": error.status, "code": error.code, "message": error.message})

    def _open(self, slot: Slot, state: _State, wait_s: float, reason: str) -> None:
        if not state.open:
            self._observer.breaker(slot, True)
        state.open = True
        state.until = self._clock.monotonic() + wait_s
        state.reason = reason
