"""The dispatcher: gate → call → settle → retry or fall back. The only way to a provider.

Handed a store, providers, settings and a clock; imports no IO library.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from gateway.chat import Chunk, Completion, Origin, Request, Slot, Usage
from gateway.clock import Clock
from gateway.errors import Cause, GatewayError, SlotRefusal
from gateway.ledger import Closing, Match, Reservation
from gateway.providers import Provider
from gateway.settings import Settings
from gateway.store import Store


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer, and what it took. `skipped` says why earlier slots did not serve."""

    completion: Completion
    slot: Slot
    chain: str
    usage: Usage
    cost_micro_usd: int
    clamped: bool
    """True when the answer was stopped by an output limit that we had lowered."""
    estimated: bool
    skipped: tuple[Cause, ...]
    request_id: str
    repeated: bool = False
    """True when this is the stored answer of an earlier request with the same id: nothing was spent."""


@dataclass(frozen=True, slots=True)
class Begun:
    """The first event of a stream, yielded once there is something to show: who answers, and why others did not."""

    slot: Slot
    chain: str
    skipped: tuple[Cause, ...]


@dataclass(frozen=True, slots=True)
class Priced:
    """What a stream's usage costs, yielded just before its last chunk so that it can travel in it."""

    usage: Usage
    cost_micro_usd: int


@dataclass
class StreamBroken(GatewayError):
    """A stream failed after something was shown: `text` is what was shown, and no other slot is tried."""

    slot: Slot
    text: str
    error: GatewayError


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the gate would say of one slot now: for `explain`, which calls nobody."""

    slot: Slot
    matches: tuple[tuple[Match, int, int], ...]
    """Each matching budget with what is spent and held now, in its unit."""
    prompt_tokens: int
    output_tokens: int
    cost_micro_usd: int | None
    error: GatewayError | None
    """None when the slot would be called."""


Alert = Callable[[str, Mapping[str, object]], None]
"""Tells the operator of an event once, with its fields."""


class Observer(Protocol):
    """Counts what the dispatcher does, for metrics. Each method returns at once and raises nothing."""

    def settled(self, reservation: Reservation, closing: Closing) -> None:
        """An attempt ended."""
        ...

    def refused(self, slot: Slot, error: SlotRefusal) -> None:
        """A slot was passed over without a call."""
        ...

    def breaker(self, slot: Slot, is_open: bool) -> None:
        """A slot's breaker opened or closed."""
        ...


class Dispatcher:
    """One per process. `complete` and `stream` share one path through the gate."""

    def __init__(
        self,
        store: Store,
        providers: Mapping[str, Provider],
        settings: Settings,
        clock: Clock,
        *,
        alert: Alert | None = None,
        observer: Observer | None = None,
    ) -> None:
        raise NotImplementedError

    async def explain(self, request: Request, target: str, origin: Origin) -> list[Verdict]:
        """What the gate would say of each slot now. Calls nobody and holds nothing. Raises UnknownTarget, LedgerUnavailable."""
        raise NotImplementedError

    async def drain(self) -> None:
        """Returns when every closing under way is with the store: part of a graceful stop."""
        raise NotImplementedError

    async def complete(self, request: Request, target: str, origin: Origin) -> Reply:
        """A whole answer from the first slot of `target` (chain, provider, alias or provider:model) that can serve.

        Raises ChainExhausted, CallerFault (as the provider said it), InvalidRequest, UnknownTarget, RequestConflict,
        LedgerUnavailable.
        """
        raise NotImplementedError

    def stream(self, request: Request, target: str, origin: Origin) -> AsyncIterator[Begun | Chunk | Priced | Reply]:
        """An answer as it comes: one Begun, then chunks (with a Priced before the one that has the usage), then one Reply.

        Raises as `complete` does until Begun; StreamBroken after. Close it with `contextlib.aclosing`: leaving early
        closes the connection and settles what may have been billed. The settling happens after the last chunk was
        yielded and before Reply.
        """
        raise NotImplementedError
