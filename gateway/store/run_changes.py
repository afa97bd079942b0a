"""The changes of a run, each with its event, as functions of one transaction.

Whoever changes a run locks its row first, so that events are numbered without gaps and nothing deadlocks.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, delete, func, insert, select, update

from gateway.clock import to_ms
from gateway.errors import RequestConflict, UnknownRun, WrongState
from gateway.runs import JSON, Approval, Caps, Decision, Run, RunState, StepState, stamp
from gateway.store.audit import record
from gateway.store.run_rows import approval_of, dump, ms, run_of, run_values, select_runs, text
from gateway.store.run_tables import approvals, outbox, run_events, run_signals, run_steps, runs
from gateway.store.telegram import upsert


def lock(connection: Connection, run: str) -> Row[Any]:
    """The run's row, locked until the end of the transaction. Raises UnknownRun."""
    row = connection.execute(select(runs).where(runs.c.id == run).with_for_update()).first()
    if row is None:
        raise UnknownRun(run)
    return row


def change(connection: Connection, run: str, now: datetime, kind: str, data: Mapping[str, JSON], **columns: object) -> None:
    """Writes columns of a locked run and the event that tells of it; what is empty in `data` is left out."""
    statement = update(runs).where(runs.c.id == run).values(change=runs.c.change + 1, **columns)
    seq = connection.execute(statement.returning(runs.c.change)).scalar_one()
    told = {name: value for name, value in data.items() if value not in (None, "")}
    connection.execute(insert(run_events).values(run=run, seq=seq, at=to_ms(now), kind=kind, data=dump(told)))


def start(connection: Connection, run: Run) -> tuple[Run, bool]:
    """As Runs.start."""
    statement = upsert(connection, runs).values(run_values(run))
    if run.key is not None:
        statement = statement.on_conflict_do_nothing(index_elements=["key"])
    if connection.execute(statement.returning(runs.c.id)).first() is not None:
        change(connection, run.id, run.created, "state", {"state": RunState.QUEUED})
        return run_of(connection.execute(select_runs().where(runs.c.id == run.id)).one()), True
    found = run_of(connection.execute(select_runs().where(runs.c.key == run.key)).one())
    if (found.workflow, found.params, found.caps) != (run.workflow, dict(run.params), run.caps):
        raise RequestConflict(str(run.key))
    return found, False


def set_state(
    connection: Connection,
    run: str,
    now: datetime,
    state: RunState,
    waiting_until: datetime | None = None,
    waiting_for: str = "",
    error: str = "",
    result: JSON = None,
) -> bool:
    """As Runs.set_state."""
    row = lock(connection, run)
    if RunState(row.state).ended:
        return False
    columns: dict[str, Any] = {"state": state.value, "waiting_until": ms(waiting_until), "waiting_for": text(waiting_for)}
    if all(getattr(row, name) == value for name, value in columns.items()):
        return False
    columns |= {"error": text(error), "result": None if result is None else dump(result)}
    if row.started is None and state is not RunState.QUEUED and not state.ended:
        columns["started"] = to_ms(now)
    if state.ended:
        columns |= {"ended": to_ms(now), "wanted": ""}
        _close(connection, run, now)
    told = {"state": state, "waiting_until": stamp(waiting_until), "waiting_for": waiting_for, "error": text(error)}
    change(connection, run, now, "state", told, **columns)
    return True


def _close(connection: Connection, run: str, now: datetime) -> None:
    """Ends what an ended run leaves open: its steps, its questions, what was to be handed to it."""
    left = run_steps.c.run == run, run_steps.c.state.in_([StepState.RUNNING.value, StepState.WAITING.value])
    for row in connection.execute(select(run_steps).where(*left).order_by(run_steps.c.number)).all():
        step(connection, run, now, row.name, StepState.CANCELLED, detail=row.detail)
    asked = approvals.c.run == run, approvals.c.decision == Decision.OPEN.value
    connection.execute(update(approvals).where(*asked).values(decision=Decision.EXPIRED.value, at=to_ms(now)))
    connection.execute(delete(run_signals).where(run_signals.c.run == run))


def cancel(connection: Connection, run: str, by: str, now: datetime) -> Run:
    """As Runs.want for "cancel"."""
    row = lock(connection, run)
    state = RunState(row.state)
    if state.ended and state is not RunState.CANCELLED:
        raise WrongState(run, state, "cancel")
    if not state.ended and not row.wanted:
        record(connection, to_ms(now), by, "cancel", f"run:{run}")
    if state is RunState.QUEUED:
        # No worker has it: there is nothing to be stopped.
        set_state(connection, run, now, RunState.CANCELLED)
    elif not state.ended and not row.wanted:
        change(connection, run, now, "state", {"state": state, "wanted": "cancel"}, wanted="cancel")
    return run_of(connection.execute(select_runs().where(runs.c.id == run)).one())


def retry(connection: Connection, run: str, by: str, now: datetime, caps: Caps | None, may_use: tuple[str, ...] | None) -> Run:
    """As Runs.want for "retry"."""
    row = lock(connection, run)
    if row.state != RunState.FAILED:
        raise WrongState(run, row.state, "retry")
    columns: dict[str, Any] = {"state": RunState.QUEUED.value, "generation": row.generation + 1, "owner": "", "wanted": ""}
    columns |= {"ended": None, "error": "", "result": None, "waiting_until": None, "waiting_for": ""}
    if caps is not None:
        columns["caps"] = dump(caps.as_json())
    if may_use is not None:
        columns["may_use"] = dump(list(may_use))
    record(connection, to_ms(now), by, "retry", f"run:{run}", caps=None if caps is None else caps.as_json())
    change(connection, run, now, "state", {"state": RunState.QUEUED, "generation": row.generation + 1}, **columns)
    return run_of(connection.execute(select_runs().where(runs.c.id == run)).one())


