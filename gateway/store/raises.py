"""Temporary changes of limits, and the pause of every call. Each has a start, an end and an actor, and stays as history."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Row, insert, select, update

from gateway.budget import PAUSE, Raise
from gateway.ledger import Raises
from gateway.store.audit import record
from gateway.store.tables import raises


def current(connection: Connection, now_ms: int) -> Raises:
    """Every raise that has not ended, by budget, in the order in which they were made."""
    query = select(raises).where(raises.c.ends.is_(None) | (raises.c.ends > now_ms)).order_by(raises.c.id)
    found: dict[str, list[Raise]] = {}
    for row in connection.execute(query):
        found.setdefault(row.budget, []).append(_raise(row))
    return found


def add(connection: Connection, budget: str, operation: str, amount: int, ends_ms: int | None, actor: str, now_ms: int) -> Raise:
    """Changes a limit from now on, and says so in the audit."""
    values = {"budget": budget, "operation": operation, "amount": amount, "starts": now_ms, "ends": ends_ms, "actor": actor}
    number = connection.execute(insert(raises).values(values).returning(raises.c.id)).scalar_one()
    action = "pause" if budget == PAUSE else "raise"
    record(connection, now_ms, actor, action, budget, operation=operation, amount=amount, ends=ends_ms)
    return Raise(number, budget, operation, amount, now_ms, ends_ms, actor)


def end(connection: Connection, budget: str, actor: str, now_ms: int) -> int:
    """Ends every raise of a budget (or every pause, for PAUSE) that is in force; how many."""
    in_force = raises.c.budget == budget, raises.c.starts <= now_ms, raises.c.ends.is_(None) | (raises.c.ends > now_ms)
    ended = connection.execute(update(raises).where(*in_force).values(ends=now_ms)).rowcount
    if ended:
        record(connection, now_ms, actor, "resume" if budget == PAUSE else "end raise", budget, ended=ended)
    return ended


def history(connection: Connection, budget: str, limit: int = 100) -> list[Raise]:
    """The newest raises of a budget first, ended ones too."""
    query = select(raises).where(raises.c.budget == budget).order_by(raises.c.id.desc()).limit(limit)
    return [_raise(row) for row in connection.execute(query)]


def _raise(row: Row[Any]) -> Raise:
    return Raise(row.id, row.budget, row.operation, row.amount, row.starts, row.ends, row.actor)
