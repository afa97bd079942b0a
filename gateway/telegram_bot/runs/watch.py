"""What is to be told, brought to its chats: one message per run, questions for approval, notices, alerts.

Everything comes from rows, so the worker may be another process. What is sent is claimed first: of two bots or processes one
sends it, and what may have arrived before a crash is not said again.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from dataclasses import dataclass

import structlog
from telegram.error import TelegramError

from gateway.errors import LedgerUnavailable
from gateway.runs import Run, RunState, Telling
from gateway.store.telegram_runs import CLAIM_MS, Post, PostState
from gateway.telegram_bot.alerts import Alerts
from gateway.telegram_bot.delivery import Gone, Keyboard, Place, Uneditable
from gateway.telegram_bot.desk import Desk
from gateway.telegram_bot.limiter import Shed, Weight
from gateway.telegram_bot.markup import Part, plain_parts
from gateway.telegram_bot.runs.asking import Asking
from gateway.telegram_bot.runs.card import card
from gateway.telegram_bot.runs.forms import KEPT_MS
from gateway.telegram_bot.runs.notices import Notices
from gateway.telegram_bot.runs.sending import Later, attempt, lane_of
from gateway.telegram_bot.runs.views import run_keyboard

log = structlog.get_logger()

TICK_S = 1.0
SEND_S = 2.0
"""How long a stop waits for what is on its way to a chat."""
PRUNE_TICKS = 3600
AT_ONCE_MAX = 64
"""Messages on their way at the same time."""
REST_S = 3.0
"""How long something that could not be sent is left alone."""
ENDED = "ended"


@dataclass(frozen=True, slots=True)
class _Shown:
    part: Part
    keyboard: Keyboard


class Watch:
    """The loop that looks for what is to be told, and tells it. `desk.poke` makes it look at once."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._asking, self._notices, self._alerts = Asking(desk), Notices(desk), Alerts(desk)
        self._tasks: dict[str, asyncio.Task[None]] = {}
        """What is on its way, by its subject: one message of a run, and one notice of a chat, at a time."""
        self._resting: set[str] = set()
        self._shown: dict[str, _Shown] = {}
        """What each run's message shows, as far as this process wrote it."""

    async def run(self) -> None:
        """Ticks until cancelled; then what is on its way is brought to its end, for a moment."""
        ticks = 0
        try:
            while True:
                self._desk.poke.clear()
                await self._try(ticks)
                ticks += 1
                # Not `wait_for`: before Python 3.12 it swallows a cancellation that meets the poke, and the stop never ends.
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(TICK_S):
                        await self._desk.poke.wait()
        finally:
            tasks = list(self._tasks.values())
            if tasks:
                await asyncio.wait(tasks, timeout=SEND_S)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _try(self, ticks: int) -> None:
        try:
            await self.tick()
            if ticks % PRUNE_TICKS == 0:
                await self._desk.forms.prune(self._desk.now_ms() - KEPT_MS)
                await self._desk.posts.prune()
        except LedgerUnavailable as error:
            log.warning("telegram_runs_wait", reason=error.reason)
        except Exception:
            log.exception("telegram_runs_failed")

    async def tick(self) -> None:
        """Looks once for what is to be told."""
        desk = self._desk
        for telling in await desk.runs.untold(desk.bot_id):
            self._begin(f"run:{telling.run.id}", self._tell(telling))
        for approval_id in await desk.posts.unasked():
            await self._asking.place(approval_id)
        for post in await desk.posts.stale():
            self._begin(f"{post.subject} {post.lane.chat_id}", self._asking.bring(post))
        for alert in await desk.alerts.untold():
            await self._alerts.place(alert)
        for post in await desk.posts.behind_alerts():
            self._begin(f"{post.subject} {post.lane.chat_id}", self._alerts.bring(post))
        for notice in await desk.runs.notices("telegram", bot=desk.bot_id):
            self._begin(f"to {notice.to}", self._notices.send(notice))

    def _begin(self, subject: str, work: Coroutine[object, object, None]) -> None:
        """Does something for a subject, unless it is being done or rests."""
        if subject in self._tasks or subject in self._resting or len(self._tasks) >= AT_ONCE_MAX:
            work.close()
            return
        self._tasks[subject] = asyncio.create_task(self._do(subject, work))

    async def _do(self, subject: str, work: Coroutine[object, object, None]) -> None:
        try:
            await work
        except Shed:
            # The chat has no room for what goes by; the next look finds what is newest then.
            log.debug("telegram_run_shed", subject=subject)
        except Later:
            self._rest(subject)
        except LedgerUnavailable as error:
            log.warning("telegram_run_not_told", subject=subject, reason=error.reason)
            self._rest(subject)
        except Exception:
            # What cannot be told must not keep the rest from being told.
            log.exception("telegram_run_not_told", subject=subject)
            self._rest(subject)
        finally:
            del self._tasks[subject]

    def _rest(self, subject: str) -> None:
        self._resting.add(subject)
        asyncio.get_running_loop().call_later(REST_S, self._resting.discard, subject)

    async def _tell(self, telling: Telling) -> None:
        """Brings a run's message up to date."""
        desk, run_id = self._desk, telling.run.id
        lane = lane_of(telling.run)
        if lane is None:
            await desk.runs.told(run_id, telling.run.change, telling.message_id)
            return
        found = await desk.runs.detail(run_id)
        run, reader = found.run, await desk.reader_of(found.run, lane)
        shown = _Shown(plain_parts(card(run, found.steps, reader, desk.clock.now()))[0], run_keyboard(run, reader))
        subject = f"run:{run_id}"
        await desk.posts.want(subject, [lane])
        post = next((post for post in await desk.posts.of(subject) if post.lane.chat_id == lane.chat_id), None)
        if post is None:
            # Another bot on this database tells it.
            raise Later
        message_id = await self._bring(post, run, shown)
        await desk.runs.told(run_id, run.change, message_id)
        if run.state.ended:
            self._shown.pop(run_id, None)

    async def _bring(self, post: Post, run: Run, shown: _Shown) -> int | None:
        """Sends or edits a run's message, and returns its id. Raises Later, and Shed for what the next look may show."""
        desk = self._desk
        if post.state is PostState.SENDING:
            if post.claimed_ms < desk.now_ms() - CLAIM_MS:
                await desk.posts.end(post, PostState.UNCERTAIN)
            raise Later
        if post.state is PostState.SENT and post.message_id is not None:
            return await self._edit(post, post.message_id, run, shown)
        # What may have arrived is not repeated; but how the run ended is worth another message, once.
        again = post.state is PostState.UNCERTAIN and run.state.ended and not post.shown
        return await self._send(post, run, shown) if again or post.state is PostState.PENDING else None

    async def _send(self, post: Post, run: Run, shown: _Shown) -> int | None:
        desk = self._desk
        if not await desk.posts.claim(post, desk.now_ms()):
            raise Later
        sending = desk.delivery.send(Place(post.lane), shown.part, Weight.NORMAL, shown.keyboard, tries=1)
        state, message_id, _ = await attempt(sending)
        unsent = state is PostState.PENDING
        await desk.posts.end(post, state, message_id, ENDED if run.state.ended and not unsent else "")
        if unsent:
            raise Later
        if state is PostState.SENT:
            self._shown[run.id] = shown
        return message_id

    async def _edit(self, post: Post, message_id: int, run: Run, shown: _Shown) -> int | None:
        if self._shown.get(run.id) == shown:
            return message_id
        # What goes by in a moment is shown as the pace allows; what stays is worth waiting for.
        weight = Weight.PREVIEW if run.state in (RunState.QUEUED, RunState.RUNNING) else Weight.NORMAL
        try:
            await self._desk.delivery.edit(Place(post.lane), message_id, shown.part, weight, shown.keyboard)
        except Uneditable:
            # Whoever deleted it does not want to watch; how it ended is told once more.
            if run.state.ended and post.shown != ENDED:
                return await self._send(post, run, shown)
        except Gone as gone:
            log.info("telegram_unreachable", chat=post.lane.chat_id, reason=str(gone))
        except Shed:
            raise
        except TelegramError as error:
            log.warning("telegram_run_not_shown", chat=post.lane.chat_id, reason=type(error).__name__)
            raise Later from error
        # It shows this for good only once the run ended; a retry takes it up again.
        kept = ENDED if run.state.ended else ""
        if post.shown != kept:
            await self._desk.posts.end(post, PostState.SENT, message_id, kept)
        self._shown[run.id] = shown
        return message_id
