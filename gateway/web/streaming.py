"""A streamed answer as server-sent events, in OpenAI's shape.

A provider's own bytes are forwarded as they came. The usage chunk, which providers are always asked for, goes only to a
client that asked for it, with our `sluicegate` field. A failure after the first chunk is one last event whose
`finish_reason` is "error"; `[DONE]` is then not sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from typing import Any, Protocol

import orjson

from gateway.chat import Chunk, Origin, Slot, Usage
from gateway.clock import Clock, to_ms
from gateway.dispatcher import Begun, Event, Priced, Reply
from gateway.dispatcher.replies import usage_body
from gateway.errors import GatewayError
from gateway.web.exchange import Exchange
from gateway.web.failures import log_crash
from gateway.web.metrics import Metrics
from gateway.web.problems import INTERNAL, PROVIDER, REQUEST_ID, Problem, problem

Events = AsyncGenerator[Event, None]
SETTLE_S = 5.0
"""How long a stop waits for the ends of streams whose answer is out."""
_HEADERS = {"Content-Type": "text/event-stream", "Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
_DONE = b"data: [DONE]\n\n"


class Page(Protocol):
    """One stream's way to its client, in the shape that it asked for: what is ready to be written, and the end."""

    cost_micro_usd: int
    complete: bool
    """True once the last chunk was taken: the one with usage and without choices, after a finish reason."""

    def take(self, chunk: Chunk) -> None:
        """Adds a chunk."""
        ...

    def say_usage(self, usage: Usage) -> None:
        """The usage of a stream whose last chunk did not show itself."""
        ...

    async def flush(self) -> None:
        """Writes what is ready, in one piece."""
        ...

    async def end(self) -> None:
        """Writes the rest and the end."""
        ...

    async def fail(self, failure: Problem) -> None:
        """Writes the rest and the last event of a stream that broke."""
        ...


NewPage = Callable[[Exchange, str, Slot, int], Page]
"""Makes a page: where it goes, the request's id, who answers, and when it began in seconds since 1970."""


class StreamSender:
    """Sends streams. Closing the dispatcher's generator is what closes the upstream when a client leaves."""

    def __init__(self, metrics: Metrics, clock: Clock) -> None:
        self._metrics, self._clock = metrics, clock
        self._settling: set[asyncio.Task[None]] = set()

    async def send(self, exchange: Exchange, events: Events, origin: Origin, new_page: NewPage) -> None:
        """Sends the answer as it comes. Raises as the dispatcher does until there is something to show, then nothing."""
        metrics, end, whole = self._metrics, self._metrics.streams_left, False
        try:
            begun = await anext(events)
            assert isinstance(begun, Begun)
            metrics.streams_open.inc()
            try:
                await exchange.begin({**_HEADERS, REQUEST_ID: origin.request_id, PROVIDER: begun.slot.provider})
                created_s = to_ms(self._clock.now()) // 1000
                page = new_page(exchange, origin.request_id, begun.slot, created_s)
                whole = await self._forward(page, events, origin)
                end = metrics.streams_done if whole else metrics.streams_broken
            except ConnectionResetError:
                # The client has left; closing the generator settles what came until here.
                pass
            finally:
                metrics.streams_open.dec()
                end.inc()
        finally:
            if whole:
                self._settle(events, origin)
            else:
                await events.aclose()

    async def settled(self) -> None:
        """Returns when every stream that was sent is settled: part of a graceful stop. After SETTLE_S upstreams are closed."""
        if self._settling:
            _, late = await asyncio.wait(tuple(self._settling), timeout=SETTLE_S)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    async def caught_up(self, timeout_s: float) -> None:
        """Returns when the streams that were sent until now are settled, or after the time-out."""
        if self._settling:
            await asyncio.wait(tuple(self._settling), timeout=timeout_s)

    def _settle(self, events: Events, origin: Origin) -> None:
        """Lets a stream whose last byte is out come to its end by itself: the client's next request need not wait for it."""
        task = asyncio.ensure_future(_finish(events, origin))
        self._settling.add(task)
        task.add_done_callback(self._settling.discard)

    async def _forward(self, page: Page, events: Events, origin: Origin) -> bool:
        """Writes every event; False when the stream broke."""
        try:
            await _chunks(page, events)
        except GatewayError as error:
            failure = problem(error, self._clock.now(), admin=False)
        except ConnectionResetError:
            raise
        except Exception as error:
            log_crash(origin.request_id, error)
            failure = INTERNAL
        else:
            return True
        await page.fail(failure)
        return False


