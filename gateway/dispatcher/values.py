"""What the dispatcher gives back: replies, the events of a stream, verdicts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from gateway.chat import Completion, Slot, Usage
from gateway.errors import Cause, GatewayError
from gateway.ledger import Match


class Reply(NamedTuple):
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


class Begun(NamedTuple):
    """The first event of a stream, yielded once there is something to show: who answers, and why others did not."""

    slot: Slot
    chain: str
    skipped: tuple[Cause, ...]


class Priced(NamedTuple):
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
