"""How an attempt ends in the ledger: from what came back, or did not, to a Closing. Pure.

Rules (what may have been billed counts):
- Stated usage is taken as stated, a stated nought too. Without it a finished answer settles at its hold, flagged, or at
  what its text can have cost where the provider did not keep to the limit.
- An error that is certainly not billed gives tokens and money back; a request was made once a byte was sent.
- A time-out, a reset, a broken stream: the worst case unless the whole usage is known, flagged uncertain.
- A caller that leaves: the worst case until something visible came, then the prompt bound and an upper bound of what came.
- A stream that was cut off at its limit: the most that is known.
"""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from gateway.budget import Amounts
from gateway.chat import Slot, Usage
from gateway.errors import CallerFault, ContentRefused, ProviderError, Refused
from gateway.ledger import Closing, Outcome, Reservation, State
from gateway.prices import Prices

DETAIL_CHARS_MAX = 300


class Timing(NamedTuple):
    """How long an attempt took, in milliseconds; `first_token_ms` None when no token came."""

    total_ms: int
    first_token_ms: int | None = None


class Settlement(NamedTuple):
    """A usage with its price: what an attempt has spent."""

    usage: Usage
    cost_micro_usd: int
    price_source: str

    @property
    def spent(self) -> Amounts:
        """One request, the usage's tokens, its cost."""
        return Amounts(1, self.usage.tokens, self.cost_micro_usd)


def held(reservation: Reservation) -> Settlement:
    """What the hold stands for."""
    draft = reservation.draft
    return Settlement(Usage(draft.prompt_tokens, draft.held.tokens - draft.prompt_tokens), draft.held.micro_usd, "worst_case")


def price(prices: Prices, slot: Slot, model_served: str | None, usage: Usage, called_at: datetime) -> Settlement:
    """What this usage costs at the time of the call."""
    cost_micro_usd, source = prices.cost(slot, model_served, usage, called_at)
    return Settlement(usage, cost_micro_usd, source)


def answered(
    settlement: Settlement, timing: Timing, *, model: str, estimated: bool, clamped: bool, reply: bytes | None
) -> Closing:
    """A finished answer. `estimated`: the provider stated no usage."""
    return Closing(
        State.SETTLED,
        settlement.spent,
        Outcome.CLAMPED if clamped else Outcome.ANSWERED,
        settlement.usage,
        model_served=model,
        price_source=settlement.price_source,
        estimated=estimated,
        first_token_ms=timing.first_token_ms,
        total_ms=timing.total_ms,
        reply=reply,
    )


def failed(reservation: Reservation, error: ProviderError, stated: Settlement | None, timing: Timing, *, whole: bool) -> Closing:
    """A call that did not end in an answer. `whole`: `stated` is all that was used, not only what was seen so far."""
    detail = str(error)[:DETAIL_CHARS_MAX]
    outcome = _outcome(error)
    if isinstance(error, Refused):
        if stated is not None:
            spent, state = stated.spent, State.SETTLED
        else:
            spent, state = Amounts(1 if error.sent else 0), State.SETTLED if error.sent else State.RELEASED
        return Closing(
            state,
            spent,
            outcome,
            None if stated is None else stated.usage,
            price_source="" if stated is None else stated.price_source,
            total_ms=timing.total_ms,
            first_token_ms=timing.first_token_ms,
            detail=detail,
        )
    known = stated is not None and whole
    return _unsure(reservation, stated, timing, outcome, at_least=not known, estimated=not known, uncertain=True, detail=detail)


def left(reservation: Reservation, came: Settlement | None, timing: Timing) -> Closing:
    """The caller left. `came` is an upper bound of what was received; None before anything visible came."""
    return _unsure(
        reservation,
        came,
        timing,
        Outcome.CANCELLED,
        at_least=False,
        estimated=True,
        uncertain=False,
        detail="the caller left",
    )


def lost(reservation: Reservation, error: BaseException, timing: Timing) -> Closing:
    """Something else went wrong on our side while the call was out: it may have been billed."""
    detail = f"{type(error).__name__} in the gateway"
    return _unsure(reservation, None, timing, Outcome.UNANSWERED, at_least=True, estimated=True, uncertain=True, detail=detail)


def cut_off(reservation: Reservation, came: Settlement, timing: Timing, reply: bytes | None) -> Closing:
    """The provider ignored the output limit and was cut off; `came` is at least what came."""
    detail = "the provider passed the output limit"
    closing = _unsure(reservation, came, timing, Outcome.CUT_OFF, at_least=True, estimated=True, uncertain=True, detail=detail)
    return closing._replace(reply=reply)


def _unsure(
    reservation: Reservation,
    stated: Settlement | None,
    timing: Timing,
    outcome: Outcome,
    *,
    at_least: bool,
    estimated: bool,
    uncertain: bool,
    detail: str,
) -> Closing:
    """A settling without the provider's last word; `at_least`: never below the hold."""
    hold = held(reservation)
    known = hold if stated is None else stated
    spent = known.spent
    if at_least:
        spent = Amounts(1, max(hold.usage.tokens, spent.tokens), max(hold.cost_micro_usd, spent.micro_usd))
    return Closing(
        State.SETTLED,
        spent,
        outcome,
        known.usage if known.usage.tokens >= spent.tokens else hold.usage,
        price_source=known.price_source,
        estimated=estimated,
        uncertain=uncertain,
        first_token_ms=timing.first_token_ms,
        total_ms=timing.total_ms,
        detail=detail,
    )


def _outcome(error: ProviderError) -> Outcome:
    if isinstance(error, ContentRefused):
        return Outcome.CONTENT_REFUSED
    if isinstance(error, CallerFault):
        return Outcome.CALLER_FAULT
    if isinstance(error, Refused):
        return Outcome.REFUSED if error.sent else Outcome.NOT_SENT
    return Outcome.UNANSWERED