async def _chunks(page: Page, events: Events) -> None:
    """Sends chunks, the usage and the end: before the settling where the last chunk shows itself."""
    async for event in events:
        if isinstance(event, Chunk):
            page.take(event)
            if page.complete:
                break
            if not event.more:
                await page.flush()
        elif isinstance(event, Priced):
            page.cost_micro_usd = event.cost_micro_usd
        elif isinstance(event, Reply):
            page.cost_micro_usd = event.cost_micro_usd
            page.say_usage(event.usage)
            break
    await page.end()


async def _finish(events: Events, origin: Origin) -> None:
    try:
        async with aclosing(events):
            async for _ in events:
                pass
    except GatewayError:
        # The client has the whole answer; what the ledger made of the rest is in the dispatcher's log.
        pass
    except Exception as error:
        log_crash(origin.request_id, error)


class ChatPage:
    """The page of a chat completion. `include_usage`: the client asked for the usage chunk."""

    def __init__(self, exchange: Exchange, request_id: str, slot: Slot, created_s: int, *, include_usage: bool) -> None:
        self.cost_micro_usd = 0
        self.complete = False
        self._exchange = exchange
        self._request_id, self._slot = request_id, slot
        self._include_usage, self._created_s = include_usage, created_s
        self._ready: list[bytes] = []
        self._finished = False
        self._held: Mapping[str, Any] | None = None
        """A chunk that ended a choice and has usage, kept until it is known whether it is the last."""

    def take(self, chunk: Chunk) -> None:
        """Adds a chunk. One that has nothing but usage is added for those who asked."""
        if self._held is not None:
            self._ready.append(_frame(self._held))
            self._held = None
        if chunk.finish_reason is not None:
            self._finished = True
        if chunk.usage is None:
            self._ready.append(_data(chunk))
            return
        body = chunk.body if chunk.body is not None else orjson.loads(chunk.raw or b"{}")
        if not body.get("choices"):
            self.complete = self._finished
            if self.complete and self._include_usage:
                self._ready.append(_frame({**body, "sluicegate": self._ours()}))
        elif self._finished and self._include_usage:
            self._held = body
        else:
            self._ready.append(_data(chunk))

    def say_usage(self, usage: Usage) -> None:
        """The usage of a stream whose last chunk did not show itself: in the held chunk, or in one of its own."""
        if not self._include_usage:
            return
        body = self._held if self._held is not None else self._chunk([])
        self._held = None
        stated = body.get("usage") or usage_body(usage)
        self._ready.append(_frame({**body, "usage": stated, "sluicegate": self._ours()}))

    async def flush(self) -> None:
        """Writes what is ready, in one piece: a write for each event would cost more than all else. Waits for a slow reader."""
        if self._ready:
            data = b"".join(self._ready)
            self._ready.clear()
            await self._exchange.write(data)

    async def end(self) -> None:
        """Writes the rest and `[DONE]`."""
        await self._exchange.end(b"".join((*self._ready, _DONE)))

    async def fail(self, failure: Problem) -> None:
        """Writes the rest and the last event of a stream that broke, with the `error` that SDKs look for."""
        choice = {"index": 0, "delta": {}, "finish_reason": "error"}
        last = _frame({**self._chunk([choice]), "error": failure.error(self._request_id)})
        await self._exchange.end(b"".join((*self._ready, last)))

    def _chunk(self, choices: list[dict[str, object]]) -> dict[str, object]:
        return {
            "id": f"chatcmpl-{self._request_id}",
            "object": "chat.completion.chunk",
            "created": self._created_s,
            "model": self._slot.model,
            "choices": choices,
        }

    def _ours(self) -> dict[str, object]:
        return {"provider": self._slot.provider, "cost_micro_usd": self.cost_micro_usd, "request_id": self._request_id}


def _data(chunk: Chunk) -> bytes:
    """A chunk's events; a payload that came on several lines is put on one, since a line break would end it."""
    raw = chunk.raw
    if raw is None:
        return b"" if chunk.body is None else _frame(chunk.body)
    if chunk.deltas == 1 and (b"\n" in raw or b"\r" in raw):
        raw = orjson.dumps(orjson.loads(raw))
    return b"data: " + raw + b"\n\n"


def _frame(body: object) -> bytes:
    return b"data: " + orjson.dumps(body) + b"\n\n"
