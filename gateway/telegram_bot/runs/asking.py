"""Approvals in chats: where they are asked, the message with its two buttons, and who decided what."""

from __future__ import annotations

import structlog
from telegram.error import TelegramError

from gateway.errors import UnknownRun
from gateway.runs import Approval, Decision, Run, Starter
from gateway.store.telegram import Lane
from gateway.store.telegram_runs import Post, PostState
from gateway.telegram_bot.delivery import Gone, Place, Uneditable
from gateway.telegram_bot.desk import Desk
from gateway.telegram_bot.limiter import Weight
from gateway.telegram_bot.markup import Part
from gateway.telegram_bot.runs.sending import Later, attempt, lane_of
from gateway.telegram_bot.runs.views import approval_keyboard, approval_part
from gateway.workflow.rules import among

log = structlog.get_logger()

NOWHERE = Lane(0)
"""Stands for an approval that nobody can be asked for here: it is answered on another surface."""


class Asking:
    """Brings approvals to those who may decide."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def place(self, approval_id: str) -> None:
        """Decides where an approval is asked, once."""
        desk = self._desk
        approval = await desk.runs.approval(approval_id)
        run = await desk.runs.get(approval.run)
        if run.starter.bot not in (None, desk.bot_id):
            return
        lanes = await self._lanes(approval, run)
        await desk.posts.want(f"ask:{approval_id}", lanes or [NOWHERE], PostState.PENDING if lanes else PostState.FAILED)

    async def _lanes(self, approval: Approval, run: Run) -> list[Lane]:
        """The run's own chat; where nobody in it may decide, or there is none, also those who may, in private."""
        own, admins = lane_of(run), await self._desk.admins()
        lanes = [] if own is None else [own]
        reader = run.starter
        if own is not None and own.chat_id > 0:
            # Whoever started it, a schedule too: in a private chat it is that person who reads and taps.
            reader = Starter("telegram", str(own.chat_id), own.chat_id in admins)
        if own is None or not among(approval.who, reader, run.starter):
            people = [int(one) for one in approval.who if one.isdecimal()] + (admins if "admins" in approval.who else [])
            lanes += [Lane(person) for person in dict.fromkeys(people) if Lane(person) not in lanes]
        return lanes

    async def bring(self, post: Post) -> None:
        """Asks, or says what was decided. Raises Later."""
        desk = self._desk
        try:
            approval = await desk.runs.approval(post.subject.partition(":")[2])
            run = await desk.runs.get(approval.run)
        except UnknownRun:
            return
        reader = await desk.reader_of(run, post.lane)
        part = approval_part(approval, run, reader, desk.clock.now(), desk.called(approval.by))
        if post.state is PostState.SENT and post.message_id is not None:
            await self._sign(post, post.message_id, approval, part)
        elif approval.decision is not Decision.OPEN:
            await desk.posts.end(post, PostState.FAILED)
        elif await desk.posts.claim(post, desk.now_ms()):
            keyboard = approval_keyboard(approval, reader)
            sending = desk.delivery.send(Place(post.lane), part, Weight.NORMAL, keyboard, tries=1)
            state, message_id, _ = await attempt(sending)
            await desk.posts.end(post, state, message_id)
            if state is PostState.PENDING:
                raise Later

    async def _sign(self, post: Post, message_id: int, approval: Approval, part: Part) -> None:
        """Writes under the question what was decided, where it still stands."""
        try:
            await self._desk.delivery.edit(Place(post.lane), message_id, part)
        except (Gone, Uneditable):
            log.info("telegram_question_gone", chat=post.lane.chat_id)
        except TelegramError as error:
            log.warning("telegram_decision_not_shown", chat=post.lane.chat_id, reason=type(error).__name__)
            raise Later from error
        await self._desk.posts.end(post, PostState.SENT, message_id, str(approval.decision))
