"""The pace of what is sent to Telegram: one allowance per chat for sends, edits and typing together.

Rules:
- Finals go before other sends; previews and typing never wait: they are shed when the chat has no room for them.
- Two edits in a chat, or an edit after anything else, are at least the chat's interval apart.
- A 429 silences its own chat for as long as Telegram says, and no other one.
- Time passes by the loop's timers only; no clock is read.
"""

from __future__ import annotations

import asyncio
import heapq
import warnings
from collections.abc import Callable, Coroutine
from datetime import timedelta
from enum import IntEnum
from itertools import count
from typing import Any

from telegram.error import RetryAfter, TelegramError
from telegram.ext import BaseRateLimiter
from telegram.warnings import PTBDeprecationWarning

PRIVATE_S = 1.1
GROUP_S = 3.1
BURST = 3
"""Requests that a quiet chat may make at once; each comes back after the chat's interval."""
OVERALL_PER_S = 25
FLOODS_MAX = 20
"""Penalties in a row after which a request is given up."""

COUNTED = ("sendMessage", "sendDocument", "editMessageText", "sendChatAction")
"""What a chat's allowance is for; reactions, deletions and answers to taps have limits of their own."""

Answer = Any


class Weight(IntEnum):
    """How much a request matters; smaller goes first. None is 0, which the library takes for nothing."""

    FINAL = 1
    NORMAL = 2
    PREVIEW = 3
    TYPING = 4


class Shed(TelegramError):
    """A preview or a typing sign for which the chat had no room: not sent, and nobody waits for it."""

    def __init__(self) -> None:
        super().__init__("shed: the chat has no room for it now")


class Unsent(asyncio.CancelledError):
    """Cancelled while its chat had no room for it: it certainly was not sent."""


class _Chat:
    """The allowance of one chat."""

    def __init__(self, interval_s: float) -> None:
        self.interval_s = interval_s
        self.tokens = BURST
        self.unspaced = 0
        """Requests made less than an interval ago: an edit waits until there are none."""
        self.penalties = 0
        self.waiting: list[tuple[int, int, bool, asyncio.Future[None]]] = []

    @property
    def idle(self) -> bool:
        return self.tokens == BURST and not self.penalties and not self.waiting and not self.unspaced

    def has_room(self, weight: Weight, edit: bool) -> bool:
        if self.penalties or (edit and self.unspaced):
            return False
        if weight is Weight.TYPING:
            return self.tokens == BURST and not self.waiting
        return self.tokens > (1 if weight is Weight.PREVIEW else 0) and (weight < Weight.PREVIEW or not self.waiting)

    def spend(self) -> None:
        loop = asyncio.get_running_loop()
        self.tokens -= 1
        self.unspaced += 1
        loop.call_later(self.interval_s * (BURST - self.tokens), self._refill)
        loop.call_later(self.interval_s, self._space)

    def _refill(self) -> None:
        self.tokens += 1
        self.release()

    def _space(self) -> None:
        self.unspaced -= 1
        self.release()

    def silence(self, seconds: float) -> None:
        self.penalties += 1
        asyncio.get_running_loop().call_later(seconds, self._forgive)

    def _forgive(self) -> None:
        self.penalties -= 1
        self.release()

    def release(self) -> None:
        """Lets those go that have room now, the weightiest first."""
        kept = []
        while self.waiting:
            weight, number, edit, future = heapq.heappop(self.waiting)
            if future.done():
                continue
            if self.has_room(Weight(weight), edit):
                self.spend()
                future.set_result(None)
            else:
                kept.append((weight, number, edit, future))
        for entry in kept:
            heapq.heappush(self.waiting, entry)


class Limiter(BaseRateLimiter[Weight]):
    """One for a bot. Requests that count in no chat's allowance pass with the overall pace only."""

    def __init__(self, private_s: float = PRIVATE_S, group_s: float = GROUP_S) -> None:
        # The library warns at each penalty that the wait will become a timedelta; `retry_after_s` reads both.
        warnings.filterwarnings("ignore", ".*`retry_after` will be of type", PTBDeprecationWarning)
        self._private_s, self._group_s = private_s, group_s
        self._chats: dict[str, _Chat] = {}
        self._overall = asyncio.Semaphore(OVERALL_PER_S)
        self._numbers = count()

    async def initialize(self) -> None:
        """Nothing is needed."""

    async def shutdown(self) -> None:
        """Nothing is kept."""

    async def process_request(
        self,
        callback: Callable[..., Coroutine[Any, Any, Answer]],
        args: Any,
        kwargs: dict[str, Any],
        endpoint: str,
        data: dict[str, Any],
        rate_limit_args: Weight | None,
    ) -> Answer:
        """Makes the request when its chat has room for it. Raises Shed, or RetryAfter after many penalties in a row."""
        weight = Weight.NORMAL if rate_limit_args is None else rate_limit_args
        chat = self._chat(data.get("chat_id")) if endpoint in COUNTED else None
        for remaining in reversed(range(FLOODS_MAX)):
            if chat is not None:
                await self._enter(chat, weight, endpoint == "editMessageText")
            await self._enter_overall(weight)
            try:
                return await callback(*args, **kwargs)
            except RetryAfter as error:
                if chat is None or not remaining:
                    raise
                chat.silence(retry_after_s(error) + 0.1)
                if weight >= Weight.PREVIEW:
                    raise Shed from error
        raise AssertionError("the last penalty is raised")

    def _chat(self, chat_id: object) -> _Chat | None:
        if chat_id is None:
            return None
        key = str(chat_id)
        if key not in self._chats:
            for name in [name for name, chat in self._chats.items() if chat.idle][:100]:
                del self._chats[name]
            private = not key.startswith(("-", "@"))
            self._chats[key] = _Chat(self._private_s if private else self._group_s)
        return self._chats[key]

    async def _enter(self, chat: _Chat, weight: Weight, edit: bool) -> None:
        if chat.has_room(weight, edit) and not chat.waiting:
            chat.spend()
            return
        if weight >= Weight.PREVIEW:
            raise Shed
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(chat.waiting, (weight, next(self._numbers), edit, future))
        chat.release()
        try:
            await future
        except asyncio.CancelledError:
            raise Unsent from None

    async def _enter_overall(self, weight: Weight) -> None:
        if weight >= Weight.PREVIEW and self._overall.locked():
            raise Shed
        await self._overall.acquire()
        asyncio.get_running_loop().call_later(1.0, self._overall.release)


def retry_after_s(error: RetryAfter) -> float:
    """The wait that Telegram asks for, in seconds."""
    wait = error.retry_after
    return wait.total_seconds() if isinstance(wait, timedelta) else float(wait)
