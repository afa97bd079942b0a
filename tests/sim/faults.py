"""What goes wrong in one run: each seed draws its own mix, and every fault that fires is counted."""

import random
from collections import Counter
from dataclasses import dataclass

from gateway.chat import Request, Usage
from gateway.errors import (
    CallerFault,
    ContentRefused,
    ContextTooLong,
    OutputParameterRefused,
    ProviderError,
    Refused,
    Unanswered,
)
from gateway.ledger import Reservation
from tests.doubles.provider import Play

OF_PROVIDERS = (
    "refused", "no_connection", "rate_limited", "unanswered_and_billed", "unanswered_and_free", "stream_broken", "slow_call",
    "usage_missing", "usage_too_low", "usage_too_high", "limit_ignored", "prompt_above_bound", "content_refused",
    "context_too_long", "parameter_refused", "callers_fault", "key_refused", "reasoning_only",
)  # fmt: skip
OF_CLIENTS = ("client_cancels", "client_leaves_stream", "client_repeats", "client_has_twin")
OF_THE_HOUSE = ("crash", "ledger_down", "limit_raised", "limit_lowered", "paused", "clock_back", "hold_expired", "settled_late")
FAULTS = (*OF_PROVIDERS, *OF_CLIENTS, *OF_THE_HOUSE)
DEGREES = (0.0, 0.0, 0.02, 0.06, 0.15)
"""How often a fault of a provider or a client happens in one seed: not at all in some."""


@dataclass(frozen=True)
class SimPlay(Play):
    """A play, and whether it keeps within what it was asked and says what it used."""

    honest: bool = True


class Mix:
    """One seed's faults. `peace` ends them all."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.fired: Counter[str] = Counter()
        self._degrees = {fault: chance.choice(DEGREES) for fault in (*OF_PROVIDERS, *OF_CLIENTS)}
        self._degrees["crash"] = chance.choice((0.0, 0.001, 0.003))
        self.latency_s = chance.choice((0.0, 0.02, 0.5))
        """The longest wait at a door of the store."""
        self.peace = False

    def strikes(self, fault: str) -> bool:
        """True when the fault happens now."""
        struck = not self.peace and self.chance.random() < self._degrees[fault]
        if struck:
            self.fired[fault] += 1
        return struck

    def play(self, request: Request, reservation: Reservation) -> Play:
        """What one call of a provider does."""
        chance, draft = self.chance, reservation.draft
        parts: dict[str, object] = {
            "prompt": chance.randint(1, draft.prompt_tokens),
            "words": tuple(f" w{number}" for number in range(chance.randint(0, 16))),
            "delay_s": chance.choice((0.0, 0.1, 1.0, 8.0)),
            "pause_s": chance.choice((0.0, 0.0, 0.2, 2.0)),
        }
        if self.strikes("slow_call"):
            parts["delay_s"] = chance.uniform(60, 150)
        if self.strikes("reasoning_only"):
            parts["reasoning"] = tuple(f" r{number}" for number in range(chance.randint(1, 12)))
            parts["words"] = ()
        self._dishonest(parts, reservation)
        error = self._error(reservation)
        if error is not None:
            parts |= {"error": error, "after": 0, "bills_anyway": "billed" in error.message}
            if "broke" in error.message:
                parts["after"] = chance.randint(1, 8)
        return SimPlay(**parts)  # type: ignore[arg-type]

    def _dishonest(self, parts: dict[str, object], reservation: Reservation) -> None:
        chance, bound = self.chance, reservation.draft.prompt_tokens
        if self.strikes("usage_missing"):
            parts["states_usage"] = False
        elif self.strikes("usage_too_low"):
            parts |= {"states": Usage(1, 1), "honest": False}
        elif self.strikes("usage_too_high"):
            parts |= {"states": Usage(bound + 50, 40), "honest": False}
        elif self.strikes("limit_ignored"):
            parts |= {"words": tuple(f" w{number}" for number in range(40)), "obeys_limit": False, "honest": False}
        elif self.strikes("prompt_above_bound"):
            parts |= {"prompt": bound + chance.randint(1, 60), "honest": False}

    def _error(self, reservation: Reservation) -> ProviderError | None:
        slot, chance = reservation.slot, self.chance
        where = (slot.provider, slot.model)
        if self.strikes("refused"):
            return Refused(*where, "not now", 503)
        if self.strikes("no_connection"):
            return Refused(*where, "no connection", sent=False)
        if self.strikes("rate_limited"):
            return Refused(*where, "slower", 429, retry_after_s=chance.choice((0.0, 1.0, 20.0)))
        if self.strikes("key_refused"):
            return Refused(*where, "bad key", 401)
        if self.strikes("unanswered_and_billed"):
            return Unanswered(*where, "timed out, billed")
        if self.strikes("unanswered_and_free"):
            return Unanswered(*where, "timed out")
        if self.strikes("stream_broken"):
            return Unanswered(*where, "broke")
        if self.strikes("content_refused"):
            return ContentRefused(*where, "policy", 400)
        if self.strikes("context_too_long"):
            return ContextTooLong(*where, "too long", 400)
        if self.strikes("parameter_refused"):
            return OutputParameterRefused(*where, "other name", 400)
        return CallerFault(*where, "bad", 400) if self.strikes("callers_fault") else None
