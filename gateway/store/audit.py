"""The audit: who changed what, and when. Only ever added to, in the transaction of the change itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson
from sqlalchemy import Connection, insert, select

from gateway.store.tables import audit


@dataclass(frozen=True, slots=True)
class Entry:
    """One change. `actor` is who made it (`telegram:1001`, `key:ops`, `cli:root`); `subject` what was changed."""

    at_ms: int
    actor: str
    action: str
    subject: str
    detail: Mapping[str, Any]


def record(connection: Connection, at_ms: int, actor: str, action: str, subject: str, **detail: object) -> None:
    """Adds an entry. `detail` is kept as JSON and holds no secret."""
    text = orjson.dumps(detail).decode()
    connection.execute(insert(audit).values(at=at_ms, actor=actor, action=action, subject=subject, detail=text))


def entries(connection: Connection, subject: str | None = None, limit: int = 100) -> list[Entry]:
    """The newest entries first, of one subject or of all."""
    query = select(audit).order_by(audit.c.id.desc()).limit(limit)
    if subject is not None:
        query = query.where(audit.c.subject == subject)
    return [Entry(row.at, row.actor, row.action, row.subject, orjson.loads(row.detail)) for row in connection.execute(query)]
