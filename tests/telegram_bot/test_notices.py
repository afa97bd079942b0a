"""What runs want told arrives in its chat once, with its file, as models write it."""

from __future__ import annotations

import asyncio
from pathlib import Path

from sqlalchemy import select

from gateway.runs import NoticeState, Run, Starter
from gateway.store.run_tables import outbox
from gateway.telegram_bot.runs.watch import Watch
from tests.doubles.botapi import Fault
from tests.telegram_bot.rig import GROUP, PERSON, Rig, rig
from tests.telegram_bot.workflows import FILES, started


async def begun(run: Rig) -> Run:
    await run.api.say("/run tidy")
    return await started(run)


async def states(run: Rig) -> list[str]:
    return list(await run.database.read(lambda c: c.execute(select(outbox.c.state).order_by(outbox.c.id)).scalars().all()))


async def told(run: Rig, *wanted: NoticeState) -> None:
    await run.eventually(lambda: states(run), lambda found: found == list(wanted))


def file(run: Rig, made: Run, name: str, content: bytes) -> None:
    path = run.folder / "runs" / made.id / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


async def test_a_text_as_models_write_it_and_a_file_arrive_in_the_chat_and_topic(tmp_path: Path, sqlite_url: str) -> None:
    async with rig(tmp_path, sqlite_url, files=FILES) as run:
        made = await begun(run)
        file(run, made, "out/REPORT.md", b"# All of it")
        await run.runs.notify(made.id, "notify", f"telegram:{GROUP}/7", "Here is **the** report", "out/REPORT.md")
        bubble = await run.api.answered("Here is the report", GROUP)
        assert bubble.thread == 7
        assert bubble.file == ("REPORT.md", b"# All of it")
        assert [entity["type"] for entity in bubble.entities] == ["bold"]
        await told(run, NoticeState.SENT)
        await run.runs.notify(made.id, "notify#2", f"telegram:{PERSON}", "plain_text & <more>")
        await run.api.answered("plain_text & <more>")
        await told(run, NoticeState.SENT, NoticeState.SENT)


async def test_a_long_text_comes_before_its_file(tmp_path: Path, sqlite_url: str) -> None:
    async with rig(tmp_path, sqlite_url, files=FILES) as run:
        made = await begun(run)
        file(run, made, "a.txt", b"a")
        await run.runs.notify(made.id, "notify", f"telegram:{GROUP}", "word " * 1500, "a.txt")
        await told(run, NoticeState.SENT)
        assert [bubble.file is not None for bubble in run.api.bubbles(GROUP)] == [False, False, True]
        assert run.api.bubbles(GROUP)[-1].text == ""


async def test_a_file_that_is_gone_outside_or_too_large_is_said(tmp_path: Path, sqlite_url: str) -> None:
    async with rig(tmp_path, sqlite_url, files=FILES) as run:
        made = await begun(run)
        file(run, made, "big.bin", b"")
        with (run.folder / "runs" / made.id / "big.bin").open("wb") as big:
            big.truncate(50_000_001)
        (run.folder / "secret.txt").write_text("secret")
        (run.folder / "runs" / made.id / "link.txt").symlink_to(run.folder / "secret.txt")
        for number, name in enumerate(("none.txt", "big.bin", "../secret.txt", "link.txt")):
            await run.runs.notify(made.id, f"notify{number}", f"telegram:{GROUP}", f"See {number}", name)
        for number, name in enumerate(("none.txt", "big.bin", "secret.txt", "link.txt")):
            bubble = await run.api.answered(f"See {number}", GROUP, timeout_s=30)
            assert f"📎 {name} is missing" in bubble.text
        assert not run.api.made("sendDocument")


async def test_what_may_have_arrived_is_not_repeated_and_what_did_not_is(tmp_path: Path, sqlite_url: str) -> None:
    async with rig(tmp_path, sqlite_url, files=FILES) as run:
        made = await begun(run)
        await run.api.answered("tidy · queued")
        run.api.faults.append(Fault("sendMessage", cut=True, match=lambda fields: "first" in fields["text"]))
        run.api.faults.append(Fault("sendMessage", "Bad Gateway", 502, match=lambda fields: "second" in fields["text"]))
        run.api.faults.append(
            Fault("sendMessage", "Forbidden: bot was blocked by the user", 403, match=lambda f: "third" in f["text"])
        )
        for text in ("first", "second", "third"):
            await run.runs.notify(made.id, text, f"telegram:{GROUP}", text)
        await run.runs.notify(made.id, "nowhere", "telegram:oops", "nowhere")
        ends = (NoticeState.UNCERTAIN, NoticeState.SENT, NoticeState.FAILED, NoticeState.FAILED)
        await told(run, *ends)
        await run.restart()
        await run.api.until(lambda: run.bot.ready)
        await run.runs.notify(made.id, "last", f"telegram:{GROUP}", "last")
        await run.api.answered("last", GROUP)
        assert [bubble.text for bubble in run.api.bubbles(GROUP)] == ["first", "second", "last"]
        await told(run, *ends, NoticeState.SENT)


async def test_a_stop_while_the_chat_has_no_room_leaves_the_notice_to_the_next_start(tmp_path: Path, sqlite_url: str) -> None:
    async with rig(tmp_path, sqlite_url, files=FILES) as run:
        made = await begun(run)
        flood = Fault("sendMessage", "Too Many Requests: retry after 60", 429, {"retry_after": 60})
        flood.match = lambda fields: int(fields["chat_id"]) == GROUP
        run.api.faults.append(flood)
        await run.runs.notify(made.id, "notify", f"telegram:{GROUP}", "kept")
        await run.api.until(lambda: flood.times == 0)
        await run.restart()
        await run.api.answered("kept", GROUP)
        await told(run, NoticeState.SENT)
        assert len(run.api.bubbles(GROUP)) == 1


async def test_of_two_processes_one_says_it(tmp_path: Path, sqlite_url: str) -> None:
    async with rig(tmp_path, sqlite_url, files=FILES) as run:
        made = await begun(run)
        others = [asyncio.create_task(Watch(run.bot._desk).run()) for _ in range(2)]
        chats = range(500, 512)
        for chat in chats:
            await run.bot._desk.flows.start("tidy", {}, Starter("schedule", "s", chat=str(chat)), key=str(chat))
            await run.runs.notify(made.id, str(chat), f"telegram:{chat}", "told")
        await told(run, *[NoticeState.SENT] * len(chats))
        await run.eventually(lambda: run.runs.untold(123456), lambda found: not found)
        for other in others:
            other.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        assert all(len(run.api.bubbles(chat)) == 2 for chat in chats)


async def test_another_bots_notices_are_left_to_it(tmp_path: Path, sqlite_url: str) -> None:
    async with rig(tmp_path, sqlite_url, files=FILES) as run:
        theirs = await run.bot._desk.flows.start("tidy", {}, Starter("telegram", "42", chat="42", bot=999), key="theirs")
        await run.runs.notify(theirs.id, "notify", f"telegram:{PERSON}", "theirs")
        run.clock.advance(seconds=1)
        made = await begun(run)
        await run.runs.notify(made.id, "notify", f"telegram:{PERSON}", "ours")
        await run.api.answered("ours")
        assert [bubble.text for bubble in run.api.bubbles()] in (["🕓 tidy · queued", "ours"], ["ours", "🕓 tidy · queued"])
        assert (
            await states(run) == [NoticeState.PENDING, NoticeState.SENT]
            or await told(run, NoticeState.PENDING, NoticeState.SENT) is None
        )
