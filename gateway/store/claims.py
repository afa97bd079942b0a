"""Deduplicated requests: who answers one, and what was answered. Kept for 24 hours."""

from __future__ import annotations

from sqlalchemy import Connection, delete, select, update
from sqlalchemy.dialects import postgresql, sqlite

from gateway.errors import RequestConflict
from gateway.store import Answered, Claimed, Underway
from gateway.store.batch import REPLY_KEPT_MS
from gateway.store.process import surely_dead
from gateway.store.tables import owners, requests

LEASE_MS = 30_000
"""A process that kept no lease for so long is dead."""


def living(connection: Connection, now_ms: int) -> list[str]:
    """The owners that keep their lease and whose process is not seen to have ended."""
    leases = connection.execute(select(owners.c.id, owners.c.mark).where(owners.c.seen >= now_ms - LEASE_MS))
    return [owner for owner, mark in leases if not surely_dead(mark)]


def claim(connection: Connection, owner: str, request_id: str, fingerprint: str, now_ms: int) -> Claimed | Answered | Underway:
    """Takes a request's id, unless it was answered or somebody who lives answers it. Raises RequestConflict."""
    mine = {"id": request_id, "fingerprint": fingerprint, "owner": owner, "reply": None, "expires": now_ms + REPLY_KEPT_MS}
    dialect = sqlite if connection.dialect.name == "sqlite" else postgresql
    taken = connection.execute(dialect.insert(requests).values(mine).on_conflict_do_nothing().returning(requests.c.id))
    if taken.first() is not None:
        return Claimed()
    found = connection.execute(select(requests).where(requests.c.id == request_id).with_for_update()).one()
    if found.expires > now_ms:
        if found.fingerprint != fingerprint:
            raise RequestConflict(request_id)
        if found.reply is not None:
            return Answered(bytes(found.reply))
        if found.owner == owner or found.owner in living(connection, now_ms):
            return Underway()
    connection.execute(update(requests).where(requests.c.id == request_id).values(mine))
    return Claimed()


def unclaim(connection: Connection, owner: str, request_id: str) -> None:
    """Gives an id back that this owner took and has not answered."""
    unanswered = requests.c.reply.is_(None), requests.c.owner == owner
    connection.execute(delete(requests).where(requests.c.id == request_id, *unanswered))
