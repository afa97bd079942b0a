"""Who is logged in to the web console: sessions, and the one-time links that open them. Both are kept as SHA-256 alone."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Connection, delete, insert, select

from gateway.clock import Clock, from_ms, to_ms
from gateway.store.audit import record
from gateway.store.database import Database
from gateway.store.tables import api_keys, web_links, web_sessions

SESSION_LASTS = timedelta(hours=12)
LINK_LASTS = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Session:
    """Somebody who is logged in. Everybody who is may do what an admin key may."""

    actor: str
    """Who it is, for the audit: `console:key:<name>`, or `console:<who made the link>`."""
    key: str | None
    """The admin key that opened it; None: a link did."""
    expires_at: datetime


class Sessions:
    """Every method raises LedgerUnavailable when the database cannot be used."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database, self._clock = database, clock

    async def make_link(self, by: str) -> tuple[str, datetime]:
        """A secret that opens one session, once, and when it expires. `by` is who may hand it on, for the audit."""
        secret, now = secrets.token_urlsafe(24), to_ms(self._clock.now())
        expires = to_ms(self._clock.now() + LINK_LASTS)

        def work(connection: Connection) -> None:
            connection.execute(delete(web_links).where(web_links.c.expires <= now))
            connection.execute(insert(web_links).values(digest=_digest(secret), made_by=by, expires=expires))

        await self._database.write(work)
        return secret, from_ms(expires)

    async def open_by_link(self, link: str) -> str | None:
        """Uses a link up and gives the new session's secret; None for one that is unknown, used or expired."""
        now, digest = to_ms(self._clock.now()), _digest(link)
        mine = web_links.c.digest == digest, web_links.c.expires > now
        session = self._new_secret()

        def work(connection: Connection) -> str | None:
            row = connection.execute(select(web_links.c.made_by).where(*mine)).first()
            # Of two that come at once the database lets one delete it.
            if row is None or not connection.execute(delete(web_links).where(*mine)).rowcount:
                return None
            self._add(connection, session, f"console:{row.made_by}", None, now)
            return session

        return await self._database.write(work)

    async def open_by_key(self, key: str) -> str:
        """A new session of the admin key with this name; its secret."""
        now, session = to_ms(self._clock.now()), self._new_secret()
        await self._database.write(lambda connection: self._add(connection, session, f"console:key:{key}", key, now))
        return session

    async def find(self, secret: str) -> Session | None:
        """The session of this secret, as long as it has not expired and the key that opened it is a live admin key."""
        now = to_ms(self._clock.now())
        live = web_sessions.c.digest == _digest(secret), web_sessions.c.expires > now

        def work(connection: Connection) -> Session | None:
            row = connection.execute(select(web_sessions).where(*live)).first()
            if row is None:
                return None
            if row.key is not None:
                # A key of the same name that was made later did not open this session.
                opened = api_keys.c.name == row.key, api_keys.c.created <= row.made
                good = select(api_keys.c.name).where(*opened, api_keys.c.admin, api_keys.c.revoked.is_(None))
                if connection.execute(good).first() is None:
                    return None
            return Session(row.actor, row.key, from_ms(row.expires))

        return await self._database.read(work)

    async def close(self, secret: str) -> None:
        """Logs out."""
        now = to_ms(self._clock.now())
        mine = delete(web_sessions).where(web_sessions.c.digest == _digest(secret)).returning(web_sessions.c.actor)

        def work(connection: Connection) -> None:
            for actor in connection.scalars(mine).all():
                record(connection, now, actor, "log out", "console")

        await self._database.write(work)

    async def close_all(self, actor: str) -> None:
        """Logs everybody out, and makes the links that nobody has opened worthless."""
        now = to_ms(self._clock.now())

        def work(connection: Connection) -> None:
            connection.execute(delete(web_sessions))
            connection.execute(delete(web_links))
            record(connection, now, actor, "log out everybody", "console")

        await self._database.write(work)

    def _new_secret(self) -> str:
        return secrets.token_urlsafe(32)

    def _add(self, connection: Connection, secret: str, actor: str, key: str | None, now: int) -> str:
        connection.execute(delete(web_sessions).where(web_sessions.c.expires <= now))
        expires = now + int(SESSION_LASTS.total_seconds() * 1000)
        row = {"digest": _digest(secret), "actor": actor, "key": key, "made": now, "expires": expires}
        connection.execute(insert(web_sessions).values(row))
        record(connection, now, actor, "log in", "console")
        return secret


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()
