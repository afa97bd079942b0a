"""The store: the transactions that apply the ledger's rules, and everything else that must survive a restart.

`Store` is what the dispatcher is handed. `gateway.store.ledger_store.LedgerStore` is the real one, on SQLite or PostgreSQL; the
tests' memory store applies the same rules of `gateway.ledger` without a database.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from gateway.chat import Origin, Slot
from gateway.errors import Exhausted, GatewayError, Paused
from gateway.ledger import Closing, Draft, Match, Reservation


@dataclass(frozen=True, slots=True)
class Claimed:
    """A deduplicated request's id is ours: make the call."""


@dataclass(frozen=True, slots=True)
class Answered:
    """The request was answered before: this is its stored reply."""

    reply: bytes


@dataclass(frozen=True, slots=True)
class Underway:
    """A twin of this request is being answered by a living process: wait and ask again."""


@dataclass(frozen=True, slots=True)
class Peek:
    """What `reserve` would say now: each matching budget with what is spent and held, and the refusal if there is one."""

    matches: tuple[tuple[Match, int, int], ...]
    refusal: Exhausted | Paused | None


class Store(Protocol):
    """What the dispatcher needs. Every method raises LedgerUnavailable when the database cannot be used."""

    async def reserve(self, draft: Draft) -> Reservation:
        """Commits a hold on every budget that the draft counts in; only then may the call be made.

        Raises Exhausted or Paused (also noted as a refusal for `why`), LedgerUnavailable. A caller cancelled while it
        waits leaves no hold behind.
        """
        ...

    async def peek(self, draft: Draft) -> Peek:
        """What `reserve` would say of this draft now. Holds nothing and notes nothing."""
        ...

    async def close(self, reservation: Reservation, closing: Closing) -> bool:
        """Ends the reservation and writes its usage row; False when it had ended before (nothing changes).

        A settle after expiry records the difference when it is more. `closing.reply` is stored with it, under the
        origin's request id. If the database is gone the closing is kept and tried again until it is written; the call
        then returns without waiting for that.
        """
        ...

    async def note_refusal(self, origin: Origin, chain: str, slot: Slot, error: GatewayError) -> None:
        """Keeps, for `why`, that a slot was passed over without a hold (breaker open, cannot serve, unknown price)."""
        ...

    async def claim(self, request_id: str, fingerprint: str) -> Claimed | Answered | Underway:
        """Takes a deduplicated request's id for this process, if nobody has it.

        Raises RequestConflict when the id was used with another fingerprint. Claims of dead owners are taken over.
        """
        ...

    async def unclaim(self, request_id: str) -> None:
        """Gives an unanswered request's id back, so that it may be made again; kept and tried again as `close` is."""
        ...

    @property
    def rooms(self) -> int:
        """Grows with every hold that is closed and every limit that changes: which state of things a refusal is about."""
        ...

    async def wait_for_room(self, timeout_s: float, since: int | None = None) -> None:
        """Returns when any hold was closed or a limit changed, at the latest after `timeout_s`.

        With `since`, at once if that has happened after `rooms` had this value.
        """
        ...
