"""What the program itself tells arrives in its chat once: its text as it is written, with pictures and files."""

from __future__ import annotations

from pathlib import Path

from gateway.runs import Attachment, NoticeState
from tests.doubles.botapi import Fault
from tests.telegram_bot.rig import ADMIN, GROUP, Rig, rig

PICTURE, TABLE = Attachment("chart.png", b"\x89PNG\r\n\x1a\n", picture=True), Attachment("report.csv", b"a,b\n")


async def state(run: Rig, key: str, wanted: NoticeState) -> None:
    async def look() -> str:
        found = await run.bot._desk.outbox.get(key)
        return "" if found is None else found.state.value

    await run.eventually(look, lambda found: found == wanted)


async def test_a_short_text_stands_under_its_picture_and_nothing_in_it_is_markup(tmp_path: Path, sqlite_url: str) -> None:
    async with rig(tmp_path, sqlite_url) as run:
        said = "snake_case *all* <b> [x](y)\n▓▓▓░ 75%"
        await run.bot._desk.outbox.put("report:a:1", f"telegram:{GROUP}/7", said, [PICTURE, TABLE])
        await state(run, "report:a:1", NoticeState.SENT)
        picture, table = run.api.bubbles(GROUP)
        assert (picture.text, picture.entities, picture.thread, picture.file) == (said, [], 7, ("chart.png", PICTURE.content))
        assert (table.text, table.thread, table.file) == ("", 7, ("report.csv", TABLE.content))
        assert [call.method for call in run.api.calls if call.chat == GROUP] == ["sendPhoto", "sendDocument"]


async def test_a_long_text_comes_before_its_picture_and_a_text_may_come_alone(tmp_path: Path, sqlite_url: str) -> None:
    async with rig(tmp_path, sqlite_url) as run:
        await run.bot._desk.outbox.put("report:a:1", f"telegram:{ADMIN}", "line\n" * 300, [PICTURE])
        await state(run, "report:a:1", NoticeState.SENT)
        await run.bot._desk.outbox.put("report:a:2", f"telegram:{ADMIN}", "alone")
        await state(run, "report:a:2", NoticeState.SENT)
        assert [bubble.file is not None for bubble in run.api.bubbles(ADMIN)] == [False, True, False]


async def test_what_may_have_arrived_is_not_repeated_and_what_did_not_is(tmp_path: Path, sqlite_url: str) -> None:
    async with rig(tmp_path, sqlite_url) as run:
        outbox = run.bot._desk.outbox
        for description, status, cut, wanted in (
            ("", 400, True, NoticeState.UNCERTAIN),
            ("Bad Gateway", 502, False, NoticeState.SENT),
            ("Forbidden: bot was blocked by the user", 403, False, NoticeState.FAILED),
        ):
            run.api.faults.append(Fault("sendPhoto", description, status, cut=cut))
            await outbox.put(f"report:a:{status}", f"telegram:{ADMIN}", str(status), [PICTURE])
            await state(run, f"report:a:{status}", wanted)
        await run.restart()
        await run.api.until(lambda: run.bot.ready)
        await run.bot._desk.outbox.put("report:a:last", f"telegram:{ADMIN}", "last")
        await run.api.answered("last", ADMIN)
        assert [bubble.text for bubble in run.api.bubbles(ADMIN)] == ["400", "502", "last"]
