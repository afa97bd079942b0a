"""Runs and what belongs to them as rows, and back. Pure but for the statements' shape."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from sqlalchemy import Row, Select, func, select

from gateway.clock import from_ms, to_ms
from gateway.runs import (
    JSON,
    Approval,
    Caps,
    Decision,
    Notice,
    NoticeState,
    Run,
    RunEvent,
    RunState,
    Signal,
    Starter,
    Step,
    StepState,
)
from gateway.store.rows import clean
from gateway.store.run_tables import run_steps, runs
from gateway.store.tables import usage

TEXT_MAX = 20_000
"""Characters of an error, a detail, a line of the log, a question or a notice that are kept."""


def dump(value: JSON) -> str:
    """JSON that both databases can keep, whatever is in its texts. Raises ValueError for NaN, TypeError for no JSON."""
    # Half a letter has no place in any encoding: it becomes a question mark.
    return json.dumps(value, allow_nan=False, ensure_ascii=False).encode("utf-8", "replace").decode()


def text(value: str) -> str:
    """Text that both databases can keep, bounded."""
    return clean(value, TEXT_MAX) or ""


def instant(milliseconds: int | None) -> datetime | None:
    """The instant of a column that may be empty."""
    return None if milliseconds is None else from_ms(milliseconds)


def ms(value: datetime | None) -> int | None:
    """The column of an instant that may be missing."""
    return None if value is None else to_ms(value)


def select_runs() -> Select[Any]:
    """Runs with what their calls cost."""
    mine = usage.c.run == runs.c.id
    cost = select(func.coalesce(func.sum(usage.c.cost_micro_usd), 0)).where(mine).correlate(runs).scalar_subquery()
    tokens = select(func.coalesce(func.sum(usage.c.spent_tokens), 0)).where(mine).correlate(runs).scalar_subquery()
    return select(runs, cost.label("cost_micro_usd"), tokens.label("tokens"))


def select_steps(run: str) -> Select[Any]:
    """The steps of a run in their order, with what their calls cost."""
    sums = (
        select(usage.c.step, func.sum(usage.c.cost_micro_usd).label("cost"), func.sum(usage.c.spent_tokens).label("tokens"))
        .where(usage.c.run == run)
        .group_by(usage.c.step)
        .subquery()
    )
    spent = func.coalesce(sums.c.cost, 0).label("cost_micro_usd"), func.coalesce(sums.c.tokens, 0).label("tokens")
    joined = run_steps.outerjoin(sums, sums.c.step == run_steps.c.name)
    return select(run_steps, *spent).select_from(joined).where(run_steps.c.run == run).order_by(run_steps.c.number)


def run_values(run: Run) -> dict[str, Any]:
    """The columns of a run that is being started."""
    starter = run.starter
    return {
        "id": run.id, "workflow": run.workflow, "state": run.state.value, "params": dump(dict(run.params)), "key": run.key,
        "surface": starter.surface, "user": starter.user, "admin": starter.admin, "listed": starter.listed,
        "chat": starter.chat, "thread": starter.thread, "api_key": starter.key, "language": starter.language,
        "bot": starter.bot, "to": starter.to, "may_use": dump(list(starter.may_use)), "version": run.version,
        "caps": None if run.caps is None else dump(run.caps.as_json()), "created": to_ms(run.created),
    }  # fmt: skip


def run_of(row: Row[Any]) -> Run:
    """From a row of `select_runs`."""
    starter = Starter(
        row.surface, row.user, row.admin, row.listed, row.chat, row.thread, row.api_key, row.language, row.bot, row.to,
        tuple(json.loads(row.may_use)),
    )  # fmt: skip
    return Run(
        id=row.id,
        workflow=row.workflow,
        state=RunState(row.state),
        params=json.loads(row.params),
        starter=starter,
        created=from_ms(row.created),
        key=row.key,
        version=row.version,
        caps=None if row.caps is None else Caps.of_json(json.loads(row.caps)),
        started=instant(row.started),
        ended=instant(row.ended),
        waiting_until=instant(row.waiting_until),
        waiting_for=row.waiting_for,
        error=row.error,
        result=None if row.result is None else json.loads(row.result),
        generation=row.generation,
        wanted=row.wanted,
        owner=row.owner,
        change=row.change,
        # PostgreSQL sums whole numbers into decimals.
        cost_micro_usd=int(row.cost_micro_usd),
        tokens=int(row.tokens),
    )


def step_of(row: Row[Any]) -> Step:
    """From a row of `select_steps`."""
    return Step(
        run=row.run,
        name=row.name,
        number=row.number,
        kind=row.kind,
        state=StepState(row.state),
        attempts=row.attempts,
        started=from_ms(row.started),
        ended=instant(row.ended),
        waiting_until=instant(row.waiting_until),
        tokens=int(row.tokens),
        cost_micro_usd=int(row.cost_micro_usd),
        detail=row.detail,
    )


def event_of(row: Row[Any]) -> RunEvent:
    """From a row of `run_events`."""
    return RunEvent(row.run, row.seq, from_ms(row.at), row.kind, json.loads(row.data))


def approval_of(row: Row[Any]) -> Approval:
    """From a row of `approvals`."""
    return Approval(
        id=row.id,
        run=row.run,
        step=row.step,
        question=row.question,
        who=tuple(json.loads(row.who)),
        asked=from_ms(row.asked),
        expires=instant(row.expires),
        otherwise=row.otherwise,
        decision=Decision(row.decision),
        by=row.by,
        at=instant(row.at),
    )


def signal_of(row: Row[Any]) -> Signal:
    """From a row of `run_signals`."""
    return Signal(row.id, row.run, row.name, json.loads(row.data))


def notice_of(row: Row[Any]) -> Notice:
    """From a row of `outbox`."""
    return Notice(
        id=row.id,
        run=row.run,
        step=row.step,
        to=row.to,
        text=row.text,
        created=from_ms(row.created),
        file=row.file,
        state=NoticeState(row.state),
        detail=row.detail,
    )
