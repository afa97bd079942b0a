"""Alerts as rows: each is told once, over restarts and processes, and says who acknowledged it.

A row is open while what it tells of lasts. What is seen again while its row is open is not told again, but for a reminder
a day later while nobody has acknowledged it; what comes back after its row has ended is told anew, under the next serial.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

import orjson
from sqlalchemy import Connection, Row, String, cast, delete, literal, or_, select, update

from gateway.clock import Clock, from_ms, to_ms
from gateway.store.alert_tables import alerts
from gateway.store.audit import record
from gateway.store.database import Database
from gateway.store.rows import clean
from gateway.store.tables import tg_posts, usage
from gateway.store.telegram import upsert

REMIND_MS = 86_400_000
"""What nobody has acknowledged is told again after this long, while it lasts."""
KEPT_MS = 90 * 86_400_000
T = TypeVar("T")

AT_ONCE = 100
"""Alerts in one transaction, at most: a limit that is lowered may open one for each of thousands of people."""
POST = "alert:"
"""How the subjects of the messages begin that tell of alerts."""
ANSWERED = ("answered", "clamped")


@dataclass(frozen=True, slots=True)
class Sign:
    """Something that an operator should know.

    `subject` names it, with the window where there is one; `facts` are what its text is made of, as JSON can hold them.
    `again_ms`: how long after it was last told it may be told anew, once it is over; None: never. Where the facts' `limit` is
    higher than the one that was told, it may at once. `lasts`: False for what just happened and is over. `provider` and
    `model` ("" for all of them): an answer from there shows that it is over.
    """

    subject: str
    kind: str
    facts: Mapping[str, Any]
    again_ms: int | None = None
    lasts: bool = True
    provider: str = ""
    model: str = ""


@dataclass(frozen=True, slots=True)
class Alert:
    """One thing that operators are told of."""

    id: int
    subject: str
    kind: str
    facts: Mapping[str, Any]
    opened_at: datetime
    told_at: datetime
    ended_at: datetime | None
    by: str
    """Who acknowledged it; "" while nobody has."""
    acknowledged_at: datetime | None


class Alerts:
    """Every method raises LedgerUnavailable when the database cannot be used."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database, self._clock = database, clock

    async def note(self, signs: Sequence[Sign], over: Collection[str] = ()) -> list[Alert]:
        """Ends the subjects that are over, then enters what was seen; the alerts that are to be told now, reminders too.

        A few at a time, so that no call waits for thousands.
        """
        now = self._now()

        def ending(connection: Connection, subjects: Sequence[str]) -> None:
            for subject in subjects:
                _end(connection, subject, now)

        def entering(connection: Connection, seen: Sequence[Sign]) -> list[Alert]:
            return [alert for sign in seen if (alert := _enter(connection, sign, now)) is not None]

        for subjects in _few(list(over)):
            await self._database.write(partial(ending, subjects=subjects))
        told = [one for seen in _few(signs) for one in await self._database.write(partial(entering, seen=seen))]
        return told + await self._database.write(partial(_remind, now=now))

    async def due(self) -> bool:
        """True when somebody is to be reminded of something."""
        query = select(alerts.c.id).where(*_unheard(self._now())).limit(1)
        return await self._database.read(lambda connection: connection.scalar(query)) is not None

    async def lasting(self, kinds: Collection[str], *, after: int = 0, limit: int = 1000) -> list[Alert]:
        """The open alerts of these kinds, with ids beyond `after`, the oldest first."""
        wanted = alerts.c.ended.is_(None), alerts.c.kind.in_(kinds), alerts.c.id > after
        query = select(alerts).where(*wanted).order_by(alerts.c.id).limit(limit)
        return await self._database.read(lambda connection: [_alert(row) for row in connection.execute(query)])

    async def newest(self, limit: int = 100) -> list[Alert]:
        """The newest alerts first, ended ones too."""
        query = select(alerts).order_by(alerts.c.told.desc(), alerts.c.id.desc()).limit(limit)
        return await self._database.read(lambda connection: [_alert(row) for row in connection.execute(query)])

    async def get(self, alert_id: int) -> Alert | None:
        """One alert."""
        row = await self._database.read(lambda connection: connection.execute(_one(alert_id)).first())
        return None if row is None else _alert(row)

    async def acknowledge(self, alert_id: int, actor: str) -> Alert | None:
        """Somebody has taken note, which the audit keeps. The first counts: the alert with who that was; None without one."""
        now = self._now()

        def work(connection: Connection) -> Alert | None:
            open_ = alerts.c.id == alert_id, alerts.c.by == ""
            if connection.execute(update(alerts).where(*open_).values(by=actor, at=now)).rowcount:
                subject = connection.scalar(select(alerts.c.subject).where(alerts.c.id == alert_id))
                record(connection, now, actor, "acknowledge", str(subject), alert=alert_id)
            row = connection.execute(_one(alert_id)).first()
            return None if row is None else _alert(row)

        return await self._database.write(work)

    async def untold(self, limit: int = 50) -> list[Alert]:
        """What no message stands for yet and is not older than a day, the oldest first."""
        posted = select(tg_posts.c.subject).where(tg_posts.c.subject == _post_of(alerts.c.id)).exists()
        query = select(alerts).where(alerts.c.told > self._now() - REMIND_MS, ~posted).order_by(alerts.c.id).limit(limit)
        return await self._database.read(lambda connection: [_alert(row) for row in connection.execute(query)])

    async def prune(self) -> None:
        """Forgets what ended long ago."""
        statement = delete(alerts).where(alerts.c.ended < self._now() - KEPT_MS)
        await self._database.write(lambda connection: connection.execute(statement))

    def _now(self) -> int:
        return to_ms(self._clock.now())


