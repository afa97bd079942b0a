"""The worker: does what the rows ask for, and writes into the rows what became of it. One per process, role `worker`.

Surfaces write rows and may be other processes, so it looks several times a second; one in this process pokes it. It wakes by
the program's clock what waits for a time; the engine is told nothing of time.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import shutil
from collections.abc import Coroutine
from datetime import timedelta

import structlog

from gateway.errors import LedgerUnavailable
from gateway.runs import Run, RunState
from gateway.store.executors import Executors
from gateway.store.ledger_store import LedgerStore
from gateway.store.runs import Runs
from gateway.workflow.board import insist
from gateway.workflow.body import Bodies
from gateway.workflow.caps import own_limits, without
from gateway.workflow.engine import End, Engine
from gateway.workflow.failures import sentence
from gateway.workflow.filing import Filing
from gateway.workflow.parts import Parts
from gateway.workflow.takeover import Takeover
from gateway.workflow.waking import People, Waking

TICK_S = 0.25
"""How often the rows are looked at."""
SWEEP_S = 2.0
"""How often dead workers are looked for, and this one's own lock."""
EXPIRE_S = 1.0
HEAR_S = 5.0
"""How long a close is waited for before the runs that holds kept out try again all the same: it may be in another process."""
FILE_S = 1.0
"""How often it is looked for what is to be told to files."""
PRUNE_S = 3600.0
RETENTION = timedelta(days=30)
"""How long an ended run is kept, with its folder and its checkpoints."""
SETTLE_S = 5.0
"""How long a stop waits for models' answers that are on their way: they are paid for."""
SIGNALS_AGAIN = 200
"""On PostgreSQL a signal may become visible after one with a greater number: the last ones are looked at again."""

log = structlog.get_logger(__name__)


def new_worker() -> str:
    """A name that no worker had before."""
    return f"w{secrets.token_hex(8)}"


