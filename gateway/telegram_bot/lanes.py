"""One lane per conversation: order inside a lane, lanes side by side, with a bound on how many run.

Pieces of one message (the photos of an album, a long paste that the app cut) arrive as several updates: a lane waits a
moment for the next piece and runs them as one.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import structlog

from gateway.store.telegram import Lane

log = structlog.get_logger()

JOIN_STEP_S = 0.4
"""How long a lane waits for the next piece."""
JOIN_MAX_S = 1.5
RUNNING_MAX = 64
DEPTH_MAX = 5000


@dataclass(frozen=True, slots=True)
class Item:
    """One update in a lane. `group` is the album it belongs to; `cut` is true when it looks like the start of a longer text."""

    update_id: int
    sender: int = 0
    group: str | None = None
    cut: bool = False
    text: bool = False

    def goes_on_with(self, following: Item) -> bool:
        """True when `following` is the next piece of the same message."""
        if self.sender != following.sender:
            return False
        return following.text if self.cut else self.group is not None and self.group == following.group

    @property
    def open(self) -> bool:
        """True when more pieces may come."""
        return self.cut or self.group is not None


@dataclass
class _Waiting:
    items: deque[Item] = field(default_factory=deque)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None


class Lanes:
    """`run` is called with a lane and the items that make one message; what it raises is logged and ends only that message."""

    def __init__(self, run: Callable[[Lane, list[Item]], Awaitable[None]], running_max: int = RUNNING_MAX) -> None:
        self._run = run
        self._lanes: dict[Lane, _Waiting] = {}
        self._slots = asyncio.Semaphore(running_max)
        self._room = asyncio.Event()
        self._room.set()
        self.depth = 0
        """Updates that wait in a lane, or run."""

    @property
    def count(self) -> int:
        """Lanes with something in them."""
        return len(self._lanes)

    def put(self, lane: Lane, item: Item) -> None:
        """Appends to a lane."""
        waiting = self._lanes.setdefault(lane, _Waiting())
        waiting.items.append(item)
        waiting.arrived.set()
        self.depth += 1
        if self.depth >= DEPTH_MAX:
            self._room.clear()
        if waiting.task is None:
            waiting.task = asyncio.create_task(self._work(lane, waiting))

    async def room(self) -> None:
        """Returns when fewer than DEPTH_MAX updates wait."""
        await self._room.wait()

    async def settle(self, timeout_s: float) -> bool:
        """Waits for what runs to end; False when something still ran after `timeout_s`."""
        tasks = [waiting.task for waiting in self._lanes.values() if waiting.task is not None]
        if not tasks:
            return True
        _done, running = await asyncio.wait(tasks, timeout=timeout_s)
        return not running

    async def cancel(self) -> None:
        """Stops every lane; what was not finished stays in the inbox for the next start."""
        tasks = [waiting.task for waiting in self._lanes.values() if waiting.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _work(self, lane: Lane, waiting: _Waiting) -> None:
        try:
            while waiting.items:
                pieces = await self._pieces(waiting)
                async with self._slots:
                    try:
                        await self._run(lane, pieces)
                    except Exception:
                        log.exception("telegram_update_failed", update_id=pieces[0].update_id)
                self._left(len(pieces))
        finally:
            del self._lanes[lane]
            self._left(len(waiting.items))

    def _left(self, number: int) -> None:
        self.depth -= number
        if self.depth < DEPTH_MAX:
            self._room.set()

    async def _pieces(self, waiting: _Waiting) -> list[Item]:
        pieces = [waiting.items.popleft()]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(JOIN_MAX_S):
                while pieces[-1].open:
                    if not waiting.items:
                        waiting.arrived.clear()
                        async with asyncio.timeout(JOIN_STEP_S):
                            await waiting.arrived.wait()
                    if not pieces[-1].goes_on_with(waiting.items[0]):
                        break
                    pieces.append(waiting.items.popleft())
        return pieces
