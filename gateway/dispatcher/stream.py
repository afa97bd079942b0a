"""One attempt as a stream: what is shown, when it is cut off, and how it ends for the ledger.

Rules:
- Nothing is yielded until something visible came, so that a failure before it can move on silently.
- A lower bound of what came that passes the reserved output closes the connection.
- The connection is closed before the attempt is settled; the attempt is settled before the reply is given.
- A stream whose finish reason was seen is an answer, whatever happens after it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator

from gateway.chat import Chunk, Completion, Request
from gateway.clock import Clock
from gateway.dispatcher import replies, settle
from gateway.dispatcher.desk import Desk
from gateway.dispatcher.received import Received
from gateway.dispatcher.values import Begun, Priced, Reply, StreamBroken
from gateway.dispatcher.walk import Attempt, Walk
from gateway.errors import ProviderError, Unanswered
from gateway.ledger import Closing
from gateway.providers import Provider

USAGE_WAIT_S = 0.5
"""How long a finished stream whose caller left is still read for its usage."""

CALLS = frozenset(("tools", "functions"))
"""Request fields with which an answer may be more than its text."""

Event = Begun | Chunk | Priced | Reply


class StreamedAttempt:
    """Reads one admitted attempt from its provider. Used once."""

    def __init__(
        self, walk: Walk, request: Request, attempt: Attempt, provider: Provider, desk: Desk, clock: Clock, *, in_time: bool
    ) -> None:
        self._walk = walk
        self._attempt = attempt
        self._desk = desk
        self._clock = clock
        self._upstream = provider.stream(request, attempt.reservation)
        # `in_time`: the request's total deadline may pass before the provider's own time-outs do.
        self._source = self._in_time_chunks() if in_time else self._upstream
        self._received = Received(keeps_all=walk.origin.dedupe or request.n > 1 or not request.extra.keys().isdisjoint(CALLS))
        self._output_tokens = attempt.reservation.output_tokens * request.n
        self._held_back: list[Chunk] = []
        self._begun = False
        self._cut = False
        self._first_token_s: float | None = None

    async def events(self) -> AsyncGenerator[Event, None]:
        """Begun, chunks, Reply. Raises ProviderError while nothing was shown, StreamBroken after."""
        error: ProviderError | None = None
        received = self._received
        try:
            async for chunk in self._source:
                for event in self._take(chunk):
                    yield event
                if received.passed(self._output_tokens):
                    self._cut = True
                    await self._upstream.aclose()
                    for event in self._stopped():
                        yield event
                    break
            else:
                if received.finish_reason is None:
                    raise self._unanswered("the stream ended without a finish reason")
        except ProviderError as failure:
            error = failure
        except BaseException as failure:
            await self._end(failure)
            raise
        reply = await self._end(error)
        if reply is not None:
            yield reply
            return
        assert error is not None, "a stream without a reply has an error"
        if self._begun:
            self._walk.broken(self._attempt, error)
            raise StreamBroken(self._attempt.slot, self._received.text, error)
        raise error

    async def _in_time_chunks(self) -> AsyncGenerator[Chunk, None]:
        """The provider's chunks; until something is shown, no longer than the request's total deadline."""
        while True:
            try:
                async with asyncio.timeout(None if self._begun else max(self._walk.left_s, 0)):
                    chunk = await anext(self._upstream)
            except StopAsyncIteration:
                return
            except TimeoutError:
                raise self._unanswered("the request's total deadline has passed") from None
            yield chunk

    def _unanswered(self, message: str) -> Unanswered:
        slot = self._attempt.slot
        return Unanswered(slot.provider, slot.model, message)

    def _take(self, chunk: Chunk) -> tuple[Event, ...]:
        """Adds a chunk and gives what may be shown now."""
        self._received.take(chunk)
        if self._first_token_s is None and (chunk.visible or chunk.reasoning):
            self._first_token_s = self._clock.monotonic()
        if self._begun:
            return (chunk,) if chunk.usage is None else self._priced(chunk)
        self._held_back.append(chunk)
        return self._begin() if chunk.visible or chunk.finish_reason is not None else ()

    def _begin(self) -> tuple[Event, ...]:
        self._begun = True
        events: list[Event] = [Begun(self._attempt.slot, self._walk.chain, self._walk.skipped)]
        for chunk in self._held_back:
            events += self._priced(chunk)
        self._held_back.clear()
        return tuple(events)

    def _priced(self, chunk: Chunk) -> tuple[Event, ...]:
        if chunk.usage is None:
            return (chunk,)
        price = self._desk.price(self._attempt, self._received.model, chunk.usage)
        return (Priced(chunk.usage, price.cost_micro_usd), chunk)

    def _stopped(self) -> tuple[Event, ...]:
        """The last events of a stream that was cut off."""
        known = self._desk.at_least(self._attempt, self._received)
        model = self._received.model or self._attempt.slot.model
        last = replies.stopped_chunk(self._received.last, known.usage, model)
        before = () if self._begun else self._begin()
        return (*before, Priced(known.usage, known.cost_micro_usd), last)

    async def _end(self, failure: BaseException | None) -> Reply | None:
        """Closes the connection, settles, and gives the reply if there is one."""
        try:
            await self._close_upstream(failure)
        finally:
            try:
                closing, reply = self._closing(failure)
            except Exception as error:
                await self._desk.close(
                    self._attempt, settle.lost(self._attempt.reservation, error, self._desk.timing(self._attempt))
                )
                raise
            await self._desk.close(self._attempt, closing)
        return reply

    async def _close_upstream(self, failure: BaseException | None) -> None:
        received = self._received
        if isinstance(failure, GeneratorExit) and received.finish_reason is not None and received.usage is None:
            # The answer is whole and its usage is on its way: without it the whole hold would count.
            with contextlib.suppress(TimeoutError, ProviderError):
                async with asyncio.timeout(USAGE_WAIT_S):
                    async for chunk in self._upstream:
                        received.take(chunk)
        await self._upstream.aclose()
        await self._source.aclose()

    def _closing(self, failure: BaseException | None) -> tuple[Closing, Reply | None]:
        walk, attempt, received, desk = self._walk, self._attempt, self._received, self._desk
        timing = desk.timing(attempt, self._first_token_s)
        if self._cut:
            return desk.cut_off(walk, attempt, received, timing)
        if received.finish_reason is not None:
            return desk.success(walk, attempt, self._completion(received.finish_reason), timing)
        if isinstance(failure, ProviderError):
            # Usage stated before the end is not the whole of it.
            return desk.failure(attempt, failure, timing, whole=False), None
        walk.left(attempt)
        if isinstance(failure, asyncio.CancelledError | GeneratorExit):
            return desk.left(attempt, received, timing), None
        assert failure is not None, "a stream that neither finished nor failed"
        return settle.lost(attempt.reservation, failure, timing), None

    def _completion(self, finish_reason: str) -> Completion:
        received = self._received
        model = received.model or self._attempt.slot.model
        usage = received.usage or settle.held(self._attempt.reservation).usage
        body = replies.whole(received, finish_reason, model, usage)
        return Completion(received.text, finish_reason, model, received.usage, body)
