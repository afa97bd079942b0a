"""By which configuration each server runs: said at its start and at each reload, and read by those who would change it."""

from __future__ import annotations

from collections.abc import Mapping

import orjson
from sqlalchemy import Connection, delete, insert, select

from gateway.store.claims import living
from gateway.store.tables import in_force, owners


def say(connection: Connection, owner: str, outline: Mapping[str, str], now_ms: int) -> None:
    """This is now what an owner runs by."""
    connection.execute(delete(in_force).where(in_force.c.owner == owner))
    text = orjson.dumps(dict(outline)).decode()
    connection.execute(insert(in_force).values(owner=owner, at=now_ms, outline=text))


def running(connection: Connection, now_ms: int) -> list[dict[str, str]]:
    """What the living servers run by, the newest first, each once."""
    alive = living(connection, now_ms)
    rows = connection.execute(select(in_force.c.outline).where(in_force.c.owner.in_(alive)).order_by(in_force.c.at.desc()))
    return [orjson.loads(text) for text in dict.fromkeys(row.outline for row in rows)]


def drop_old(connection: Connection) -> None:
    """Forgets what those ran by that have no lease any more."""
    connection.execute(delete(in_force).where(in_force.c.owner.not_in(select(owners.c.id))))
