"""Pages that keep themselves up to date: made again each second as a rule, what has changed of them is sent as an event."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping

import orjson
from aiohttp import web

from gateway.errors import GatewayError
from gateway.web.dashboard.render import Shelf
from gateway.web.dashboard.visit import Answer, Missing, View, Visit

LOOK_EVERY_S = 1.0
REST = 5
"""A page that takes long to make is made more seldom: it rests this many times as long as it took."""
HEARTBEAT_S = 15.0
"""A silent stream gets a comment this often, so that proxies keep it and a client that left is noticed."""
OVER = b"event: over\ndata: {}\n\n"
"""Tells a page to load itself again: it is then led to the login, or told that what it shows is gone."""
STREAM = {"Content-Type": "text/event-stream", "X-Accel-Buffering": "no"}


async def live(
    visit: Visit,
    page: Callable[[Visit], Awaitable[Answer]],
    shelf: Shelf,
    stopping: asyncio.Event,
    headers: Mapping[str, str],
) -> web.StreamResponse:
    """Sends the page's parts as they change until the reader leaves; the end of the session or of what is shown is told."""
    response = web.StreamResponse(headers={**headers, **STREAM})
    # A reader may leave at any moment, also before the stream begins.
    with contextlib.suppress(ConnectionResetError):
        await response.prepare(visit.request)
        await _follow(visit, page, shelf, stopping, response)
    return response


async def _follow(
    visit: Visit,
    page: Callable[[Visit], Awaitable[Answer]],
    shelf: Shelf,
    stopping: asyncio.Event,
    response: web.StreamResponse,
) -> None:
    loop = asyncio.get_running_loop()
    shown: dict[str, str] = {}
    beat_at = 0.0
    while not stopping.is_set():
        began = loop.time()
        try:
            if await visit.services.sessions.find(visit.secret) is None:
                await response.write(OVER)
                break
            answer = await page(visit)
        except Missing:
            await response.write(OVER)
            break
        except GatewayError:
            # What was begun as a stream can only wait for the database; the page itself says what is wrong.
            await _pause(stopping, LOOK_EVERY_S)
            continue
        assert isinstance(answer, View)
        parts = shelf.parts(visit, answer)
        rest_s = max(LOOK_EVERY_S, REST * (loop.time() - began))
        changed = {name: html for name, html in parts.items() if shown.get(name) != html}
        if changed:
            await response.write(b"data: " + orjson.dumps(changed) + b"\n\n")
            shown |= changed
            beat_at = loop.time() + HEARTBEAT_S
        elif loop.time() >= beat_at:
            await response.write(b": alive\n\n")
            beat_at = loop.time() + HEARTBEAT_S
        await _pause(stopping, rest_s)
    await response.write_eof()


async def _pause(stopping: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await stopping.wait()
    except TimeoutError:
        return
