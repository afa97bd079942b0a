"""Bounds in the time that this process really had, for promises such as "within a second".

A machine that is busy with other things stops a process for a moment, or runs it slowly: a bound by the wall clock then
fails although the program did everything at once. Here time goes on only with the turns of the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

BEAT_S = 0.01


@contextlib.asynccontextmanager
async def within(seconds: float) -> AsyncIterator[None]:
    """Raises TimeoutError when the block takes longer; a stall counts as one beat, however long it was."""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(None) as limit:

        async def beat() -> None:
            for _ in range(round(seconds / BEAT_S)):
                await asyncio.sleep(BEAT_S)
            limit.reschedule(loop.time())

        beats = asyncio.create_task(beat())
        try:
            yield
        finally:
            beats.cancel()
