"""A streamed answer as server-sent events, in OpenAI's shape.

A provider's own bytes are forwarded as they came. The usage chunk, which providers are always asked for, goes only to a
client that asked for it, with our `sluicegate` field. A failure after the first chunk is one last event whose
`finish_reason` is "error"; `[DONE]` is then not sent.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

import orjson
from aiohttp import web
from prometheus_client import Counter

from gateway.chat import Chunk, Origin, Slot, Usage
from gateway.clock import Clock, to_ms
from gateway.dispatcher import Begun, Priced, Reply
from gateway.dispatcher.replies import usage_body
from gateway.errors import GatewayError
from gateway.web.crash import log_crash
from gateway.web.metrics import Metrics
from gateway.web.problems import INTERNAL, PROVIDER, REQUEST_ID, Problem, problem

Events = AsyncGenerator[Begun | Chunk | Priced | Reply, None]
_DONE = b"data: [DONE]\n\n"


@dataclass(frozen=True, slots=True)
class StreamSender:
    """Sends streams. Closing the dispatcher's generator is what closes the upstream when a client leaves."""

    metrics: Metrics
    clock: Clock

    async def send(self, request: web.Request, events: Events, origin: Origin, include_usage: bool) -> web.StreamResponse:
        """Sends the answer as it comes. Raises as the dispatcher does until there is something to show, then nothing."""
        async with aclosing(events) as stream:
            begun = await anext(stream)
            assert isinstance(begun, Begun)
            response = web.StreamResponse(
                headers={
                    "Content-Type": "text/event-stream",
                    "Cache-Control": "no-cache",
                    "X-Accel-Buffering": "no",
                    REQUEST_ID: origin.request_id,
                    PROVIDER: begun.slot.provider,
                }
            )
            self.metrics.streams_open.inc()
            end = self.metrics.streams_left
            try:
                await response.prepare(request)
                end = await self._forward(_Outlet(response), stream, origin, begun, include_usage)
            except ConnectionResetError:
                # The client has left; closing the generator settles what came until here.
                pass
            finally:
                self.metrics.streams_open.dec()
                end.inc()
        return response

    async def _forward(self, outlet: _Outlet, stream: Events, origin: Origin, begun: Begun, include_usage: bool) -> Counter:
        """Writes every event; returns the counter of how it ended."""
        try:
            await self._chunks(outlet, stream, origin, begun, include_usage)
        except GatewayError as error:
            failure = problem(error, self.clock.now(), admin=False)
        except ConnectionResetError:
            raise
        except Exception as error:
            log_crash(origin.request_id, error)
            failure = INTERNAL
        else:
            return self.metrics.streams_done
        await outlet.end(_frame(self._failure(failure, origin, begun)))
        return self.metrics.streams_broken

    async def _chunks(self, outlet: _Outlet, stream: Events, origin: Origin, begun: Begun, include_usage: bool) -> None:
        """Writes the chunks, the usage for those who asked, and `[DONE]`: before the settling where the last chunk is known."""
        tail = _Tail(origin.request_id, begun.slot)
        async for event in stream:
            if isinstance(event, Chunk):
                data = tail.take(event, include_usage)
                if tail.ended:
                    await outlet.end(data + _DONE)
                else:
                    await outlet.write(data, more=event.more)
            elif isinstance(event, Priced):
                tail.cost_micro_usd = event.cost_micro_usd
            elif isinstance(event, Reply) and not tail.ended:
                tail.cost_micro_usd = event.cost_micro_usd
                data = tail.usage(event.usage, to_ms(self.clock.now()) // 1000) if include_usage else b""
                await outlet.end(data + _DONE)

    def _failure(self, failure: Problem, origin: Origin, begun: Begun) -> dict[str, object]:
        """The last event of a stream that broke: a chunk that ends the answer, with the `error` that SDKs look for."""
        return {
            "id": f"chatcmpl-{origin.request_id}",
            "object": "chat.completion.chunk",
            "created": to_ms(self.clock.now()) // 1000,
            "model": begun.slot.model,
            "choices": [{"index": 0, "delta": {}, "finish_reason": "error"}],
            "error": failure.error(origin.request_id),
        }


class _Outlet:
    """Writes to the client. Events that came together leave together: a write each would cost more than all the rest."""

    __slots__ = ("_held", "_response")

    def __init__(self, response: web.StreamResponse) -> None:
        self._response = response
        self._held: list[bytes] = []

    async def write(self, data: bytes, *, more: bool) -> None:
        """Sends an event's bytes, or keeps them for the next event's write when that one is here already."""
        if data:
            self._held.append(data)
        if self._held and not more:
            await self._response.write(b"".join(self._held))
            self._held.clear()

    async def end(self, data: bytes) -> None:
        """Sends the last bytes and ends the answer."""
        await self._response.write_eof(b"".join((*self._held, data)))


class _Tail:
    """The end of one stream: which chunk carries the usage, and when it is certain that nothing follows."""

    __slots__ = ("_finished", "_head", "_held", "_request_id", "_slot", "cost_micro_usd", "ended")

    def __init__(self, request_id: str, slot: Slot) -> None:
        self.ended = False
        """True once the last chunk was taken: the one with usage and without choices, after a finish reason."""
        self.cost_micro_usd = 0
        self._request_id, self._slot = request_id, slot
        self._finished = False
        self._held: Mapping[str, Any] | None = None
        """A chunk that ended a choice and has usage, kept until it is known whether it is the last."""
        self._head: Mapping[str, Any] = {}

    def take(self, chunk: Chunk, include_usage: bool) -> bytes:
        """What to send now for this chunk."""
        if self.ended:
            return b""
        before, self._held = self._held, None
        data = b"" if before is None else _frame(before)
        self._finished = self._finished or chunk.finish_reason is not None
        if chunk.usage is None:
            return data + _data(chunk)
        body = self._head = _body(chunk)
        if not body.get("choices"):
            self.ended = self._finished
            return data + _frame({**body, "sluicegate": self._ours()}) if self.ended and include_usage else data
        if self._finished and include_usage:
            self._held = body
            return data
        return data + _data(chunk)

    def usage(self, usage: Usage, created: int) -> bytes:
        """The usage of a stream whose last chunk did not show itself: in the held chunk, or in one of its own."""
        if self._held is not None:
            body = self._held
            stated = body.get("usage")
            return _frame({**body, "usage": stated if stated is not None else usage_body(usage), "sluicegate": self._ours()})
        return _frame(
            {
                "id": self._head.get("id") or f"chatcmpl-{self._request_id}",
                "object": "chat.completion.chunk",
                "created": self._head.get("created") or created,
                "model": self._head.get("model") or self._slot.model,
                "choices": [],
                "usage": usage_body(usage),
                "sluicegate": self._ours(),
            }
        )

    def _ours(self) -> dict[str, object]:
        return {"provider": self._slot.provider, "cost_micro_usd": self.cost_micro_usd, "request_id": self._request_id}


def _data(chunk: Chunk) -> bytes:
    """One event; a payload that came on several lines is put on one, since a line break would end it."""
    raw = chunk.raw
    if raw is None:
        return b"" if chunk.body is None else _frame(chunk.body)
    if b"\n" in raw or b"\r" in raw:
        raw = orjson.dumps(orjson.loads(raw))
    return b"data: " + raw + b"\n\n"


def _body(chunk: Chunk) -> Mapping[str, Any]:
    return chunk.body if chunk.body is not None else orjson.loads(chunk.raw or b"{}")


def _frame(body: object) -> bytes:
    return b"data: " + orjson.dumps(body) + b"\n\n"
