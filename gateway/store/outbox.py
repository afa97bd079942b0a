"""What the program itself wants told, such as reports: rows of the outbox that belong to no run, with their files.

Each has a key, and is told once whoever puts it there, how often, and from how many processes. Who sends it says what
became of it, as with the notices of runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Select, delete, insert, select, update

from gateway.clock import Clock, to_ms
from gateway.runs import Attachment, Notice, NoticeState
from gateway.store.audit import record
from gateway.store.database import Database
from gateway.store.run_rows import notice_of, text
from gateway.store.run_tables import outbox, outbox_files
from gateway.store.telegram import upsert

FILE = "file:"


@dataclass(frozen=True, slots=True)
class Asked:
    """Who had a report sent by hand, and which: for the audit."""

    actor: str
    report: str


class Outbox:
    """Every method raises LedgerUnavailable when the database cannot be used."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database, self._clock = database, clock

    async def put(
        self,
        key: str,
        to: str,
        said: str,
        attachments: Sequence[Attachment] = (),
        bot: int | None = None,
        asked: Asked | None = None,
    ) -> Notice | None:
        """Adds something to be told; None where the key is there already. `bot` alone may send it; None: any."""
        row: dict[str, Any] = {"run": "", "step": key, "to": to, "text": text(said), "bot": bot}
        row |= {"created": to_ms(self._clock.now()), "state": NoticeState.PENDING.value, "detail": ""}

        def work(connection: Connection) -> Notice | None:
            added = upsert(connection, outbox).values(row).on_conflict_do_nothing().returning(outbox)
            found = connection.execute(added).first()
            if found is None:
                return None
            files = [
                {"notice": found.id, "number": number, "name": each.name, "picture": each.picture, "content": each.content}
                for number, each in enumerate(attachments)
            ]
            if files:
                connection.execute(insert(outbox_files), files)
            if asked is not None:
                record(connection, row["created"], asked.actor, "send report", asked.report, to=to)
            return notice_of(found)

        return await self._database.write(work)

    async def get(self, key: str) -> Notice | None:
        """What was put there under a key."""
        found = await self._notices(_own().where(outbox.c.step == key))
        return found[0] if found else None

    async def attachments(self, notice: int) -> list[Attachment]:
        """What goes with a notice, in its order."""
        query = select(outbox_files).where(outbox_files.c.notice == notice).order_by(outbox_files.c.number)
        rows = await self._database.read(lambda connection: connection.execute(query).all())
        return [Attachment(row.name, bytes(row.content), row.picture) for row in rows]

    async def to_file(self, limit: int = 50) -> list[Notice]:
        """What is still to be written to a folder, the oldest first."""
        pending = outbox.c.state == NoticeState.PENDING.value, outbox.c.to.startswith(FILE, autoescape=True)
        return await self._notices(_own().where(*pending).order_by(outbox.c.id).limit(limit))

    async def newest(self, prefix: str, limit: int = 1) -> list[Notice]:
        """What has keys that begin so, the newest first."""
        matching = outbox.c.step.startswith(prefix, autoescape=True)
        return await self._notices(_own().where(matching).order_by(outbox.c.id.desc()).limit(limit))

    async def end(self, notice: int, state: NoticeState, detail: str = "") -> None:
        """Says what became of a notice; PENDING leaves it to be tried again."""
        statement = update(outbox).where(outbox.c.id == notice).values(state=state.value, detail=text(detail))
        await self._database.write(lambda connection: connection.execute(statement))

    async def prune(self, before: datetime) -> None:
        """Forgets what was told, or could not be, and was put there before an instant; its files are forgotten with it."""
        old = outbox.c.run == "", outbox.c.created < to_ms(before), outbox.c.state != NoticeState.PENDING.value

        def work(connection: Connection) -> None:
            connection.execute(delete(outbox_files).where(outbox_files.c.notice.in_(select(outbox.c.id).where(*old))))
            connection.execute(delete(outbox).where(*old))

        await self._database.write(work)

    async def _notices(self, query: Select[Any]) -> list[Notice]:
        return await self._database.read(lambda connection: [notice_of(row) for row in connection.execute(query)])


def _own() -> Select[Any]:
    return select(outbox).where(outbox.c.run == "")
