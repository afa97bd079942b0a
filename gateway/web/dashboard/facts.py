"""What several pages show: budgets with their counters, and providers as they stand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from statistics import median
from typing import Any

from gateway.budget import PAUSE, Budget, Raise, is_cap
from gateway.chat import Slot
from gateway.clock import from_ms, to_ms
from gateway.store.budgets import Balance
from gateway.web.dashboard.visit import Visit

COUNTERS_SHOWN = 3
"""Of a budget with one counter each, how many are shown where every budget is."""


@dataclass(frozen=True, slots=True)
class Standing:
    """A budget and those of its counters that are shown, the fullest first where it has many; `more` are left out."""

    budget: Budget
    balances: Sequence[Balance]
    more: int
    raised: bool

    @property
    def each(self) -> bool:
        """True where it has a counter for each value of something."""
        return "*" in self.budget.scope.values()


@dataclass(frozen=True, slots=True)
class Served:
    """A provider's model of a chain, as this process sees it, with what its newest attempts came to."""

    slot: Slot
    chains: Sequence[str]
    left_alone_until: datetime | None
    attempts: int
    failed: int
    first_token_ms: int | None
    total_ms: int | None
    """Medians of the answered ones."""


async def standings(visit: Visit, *, caps: bool = False, most: int = COUNTERS_SHOWN) -> list[Standing]:
    """Every budget in configured order; `caps` gives those of single runs instead. Raises LedgerUnavailable."""
    found: dict[str, list[Balance]] = {}
    for balance in await visit.services.books.balances():
        found.setdefault(balance.name, []).append(balance)
    listed = []
    for budget in visit.services.settings.budgets.all:
        if is_cap(budget.name) is caps:
            full = sorted(found.get(budget.name, ()), key=fullness, reverse=True)
            listed.append(Standing(budget, full[:most], max(0, len(full) - most), bool(raises_of(visit, budget.name))))
    return listed


def raises_of(visit: Visit, name: str) -> list[Raise]:
    """The changes of a budget's limit that are in force."""
    now_ms = to_ms(visit.now)
    return [change for change in visit.services.store.raises.get(name, ()) if change.in_force(now_ms)]


def paused(visit: Visit) -> dict[str, Any] | None:
    """Whether every call is paused: by whom, and until when (None: until resumed)."""
    changes = raises_of(visit, PAUSE)
    if not changes:
        return None
    ends = [change.ends_ms for change in changes]
    until = None if None in ends else from_ms(max(end for end in ends if end is not None))
    return {"by": changes[-1].actor, "until": until}


def served(visit: Visit, attempts: Sequence[dict[str, Any]]) -> list[Served]:
    """Each slot of the chains, in their order, judged by the attempts."""
    settings = visit.services.settings
    chains: dict[Slot, list[str]] = {}
    for name, slots in settings.chains.items():
        for slot in slots:
            chains.setdefault(slot, []).append(name)
    return [_served(visit, slot, names, attempts) for slot, names in chains.items()]


def _served(visit: Visit, slot: Slot, chains: Sequence[str], attempts: Sequence[dict[str, Any]]) -> Served:
    mine = [one for one in attempts if (one["provider"], one["model_asked"]) == slot and one["ended"] is not None]
    good = [one for one in mine if one["outcome"] in ("answered", "clamped")]
    failed = [one for one in mine if one["outcome"] in ("refused", "unanswered", "cut_off", "expired")]
    return Served(
        slot,
        chains,
        visit.services.dispatcher.left_alone_until(slot),
        len(mine),
        len(failed),
        _median([one["latency_to_first_token_ms"] for one in good]),
        _median([one["total_latency_ms"] for one in good]),
    )


def _median(values: Sequence[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return round(median(known)) if known else None


def fullness(balance: Balance) -> float:
    """The part of its limit that is spent or held."""
    return (balance.spent + balance.held) / balance.limit if balance.limit else 1.0
