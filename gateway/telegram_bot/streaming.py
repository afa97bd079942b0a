"""An answer that grows in its bubble: paced previews while it comes, then the whole of it, once.

A bubble that shows the final text already is not touched again; the ids of the bubbles are kept as they are made, so
that a new attempt after a crash edits them.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence

import structlog
from telegram.error import TelegramError

from gateway.telegram_bot.delivery import Delivery, Gone, Place, Uncertain, Uneditable
from gateway.telegram_bot.limiter import GROUP_S, PRIVATE_S, Shed, Weight
from gateway.telegram_bot.markup import Part, parts, plain_parts

log = structlog.get_logger()

FIRST_S = 0.3
"""How long the first words gather before the bubble appears."""
TYPING_S = 4.5
"""Telegram shows typing for five seconds."""


class Live:
    """One answer on its way. Make it, `show` the text so far as often as it grows, then `finish` or `close`."""

    def __init__(
        self, delivery: Delivery, place: Place, bubbles: Sequence[int], keep: Callable[[list[int]], Awaitable[None]]
    ) -> None:
        self._delivery, self._place, self._keep = delivery, place, keep
        self._bubbles: list[int] = list(bubbles)
        self._shown: dict[int, Part] = {}
        self._text = ""
        self._grown = asyncio.Event()
        self._ending = asyncio.Event()
        self._pace_s = PRIVATE_S if place.lane.chat_id > 0 else GROUP_S
        self.gone = asyncio.Event()
        """Set when nobody can be reached any more: there is no use in going on."""
        self._task = asyncio.create_task(self._preview())
        self._typing = asyncio.create_task(self._type())

    @property
    def bubbles(self) -> tuple[int, ...]:
        """The messages that show it, in order."""
        return tuple(self._bubbles)

    def show(self, text: str) -> None:
        """The text so far."""
        self._text = text
        self._grown.set()

    async def finish(self, text: str, *, plain: bool = False) -> bool:
        """Shows the whole text, in as many messages as it takes; `plain` has no Markdown. False when it may not have arrived.

        Raises Gone, or TelegramError for what is our fault.
        """
        await self.close()
        whole = plain_parts(text) if plain else parts(text)
        certain = True
        for number, part in enumerate(whole):
            certain &= await self._settle(number, part)
        for message_id in self._bubbles[len(whole) :]:
            await self._delivery.remove(self._place, message_id)
        return certain

    async def close(self) -> None:
        """Ends previews and typing; a preview under way is waited for, since it may make a bubble."""
        self._ending.set()
        self._grown.set()
        self._typing.cancel()
        await asyncio.gather(self._task, self._typing, return_exceptions=True)

    async def _settle(self, number: int, part: Part) -> bool:
        if number < len(self._bubbles):
            message_id = self._bubbles[number]
            if self._shown.get(message_id) == part:
                return True
            try:
                await self._delivery.edit(self._place, message_id, part, Weight.FINAL)
                return True
            except Uneditable:
                log.info("telegram_bubble_gone", chat=self._place.lane.chat_id)
        try:
            sent = await self._delivery.send(self._place, part, Weight.FINAL)
        except Uncertain:
            return False
        self._bubbles[number : number + 1] = [sent]
        await self._keep(self._bubbles)
        return True

    async def _preview(self) -> None:
        await self._grown.wait()
        await self._pause(FIRST_S)
        while not self._ending.is_set():
            self._grown.clear()
            try:
                await self._step(parts(self._text))
            except Shed:
                self._grown.set()
            except Gone:
                self.gone.set()
                return
            except (Uncertain, Uneditable, TelegramError) as error:
                # The final text is sent in any case; until then nothing more is shown.
                log.info("telegram_preview_ended", reason=type(error).__name__)
                return
            await self._pause(self._pace_s)
            if not self._ending.is_set():
                await self._grown.wait()

    async def _step(self, whole: list[Part]) -> None:
        """Brings the first message that lags behind up to date: one request."""
        for number, part in enumerate(whole):
            if number >= len(self._bubbles):
                sent = await self._delivery.send(self._place, part, Weight.PREVIEW)
                self._bubbles.append(sent)
                self._shown[sent] = part
                await self._keep(self._bubbles)
                return
            message_id = self._bubbles[number]
            if self._shown.get(message_id) != part:
                await self._delivery.edit(self._place, message_id, part, Weight.PREVIEW)
                self._shown[message_id] = part
                return

    async def _type(self) -> None:
        while True:
            await self._delivery.typing(self._place)
            await asyncio.sleep(TYPING_S)

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._ending.wait()
