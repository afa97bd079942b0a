"""What the program itself tells: once per key, with its files, and only over the bot that is meant."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from gateway.runs import Attachment, NoticeState
from gateway.store.database import Database
from gateway.store.outbox import Outbox
from gateway.store.run_tables import outbox_files
from gateway.store.runs import Runs
from tests.doubles.clock import SettableClock

PICTURE, TABLE = Attachment("chart.png", b"\x89PNG\0\xff", picture=True), Attachment("report.csv", b"a,b\n")


async def test_of_many_that_put_the_same_one_counts_and_its_files_are_its_own(database: Database) -> None:
    outbox = Outbox(database, SettableClock())
    puts = [outbox.put("report:daily:1", "telegram:7", f"said by {number}", [PICTURE, TABLE]) for number in range(5)]
    made = [notice for notice in await asyncio.gather(*puts) if notice is not None]
    assert len(made) == 1
    assert await outbox.get("report:daily:1") == made[0]
    assert await outbox.attachments(made[0].id) == [PICTURE, TABLE]
    assert await outbox.put("report:daily:1", "telegram:7", "again") is None
    assert await outbox.get("report:daily:2") is None


async def test_each_is_left_to_the_bot_that_is_meant_and_files_to_whoever_writes_them(database: Database) -> None:
    clock = SettableClock()
    outbox, runs = Outbox(database, clock), Runs(database, clock)
    await outbox.put("any", "telegram:7", "any")
    await outbox.put("first", "telegram:7", "first", bot=1)
    await outbox.put("second", "telegram:7", "second", bot=2)
    await outbox.put("folder", "file:/reports", "folder")
    assert [notice.text for notice in await runs.notices("telegram", bot=1)] == ["any", "first"]
    assert [notice.text for notice in await runs.notices("telegram", bot=2)] == ["any", "second"]
    # A worker writes what runs tell, and has no folder of a run for these.
    assert await runs.notices("file") == []
    assert [notice.text for notice in await outbox.to_file()] == ["folder"]


async def test_what_was_told_is_forgotten_with_its_files_and_what_waits_is_not(database: Database) -> None:
    clock = SettableClock()
    outbox = Outbox(database, clock)
    told = await outbox.put("report:a:1", "telegram:7", "told", [PICTURE])
    waits = await outbox.put("report:a:2", "file:/x", "waits", [TABLE])
    assert told is not None
    assert waits is not None
    await outbox.end(told.id, NoticeState.SENT)
    await outbox.end(waits.id, NoticeState.PENDING, "the disk is full")
    clock.advance(days=40)
    new = await outbox.put("report:a:3", "file:/x", "new")
    assert [(one.text, one.state, one.detail) for one in await outbox.newest("report:a:", 3)] == [
        ("new", "pending", ""),
        ("waits", "pending", "the disk is full"),
        ("told", "sent", ""),
    ]
    await outbox.prune(clock.now() - timedelta(days=30))
    assert [one.text for one in await outbox.newest("report:a:", 3)] == ["new", "waits"]
    assert new is not None
    assert await outbox.attachments(told.id) == []
    assert await outbox.attachments(waits.id) == [TABLE]
    kept = await database.read(lambda connection: connection.execute(outbox_files.select()).all())
    assert len(kept) == 1
