"""HTTP keys: shown once, kept as SHA-256, dead within a second of being revoked anywhere."""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, delete, insert, select, update

from gateway.clock import Clock, from_ms, to_ms
from gateway.errors import InvalidRequest
from gateway.store.audit import record
from gateway.store.database import Database
from gateway.store.tables import api_keys

PREFIX = "sk-sluicegate-"
REFRESH_S = 1.0
"""How long a key that was revoked by another process may still be taken."""
UNKNOWN_REFRESH_S = 0.05
"""How often an unknown key makes the keys be read again: one that another process has just made is taken at once."""


@dataclass(frozen=True, slots=True)
class Key:
    """An HTTP key. The secret itself is kept nowhere."""

    name: str
    """The `user` and the `key` that budgets match on."""
    admin: bool
    created_at: datetime
    revoked_at: datetime | None = None


class Keys:
    """Every method raises LedgerUnavailable when the database cannot be used."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database, self._clock = database, clock
        self._known: dict[str, Key] = {}
        self._refreshed_s = float("-inf")
        self._refreshing = asyncio.Lock()

    async def find(self, secret: str) -> Key | None:
        """The live key with this secret, None where there is none."""
        # Looked up by digest: what an attacker could time is a hash that they cannot steer.
        digest = _digest(secret)
        await self._refresh(REFRESH_S)
        if digest not in self._known:
            await self._refresh(UNKNOWN_REFRESH_S)
        return self._known.get(digest)

    async def create(self, name: str, admin: bool, actor: str) -> str:
        """Makes a key and returns its secret, which is never seen again. Raises InvalidRequest if the name is in use."""
        if not name or len(name) > 100 or not name.isprintable():
            raise InvalidRequest("a key's name has 1 to 100 printable characters", "name")
        secret, now = PREFIX + secrets.token_urlsafe(32), to_ms(self._clock.now())

        def work(connection: Connection) -> None:
            found = connection.execute(select(api_keys.c.revoked).where(api_keys.c.name == name).with_for_update()).first()
            if found is not None and found.revoked is None:
                raise InvalidRequest(f"there is a key named {name!r} already", "name")
            connection.execute(delete(api_keys).where(api_keys.c.name == name))
            connection.execute(insert(api_keys).values(name=name, digest=_digest(secret), admin=admin, created=now))
            record(connection, now, actor, "create key", name, admin=admin)

        await self._database.write(work)
        self._refreshed_s = float("-inf")
        return secret

    async def revoke(self, name: str, actor: str) -> bool:
        """Ends a key; False when there is no live one of this name."""
        now = to_ms(self._clock.now())

        def work(connection: Connection) -> bool:
            live = api_keys.c.name == name, api_keys.c.revoked.is_(None)
            if not connection.execute(update(api_keys).where(*live).values(revoked=now)).rowcount:
                return False
            record(connection, now, actor, "revoke key", name)
            return True

        revoked = await self._database.write(work)
        self._refreshed_s = float("-inf")
        return revoked

    async def list(self) -> list[Key]:
        """Every key by name, revoked ones too."""
        return sorted((await self._database.read(_load)).values(), key=lambda key: key.name)

    async def _refresh(self, age_s: float) -> None:
        """Reads the keys again if what is known is older than this."""
        if self._clock.monotonic() - self._refreshed_s < age_s:
            return
        async with self._refreshing:
            began = self._clock.monotonic()
            if began - self._refreshed_s >= age_s:
                found = await self._database.read(_load)
                self._known = {digest: key for digest, key in found.items() if key.revoked_at is None}
                self._refreshed_s = began


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()


def _load(connection: Connection) -> dict[str, Key]:
    return {
        row.digest: Key(row.name, row.admin, from_ms(row.created), None if row.revoked is None else from_ms(row.revoked))
        for row in connection.execute(select(api_keys))
    }
