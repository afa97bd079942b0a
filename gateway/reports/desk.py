"""Makes reports and sends them: at their times, when somebody asks, and once over any number of processes and restarts.

A report that is due is made and put into the outbox under its name and time; whoever comes second finds it there. What
became of it is kept with it. The bot brings it to chats; folders are written here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import structlog

from gateway.clock import Clock
from gateway.effects import EffectError, Folder
from gateway.reports.chart import PAGE, png, svg
from gateway.reports.drawing import chart_of, chart_over
from gateway.reports.figures import Report, figures, kinds, told
from gateway.reports.periods import Periods
from gateway.reports.sections import Section, sections
from gateway.reports.table import csv_of, document
from gateway.reports.text import text_of
from gateway.runs import Attachment, Notice, NoticeState, stamp
from gateway.settings import ReportSettings, Settings
from gateway.store.books import Books
from gateway.store.outbox import FILE, Asked, Outbox

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Made:
    """A report with the language and the instant in which it is told."""

    report: Report
    language: str
    now: datetime

    def text(self) -> str:
        """For people."""
        return text_of(self.report, self.language, self.now)

    def png(self) -> bytes:
        """The chart, as a picture."""
        return png(chart_of(self.report, self.language))

    def sections(self) -> list[Section]:
        """The same as the text, for a page."""
        return sections(self.report, self.language, self.now)

    def svg(self) -> str:
        """The chart, for a page: in the page's own colours."""
        return svg(chart_of(self.report, self.language), PAGE)

    def csv(self) -> str:
        """The figures as a table."""
        return csv_of(self.report)

    def document(self) -> dict[str, Any]:
        """Everything, for programs."""
        return document(self.report)


class Reports:
    """One per process. Every method raises LedgerUnavailable when the database cannot be used."""

    def __init__(self, books: Books, outbox: Outbox, settings: Settings, clock: Clock) -> None:
        self._books, self._outbox, self._settings, self._clock = books, outbox, settings, clock

    async def make(self, period: str, language: str = "en", at: datetime | None = None) -> Made:
        """A report of the whole period before the one that `at` is in (now by default), and of that one so far."""
        now, zone = self._clock.now(), self._settings.zone
        periods = Periods.at(period, zone, at or now, now)
        budgets = told(self._settings.budgets.all)
        said = await self._books.statement(periods.edges, kinds(budgets), periods.bar, zone)
        report = await asyncio.to_thread(figures, periods, budgets, said)
        return Made(report, language, now)

    async def chart(
        self,
        rows: Sequence[Mapping[str, Any]],
        bar: str,
        since: datetime,
        until: datetime,
        language: str = "en",
        *,
        limited: bool = True,
    ) -> str | None:
        """The same drawing of what `Books.usage` gives by `bar` ("hour" or "day") and provider, for a page.

        None where nothing was spent. The limits are those of this moment; without `limited` none is drawn.
        """
        budgets, zone = self._settings.budgets.by_name, self._settings.zone
        balances = await self._books.balances() if limited else ()
        limits = [(budgets[one.name], one.limit) for one in balances if one.name in budgets]
        span = since, min(until, max(self._clock.now(), since + timedelta(seconds=1)))
        chart = await asyncio.to_thread(chart_over, rows, bar, span, zone, limits, language)
        return None if chart is None else svg(chart, PAGE)

    async def ring(self, report: ReportSettings, fire: datetime) -> None:
        """Sends the report that is due at `fire`, unless that was done. The same when done twice."""
        key = f"{prefix(report)}{stamp(fire)}"
        if await self._outbox.get(key) is None and await self._send(report, key, fire) is not None:
            log.info("report_made", report=report.name, fire=stamp(fire), to=report.to)
        await self.file()

    async def send_now(self, report: ReportSettings, actor: str) -> Notice:
        """Sends a configured report of this moment, whatever was sent before, and says how far that has come. Audited."""
        key = f"{prefix(report)}asked {stamp(self._clock.now())}"
        await self._send(report, key, None, actor)
        await self.file()
        found = await self._outbox.get(key)
        assert found is not None, "it was put there a moment ago"
        return found

    async def ask(self, key: str, period: str, to: str, language: str, by: str, *, table: bool, bot: int | None) -> None:
        """Sends a report of this moment to a chat, once per key; the audit keeps who asked for it."""
        if await self._outbox.get(key) is None:
            made = await self.make(period, language)
            await self._put(key, to, made, f"{period}-report", by, table=table, bot=bot)

    async def file(self) -> None:
        """Writes what is to be written to folders. What cannot be written now is tried again, and says why."""
        for notice in await self._outbox.to_file():
            try:
                path = await self._file(notice)
            except (EffectError, OSError) as error:
                if str(error) != notice.detail:
                    log.warning("report_not_filed", to=notice.to, reason=str(error))
                await self._outbox.end(notice.id, NoticeState.PENDING, str(error))
            else:
                await self._outbox.end(notice.id, NoticeState.SENT, str(path))

    async def sent(self, report: ReportSettings, limit: int = 1) -> list[Notice]:
        """What was sent of a report, the newest first, each with what became of it."""
        return await self._outbox.newest(prefix(report), limit)

    async def state(self, key: str) -> Notice | None:
        """What became of one."""
        return await self._outbox.get(key)

    async def _send(self, report: ReportSettings, key: str, fire: datetime | None, actor: str = "") -> Notice | None:
        made = await self.make(report.period, report.language, fire)
        return await self._put(key, report.to, made, report.name, actor, table=report.csv, bot=self._bot())

    async def _put(self, key: str, to: str, made: Made, name: str, actor: str, *, table: bool, bot: int | None) -> Notice | None:
        attachments = await asyncio.to_thread(_attachments, made, name, table)
        return await self._outbox.put(key, to, made.text(), attachments, bot, Asked(actor, name) if actor else None)

    def _bot(self) -> int | None:
        """The bot of this configuration: another one on the same database may not know the chat."""
        token = self._settings.telegram.token
        return int(token.split(":", 1)[0]) if token else None

    async def _file(self, notice: Notice) -> Path:
        """Written whole or not at all, and twice as once: the names are those of the report's period."""
        folder = Folder(Path(notice.to.removeprefix(FILE)))
        attached = await self._outbox.attachments(notice.id)
        for each in attached:
            await folder.write(each.name, each.content)
        stem = attached[0].name.rpartition(".")[0] if attached else f"report-{notice.id}"
        return await folder.write(f"{stem}.txt", f"{notice.text}\n".encode("utf-8", "replace"))


def prefix(report: ReportSettings) -> str:
    """How the keys of what is sent of a report begin."""
    return f"report:{report.name}:"


def _attachments(made: Made, name: str, table: bool) -> Sequence[Attachment]:
    periods = made.report.periods
    stem = f"{name}-{periods.previous.astimezone(periods.zone):%Y-%m-%d}"
    found = [Attachment(f"{stem}.png", made.png(), picture=True)]
    if table:
        found.append(Attachment(f"{stem}.csv", made.csv().encode("utf-8", "replace")))
    return found
