"""What runs and the program itself want said in chats: texts, pictures and files. What may have arrived is not repeated."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import PurePath

import structlog

from gateway.effects import EffectError
from gateway.notice import text
from gateway.runs import Attachment, Notice, NoticeState, Run
from gateway.store.telegram_runs import PostState
from gateway.telegram_bot.delivery import TRIES_MAX, Place
from gateway.telegram_bot.desk import Desk
from gateway.telegram_bot.limiter import Weight
from gateway.telegram_bot.markup import Part, parts, plain_parts, units
from gateway.telegram_bot.runs.sending import Later, attempt, lane_named
from gateway.telegram_bot.runs.words import one_line

log = structlog.get_logger()

FILE_BYTES_MAX = 50_000_000
"""The Bot API takes no larger files."""
CAPTION_UNITS = 1024
"""A longer text goes before its file as messages of its own."""
FILE_NAME_MAX = 80

Send = Callable[..., Awaitable[int]]

ENDS = {
    PostState.SENT: NoticeState.SENT,
    PostState.UNCERTAIN: NoticeState.UNCERTAIN,
    PostState.FAILED: NoticeState.FAILED,
    PostState.PENDING: NoticeState.PENDING,
}


class Notices:
    """Sends what stands in the outbox for Telegram."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def send(self, notice: Notice) -> None:
        """Sends one notice, if nobody else does. Raises Later."""
        desk = self._desk
        sends = await self._sends(notice)
        if not await desk.runs.begin_notice(notice.id):
            return
        if sends is None:
            await desk.runs.end_notice(notice.id, NoticeState.FAILED, "this is no chat of Telegram's")
            return
        state, why = await _one_by_one(sends)
        await desk.runs.end_notice(notice.id, state, why)
        if state is NoticeState.PENDING:
            raise Later

    async def _sends(self, notice: Notice) -> list[Send] | None:
        """The messages of a notice, each to be sent by a call; None where it goes to no chat."""
        lane = lane_named(notice.to)
        if lane is None:
            return None
        if notice.run:
            return await self._of_run(Place(lane), notice, await self._desk.runs.get(notice.run))
        return self._own(Place(lane), notice.text, await self._desk.outbox.attachments(notice.id))

    def _own(self, place: Place, said: str, attachments: list[Attachment]) -> list[Send]:
        """What the program itself tells: its text as it is written, under its first picture where there is room for it."""
        delivery, whole = self._desk.delivery, plain_parts(said)
        under = Part("")
        if attachments and len(whole) == 1 and units(said) <= CAPTION_UNITS:
            under, whole = whole[0], []
        sends: list[Send] = [partial(delivery.send, place, part, Weight.NORMAL) for part in whole]
        for each in attachments:
            way = delivery.photo if each.picture else delivery.document
            sends.append(partial(way, place, each.content, each.name, under))
            under = Part("")
        return sends

    async def _of_run(self, place: Place, notice: Notice, run: Run) -> list[Send]:
        """What a run tells: its text as models write it, and its file."""
        delivery = self._desk.delivery
        said, name, content = notice.text, "", None
        if notice.file is not None:
            name = one_line(PurePath(notice.file).name, FILE_NAME_MAX) or "file"
            content = await self._content(notice, run)
            if content is None:
                said = f"{said}\n\n" + text(run.starter.language, "notice_no_file", file=name)
        whole = parts(said) or plain_parts(said)
        caption = None
        if content is not None and len(whole) <= 1 and all(units(part.text) <= CAPTION_UNITS for part in whole):
            caption, whole = (whole or [Part("")])[0], []
        sends: list[Send] = [partial(delivery.send, place, part, Weight.NORMAL) for part in whole]
        if content is not None:
            sends.append(partial(delivery.document, place, content, name, caption or Part("")))
        return sends

    async def _content(self, notice: Notice, run: Run) -> bytes | None:
        """The bytes of the file; None when it is gone or too large, which is said in its place."""
        assert notice.file is not None
        folder, path = self._desk.folder(run.id), PurePath(notice.file)
        try:
            # An author may write `ctx.folder / "REPORT.md"` for what the folder itself calls REPORT.md.
            inside = path.relative_to(folder.root) if path.is_relative_to(folder.root) else path
            return await folder.read(str(inside), FILE_BYTES_MAX) or None
        except EffectError as error:
            log.warning("run_file_not_sent", run=run.id, reason=str(error))
            return None


async def _one_by_one(sends: list[Send]) -> tuple[NoticeState, str]:
    """What cannot be sent ends it, with the reason. Before anything arrived the whole is tried again later, afterwards the
    rest for a while.
    """
    for arrived, send in enumerate(sends):
        state, _, why = await attempt(send(tries=TRIES_MAX if arrived else 1))
        if state is PostState.SENT:
            continue
        if not arrived:
            return ENDS[state], why
        end = NoticeState.FAILED if state is PostState.PENDING else ENDS[state]
        return end, f"{arrived} of {len(sends)} messages arrived{': ' if why else ''}{why}"
    return NoticeState.SENT, ""
