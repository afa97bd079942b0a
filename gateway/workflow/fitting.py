"""Whether the calls that a run would make have room now, each behind those before it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from gateway.budget import Unit, counter_name
from gateway.chat import Slot
from gateway.dispatcher import Verdict
from gateway.errors import Exhausted
from gateway.runs import Run
from gateway.workflow.caps import own_limits


@dataclass(frozen=True, slots=True)
class Fit:
    """Whether a call has room now, behind the calls of the run before it."""

    slot: Slot | None
    """Who would be called; None: nobody could be."""
    prompt_tokens: int = 0
    output_tokens: int = 0
    cost_micro_usd: int = 0
    reason: str = ""
    """Why nobody could be called."""
    budget: str = ""
    """The budget that has no room, if it is that."""


class Room:
    """What the run's calls so far would have taken of each counter, at worst."""

    def __init__(self, run: Run) -> None:
        self._taken: Counter[tuple[str, str]] = Counter()
        self._own = {} if run.caps is None else own_limits(run.workflow, run.id, run.caps)

    def fit(self, verdicts: Sequence[Verdict]) -> Fit:
        """The first slot with room, and its worst case from then on taken; else why none has."""
        reasons: list[tuple[str, str]] = []
        for verdict in verdicts:
            if verdict.error is not None and not isinstance(verdict.error, Exhausted):
                reasons.append((f"{verdict.slot}: {verdict.error}", ""))
                continue
            full = self._full(verdict)
            if full is None:
                for match, _, _ in verdict.matches:
                    self._taken[match.id] += _asked(match.budget.unit, verdict)
                return Fit(verdict.slot, verdict.prompt_tokens, verdict.output_tokens, verdict.cost_micro_usd or 0)
            reasons.append((f"{verdict.slot}: budget {full} has no room", full))
        first = verdicts[0]
        worst = (first.prompt_tokens, first.output_tokens, first.cost_micro_usd or 0)
        budget = next((budget for _, budget in reasons if budget), "")
        return Fit(None, *worst, "; ".join(reason for reason, _ in reasons), budget)

    def _full(self, verdict: Verdict) -> str | None:
        """The first budget that has no room for this slot's worst case."""
        for match, spent, held in verdict.matches:
            limit = self._own.get(counter_name(match.budget.name, match.key), match.limit)
            if spent + held + self._taken[match.id] + _asked(match.budget.unit, verdict) > limit:
                return match.budget.name
        return None


def _asked(unit: Unit, verdict: Verdict) -> int:
    """What a call asks of a budget in this unit, at worst."""
    if unit is Unit.REQUESTS:
        return 1
    return verdict.prompt_tokens + verdict.output_tokens if unit is Unit.TOKENS else verdict.cost_micro_usd or 0
