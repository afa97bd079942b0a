"""The steps that wait, in this process: for a budget, a time, a signal, an answer. Rows show them; what wakes them is here."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime

from gateway.runs import Run, RunState


@dataclass(eq=False, slots=True)
class Wait:
    """One step that waits. Whoever wakes it sets `woken`; the step sets `decided` once the gate has answered it."""

    run: Run
    step: str
    state: RunState
    """WAITING_BUDGET, WAITING_APPROVAL, WAITING or SLEEPING."""
    until: datetime | None
    """When it is to be woken; None: only by what it waits for."""
    reason: str = ""
    """The budget, the signal or the question that it waits for."""
    held: bool = False
    """For a budget: only other calls' holds are in the way of some provider, so that it is worth a try after any close."""
    stale: bool = False
    """It stands since before a restart: limits may have changed meanwhile, so that it is worth a try."""
    woken: asyncio.Event = field(default_factory=asyncio.Event)
    decided: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def shown_until(self) -> datetime | None:
        """What people are told. Nobody knows when a call will end, so a wait for holds has no time."""
        return None if self.held else self.until

    @property
    def age(self) -> tuple[datetime, str, str]:
        """What the oldest-first order goes by."""
        return self.run.created, self.run.id, self.step


class Waits:
    """Every wait of this process's runs."""

    def __init__(self) -> None:
        self._all: set[Wait] = set()

    def __iter__(self) -> Iterator[Wait]:
        return iter(tuple(self._all))

    def __len__(self) -> int:
        return len(self._all)

    async def until_woken(self, wait: Wait) -> None:
        """Returns once somebody has woken it."""
        self._all.add(wait)
        try:
            await wait.woken.wait()
        finally:
            self._all.discard(wait)

    def of_budget(self) -> list[Wait]:
        """Those that wait for a budget, in no order."""
        return [wait for wait in self._all if wait.state is RunState.WAITING_BUDGET]

    def others_due(self, now: datetime) -> list[Wait]:
        """Those that wait for something else and whose time has come."""
        others = (wait for wait in self._all if wait.state is not RunState.WAITING_BUDGET)
        return [wait for wait in others if wait.until is not None and wait.until <= now]

    def of_run(self, run: str) -> list[Wait]:
        """Those of one run that do not wait for a budget."""
        return [wait for wait in self._all if wait.run.id == run and wait.state is not RunState.WAITING_BUDGET]