class Worker:
    """Make it, `start` it, `run` it as a task, `stop` it. `poke` is set by whoever has written something for it."""

    def __init__(
        self,
        name: str,
        parts: Parts,
        store: LedgerStore,
        engine: Engine,
        executors: Executors,
        people: People,
        poke: asyncio.Event,
    ) -> None:
        self._name, self._parts, self._store, self._engine, self._executors = name, parts, store, engine, executors
        self._runs: Runs = parts.runs
        self._bodies = Bodies(parts)
        self._waking = Waking(parts.waits, people, parts.clock, lambda: store.limits)
        self._filing = Filing(parts.runs, parts.folder, parts.settings.folder)
        self._takeover = Takeover(name, self._runs, engine, executors, self._finish)
        self.poke = poke
        self.ready = False
        """True while it sees to what the rows ask for."""
        self._newest_signal = 0
        self._cancelling: set[str] = set()
        self._work: set[asyncio.Task[None]] = set()
        self._next: dict[str, float] = {}

    @property
    def parked(self) -> int:
        """How many steps wait for a budget."""
        return len(self._parts.waits.of_budget())

    def is_parked(self, run: str) -> bool:
        """True when a step of this run waits for a budget: it was refused by the gate, here and not before a restart."""
        return any(wait.run.id == run for wait in self._parts.waits.of_budget())

    @property
    def running(self) -> int:
        """How many runs this process has in work, waiting ones included."""
        return len(self._bodies.boards)

    async def start(self) -> None:
        """Takes this worker's lock and opens the engine. Raises LedgerUnavailable."""
        taken = await self._executors.take(self._name)
        assert taken, "a worker's name was used before"
        await self._executors.announce()
        await self._engine.open(self._bodies.run, self._ended)

    async def run(self) -> None:
        """Looks until cancelled. A database that is gone for a while is waited for."""
        hearing = asyncio.create_task(self._hear_of_room())
        try:
            while True:
                self.ready = await self._sees_to_it()
                await self._pause()
        finally:
            hearing.cancel()

    async def stop(self) -> None:
        """Takes nothing more, gives answers on their way a moment, and leaves the runs to the next worker."""
        self._parts.closing.set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SETTLE_S):
                await self._parts.calls.ended()
        await self._waking.stop()
        # What ended meanwhile is still written; what was being cancelled is, too.
        await asyncio.gather(*self._work, return_exceptions=True)
        await self._engine.close()
        await self._executors.close()

    async def _pause(self) -> None:
        """Until the next look, or until somebody pokes."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(TICK_S):
                await self.poke.wait()

    async def _hear_of_room(self) -> None:
        """Tells of closes while only other calls' holds keep something out."""
        while True:
            await self._store.wait_for_room(HEAR_S)
            self._waking.room_came()
            if any(wait.held for wait in self._parts.waits):
                self.poke.set()
            await asyncio.sleep(TICK_S / 5)

    async def _sees_to_it(self) -> bool:
        """Looks once; False when it could not."""
        try:
            await self._look()
        except LedgerUnavailable as error:
            log.warning("worker_waits_for_database", reason=error.reason)
        except Exception:
            # One run that cannot be seen to must not keep the others from it.
            log.exception("worker_failed")
        else:
            return True
        return False

    async def _look(self) -> None:
        self.poke.clear()
        if self._is_time("sweep", SWEEP_S):
            await self._keep_lock()
            await self._takeover.sweep()
        for run in await self._runs.pending():
            if run.state is RunState.QUEUED:
                await self._take(run)
            elif run.owner == self._name and run.id not in self._cancelling:
                self._cancelling.add(run.id)
                self._spawn(self._cancel(run.id))
        await self._wake()
        if self._is_time("file", FILE_S):
            await self._filing.look()
        if self._is_time("prune", PRUNE_S):
            await self._prune()

    async def _take(self, run: Run) -> None:
        mine = await self._runs.take(run.id, self._name)
        if mine is None:
            return
        try:
            refused = await self._begin(mine)
        except Exception as error:
            if self._parts.closing.is_set():
                # A stop closed the engine under it. The next worker takes it over, as after a crash.
                return
            log.exception("run_not_begun", run=mine.id)
            refused = f"it could not be begun: {sentence(error)}"
        if refused:
            await self._finish(mine.id, End(mine.generation, error=refused))

    async def _begin(self, run: Run) -> str:
        """Hands a taken run to the engine; why that cannot be, or ""."""
        refused = await self._set_caps(run)
        if refused:
            return refused
        await (self._engine.retry(run.id) if run.generation else self._engine.start(run.id))
        log.info("run_taken", run=run.id, workflow=run.workflow, generation=run.generation)
        return ""

    async def _set_caps(self, run: Run) -> str:
        """Makes a run's own caps its counters' limits; why that cannot be, or ""."""
        if run.caps is None:
            return ""
        definition = self._parts.catalogue.definitions.get(run.workflow)
        if missing := without(run.caps, definition.caps if definition else None):
            return f"{run.workflow} has no cap on {' and '.join(missing)} that could be another one for this run"
        for counter, limit in own_limits(run.workflow, run.id, run.caps).items():
            await self._store.raise_limit(counter, "=", limit, None, run.starter.name)
        return ""

    async def _wake(self) -> None:
        """Wakes what a signal, an answer, a raise or the clock has come for."""
        now, waits = self._parts.clock.now(), self._parts.waits
        due = waits.others_due(now)
        if any(wait.state is RunState.WAITING_APPROVAL for wait in due) or self._is_time("expire", EXPIRE_S):
            await self._runs.expire_approvals()
        if self._bodies.boards:
            await self._deliver()
        for wait in due:
            wait.woken.set()
        self._waking.look(now)

    async def _deliver(self) -> None:
        signals = await self._runs.signals(max(0, self._newest_signal - SIGNALS_AGAIN))
        if signals:
            self._newest_signal = max(self._newest_signal, signals[-1].id)
        for run in {signal.run for signal in signals} & self._bodies.boards.keys():
            self._bodies.boards[run].deliver([signal for signal in signals if signal.run == run])

    async def _cancel(self, run: str) -> None:
        try:
            await self._engine.cancel(run)
            await insist(lambda: self._runs.set_state(run, RunState.CANCELLED))
            log.info("run_cancelled", run=run)
        finally:
            self._cancelling.discard(run)

    def _ended(self, run: str, end: End) -> None:
        """As engine.Ended."""
        self._spawn(self._finish(run, end))

    async def _finish(self, run: str, end: End) -> None:
        state = RunState.FAILED if end.error else RunState.SUCCEEDED
        await insist(lambda: self._runs.set_state(run, state, error=end.error, result=end.result))
        log.info("run_ended", run=run, state=state.value)

    async def _keep_lock(self) -> None:
        """A connection that broke has lost this worker's lock, and others may have its runs: nothing goes on without it."""
        if await self._executors.hold():
            return
        log.warning("worker_lost_its_lock", worker=self._name)
        await self._engine.suspend()
        while not await insist(lambda: self._executors.take(self._name)):
            # The server may not have noticed yet that the old connection is gone.
            await self._pause()
        await insist(self._executors.announce)
        self._engine.resume()
        await self._takeover.take_over(self._name)

    async def _prune(self) -> None:
        """Forgets what ended long ago: checkpoints, folders and counters first, so that nothing is left behind its row."""
        before = self._parts.clock.now() - RETENTION
        while ended := await self._runs.ended_before(before):
            ids = [run.id for run in ended]
            await self._engine.prune(ids)
            for run in ids:
                await asyncio.to_thread(shutil.rmtree, self._parts.folder / run, ignore_errors=True)
            await self._store.forget_runs(ids)
            await self._runs.forget(ids)
            log.info("runs_pruned", count=len(ids))

    def _is_time(self, what: str, every_s: float) -> bool:
        now = asyncio.get_running_loop().time()
        if now < self._next.get(what, 0.0):
            return False
        self._next[what] = now + every_s
        return True

    def _spawn(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.create_task(work)
        self._work.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._work.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("worker_task_failed", reason=f"{type(error).__name__}: {error}")
