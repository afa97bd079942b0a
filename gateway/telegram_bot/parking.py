"""Parked questions: answered by themselves when their window opens or a limit is raised, also after a restart.

They come the oldest first, each is let through the gate (or refused by it) before the next one starts, and one that
waited too long is ended with a word.
"""

from __future__ import annotations

import asyncio
import contextlib

import structlog
from telegram import Update

from gateway.errors import LedgerUnavailable
from gateway.notice import text
from gateway.store.telegram import Letter, State
from gateway.telegram_bot.delivery import Place
from gateway.telegram_bot.desk import Desk
from gateway.telegram_bot.lanes import Item
from gateway.telegram_bot.waiting import retouch

log = structlog.get_logger()

TICK_S = 0.4
DECISION_S = 0.5
"""How long the next question waits for the gate's word on the one before."""
PRUNE_TICKS = 2000


class Parking:
    """The loop that wakes parked questions."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._limits: tuple[int, ...] | None = None
        """What was in force at the last tick; None before the first: limits may have changed while the bot was down."""
        self.parked = 0
        """How many questions wait, as of the last tick."""

    async def run(self) -> None:
        """Ticks until cancelled. A database that is gone for a while is waited for."""
        ticks = 0
        while True:
            try:
                await self.tick()
                if ticks % PRUNE_TICKS == 0:
                    now_ms = self._desk.now_ms()
                    await self._desk.inbox.prune(now_ms, now_ms - self._patience_ms)
            except LedgerUnavailable as error:
                log.warning("telegram_parking_waits", reason=error.reason)
            except Exception:
                # One question that cannot be woken must not keep the others asleep.
                log.exception("telegram_parking_failed")
            ticks += 1
            await asyncio.sleep(TICK_S)

    async def tick(self) -> None:
        """Looks once for what is due."""
        desk = self._desk
        self.parked = await desk.inbox.parked()
        if not self.parked:
            self._limits = desk.store.limits
            return
        limits = desk.store.limits
        if limits != self._limits:
            woken = await desk.inbox.wake(desk.now_ms())
            log.info("telegram_parked_woken", count=woken)
        self._limits = limits
        for letter in await desk.inbox.overdue(desk.now_ms() - self._patience_ms):
            await self._expire(letter)
        for letter in await desk.inbox.due(desk.now_ms()):
            await self._start(letter)

    @property
    def _patience_ms(self) -> int:
        return self._desk.settings.telegram.parked_for_h * 3_600_000

    async def _start(self, letter: Letter) -> None:
        desk = self._desk
        if not await desk.inbox.take(letter.update_id, [State.PARKED]):
            return
        decided = desk.decisions[letter.update_id] = asyncio.Event()
        desk.lanes.put(letter.lane, Item(letter.update_id))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DECISION_S):
                await decided.wait()

    async def _expire(self, letter: Letter) -> None:
        desk = self._desk
        await desk.inbox.finish(letter.update_id, "expired")
        update = Update.de_json(dict(letter.raw), None)
        message = update.effective_message
        if message is not None:
            language = desk.reader(update).language
            await desk.delivery.say(Place(letter.lane, message.message_id), text(language, "parked_expired"))
            await retouch(desk, letter, text(language, "question_gone"))
