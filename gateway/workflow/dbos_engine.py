"""The engine on DBOS: SQLite in a file of its own beside the database, PostgreSQL in the schema `dbos` of the same one.

Rules, each for a reason that DBOS has:
- It is one per process, and is launched inside the running loop, since recovered work runs on the loop it was launched in.
- Each worker has a queue in its own name, and takes dead workers' runs over onto it: a run and its branches must meet in one
  process. DBOS's own recovery, by a common queue, could part them; so no name is ever used twice.
- The places of steps are counted, so a run asks for one step at a time; what goes side by side is a branch, a child workflow
  with places of its own.
- A step that waits is an open step. DBOS's `recv` costs a query per waiting run and tick on SQLite.
- Nothing is raised through DBOS: an error is a value too, so that a replay gives exactly what was given before.
"""

from __future__ import annotations

import asyncio
import contextvars
import json
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import Any, TypeVar

import orjson
import structlog
from dbos import DBOS, DBOSConfig, Serializer, SetWorkflowID, WorkflowStatus
from dbos import error as dbos_errors

from gateway.runs import JSON
from gateway.workflow.engine import Body, Branch, Diverged, End, Ended, Known, Work

T = TypeVar("T")

GENERATION = "sluicegate-1"
"""DBOS takes up only what has its own application version. A file that changed is found by its own stamp instead."""
ACTIVE = ("PENDING", "ENQUEUED", "DELAYED")
TAKE_UP_EVERY_S = 0.5
"""How soon a run that was taken over goes on."""
THREADS = 8
CONNECTIONS = 4
RESULT_EVERY_S = 0.5
CHUNK = 500
STOP_S = 10.0
"""How long work that was cancelled may take to end: code that catches everything may never do."""

log = structlog.get_logger(__name__)


