"""What a run in work tells the rows: its steps as they begin, wait and end, and the run's own state with them.

One board per run, shared by the branches of its maps. A row says that a step has ended only once its checkpoint is kept: what
is shown as finished is never made again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeVar

import structlog

from gateway.errors import LedgerUnavailable
from gateway.runs import Run, RunState, Signal, Step, StepState
from gateway.store.runs import Runs
from gateway.workflow.waits import Wait, Waits

T = TypeVar("T")

AGAIN_S = (0.2, 0.5, 1.0, 2.0)
"""The waits before a row is written again while the database is gone; the last one from then on."""

log = structlog.get_logger(__name__)


async def insist(call: Callable[[], Awaitable[T]]) -> T:
    """The call's value, however long the database is gone: a run waits for it rather than fail."""
    tries = 0
    while True:
        try:
            return await call()
        except LedgerUnavailable as error:
            wait_s = AGAIN_S[min(tries, len(AGAIN_S) - 1)]
            if tries == 0:
                log.warning("run_waits_for_database", reason=error.reason)
            tries += 1
            await asyncio.sleep(wait_s)


class Board:
    """The rows of one run in work. `steps` are its rows as they stood when this process took it up."""

    def __init__(self, run: Run, steps: Iterable[Step], runs: Runs, waits: Waits) -> None:
        self.run = run
        self.runs = runs
        self._waits = waits
        self._before = {step.name: step for step in steps}
        self._open: dict[str, Wait | None] = {}
        """The steps under way, each with what it waits for, if it does."""
        self._mail: dict[str, list[Signal]] = {}
        self._taken: set[int] = set()
        self._order = asyncio.Lock()

    def standing(self, step: str) -> Step | None:
        """The step's row as this process found it, if its work was under way then."""
        found = self._before.get(step)
        return None if found is None or found.state.ended else found

    async def began(self, step: str, kind: str, detail: str = "") -> None:
        """A step, or another attempt at it, begins."""
        self._open[step] = None
        await self._write(lambda: self.runs.step_began(self.run.id, step, kind, detail))

    def has(self, step: str) -> bool:
        """True for a step that this process has shown as begun."""
        return step in self._open

    async def opened(self, step: str, kind: str, detail: str) -> None:
        """A map begins: its items are the steps that run or wait."""
        if step not in self._before:
            await insist(lambda: self.runs.step_began(self.run.id, step, kind, detail))

    async def closed(self, step: str, detail: str) -> None:
        """Every item of a map has ended."""
        before = self._before.get(step)
        if before is None or not before.state.ended or before.detail != detail:
            await insist(lambda: self.runs.step_ended(self.run.id, step, StepState.SUCCEEDED, detail))

    async def ended(self, step: str, state: StepState, detail: str = "") -> None:
        """A step ended and its checkpoint is kept. On a replay, only what a crash kept from being written is written."""
        worked = step in self._open
        self._open.pop(step, None)
        before = self._before.pop(step, None)
        if worked or (before is not None and not before.state.ended):
            await insist(lambda: self.runs.step_ended(self.run.id, step, state, detail))

    async def waits(self, wait: Wait, kind: str, before: Wait | None = None) -> None:
        """Shows that a step waits, and returns once it was woken. `before` is its last wait, if it has not run since."""
        if before is None or (before.shown_until, before.reason) != (wait.shown_until, wait.reason):
            standing = None if before is not None else self.standing(wait.step)
            shown = standing is not None and (standing.state, standing.waiting_until) == (StepState.WAITING, wait.shown_until)
            self._open[wait.step] = wait
            await self._write(
                None if shown else lambda: self.runs.step_waits(self.run.id, wait.step, kind, wait.shown_until, wait.reason)
            )
        await self._waits.until_woken(wait)

    def deliver(self, signals: Sequence[Signal]) -> None:
        """Hands signals over; the steps that wait for something look again."""
        for signal in signals:
            if signal.id not in self._taken and all(signal.id != kept.id for kept in self._mail.get(signal.name, ())):
                self._mail.setdefault(signal.name, []).append(signal)
        for wait in self._waits.of_run(self.run.id):
            wait.woken.set()

    def next_signal(self, name: str) -> Signal | None:
        """The oldest signal of this name that no step has taken."""
        return next((signal for signal in self._mail.get(name, ()) if signal.id not in self._taken), None)

    async def took(self, signals: Iterable[int]) -> None:
        """These signals are in a step's checkpoint: they are not needed any more."""
        ids = [signal for signal in signals if signal]
        self._taken.update(ids)
        if ids:
            await insist(lambda: self.runs.delivered(ids))

    async def log(self, line: str, step: str) -> None:
        """Adds a line to what is told of the run."""
        await insist(lambda: self.runs.log(self.run.id, line, step))

    async def _write(self, step: Callable[[], Awaitable[None]] | None) -> None:
        """Writes a step's row and then, in the same order for all of them, what that makes of the run."""
        async with self._order:
            if step is not None:
                await insist(step)
            waits = [wait for wait in self._open.values() if wait is not None]
            if len(waits) < len(self._open) or not waits:
                await insist(lambda: self.runs.set_state(self.run.id, RunState.RUNNING))
                return
            first = min(waits, key=lambda wait: (wait.until is None, wait.until or wait.run.created))
            until, reason = first.shown_until, first.reason
            await insist(lambda: self.runs.set_state(self.run.id, first.state, waiting_until=until, waiting_for=reason))
