"""The budgets, for workflows that watch over them: where each stands, and a raise or a pause that ends by itself.

Only runs that an admin, the command line or a schedule started may look: names and amounts are nobody else's business.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self

from gateway.budget import Calendar, Window
from gateway.clock import from_ms, to_ms
from gateway.runs import JSON, Run
from gateway.store.budgets import Balance
from gateway.workflow.failures import StepFailed
from gateway.workflow.parts import Parts
from gateway.workflow.rules import operator


@dataclass(frozen=True, slots=True)
class Standing:
    """One counter of a budget at an instant. Amounts in the budget's unit (micro-USD for money)."""

    name: str
    label: str
    scope: Mapping[str, str]
    unit: str
    """requests | tokens | micro_usd"""
    limit: int
    """With the raises that are in force."""
    spent: int
    held: int
    asked_at: datetime
    opened_at: datetime | None
    """When the window began; None for one that rolls, or that never ends."""
    resets_at: datetime | None
    """When it ends; when a rolling one's oldest spend leaves; None if never."""

    @classmethod
    def of_json(cls, kept: Mapping[str, JSON]) -> Self:
        """From what a step keeps."""
        instants = {name: value and datetime.fromisoformat(value) for name, value in kept.items() if name.endswith("_at")}
        return cls(**{**kept, **instants})


class BudgetFace:
    """`ctx.budgets`. Every call is a checkpoint."""

    def __init__(self, parts: Parts, run: Run, step: Callable[..., Awaitable[Any]]) -> None:
        self._parts, self._run, self._step = parts, run, step

    async def standing(self) -> list[Standing]:
        """Where every budget stands, one for each counter, in configured order."""
        return [Standing.of_json(one) for one in await self._step(self._look, name="budgets")]

    async def raise_to(self, budget: str, limit: int, until: datetime) -> None:
        """Sets a limit until an instant, audited. Raises StepFailed when there is no such budget."""
        await self._step(self._raise, budget, limit, until, name="raise a budget")

    async def pause(self, until: datetime) -> None:
        """Lets no call of a model through until an instant, audited."""
        await self._step(self._pause, until, name="pause")

    async def _look(self) -> list[Standing]:
        self._require_operator("budgets")
        now, windows = self._parts.clock.now(), {one.name: one.window for one in self._parts.store.budgets.all}
        return [_standing(balance, windows[balance.name], now) for balance in await self._parts.store.balances()]

    async def _raise(self, budget: str, limit: int, until: datetime) -> None:
        self._require_operator("raise a budget")
        # The new limit itself, not a difference: a step that a crash made twice must not raise twice.
        await self._parts.store.raise_limit(budget, "=", limit, to_ms(until), f"run:{self._run.id}")

    async def _pause(self, until: datetime) -> None:
        self._require_operator("pause")
        await self._parts.store.pause(to_ms(until), f"run:{self._run.id}")

    def _require_operator(self, step: str) -> None:
        if not operator(self._run.starter):
            raise StepFailed(step, "only a run that an admin, the command line or a schedule started may do this")


def _standing(balance: Balance, window: Window, now: datetime) -> Standing:
    opened = from_ms(window.bucket(to_ms(now))) if isinstance(window, Calendar) else None
    return Standing(
        name=balance.name,
        label=balance.label,
        scope=balance.scope,
        unit=str(balance.unit),
        limit=balance.limit,
        spent=balance.spent,
        held=balance.held,
        asked_at=now,
        opened_at=opened,
        resets_at=balance.resets_at,
    )
