"""How a context makes its steps: named, one at a time, each kept as a checkpoint and shown in a row."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from gateway.runs import JSON, StepState
from gateway.workflow.board import Board
from gateway.workflow.engine import Checkpoints, End
from gateway.workflow.failures import SeveralAtOnce, StepFailed, sentence
from gateway.workflow.parts import Parts
from gateway.workflow.values import as_json

NAME_MAX = 80
CAUGHT_S, CAUGHT_MAX_S = 0.05, 5.0
"""How long a workflow that catches its cancellation waits for the next one: twice as long each time, beginning with nothing."""
WAITING = ("ask", "sleep", "wait_for", "approve")
"""The kinds of steps that show by themselves how they begin: one that waited before a restart is not shown as running."""
BREAKS = (Exception, SystemExit, asyncio.CancelledError)
"""How a workflow's own code may end. Let through, the second would end the server, and the next one that takes the run up."""


@dataclass(frozen=True, slots=True)
class Told:
    """What a step gives, and what its row says once it has ended."""

    value: JSON
    detail: str = ""
    signals: tuple[int, ...] = ()
    """The signals that are in its checkpoint."""


class Stepper:
    """The steps of one context. `branch` is what stands before their names: "" in a run, `<map>/<number>/` in a map's item."""

    def __init__(self, parts: Parts, board: Board, checkpoints: Checkpoints, branch: str) -> None:
        self.checkpoints = checkpoints
        self._parts, self._board, self._branch = parts, board, branch
        self._names: Counter[str] = Counter()
        self._running = ""
        self._caught = 0
        self._task: asyncio.Task[Any] | None = None

    def begin(self, kind: str, name: str | None) -> str:
        """The step's name in its run, numbered when it comes again. Raises SeveralAtOnce while another one runs."""
        said = name or kind
        if self._running:
            raise SeveralAtOnce(self._running, said)
        if len(said) > NAME_MAX or any(letter in "/#~@!" or not letter.isprintable() for letter in said):
            raise ValueError(f"a step's name has 1 to {NAME_MAX} characters and none of / # ~ @ !, not {said[:100]!r}")
        self._names[said] += 1
        again = self._names[said]
        self._running = f"{self._branch}{said}" + ("" if again == 1 else f"#{again}")
        self._task = asyncio.current_task()
        return self._running

    def ended(self) -> None:
        """The step that was begun runs no more."""
        self._running = ""

    async def step(self, kind: str, name: str | None, work: Callable[[str], Awaitable[Told]]) -> JSON:
        """One step with a row: begun, worked and kept, and then shown as ended. Raises StepFailed."""
        path, board = self.begin(kind, name), self._board
        try:

            async def attempt() -> JSON:
                if kind not in WAITING:
                    await board.began(path, kind)
                kept = await _kept(work(path))
                if not board.has(path):
                    # It had not to wait.
                    await board.began(path, kind)
                return kept

            kept = await self.checkpoint(path, attempt)
        finally:
            self.ended()
        if "failed" in kept:
            await board.ended(path, StepState.FAILED, kept["failed"])
            raise StepFailed(path, kept["failed"], self.checkpoints.here)
        await board.took(kept["signals"])
        await board.ended(path, StepState.SUCCEEDED, kept["detail"])
        return kept["value"]

    async def checkpoint(self, path: str, work: Callable[[], Awaitable[JSON]]) -> JSON:
        """A step without a row."""
        if self._parts.closing.is_set():
            # The process stops: what is not begun yet is for the next one.
            await asyncio.Event().wait()
        if _is_cancelled():
            # The workflow has caught its cancellation. It gets it again, slower and slower where it goes on like that.
            self._caught += 1
            await asyncio.sleep(min(CAUGHT_MAX_S, CAUGHT_S * 2.0**self._caught - 2 * CAUGHT_S))
            raise asyncio.CancelledError
        return await self.checkpoints.step(path, work)

    async def conclude(self, work: Callable[[], Awaitable[Any]]) -> End:
        """How a run or a branch ends: with its value, or with the error that it let through."""
        generation = self._board.run.generation
        try:
            result = as_json(await work(), "the workflow")
        except StepFailed as error:
            return End(generation, error=str(error), again_from=error.place or self.checkpoints.here + 1)
        except BREAKS as error:
            if _is_stopped(error):
                raise
            # No step failed: a retry goes on behind the newest one.
            return End(generation, error=sentence(error), again_from=self.checkpoints.here + 1)
        finally:
            await self._clear()
        return End(generation, result)

    async def _clear(self) -> None:
        """Ends a step that its workflow has left running."""
        if self._running and self._task is not None and self._task is not asyncio.current_task():
            self._task.cancel()
            await asyncio.wait((self._task,))


def _is_stopped(error: BaseException) -> bool:
    """True where the step is cancelled from outside; what a workflow waits for may have been cancelled by itself."""
    return isinstance(error, asyncio.CancelledError) and _is_cancelled()


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def _kept(work: Awaitable[Told]) -> JSON:
    """What a step's checkpoint holds: what it gave, or why it failed."""
    try:
        told = await work
    except StepFailed as error:
        return {"failed": error.reason}
    except BREAKS as error:
        if _is_stopped(error):
            raise
        return {"failed": sentence(error)}
    return {"value": told.value, "detail": told.detail, "signals": list(told.signals)}
