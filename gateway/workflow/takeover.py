"""Runs whose worker is dead go on here: after a crash, a stop, or on another machine of the same database.

A worker lives while the lock in its name is held (`gateway.store.executors`). The rows say whose each run is.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import structlog

from gateway.runs import Run, RunState
from gateway.store.executors import Executors
from gateway.store.runs import Runs
from gateway.workflow.engine import End, Engine, Known

Finish = Callable[[str, End], Awaitable[None]]

log = structlog.get_logger(__name__)


class Takeover:
    """Sees to the runs of dead workers. `worker` is this process's name."""

    def __init__(self, worker: str, runs: Runs, engine: Engine, executors: Executors, finish: Finish) -> None:
        self._worker, self._runs, self._engine, self._executors, self._finish = worker, runs, engine, executors, finish

    async def sweep(self) -> None:
        """Looks once at every worker that has runs."""
        for name in sorted(await self._runs.owners() - {self._worker}):
            async with self._executors.dead(name) as dead:
                if dead:
                    await self.take_over(name)

    async def take_over(self, name: str) -> None:
        """Goes on with the runs of a worker that is known to be dead, or with this one's own after it had lost its lock."""
        going = self._engine.running()
        mine = {run.id: run for run in await self._runs.unfinished() if run.owner == name and run.id not in going}
        if not mine:
            return
        log.info("runs_taken_over", worker=name, count=len(mine))
        known = await self._engine.known(mine.keys())
        await self._engine.adopt(name, [run for run in mine if run not in known or known[run].active])
        for run in mine.values():
            if run.id in known and not known[run.id].active:
                await self._reconcile(run, known[run.id])
        # Last: until then the next sweep, here or elsewhere, finds what was left undone.
        await self._runs.own(list(mine), self._worker)

    async def _reconcile(self, run: Run, known: Known) -> None:
        """The engine has an end that the row has not: written now, or that of an earlier generation, which is retried."""
        if known.end is None:
            cancelled = End(run.generation, error="" if run.wanted else "the engine ended it")
            await (self._runs.set_state(run.id, RunState.CANCELLED) if run.wanted else self._finish(run.id, cancelled))
        elif known.end.generation < run.generation:
            await self._engine.retry(run.id)
        else:
            await self._finish(run.id, known.end)
