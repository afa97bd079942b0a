"""The writer thread: the one place of a process where transactions are committed.

Rules:
- What waits together is committed together: one transaction takes everything that queued up during the last one.
- Plain work runs in a savepoint of its own, so that its failure undoes nothing else; the members of a group (the
  ledger's reserves and closes) are handed to the group at once, which decides them with a handful of statements.
- A member that breaks is found by halving the batch, so that it ends alone and the others are unharmed.
- Nobody is told anything before the commit returned, and then all with one call into their event loop.
- A patient job is never lost to a database that is gone: its caller is told to go on and it is tried until written.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any, Protocol

import structlog
from sqlalchemy import Connection

from gateway.errors import LedgerUnavailable
from gateway.store.faults import is_conflict, is_lost, is_unavailable, unavailable

BATCH_MAX = 256
ATTEMPTS_MAX = 6
"""How often one transaction is tried when another process or a dropped connection is in its way."""
LINGER_S = 0.002
"""How long what only ends waits for a reservation to share its commit with: the answer is given already."""
RETRY_S = 0.25
"""How long the writer waits before it tries kept jobs again."""

log = structlog.get_logger(__name__)


class Group(Protocol):
    """Decides all its members of one transaction together."""

    def apply(self, connection: Connection, members: Sequence[Any]) -> Sequence[object]:
        """Runs in the writer thread. Returns each member's result, or an exception that is that member's own answer.

        An exception raised from here undoes the transaction, and the members are tried again in smaller parts.
        """
        ...

    def committed(self, members: Sequence[Any], lost: Sequence[tuple[Any, object]]) -> None:
        """Called in the event loop after a commit; `lost` are results whose caller has left meanwhile."""
        ...

    def uncertain(self, members: Sequence[Any]) -> None:
        """Called in the event loop when a commit failed in such a way that it may or may not have happened."""
        ...


class Repair(Exception):
    """Raised by a group: its transaction is undone, `work` is committed by itself, and the batch is tried again."""

    def __init__(self, work: Callable[[Connection], object]) -> None:
        super().__init__("the batch needs a repair first")
        self.work = work


class CommitFailed(Exception):
    """The commit itself failed: what it wrote may be there or not."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


@dataclass(eq=False, slots=True)
class Job:
    """One thing to be committed: plain work, or a member of a group."""

    future: asyncio.Future[Any]
    work: Callable[[Connection], Any] | None = None
    group: Group | None = None
    member: Any = None
    patient: bool = False
    """Kept and tried again while the database is gone; the caller meanwhile gets True."""
    value: Any = None
    error: Exception | None = None


