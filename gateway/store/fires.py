"""What each schedule remembers: since when it is known, and which of its fires were seen to."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Connection, delete, func, select, tuple_

from gateway.clock import Clock, from_ms, to_ms
from gateway.store.database import Database
from gateway.store.run_rows import instant
from gateway.store.run_tables import schedule_fires, schedules
from gateway.store.telegram import upsert


class Fires:
    """Every method raises LedgerUnavailable when the database cannot be used."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database, self._clock = database, clock

    async def first_seen(self, name: str, line: str) -> datetime:
        """Since when a schedule is known with this line of times: from now on, if it was not or had another."""
        now = to_ms(self._clock.now())

        def work(connection: Connection) -> int:
            added = upsert(connection, schedules).values(name=name, line=line, first_seen=now)
            changed = schedules.c.line != added.excluded.line
            new = {"line": added.excluded.line, "first_seen": added.excluded.first_seen}
            connection.execute(added.on_conflict_do_update(index_elements=[schedules.c.name], set_=new, where=changed))
            found: int = connection.execute(select(schedules.c.first_seen).where(schedules.c.name == name)).scalar_one()
            return found

        return from_ms(await self._database.write(work))

    async def last(self, name: str) -> datetime | None:
        """The latest fire that was seen to."""
        query = select(func.max(schedule_fires.c.fire)).where(schedule_fires.c.name == name)
        return instant(await self._database.read(lambda connection: connection.execute(query).scalar_one()))

    async def mark(self, name: str, fire: datetime) -> bool:
        """Takes a fire to be seen to; False when somebody did before."""
        row = {"name": name, "fire": to_ms(fire), "at": to_ms(self._clock.now())}

        def work(connection: Connection) -> bool:
            statement = upsert(connection, schedule_fires).values(row).on_conflict_do_nothing()
            return connection.execute(statement.returning(schedule_fires.c.fire)).first() is not None

        return await self._database.write(work)

    async def prune(self, before: datetime) -> None:
        """Forgets fires before an instant, but never the latest one of a schedule."""
        latest = select(schedule_fires.c.name, func.max(schedule_fires.c.fire)).group_by(schedule_fires.c.name)
        stale = schedule_fires.c.fire < to_ms(before), tuple_(schedule_fires.c.name, schedule_fires.c.fire).not_in(latest)
        statement = delete(schedule_fires).where(*stale)
        await self._database.write(lambda connection: connection.execute(statement))