class DbosEngine:
    """As Engine. `worker` is this process's name, never used by another; `url` the engine's own database."""

    def __init__(self, url: str, worker: str) -> None:
        self._url, self._worker = url, worker
        self._body: Body | None = None
        self._ended: Ended | None = None
        self._tasks: dict[str, asyncio.Task[Any]] = {}
        self._handed: dict[str, asyncio.Future[tuple[Branch, asyncio.Semaphore]]] = {}
        """What a branch does, by its id: its run hands it over, in whatever order both are taken up."""
        self._suspended = False
        self._run: Callable[[str], Coroutine[Any, Any, JSON]] = self._run_body
        self._branch: Callable[[str], Coroutine[Any, Any, JSON]] = self._branch_body

    async def open(self, body: Body, ended: Ended) -> None:
        """As Engine.open."""
        self._body, self._ended = body, ended
        # With a handler there, DBOS adds none of its own: what it says goes where the program's log goes.
        logging.getLogger("dbos").addHandler(logging.NullHandler())
        config: DBOSConfig = {
            "name": "sluicegate",
            "system_database_url": self._url,
            "executor_id": self._worker,
            "application_version": GENERATION,
            "serializer": _Json(),
            "log_level": "ERROR",
            "enable_otlp": False,
            "max_executor_threads": THREADS,
            "sys_db_pool_size": CONNECTIONS,
            "use_listen_notify": False,
            "notification_listener_polling_interval_sec": 1.0,
            "scheduler_polling_interval_sec": 60.0,
        }
        DBOS(config=config)

        @DBOS.workflow(name="run", max_recovery_attempts=None)
        async def run(run: str) -> JSON:
            return await self._run_body(run)

        @DBOS.workflow(name="branch", max_recovery_attempts=None)
        async def branch(branch: str) -> JSON:
            return await self._branch_body(branch)

        self._run, self._branch = run, branch
        DBOS.listen_queues([self._worker])
        DBOS.launch()
        await DBOS.register_queue_async(self._worker, polling_interval_sec=TAKE_UP_EVERY_S)

    async def start(self, run: str) -> None:
        """As Engine.start."""
        with SetWorkflowID(run):
            await DBOS.start_workflow_async(self._run, run)

    async def adopt(self, worker: str, runs: Collection[str]) -> None:
        """As Engine.adopt."""
        known = await self.known(runs)
        for run in sorted(set(runs) - known.keys()):
            log.warning("run_without_checkpoints", run=run)
            await self.start(run)
        left = level = [run for run in sorted(runs) if run in known and known[run].active]
        while level:
            level = await self._active_children(level)
            left = [*left, *level]
        for some in _chunks([name for name in left if name not in self._tasks]):
            await DBOS.resume_workflows_async(some, queue_name=self._worker)
        if worker != self._worker:
            await DBOS.delete_queue_async(worker)

    async def retry(self, run: str) -> None:
        """As Engine.retry."""
        found = (await self.known([run])).get(run)
        if found is None:
            await self.start(run)
        elif found.end is not None:
            await self._rewind(run, found.end.again_from)
        else:
            await DBOS.resume_workflows_async([run], queue_name=self._worker)

    async def cancel(self, run: str) -> None:
        """As Engine.cancel."""
        await DBOS.cancel_workflow_async(run, cancel_children=True)
        await self._stop([name for name in self._tasks if _root(name) == run])

    async def known(self, runs: Collection[str]) -> Mapping[str, Known]:
        """As Engine.known."""
        found: dict[str, Known] = {}
        for some in _chunks(sorted(runs)):
            statuses = await DBOS.list_workflows_async(workflow_ids=some, load_input=False)
            found |= {status.workflow_id: _known(status) for status in statuses}
        return found

    def running(self) -> Collection[str]:
        """As Engine.running."""
        return {name for name in self._tasks if "/" not in name}

    async def suspend(self) -> None:
        """As Engine.suspend."""
        self._suspended = True
        # Runs before their branches, so that none of them sees a branch end.
        await self._stop(sorted(self._tasks))

    def resume(self) -> None:
        """As Engine.resume."""
        self._suspended = False

    async def prune(self, runs: Collection[str]) -> None:
        """As Engine.prune."""
        for some in _chunks(sorted(runs)):
            await DBOS.delete_workflows_async(some, delete_children=True)

    async def close(self) -> None:
        """As Engine.close."""
        await self.suspend()
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(1) as thread:
            await loop.run_in_executor(thread, lambda: DBOS.destroy(destroy_registry=True))
        # DBOS had made its own threads the loop's, and has ended them.
        loop.set_default_executor(ThreadPoolExecutor(thread_name_prefix="asyncio"))

    def hand_over(self, branch: str, work: Branch, limit: asyncio.Semaphore) -> None:
        """Says what a branch does."""
        future = self._hand(branch)
        if not future.done():
            future.set_result((work, limit))

    async def begin_branch(self, branch: str) -> Callable[[], Awaitable[JSON]]:
        """Starts a branch of the run that asks, or finds it; returns what waits for its end."""
        with SetWorkflowID(branch):
            handle = await DBOS.start_workflow_async(self._branch, branch)

        async def result() -> JSON:
            return await handle.get_result(polling_interval_sec=RESULT_EVERY_S)

        return result

    async def retry_branches(self, run: str, place: int, branches: Sequence[str], generation: int) -> None:
        """Lets failed branches go on, unless the run was past them before it failed: then their ends were taken as they were."""

        async def work() -> None:
            steps = await DBOS.list_workflow_steps_async(run)
            if any(step["function_id"] > place for step in steps):
                return
            for name, found in (await self.known(branches)).items():
                if found.end is not None and found.end.error and found.end.generation < generation:
                    await self._rewind(name, found.end.again_from)

        # In a context of its own, so that it does not count as a step of the run that asks.
        await asyncio.create_task(work(), context=contextvars.Context())

    async def _active_children(self, parents: Sequence[str]) -> list[str]:
        found: list[str] = []
        for some in _chunks(parents):
            children = await DBOS.list_workflows_async(
                parent_workflow_id=some, status=list(ACTIVE), load_input=False, load_output=False
            )
            found += [child.workflow_id for child in children]
        return sorted(found)

    async def _rewind(self, name: str, place: int) -> None:
        await DBOS.rewind_workflow_async(name, start_step=max(place, 1), queue_name=self._worker)

    async def _run_body(self, run: str) -> JSON:
        self._enter(run)
        assert self._body is not None, "not opened"
        return asdict(await self._body(run, _Steps(self, run)))

    async def _branch_body(self, branch: str) -> JSON:
        self._enter(branch)
        work, limit = await self._hand(branch)
        async with limit:
            return asdict(await work(_Steps(self, branch)))

    def _enter(self, name: str) -> None:
        if self._suspended:
            # Taken up while the process stops: it stays as it is, for the next one.
            raise asyncio.CancelledError
        task = asyncio.current_task()
        assert task is not None
        self._tasks[name] = task
        task.add_done_callback(lambda task: self._done(name, task))

    def _done(self, name: str, task: asyncio.Task[Any]) -> None:
        if self._tasks.get(name) is task:
            del self._tasks[name]
        self._handed.pop(name, None)
        if task.cancelled() or "/" in name:
            return
        for orphan in [other for other in self._tasks if _root(other) == name]:
            self._tasks[orphan].cancel()
        error = task.exception()
        if error is not None:
            log.error("engine_lost_run", run=name, reason=f"{type(error).__name__}: {error}")
            return
        assert self._ended is not None
        self._ended(name, End(**task.result()))

    def _hand(self, branch: str) -> asyncio.Future[tuple[Branch, asyncio.Semaphore]]:
        return self._handed.setdefault(branch, asyncio.get_running_loop().create_future())

    async def _stop(self, names: Sequence[str]) -> None:
        tasks = {self._tasks[name]: name for name in names if name in self._tasks}
        for task in tasks:
            task.cancel()
        if tasks:
            _, deaf = await asyncio.wait(tasks, timeout=STOP_S)
            for task in deaf:
                log.error("run_will_not_hear_of_its_end", run=tasks[task])