class Writer:
    """One thread with one connection. `connect` opens it, and again after it broke."""

    def __init__(self, connect: Callable[[], Connection]) -> None:
        self._connect = connect
        self._connection: Connection | None = None
        self._waiting: SimpleQueue[Job | None] = SimpleQueue()
        self._gathered: list[Job] = []
        self._kept: list[Job] = []
        self._thread: threading.Thread | None = None
        self._stopping = False
        self._group: Group | None = None
        self.disturbed = 0
        """Rises whenever a group can no longer be sure that the database is as it left it: a transaction was undone, the
        connection is another one, or somebody else wrote through it. Read in the writer thread."""

    def submit(self, job: Job) -> None:
        """Adds a job to the next transaction. Called in the event loop.

        What one turn of the loop submits is handed over together: the thread would else wake at the first job, and
        commit it alone while the others wait for the disk behind it.
        """
        self._gathered.append(job)
        if len(self._gathered) == 1:
            job.future.get_loop().call_soon(self.hand_over)

    def hand_over(self) -> None:
        """Gives the thread what was submitted. Called in the event loop."""
        if self._gathered and self._thread is None:
            self._thread = threading.Thread(target=self._run, name="ledger-writer", daemon=True)
            self._thread.start()
        gathered, self._gathered = self._gathered, []
        for job in gathered:
            self._waiting.put(job)

    def stop(self) -> None:
        """Writes what waits, tries what is kept once more, and ends the thread. Blocks: call it in another thread."""
        if self._thread is not None:
            self._waiting.put(None)
            self._thread.join()
            self._thread = None

    def _run(self) -> None:
        while not self._stopping:
            jobs = self._take()
            if jobs:
                self._write(jobs)
        if self._kept:
            # The database stayed away until the end: the next start's sweep expires these holds at their worst case.
            log.error("closings_lost", count=len(self._kept))
        self._disconnect()

    def _take(self) -> list[Job]:
        """What waits now; blocks until something does, or until it is time to try kept jobs again."""
        jobs, self._kept = self._kept, []
        wait_s, lingers, urgent = (RETRY_S, False, False) if jobs else (None, True, False)
        while len(jobs) < BATCH_MAX:
            try:
                job = self._waiting.get(timeout=wait_s)
            except Empty:
                if urgent or not lingers:
                    break
                wait_s, lingers = LINGER_S, False
                continue
            if job is None:
                self._stopping = True
                break
            # A caller that left before its turn wants nothing any more, except what must be written.
            if job.patient or not job.future.done():
                jobs.append(job)
                urgent = urgent or not job.patient
            wait_s = 0
        return jobs

    def _write(self, jobs: list[Job]) -> None:
        """Commits the jobs in one transaction; in halves where one of them breaks it."""
        try:
            self._transact(jobs)
        except CommitFailed as failure:
            self._fail(jobs, failure.error, uncertain=True)
        except Exception as error:
            if is_unavailable(error):
                self._fail(jobs, error, uncertain=False)
            elif len(jobs) > 1:
                middle = len(jobs) // 2
                self._write(jobs[:middle])
                self._write(jobs[middle:])
            else:
                jobs[0].error = error
                self._tell(jobs)
        else:
            self._tell(jobs)

    def _transact(self, jobs: list[Job]) -> None:
        repair: Callable[[Connection], object] | None = None
        for attempt in range(1, ATTEMPTS_MAX + 1):
            try:
                if repair is not None:
                    self.disturbed += 1
                    self._once(repair)
                    repair = None
                return self._once(lambda connection: self._apply(connection, jobs))
            except Repair as needed:
                repair = needed.work
            except CommitFailed:
                raise
            except Exception as error:
                again = is_conflict(error) or (is_lost(error) and attempt == 1)
                if not again or attempt == ATTEMPTS_MAX:
                    raise
        raise LedgerUnavailable("the counters change faster than they can be read")

    def _once(self, work: Callable[[Connection], object]) -> None:
        """One transaction."""
        connection = self._connection
        try:
            if connection is None:
                connection = self._connection = self._connect()
                self.disturbed += 1
            transaction = connection.begin()
            work(connection)
        except BaseException as error:
            self._undo(isinstance(error, Exception) and is_unavailable(error) and not is_conflict(error))
            raise
        try:
            transaction.commit()
        except Exception as error:
            self._undo(broken=True)
            raise CommitFailed(error) from error

    def _undo(self, broken: bool) -> None:
        """Rolls back; a connection that broke is thrown away."""
        self.disturbed += 1
        connection = self._connection
        if connection is None:
            return
        try:
            if broken:
                connection.invalidate()
            elif (transaction := connection.get_transaction()) is not None:
                transaction.rollback()
                return
        except Exception as error:
            log.debug("rollback_failed", error=type(error).__name__)
        self._disconnect()

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            try:
                connection.close()
            except Exception as error:
                log.debug("disconnect_failed", error=type(error).__name__)

    def _apply(self, connection: Connection, jobs: list[Job]) -> None:
        groups: dict[int, list[Job]] = {}
        for job in jobs:
            job.error = None
            if job.group is not None:
                groups.setdefault(id(job.group), []).append(job)
        for members in groups.values():
            group = members[0].group
            assert group is not None
            if group is not self._group:
                self._group = group
                self.disturbed += 1
            for job, outcome in zip(members, group.apply(connection, [job.member for job in members]), strict=True):
                if isinstance(outcome, Exception):
                    job.error = outcome
                else:
                    job.value = outcome
        for job in jobs:
            if job.work is not None:
                self.disturbed += 1
                if len(jobs) == 1:
                    job.value = job.work(connection)
                else:
                    _in_savepoint(connection, job, job.work)

    def _fail(self, jobs: list[Job], error: Exception, uncertain: bool) -> None:
        """The database cannot be used: patient jobs are kept, the others are told."""
        reason = unavailable(error)
        log.warning("ledger_unavailable", reason=reason.reason, jobs=len(jobs))
        for job in jobs:
            job.error = None if job.patient else reason
            job.value = True
            if job.patient:
                self._kept.append(job)
        _in_loops(jobs, _deliver_failure, uncertain)

    def _tell(self, jobs: list[Job]) -> None:
        _in_loops(jobs, _deliver)


def _in_savepoint(connection: Connection, job: Job, work: Callable[[Connection], Any]) -> None:
    savepoint = connection.begin_nested()
    try:
        job.value = work(connection)
        savepoint.commit()
    except Exception as error:
        if is_unavailable(error):
            raise
        savepoint.rollback()
        job.error = error


def _in_loops(jobs: Sequence[Job], deliver: Callable[..., None], *arguments: object) -> None:
    """Calls `deliver` once in each event loop that waits (in practice one)."""
    loops: dict[asyncio.AbstractEventLoop, list[Job]] = {}
    for job in jobs:
        loops.setdefault(job.future.get_loop(), []).append(job)
    for loop, theirs in loops.items():
        try:
            loop.call_soon_threadsafe(deliver, theirs, *arguments)
        except RuntimeError:
            log.debug("event_loop_gone", jobs=len(theirs))


def _deliver(jobs: Sequence[Job]) -> None:
    lost: dict[int, list[tuple[Any, object]]] = {}
    groups: dict[int, tuple[Group, list[Any]]] = {}
    for job in jobs:
        future = job.future
        if job.group is not None:
            groups.setdefault(id(job.group), (job.group, []))[1].append(job.member)
        if future.done():
            if job.group is not None and job.error is None:
                lost.setdefault(id(job.group), []).append((job.member, job.value))
        elif job.error is None:
            future.set_result(job.value)
        else:
            future.set_exception(job.error)
    for key, (group, members) in groups.items():
        group.committed(members, lost.get(key, ()))


def _deliver_failure(jobs: Sequence[Job], uncertain: bool) -> None:
    groups: dict[int, tuple[Group, list[Any]]] = {}
    for job in jobs:
        if job.group is not None:
            groups.setdefault(id(job.group), (job.group, []))[1].append(job.member)
        if job.future.done():
            continue
        if job.error is None:
            job.future.set_result(True)
        else:
            job.future.set_exception(job.error)
    if uncertain:
        for group, members in groups.values():
            group.uncertain(members)
