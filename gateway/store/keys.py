"""HTTP keys: what each may do; shown once, kept as SHA-256, dead within a second of being revoked anywhere."""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

import orjson
from sqlalchemy import Connection, Row, delete, insert, select, update

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
CONSOLE = "console"
"""What records name instead of a key where a link opened the web console; no key has this name."""
CHAINS_MAX = 100


class May(StrEnum):
    """What a key may do that is no admin key. An admin key may do all of it, and everything else."""

    ASK = "ask"
    """Ask models: chat completions, messages, embeddings, and the list of models."""
    RUN = "run"
    """Start workflows, and see and steer its own runs."""
    READ = "read"
    """Read budgets and usage, everybody's; nothing that changes anything."""


USUAL = (May.ASK, May.RUN)
"""What a key may do unless it is said."""


@dataclass(frozen=True, slots=True)
class Key:
    """An HTTP key. The secret itself is kept nowhere."""

    name: str
    """The `user` and the `key` that budgets match on."""
    admin: bool
    may: frozenset[May]
    chains: tuple[str, ...]
    """The chains, providers and models that it may use, by their names; empty: every one."""
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

    async def create(
        self, name: str, admin: bool, actor: str, *, may: Collection[str] = USUAL, chains: Sequence[str] = ()
    ) -> str:
        """Makes a key and returns its secret, which is never seen again. An admin key may do everything, whatever `may` says.

        Raises InvalidRequest if the name is in use or is none, and for a scope that is none.
        """
        if not name or len(name) > 100 or not name.isprintable():
            raise InvalidRequest("a key's name has 1 to 100 printable characters", "name")
        if name == CONSOLE:
            raise InvalidRequest(f"{CONSOLE} is what the web console itself is called: choose another name", "name")
        granted, chains = _granted(admin, may), tuple(dict.fromkeys(chains))
        if chains and admin:
            raise InvalidRequest("an admin key may use every chain: make a key that is none, or leave the chains out", "chains")
        if len(chains) > CHAINS_MAX:
            raise InvalidRequest(f"a key may name at most {CHAINS_MAX} chains; one that names none may use all", "chains")
        secret, now = PREFIX + secrets.token_urlsafe(32), to_ms(self._clock.now())
        row = {"name": name, "digest": _digest(secret), "admin": admin, "created": now}
        row |= {"may": orjson.dumps(granted).decode(), "chains": orjson.dumps(chains).decode()}

        def work(connection: Connection) -> None:
            found = connection.execute(select(api_keys.c.revoked).where(api_keys.c.name == name).with_for_update()).first()
            if found is not None and found.revoked is None:
                raise InvalidRequest(f"there is a key named {name!r} already", "name")
            connection.execute(delete(api_keys).where(api_keys.c.name == name))
            connection.execute(insert(api_keys).values(row))
            record(connection, now, actor, "create key", name, admin=admin, may=granted, chains=chains)

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


def _granted(admin: bool, may: Collection[str]) -> list[str]:
    """What the key may, in the order of May. Raises InvalidRequest."""
    if unknown := [each for each in may if each not in list(May)]:
        raise InvalidRequest(f"a key may {', '.join(May)}; there is no {unknown[0][:50]!r}", "may")
    if not may and not admin:
        raise InvalidRequest(f"a key must be allowed something: any of {', '.join(May)}", "may")
    return [each.value for each in May if admin or each in may]


def _load(connection: Connection) -> dict[str, Key]:
    return {row.digest: _key(row) for row in connection.execute(select(api_keys))}


def _key(row: Row[Any]) -> Key:
    may, chains = frozenset(map(May, orjson.loads(row.may))), tuple(orjson.loads(row.chains))
    return Key(row.name, row.admin, may, chains, from_ms(row.created), None if row.revoked is None else from_ms(row.revoked))