class _Steps:
    """As Checkpoints."""

    def __init__(self, engine: DbosEngine, name: str) -> None:
        self._engine, self._name = engine, name
        self.here = 0

    async def step(self, name: str, work: Work) -> JSON:
        """As Checkpoints.step."""

        async def checkpoint() -> JSON:
            return await work()

        self.here += 1
        try:
            return await DBOS.run_step_async({"name": name}, checkpoint)
        except dbos_errors.DBOSUnexpectedStepError as error:
            raise Diverged(str(error)) from None

    async def branches(self, name: str, works: Sequence[Branch], limit: int, generation: int) -> list[End]:
        """As Checkpoints.branches."""
        engine, gate = self._engine, asyncio.Semaphore(limit)
        names = [f"{self._name}/{name}/{number}" for number in range(len(works))]
        if generation:
            await engine.retry_branches(self._name, self.here, names, generation)
        for branch, work in zip(names, works, strict=True):
            engine.hand_over(branch, work, gate)
        try:
            waits = [await engine.begin_branch(branch) for branch in names]
        except dbos_errors.DBOSUnexpectedStepError as error:
            raise Diverged(str(error)) from None
        self.here += 2 * len(names)
        return [End(**await wait()) for wait in waits]


class _Json(Serializer):
    """Everything that is kept is JSON: nothing that is read back can run code."""

    def serialize(self, data: Any) -> str:
        try:
            return orjson.dumps(data, default=repr).decode()
        except TypeError:
            # Half a letter in an error's text has no place in any encoding: it becomes a question mark.
            return json.dumps(data, ensure_ascii=False, default=repr).encode("utf-8", "replace").decode()

    def deserialize(self, serialized_data: str) -> Any:
        return orjson.loads(serialized_data)

    def name(self) -> str:
        return "sluicegate_json"


def _known(status: WorkflowStatus) -> Known:
    if status.status in ACTIVE:
        return Known(True, None)
    kept = status.output
    return Known(False, End(**kept) if isinstance(kept, dict) else None)


def _root(name: str) -> str:
    return name.partition("/")[0]


def _chunks(names: Sequence[str]) -> list[list[str]]:
    return [list(names[start : start + CHUNK]) for start in range(0, len(names), CHUNK)]
