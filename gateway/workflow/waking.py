"""Waking what waits for a budget: people first, then runs, the oldest first, each answered by the gate before the next.

Without that order everything that waits would ask at once when a window opens, and the youngest might win.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from datetime import datetime
from typing import Protocol

import structlog

from gateway.clock import Clock, to_ms
from gateway.workflow.waits import Wait, Waits

DECISION_S = 5.0
"""How long the next run waits for the gate's word on the one before."""
PEOPLE_S = 3.0
"""How long runs stand back while the number of due questions does not go down: their bot may be off."""
LOOK_S = 0.1
LAST_S = 0.5
HELD_AT_ONCE = 8
"""How many that only holds kept out try again after a close; the others do with the next ones, or when their time comes."""


Limits = Callable[[], tuple[int, ...]]
"""What is another one when limits may have changed."""


class People(Protocol):
    """The questions of people that wait for room too. Instants in milliseconds since 1970 UTC."""

    async def due(self, now_ms: int) -> int:
        """How many could be answered now."""
        ...

    async def wake(self, now_ms: int) -> None:
        """Makes every one due, since limits changed."""
        ...


log = structlog.get_logger(__name__)


class Waking:
    """Wakes the waits of one process."""

    def __init__(self, waits: Waits, people: People, clock: Clock, limits: Limits) -> None:
        self._waits, self._people, self._clock, self._limits = waits, people, clock, limits
        self._seen: tuple[int, ...] | None = None
        """The limits at the last look; None before the first: they may have changed while no worker looked."""
        self._rounds: asyncio.Task[None] | None = None
        self._freed = 0
        self._unanswered = 0
        """How many due questions nobody took up while runs stood back for them."""

    def room_came(self) -> None:
        """Something was closed: what only holds kept out is worth a try."""
        # Twice: a run that was refused just before the close shows its wait just after it.
        self._freed = 2

    def look(self, now: datetime) -> None:
        """Begins a round if one is due and none is under way. Returns at once."""
        if self._rounds is not None and not self._rounds.done():
            return
        limits = self._limits()
        everyone, self._seen = limits != self._seen, limits
        freed, self._freed = self._freed > 0, max(0, self._freed - 1)
        due = self._due(now, everyone=everyone, freed=freed)
        if due:
            self._rounds = asyncio.create_task(self._wake(due, raised=everyone))
            self._rounds.add_done_callback(_told)

    async def stop(self) -> None:
        """Ends a round under way."""
        if self._rounds is not None:
            self._rounds.cancel()
            await asyncio.gather(self._rounds, return_exceptions=True)

    def _due(self, now: datetime, *, everyone: bool, freed: bool) -> list[Wait]:
        waits = self._waits.of_budget()
        if everyone:
            return sorted(waits, key=_age)
        due = [wait for wait in waits if wait.stale or (wait.until is not None and wait.until <= now)]
        held = sorted((wait for wait in waits if freed and wait.held and wait not in due), key=_age)
        return sorted([*due, *held[:HELD_AT_ONCE]], key=_age)

    async def _wake(self, due: list[Wait], *, raised: bool) -> None:
        if raised:
            # Here too, and not only by their bot: it may see the change later than this process.
            await self._people.wake(to_ms(self._clock.now()))
        for wait in due:
            await self._let_people_go_first()
            if self._limits() != self._seen:
                # There may be room now, and people were not asked yet: the next look begins with them.
                return
            wait.woken.set()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(DECISION_S):
                    await wait.decided.wait()

    async def _let_people_go_first(self) -> None:
        """Returns when nobody's question is due, or when they do not get fewer: then nobody answers just those."""
        loop = asyncio.get_running_loop()
        fewest, until = await self._people_due(), loop.time() + PEOPLE_S
        if fewest in (0, self._unanswered):
            self._unanswered = fewest
            return
        while fewest and loop.time() < until:
            await asyncio.sleep(LOOK_S)
            left = await self._people_due()
            if left < fewest:
                fewest, until = left, loop.time() + PEOPLE_S
        self._unanswered = fewest
        # The last of them is on its way to the gate.
        await asyncio.sleep(LAST_S)

    async def _people_due(self) -> int:
        return await self._people.due(to_ms(self._clock.now()))


def _age(wait: Wait) -> tuple[datetime, str, str]:
    return wait.age


def _told(task: asyncio.Task[None]) -> None:
    """A round that broke is said; what it did not wake is still due."""
    if not task.cancelled() and (error := task.exception()) is not None:
        log.warning("waking_delayed", reason=f"{type(error).__name__}: {error}")
