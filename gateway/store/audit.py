"""The audit: who changed what, and when. Only ever added to, in the transaction of the change itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson
from sqlalchemy import Connection, func, insert, or_, select

from gateway.store.tables import audit

SHOWN = 100
"""Entries that are shown where nobody says how many."""
SHOWN_MAX = 100_000


@dataclass(frozen=True, slots=True)
class Entry:
    """One change. `actor` is who made it, the surface first (`telegram:1001`, `http:ops`, `cli:root`, `console:cli:root`,
    `run:<id>`, `signal:SIGHUP`); `subject` what was changed.
    """

    id: int
    at_ms: int
    actor: str
    action: str
    subject: str
    detail: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Asked:
    """Which entries are wanted; None: all."""

    subject: str | None = None
    actor: str | None = None
    """Somebody, or a surface: everybody who came by it."""
    action: str | None = None
    from_ms: int | None = None
    to_ms: int | None = None
    """The first instant that no longer counts."""
    before: int | None = None
    """The id of an entry: only older ones."""
    limit: int = SHOWN


def record(connection: Connection, at_ms: int, actor: str, action: str, subject: str, **detail: object) -> None:
    """Adds an entry. `detail` is kept as JSON and holds no secret."""
    text = orjson.dumps(detail).decode()
    connection.execute(insert(audit).values(at=at_ms, actor=actor, action=action, subject=subject, detail=text))


def newest(connection: Connection, action: str, subject: str) -> int:
    """The number of the newest entry of a kind; 0 where there is none."""
    found = connection.scalar(select(func.max(audit.c.id)).where(audit.c.subject == subject, audit.c.action == action))
    return found or 0


def entries(connection: Connection, asked: Asked) -> list[Entry]:
    """The newest entries first."""
    query = select(audit).order_by(audit.c.id.desc()).limit(asked.limit)
    for column, value in ((audit.c.subject, asked.subject), (audit.c.action, asked.action)):
        query = query if value is None else query.where(column == value)
    if asked.actor is not None:
        query = query.where(or_(audit.c.actor == asked.actor, audit.c.actor.startswith(f"{asked.actor}:", autoescape=True)))
    if asked.from_ms is not None:
        query = query.where(audit.c.at >= asked.from_ms)
    if asked.to_ms is not None:
        query = query.where(audit.c.at < asked.to_ms)
    if asked.before is not None:
        query = query.where(audit.c.id < asked.before)
    rows = connection.execute(query)
    return [Entry(row.id, row.at, row.actor, row.action, row.subject, orjson.loads(row.detail)) for row in rows]
