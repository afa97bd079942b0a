"""Reports are sent once, about the right period, late rather than never, whatever the processes do; their state is true."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select

from gateway.clock import to_ms
from gateway.errors import LedgerUnavailable
from gateway.runs import Attachment, Notice, NoticeState
from gateway.schedules import Alarm, Alarms
from gateway.settings import ReportSettings
from gateway.store.database import Database
from gateway.store.fires import Fires
from gateway.store.runs import Runs
from gateway.store.tables import usage
from tests.doubles.clock import SettableClock
from tests.reports.office import MADRID, Office, setting

CHAT = "telegram:-100200/7"


class Process:
    """One of several processes on a database: its office and its alarm. `look` is what the scheduler does of itself."""

    def __init__(self, office: Office, report: ReportSettings) -> None:
        self.office = office
        self.report = report
        self.look: Callable[[], Awaitable[Any]]
        alarm = Alarm(f"report:{report.name}", report.cron, partial(office.reports.ring, report))
        Alarms([alarm], Fires(office.database, office.clock), office.clock).join(self._take)

    def _take(self, look: Callable[[], Awaitable[Any]], _trigger: object) -> None:
        self.look = look

    async def sent(self) -> list[Notice]:
        """Everything that was sent, the newest first."""
        return await self.office.reports.sent(self.report, 50)


async def processes(database: Database, folder: Path, report: ReportSettings, number: int = 2) -> list[Process]:
    clock = SettableClock(datetime(2026, 11, 28, 11, tzinfo=UTC))
    made = [Process(Office(database, folder, clock), report) for _ in range(number)]
    await made[0].office.store.start()
    return made


async def test_case_50_a_report_that_is_due_while_two_replicas_run_is_sent_once(database: Database, tmp_path: Path) -> None:
    first, second = await processes(database, tmp_path, setting(CHAT, csv=True))
    await asyncio.gather(first.look(), second.look())
    await first.office.three_days()
    first.office.clock.set(datetime(2026, 11, 30, 8, 0, 1, tzinfo=UTC))
    await asyncio.gather(*(each.look() for each in (first, second, first, second)))
    (notice,) = await first.sent()
    assert (notice.to, notice.state, notice.run) == (CHAT, NoticeState.PENDING, "")
    assert notice.step == "report:daily:2026-11-30T08:00:00Z"
    assert notice.text.splitlines()[:5] == [
        "📊 Daily report · Sunday, November 29, 2026",
        "💸 $0.96 · 41,520 tokens · 6 calls",
        "▲ 60% against Sat, Nov 28 ($0.60)",
        "⏱ Since then, until 09:00",
        "$0.00 · 0 calls",
    ]
    picture, table = await first.office.outbox.attachments(notice.id)
    assert (picture.name, picture.picture, picture.content[:4]) == ("daily-2026-11-29.png", True, b"\x89PNG")
    assert (table.name, table.picture, table.content[:6]) == ("daily-2026-11-29.csv", False, b"period")


async def test_case_50_a_report_that_was_due_while_nothing_ran_is_sent_late_and_about_its_own_period(
    database: Database, tmp_path: Path
) -> None:
    (before,) = await processes(database, tmp_path, setting(CHAT), 1)
    await before.look()
    await before.office.three_days()
    # Past midnight: the day in which it was due is over too.
    before.office.clock.set(datetime(2026, 12, 1, 1, tzinfo=UTC))
    after = Process(before.office, before.report)
    await after.look()
    await after.look()
    # Of two that were missed the last is told.
    (notice,) = await after.sent()
    assert notice.step == "report:daily:2026-11-30T08:00:00Z"
    assert "Sunday, November 29" in notice.text
    assert "until 00:00\n$0.91 · 2 calls" in notice.text


async def test_case_50_one_that_is_seen_first_now_sends_nothing_for_the_past(database: Database, tmp_path: Path) -> None:
    (process,) = await processes(database, tmp_path, setting(CHAT), 1)
    await process.office.three_days()
    await process.look()
    assert await process.sent() == []


async def test_case_50_across_a_change_of_clocks_each_day_is_told_once_and_whole(database: Database, tmp_path: Path) -> None:
    # At half past two, which comes twice on 25 October; the day has 25 hours.
    first, second = await processes(database, tmp_path, setting(CHAT, cron="30 2 * * *"))
    office = first.office
    office.clock.set(datetime(2026, 10, 24, 10, tzinfo=UTC))
    await first.look()
    start, end = (datetime(2026, 10, day, tzinfo=MADRID).astimezone(UTC) for day in (25, 26))
    assert (end - start).total_seconds() == 25 * 3600
    for hour in range(27):
        office.clock.set(start.replace(minute=5) if not hour else office.clock.now())
        await office.spend(100, 1000)
        await asyncio.gather(first.look(), second.look())
        office.clock.advance(hours=1)
    sent = [(notice.step.removeprefix("report:daily:"), notice.text.splitlines()[:2]) for notice in await first.sent()]
    assert [fire for fire, _ in sent] == ["2026-10-25T00:30:00Z"]
    office.clock.set(datetime(2026, 10, 26, 1, 30, tzinfo=UTC))
    await asyncio.gather(first.look(), second.look())
    notice = (await first.sent())[0]
    assert notice.step == "report:daily:2026-10-26T01:30:00Z"
    assert notice.text.splitlines()[:2] == [
        "📊 Daily report · Sunday, October 25, 2026",
        "💸 $0.02 · 2,500 tokens · 25 calls",
    ]


async def test_case_50_a_time_that_spring_skips_is_the_end_of_the_gap_once_also_when_the_clock_is_set_back(
    database: Database, tmp_path: Path
) -> None:
    # There is no half past two on 29 March; that day has 23 hours.
    first, second = await processes(database, tmp_path, setting(CHAT, cron="30 2 * * *"))
    office = first.office
    office.clock.set(datetime(2026, 3, 28, 10, tzinfo=UTC))
    await first.look()
    start = datetime(2026, 3, 29, tzinfo=MADRID).astimezone(UTC)
    for hour in range(25):
        office.clock.set(start + timedelta(hours=hour, minutes=5))
        await office.spend(100, 1000)
        await asyncio.gather(first.look(), second.look())
        # The machine's clock is corrected by two hours and goes on from there.
        office.clock.advance(hours=-2)
        await asyncio.gather(first.look(), second.look())
    assert [notice.step for notice in await first.sent()] == ["report:daily:2026-03-29T01:00:00Z"]
    office.clock.set(datetime(2026, 3, 30, 0, 30, tzinfo=UTC))
    await asyncio.gather(first.look(), second.look())
    notice = (await first.sent())[0]
    assert notice.step == "report:daily:2026-03-30T00:30:00Z"
    assert notice.text.splitlines()[1] == "💸 $0.02 · 2,300 tokens · 23 calls"
    day = usage.c.started >= to_ms(start), usage.c.started < to_ms(datetime(2026, 3, 30, tzinfo=MADRID).astimezone(UTC))
    counted = select(func.count(), func.sum(usage.c.cost_micro_usd)).where(*day)
    assert tuple(await office.database.read(lambda connection: connection.execute(counted).one())) == (23, 23_000)


async def test_a_report_with_another_name_or_other_times_has_no_past(database: Database, tmp_path: Path) -> None:
    (process,) = await processes(database, tmp_path, setting(CHAT), 1)
    await process.look()
    process.office.clock.set(datetime(2026, 11, 29, 10, tzinfo=UTC))
    for report in (replace(setting(CHAT), name="renamed"), setting(CHAT, cron="0 10 * * *")):
        changed = Process(process.office, report)
        await changed.look()
        assert await changed.sent() == []
    # One that only goes elsewhere, or is about something else, is the same: what it missed is sent there.
    process.office.clock.set(datetime(2026, 11, 29, 12, tzinfo=UTC))
    moved = Process(process.office, setting("telegram:7", cron="0 10 * * *", period="week"))
    process.office.clock.set(datetime(2026, 11, 30, 12, tzinfo=UTC))
    await moved.look()
    (notice,) = await moved.sent()
    assert (notice.to, notice.step, notice.text[:15]) == ("telegram:7", "report:daily:2026-11-30T09:00:00Z", "📊 Weekly report")


async def test_to_a_folder_it_is_written_whole_and_what_cannot_be_says_why_until_it_can(
    database: Database, tmp_path: Path
) -> None:
    folder = tmp_path / "in" / "reports"
    (tmp_path / "in").write_text("a file where a folder should be")
    (process,) = await processes(database, tmp_path, setting(f"file:{folder}", csv=True, language="es"), 1)
    await process.look()
    await process.office.three_days()
    process.office.clock.set(datetime(2026, 11, 30, 8, tzinfo=UTC))
    await process.look()
    (notice,) = await process.sent()
    assert notice.state is NoticeState.PENDING
    assert "director" in notice.detail.lower() or "file" in notice.detail.lower()
    (tmp_path / "in").unlink()
    await process.office.reports.file()
    (notice,) = await process.sent()
    assert (notice.state, notice.detail) == (NoticeState.SENT, str(folder / "daily-2026-11-29.txt"))
    assert sorted(path.name for path in folder.iterdir()) == [f"daily-2026-11-29.{kind}" for kind in ("csv", "png", "txt")]
    assert (folder / "daily-2026-11-29.txt").read_text().startswith("📊 Informe diario · domingo, 29 de noviembre de 2026\n")
    # A worker leaves these alone, and they are not written again.
    assert await Runs(database, process.office.clock).notices("file") == []
    (folder / "daily-2026-11-29.txt").unlink()
    await process.office.reports.file()
    assert not (folder / "daily-2026-11-29.txt").exists()


async def test_a_report_that_cannot_be_kept_is_made_again_later(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (process,) = await processes(database, tmp_path, setting(CHAT), 1)
    await process.look()
    process.office.clock.set(datetime(2026, 11, 29, 8, tzinfo=UTC))

    async def gone(*_: object, **__: object) -> Attachment:
        raise LedgerUnavailable("gone")

    with monkeypatch.context() as broken:
        broken.setattr(process.office.outbox, "put", gone)
        await process.look()
    assert await process.sent() == []
    for _ in range(12):
        await process.look()
    assert len(await process.sent()) == 1


async def test_what_is_asked_for_is_sent_whatever_was_sent_before(database: Database, tmp_path: Path) -> None:
    office = Office(database, tmp_path)
    await office.store.start()
    first = await office.reports.send_now(setting(CHAT), "cli:ann")
    office.clock.advance(1)
    second = await office.reports.send_now(setting(CHAT), "cli:ann")
    assert first.id != second.id
    await office.reports.ask("asked:1", "week", "telegram:7", "es", "telegram:1", table=False, bot=5)
    await office.reports.ask("asked:1", "week", "telegram:7", "es", "telegram:1", table=False, bot=5)
    found = await office.reports.state("asked:1")
    assert found is not None
    assert found.text.startswith("📊 Informe semanal")
    assert [attachment.name for attachment in await office.outbox.attachments(found.id)] == ["week-report-2026-11-16.png"]
    kept = [(entry.actor, entry.action, entry.subject, entry.detail["to"]) for entry in await office.books.audit()]
    assert kept == [
        ("telegram:1", "send report", "week-report", "telegram:7"),
        *[("cli:ann", "send report", "daily", CHAT)] * 2,
    ], "what is sent by the clock is no change of anybody, and a second delivery of the same wish none at all"
