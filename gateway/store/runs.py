"""Workflows' rows: the truth of what runs there are and where each stands.

Surfaces write what they want here, a worker reads it, drives the engine, and writes progress back; so neither calls the
other, and they may be different processes. Every change of a run and its event are one transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import Any

from sqlalchemy import Connection, Select, and_, delete, func, or_, select, tuple_, update

from gateway.clock import Clock, to_ms
from gateway.errors import UnknownRun
from gateway.runs import (
    JSON,
    Approval,
    Caps,
    Decision,
    Detail,
    Notice,
    NoticeState,
    Run,
    RunEvent,
    RunState,
    Signal,
    Starter,
    Step,
    StepState,
    Telling,
)
from gateway.store import run_changes
from gateway.store.database import Database
from gateway.store.run_rows import approval_of, event_of, notice_of, run_of, select_runs, select_steps, signal_of, step_of, text
from gateway.store.run_tables import approvals, outbox, run_events, run_signals, runs
from gateway.store.telegram import upsert


class Runs:
    """Every method raises LedgerUnavailable when the database cannot be used."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database, self._clock = database, clock

    # --- For surfaces ---

    async def start(self, run: Run) -> tuple[Run, bool]:
        """Adds a queued run and returns it with True; where its key is taken, the run that has it with False.

        Raises RequestConflict when that one has another workflow, other parameters or other caps.
        """
        return await self._database.write(lambda connection: run_changes.start(connection, run))

    async def get(self, run: str) -> Run:
        """One run. Raises UnknownRun."""
        return (await self.detail(run)).run

    async def detail(self, run: str) -> Detail:
        """A run with its steps and open approvals, in one snapshot. Raises UnknownRun."""

        def work(connection: Connection) -> Detail:
            row = connection.execute(select_runs().where(runs.c.id == run)).first()
            if row is None:
                raise UnknownRun(run)
            steps = tuple(step_of(step) for step in connection.execute(select_steps(run)))
            return Detail(run_of(row), steps, tuple(approval_of(each) for each in connection.execute(_open(run))))

        return await self._database.read(work)

    async def newest(
        self,
        *,
        workflow: str | None = None,
        state: RunState | None = None,
        of: Starter | None = None,
        limit: int = 50,
        before: str | None = None,
    ) -> list[Run]:
        """The newest runs first: of a workflow, in a state, started by `of`, older than the run `before`."""
        query = select_runs().order_by(runs.c.created.desc(), runs.c.id.desc()).limit(limit)
        if workflow is not None:
            query = query.where(runs.c.workflow == workflow)
        if state is not None:
            query = query.where(runs.c.state == state.value)
        if of is not None:
            # A Telegram id and a key's name may be the same word.
            query = query.where(runs.c.surface == of.surface, runs.c.user == of.user)
        if before is not None:
            place = select(runs.c.created, runs.c.id).where(runs.c.id == before).scalar_subquery()
            query = query.where(tuple_(runs.c.created, runs.c.id) < place)
        return await self._runs(query)

    async def steps(self, run: str) -> list[Step]:
        """The steps of a run in the order in which they began."""
        return await self._database.read(lambda connection: [step_of(row) for row in connection.execute(select_steps(run))])

    async def events(self, run: str, after: int = 0, limit: int = 500) -> list[RunEvent]:
        """The events of a run with a number greater than `after`, in their order."""
        query = select(run_events).where(run_events.c.run == run, run_events.c.seq > after)
        query = query.order_by(run_events.c.seq).limit(limit)
        return await self._database.read(lambda connection: [event_of(row) for row in connection.execute(query)])

    async def cancel(self, run: str, by: str) -> Run:
        """Wants a run cancelled, audited; one that no worker has is cancelled at once. A cancelled run stays as it is.

        Raises UnknownRun, and WrongState for a run that ended otherwise.
        """
        now = self._clock.now()
        return await self._database.write(lambda connection: run_changes.cancel(connection, run, by, now))

    async def retry(self, run: str, by: str, caps: Caps | None = None, may_use: tuple[str, ...] | None = None) -> Run:
        """Queues a failed run again, to go on from the step that failed, with other caps if they are given, and with
        other chains and models that it may use.

        Raises UnknownRun, and WrongState for a run that has not failed.
        """
        now = self._clock.now()
        return await self._database.write(lambda connection: run_changes.retry(connection, run, by, now, caps, may_use))

    async def signal(self, run: str, name: str, data: JSON) -> None:
        """Keeps something for a run until a worker hands it over. Raises UnknownRun, and WrongState for an ended run."""
        now = self._clock.now()
        await self._database.write(lambda connection: run_changes.signal(connection, run, name, data, now))

    async def approval(self, approval_id: str) -> Approval:
        """One approval. Raises UnknownRun."""
        query = select(approvals).where(approvals.c.id == approval_id)
        row = await self._database.read(lambda connection: connection.execute(query).first())
        if row is None:
            raise UnknownRun(approval_id)
        return approval_of(row)

    async def decide(self, approval_id: str, approve: bool, by: str) -> Approval:
        """Answers an approval and tells its run, in one transaction. The first answer counts: returns what is decided.

        One whose time has passed is expired, whatever is answered. Raises UnknownRun.
        """
        now, decision = self._clock.now(), Decision.APPROVED if approve else Decision.REJECTED
        return await self._database.write(partial(run_changes.decide, approval_id=approval_id, decision=decision, by=by, now=now))

    async def open_approvals(self, run: str | None = None) -> list[Approval]:
        """What waits for an answer, the oldest first."""
        return await self._database.read(lambda connection: [approval_of(row) for row in connection.execute(_open(run))])

    # --- For the worker ---

    async def pending(self, limit: int = 100) -> list[Run]:
        """What a worker has to see to: queued runs, and those that somebody wants cancelled; the oldest first."""
        wanted = or_(runs.c.state == RunState.QUEUED.value, runs.c.wanted != "")
        return await self._runs(select_runs().where(wanted).order_by(runs.c.created, runs.c.id).limit(limit))

    async def take(self, run: str, owner: str) -> Run | None:
        """Makes a queued run this worker's and running; None when another took it or it was cancelled.

        `generation` 0 is a first start, more a retry.
        """
        now = self._clock.now()
        return await self._database.write(lambda connection: run_changes.take(connection, run, now, owner))

    async def own(self, ids: Sequence[str], owner: str) -> None:
        """Says that these runs are now this worker's."""
        statement = update(runs).where(runs.c.id.in_(ids)).values(owner=owner)
        await self._database.write(lambda connection: connection.execute(statement))

    async def unfinished(self) -> list[Run]:
        """Every run that a worker has taken and that has not ended, the oldest first."""
        ended = [state.value for state in RunState if state.ended]
        taken = runs.c.state.not_in([*ended, RunState.QUEUED.value])
        return await self._runs(select_runs().where(taken).order_by(runs.c.created, runs.c.id))

    async def parked(self, due: datetime | None = None, limit: int = 200) -> list[Run]:
        """The runs that wait for a budget, the oldest first; with `due` only those whose time has come by then."""
        query = select_runs().where(runs.c.state == RunState.WAITING_BUDGET.value)
        if due is not None:
            query = query.where(runs.c.waiting_until <= to_ms(due))
        return await self._runs(query.order_by(runs.c.created, runs.c.id).limit(limit))

    async def set_state(
        self,
        run: str,
        state: RunState,
        *,
        waiting_until: datetime | None = None,
        waiting_for: str = "",
        error: str = "",
        result: JSON = None,
    ) -> bool:
        """Brings a run into a state; False when it is there already or has ended: then nothing changes.

        An end closes what is open: steps are cancelled, questions expire. Raises UnknownRun; ValueError or TypeError when
        `result` is no JSON.
        """
        now = self._clock.now()
        arguments = (run, now, state, waiting_until, waiting_for, error, result)
        return await self._database.write(lambda connection: run_changes.set_state(connection, *arguments))

    async def step_began(self, run: str, name: str, kind: str, detail: str = "") -> None:
        """An attempt at a step begins; the first adds the step."""
        await self._step(run, name, StepState.RUNNING, kind=kind, detail=detail)

    async def step_waits(self, run: str, name: str, kind: str, until: datetime | None = None, detail: str = "") -> None:
        """A step waits: for a budget, a signal, an answer, a time."""
        await self._step(run, name, StepState.WAITING, kind=kind, until=until, detail=detail)

    async def step_ended(self, run: str, name: str, state: StepState, detail: str = "") -> None:
        """A step ended."""
        await self._step(run, name, state, detail=detail)

    async def log(self, run: str, line: str, step: str = "") -> None:
        """Adds a line to what is told of a run. Raises UnknownRun."""
        now = self._clock.now()

        def work(connection: Connection) -> None:
            run_changes.lock(connection, run)
            run_changes.change(connection, run, now, "log", {"text": text(line), "step": step})

        await self._database.write(work)

    async def ask_approval(
        self, run: str, step: str, question: str, who: Sequence[str], expires: datetime | None = None, otherwise: str = "reject"
    ) -> Approval:
        """Asks, once per step and generation of the run: a repeated step finds its question, and what was answered."""
        now = self._clock.now()
        asked = Approval("", run, step, question, tuple(who), now, expires, otherwise)
        return await self._database.write(lambda connection: run_changes.ask(connection, asked, now))

    async def expire_approvals(self) -> list[Approval]:
        """Ends every question whose time has passed, and tells its run."""
        now = self._clock.now()
        due = and_(approvals.c.decision == Decision.OPEN.value, approvals.c.expires <= to_ms(now))

        def work(connection: Connection) -> list[Approval]:
            found = list(connection.scalars(select(approvals.c.id).where(due).order_by(approvals.c.run, approvals.c.id)))
            return [run_changes.decide(connection, each, Decision.EXPIRED, "", now) for each in found]

        if not await self._database.read(lambda connection: connection.execute(select(approvals.c.id).where(due)).first()):
            return []
        return await self._database.write(work)

    async def owners(self) -> set[str]:
        """The workers that have taken runs which have not ended."""
        ended = [state.value for state in RunState if state.ended]
        query = select(runs.c.owner).where(runs.c.state.not_in([*ended, RunState.QUEUED.value]), runs.c.owner != "").distinct()
        return await self._database.read(lambda connection: set(connection.scalars(query)))

    async def signals(self, after: int = 0, run: str | None = None, limit: int = 500) -> list[Signal]:
        """What is to be handed to runs, or to one, and has a number greater than `after`; the oldest first."""
        query = select(run_signals).where(run_signals.c.id > after).order_by(run_signals.c.id).limit(limit)
        if run is not None:
            query = query.where(run_signals.c.run == run)
        return await self._database.read(lambda connection: [signal_of(row) for row in connection.execute(query)])

    async def delivered(self, ids: Sequence[int]) -> None:
        """Forgets signals that were handed over."""
        statement = delete(run_signals).where(run_signals.c.id.in_(ids))
        await self._database.write(lambda connection: connection.execute(statement))

    async def ended_before(self, before: datetime, limit: int = 100) -> list[Run]:
        """Runs that ended before an instant, the oldest first."""
        query = select_runs().where(runs.c.ended < to_ms(before)).order_by(runs.c.ended).limit(limit)
        return await self._runs(query)

    async def forget(self, ids: Sequence[str]) -> None:
        """Deletes ended runs with all that belongs to them."""
        await self._database.write(lambda connection: run_changes.forget(connection, list(ids)))

    # --- What is told ---

    async def notify(self, run: str, step: str, to: str, line: str, file: str | None = None) -> None:
        """Puts something to be told into the outbox, once per step. `file` is the path of a file in the run's folder."""
        row = {"run": run, "step": step, "to": to, "text": text(line), "file": file, "created": to_ms(self._clock.now())}
        row |= {"state": NoticeState.PENDING.value, "detail": ""}
        await self._database.write(
            lambda connection: connection.execute(upsert(connection, outbox).values(row).on_conflict_do_nothing())
        )

    async def notices(self, kind: str, limit: int = 50, *, bot: int | None = None) -> list[Notice]:
        """What is still to be told over "telegram" or to "file", the oldest first; with `bot` not what is another bot's.

        Without `bot` only what runs tell.
        """
        pending = outbox.c.state == NoticeState.PENDING.value, outbox.c.to.startswith(f"{kind}:", autoescape=True)
        query = select(outbox).where(*pending).order_by(outbox.c.id).limit(limit)
        if bot is None:
            query = query.where(outbox.c.run != "")
        else:
            whose = func.coalesce(outbox.c.bot, runs.c.bot)
            query = query.outerjoin(runs, runs.c.id == outbox.c.run).where(or_(whose.is_(None), whose == bot))
        return await self._database.read(lambda connection: [notice_of(row) for row in connection.execute(query)])

    async def begin_notice(self, notice: int) -> bool:
        """Takes a notice to be sent, False when another did. It is uncertain until `end_notice` says what became of it."""
        pending = outbox.c.id == notice, outbox.c.state == NoticeState.PENDING.value
        statement = update(outbox).where(*pending).values(state=NoticeState.UNCERTAIN.value)
        return await self._database.write(lambda connection: connection.execute(statement).rowcount == 1)

    async def end_notice(self, notice: int, state: NoticeState, detail: str = "") -> None:
        """Says what became of a notice; PENDING gives it back, to be tried again."""
        statement = update(outbox).where(outbox.c.id == notice).values(state=state.value, detail=text(detail))
        await self._database.write(lambda connection: connection.execute(statement))

    async def untold(self, bot: int, limit: int = 100) -> list[Telling]:
        """The runs with a Telegram chat whose newest change was not told there yet, the oldest first."""
        wanted = runs.c.change > runs.c.told, runs.c.chat.is_not(None), or_(runs.c.bot.is_(None), runs.c.bot == bot)
        query = select_runs().where(*wanted).order_by(runs.c.created, runs.c.id).limit(limit)
        rows = await self._database.read(lambda connection: connection.execute(query).all())
        return [Telling(run_of(row), row.told, row.message_id) for row in rows]

    async def told(self, run: str, seq: int, message_id: int | None) -> None:
        """Keeps up to which event a run's chat was told, and in which message."""
        statement = update(runs).where(runs.c.id == run, runs.c.told <= seq).values(told=seq, message_id=message_id)
        await self._database.write(lambda connection: connection.execute(statement))

    async def _runs(self, query: Select[Any]) -> list[Run]:
        return await self._database.read(lambda connection: [run_of(row) for row in connection.execute(query)])

    async def _step(self, run: str, name: str, state: StepState, **fields: Any) -> None:
        now = self._clock.now()
        await self._database.write(lambda connection: run_changes.step(connection, run, now, name, state, **fields))


def _open(run: str | None) -> Select[Any]:
    query = select(approvals).where(approvals.c.decision == Decision.OPEN.value).order_by(approvals.c.asked, approvals.c.id)
    return query if run is None else query.where(approvals.c.run == run)