def take(connection: Connection, run: str, now: datetime, owner: str) -> Run | None:
    """As Runs.take."""
    row = lock(connection, run)
    if row.state != RunState.QUEUED:
        return None
    columns = {"state": RunState.RUNNING.value, "owner": owner, "started": row.started or to_ms(now)}
    change(connection, run, now, "state", {"state": RunState.RUNNING}, **columns)
    return run_of(connection.execute(select_runs().where(runs.c.id == run)).one())


def step(
    connection: Connection,
    run: str,
    now: datetime,
    name: str,
    state: StepState,
    *,
    kind: str = "",
    until: datetime | None = None,
    detail: str = "",
) -> None:
    """Brings a step into a state, and adds it if it is new. Each time it begins to run, not from a wait, counts as an attempt."""
    lock(connection, run)
    mine = run_steps.c.run == run, run_steps.c.name == name
    row = connection.execute(select(run_steps).where(*mine)).first()
    columns: dict[str, Any] = {"state": state.value, "waiting_until": ms(until), "detail": text(detail)}
    columns["ended"] = to_ms(now) if state.ended else None
    if row is None:
        count = connection.execute(select(func.count()).select_from(run_steps).where(run_steps.c.run == run)).scalar_one()
        attempts = 1
        columns |= {"run": run, "name": name, "number": count + 1, "kind": kind, "attempts": 1, "started": to_ms(now)}
        connection.execute(insert(run_steps).values(columns))
    else:
        # Going on after a wait is the same attempt.
        attempts = row.attempts + (state is StepState.RUNNING and row.state != StepState.WAITING)
        connection.execute(update(run_steps).where(*mine).values(columns | {"attempts": attempts}))
    told = {"name": name, "kind": kind if row is None else row.kind, "state": state, "attempts": attempts}
    change(connection, run, now, "step", told | {"waiting_until": stamp(until), "detail": text(detail)})


def ask(connection: Connection, approval: Approval, now: datetime) -> Approval:
    """As Runs.ask_approval."""
    row = lock(connection, approval.run)
    mine = approvals.c.run == approval.run, approvals.c.step == approval.step, approvals.c.generation == row.generation
    found = connection.execute(select(approvals).where(*mine)).first()
    if found is not None:
        return approval_of(found)
    columns = {
        # Short enough for a button, too long to be guessed.
        "id": secrets.token_urlsafe(12), "run": approval.run, "step": approval.step, "generation": row.generation,
        "question": text(approval.question), "who": dump(list(approval.who)), "asked": to_ms(now),
        "expires": ms(approval.expires), "otherwise": approval.otherwise, "decision": Decision.OPEN.value, "by": "",
    }  # fmt: skip
    made = approval_of(connection.execute(insert(approvals).values(columns).returning(approvals)).one())
    told = {"id": made.id, "step": made.step, "question": made.question, "expires": stamp(made.expires)}
    change(connection, made.run, now, "approval", told)
    return made


def decide(connection: Connection, approval_id: str, decision: Decision, by: str, now: datetime) -> Approval:
    """As Runs.decide; with EXPIRED as the decision, what a time that has passed does."""
    found = connection.execute(select(approvals).where(approvals.c.id == approval_id)).first()
    if found is None:
        raise UnknownRun(approval_id)
    lock(connection, found.run)
    standing = approval_of(connection.execute(select(approvals).where(approvals.c.id == approval_id)).one())
    if standing.decision is not Decision.OPEN:
        return standing
    if standing.expires is not None and standing.expires <= now:
        decision, by = Decision.EXPIRED, ""
    columns = {"decision": decision.value, "by": by, "at": to_ms(now)}
    written = update(approvals).where(approvals.c.id == approval_id).values(columns).returning(approvals)
    decided = approval_of(connection.execute(written).one())
    signal(connection, decided.run, f"approval:{decided.id}", {"decision": decision, "by": by}, now)
    if decision is not Decision.EXPIRED:
        record(connection, to_ms(now), by, str(decision), f"run:{decided.run}", step=decided.step, approval=decided.id)
    change(connection, decided.run, now, "approval", {"id": decided.id, "step": decided.step, "decision": decision, "by": by})
    return decided


def signal(connection: Connection, run: str, name: str, data: JSON, now: datetime) -> None:
    """As Runs.signal."""
    row = lock(connection, run)
    if RunState(row.state).ended:
        raise WrongState(run, row.state, "signal")
    connection.execute(insert(run_signals).values(run=run, name=name, data=dump(data), at=to_ms(now)))


def forget(connection: Connection, ids: list[str]) -> None:
    """As Runs.forget."""
    ended = select(runs.c.id).where(runs.c.id.in_(ids), runs.c.ended.is_not(None))
    gone = list(connection.scalars(ended))
    for table in (run_steps, run_events, run_signals, approvals, outbox):
        connection.execute(delete(table).where(table.c.run.in_(gone)))
    connection.execute(delete(runs).where(runs.c.id.in_(gone)))