def _few(items: Sequence[T]) -> Iterator[Sequence[T]]:
    return (items[start : start + AT_ONCE] for start in range(0, len(items), AT_ONCE))


def _enter(connection: Connection, sign: Sign, now: int) -> Alert | None:
    """The alert if it is to be told; None when it was."""
    newest = select(alerts).where(alerts.c.subject == sign.subject).order_by(alerts.c.serial.desc()).limit(1)
    row = connection.execute(newest).first()
    if row is not None and row.ended is None and _answered_since(connection, sign.provider, sign.model, row.seen):
        _end(connection, sign.subject, now)
        row = connection.execute(newest).first()
    if row is not None:
        early = sign.again_ms is None or row.told + sign.again_ms > now
        if row.ended is None or (early and not _is_higher(sign, row)):
            connection.execute(update(alerts).where(alerts.c.id == row.id).values(seen=now))
            return None
    values = {
        "subject": sign.subject, "serial": 1 if row is None else row.serial + 1, "kind": sign.kind,
        "facts": orjson.dumps(_kept(sign)).decode(), "opened": now, "seen": now, "told": now,
        "ended": None if sign.lasts else now,
    }  # fmt: skip
    made = connection.execute(upsert(connection, alerts).values(values).on_conflict_do_nothing().returning(alerts.c.id))
    number = made.scalar()
    # Another process was first.
    return None if number is None else _alert(connection.execute(_one(number)).one())


def _is_higher(sign: Sign, row: Row[Any]) -> bool:
    """True for a budget that has reached a higher limit than the one that was told: somebody raised it meanwhile."""
    return int(sign.facts.get("limit", 0)) > int(orjson.loads(row.facts).get("limit", 0))


def _kept(sign: Sign) -> dict[str, Any]:
    facts = {name: clean(value, 400) if isinstance(value, str) else value for name, value in sign.facts.items()}
    return facts | ({"provider": sign.provider, "model": sign.model} if sign.provider else {})


def _remind(connection: Connection, now: int) -> list[Alert]:
    """Tells once more what nobody has acknowledged, but for what is over by now."""
    query = select(alerts).where(*_unheard(now)).order_by(alerts.c.id).limit(AT_ONCE)
    rows = connection.execute(query.with_for_update(skip_locked=True)).all()
    told = []
    for row in rows:
        alert = _alert(row)
        if _answered_since(connection, str(alert.facts.get("provider", "")), str(alert.facts.get("model", "")), row.seen):
            _end(connection, row.subject, now)
            continue
        connection.execute(update(alerts).where(alerts.c.id == row.id).values(told=now))
        # As if it were new: told to those who are admins now.
        connection.execute(delete(tg_posts).where(tg_posts.c.subject == f"{POST}{row.id}"))
        told.append(alert)
    return told


def _answered_since(connection: Connection, provider: str, model: str, since_ms: int) -> bool:
    """True when an attempt that was begun after an instant got its answer there."""
    if not provider:
        return False
    query = select(usage.c.id).where(usage.c.started > since_ms, usage.c.provider == provider, usage.c.outcome.in_(ANSWERED))
    if model:
        query = query.where(usage.c.model_asked == model)
    return connection.scalar(query.limit(1)) is not None


def _end(connection: Connection, subject: str, now: int) -> None:
    connection.execute(update(alerts).where(alerts.c.subject == subject, alerts.c.ended.is_(None)).values(ended=now))


def _unheard(now: int) -> tuple[Any, ...]:
    return alerts.c.ended.is_(None), alerts.c.by == "", alerts.c.told <= now - REMIND_MS


def _one(alert_id: int) -> Any:
    return select(alerts).where(alerts.c.id == alert_id)


def _post_of(alert_id: Any) -> Any:
    return literal(POST) + cast(alert_id, String)


def behind() -> tuple[Any, ...]:
    """For the bot: what joins a message to its alert, and which messages do not yet show what they should."""
    joins = tg_posts.c.subject == _post_of(alerts.c.id)
    acknowledged = (tg_posts.c.state == "sent") & (alerts.c.by != "")
    return joins, tg_posts.c.shown == "", or_(tg_posts.c.state == "pending", acknowledged)


def kept() -> Any:
    """For the bot: true of a message whose alert is kept."""
    return select(alerts.c.id).where(tg_posts.c.subject == _post_of(alerts.c.id)).exists()


def _alert(row: Row[Any]) -> Alert:
    return Alert(
        id=row.id,
        subject=row.subject,
        kind=row.kind,
        facts=orjson.loads(row.facts),
        opened_at=from_ms(row.opened),
        told_at=from_ms(row.told),
        ended_at=None if row.ended is None else from_ms(row.ended),
        by=row.by,
        acknowledged_at=None if row.at is None else from_ms(row.at),
    )
