"""A scripted provider in this process, with a meter of its own: it bills what it did, whatever it reports.

Each call takes the next `Play` of the script, or the default one. It refuses to be called without a committed, pending
reservation of its own, and twice with the same one.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field

from gateway.chat import Asked, Chunk, Completion, EmbeddingRequest, Request, Usage
from gateway.errors import ProviderError
from gateway.ledger import Reservation

Pending = Callable[[str], bool]
"""True when the ledger holds a pending reservation of this id."""

Draw = Callable[[Asked, Reservation], "Play"]
"""Draws what a call does."""


@dataclass(frozen=True)
class Play:
    """What one call does. Seconds; tokens; every word is one token and one delta."""

    words: tuple[str, ...] = ("Hello", " there", "!")
    reasoning: tuple[str, ...] = ()
    """Deltas before the words that are not visible."""
    hidden: int = 0
    """Output tokens that are billed and never shown."""
    prompt: int = 10
    cached: int = 0
    states_usage: bool = True
    states: Usage | None = None
    """What it says it used, in place of the truth."""
    obeys_limit: bool = True
    finish_reason: str = "stop"
    tool_calls: tuple[dict[str, object], ...] = ()
    model: str | None = None
    """The model served; None: the one asked."""
    delay_s: float = 0.0
    pause_s: float = 0.0
    """Between the chunks of a stream."""
    error: ProviderError | None = None
    after: int = 0
    """How many deltas come before the error."""
    bills_anyway: bool = False
    """The whole answer is billed although the caller only sees the error."""
    crash: BaseException | None = None
    """Raised in place of an answer: something that no provider may raise."""


@dataclass
class Bill:
    """What one call is billed, by the provider's own meter."""

    reservation: Reservation
    play: Play
    prompt: int = 0
    output: int = 0
    sent: bool = True
    closed_at: float | None = None
    """When its connection was closed by the caller, on the loop's clock."""

    @property
    def tokens(self) -> int:
        """Prompt and output."""
        return self.prompt + self.output


@dataclass
class ScriptedProvider:
    """One provider. `bills` has one entry per call; `requests` what was asked."""

    name: str
    pending: Pending | None = None
    default: Play = field(default_factory=Play)
    script: deque[Play] = field(default_factory=deque)
    draw: Draw | None = None
    """In place of the default, when the script is at its end."""
    bills: list[Bill] = field(default_factory=list)
    requests: list[Asked] = field(default_factory=list)
    door: Callable[[], float] | None = None
    """Draws the latency of a call, in seconds, on top of the play's own."""
    under_way: int = 0
    _used: set[str] = field(default_factory=set)

    def plays(self, *plays: Play | ProviderError) -> "ScriptedProvider":
        """Adds to the script; an error is a play that fails with it at once."""
        self.script.extend(Play(error=play) if isinstance(play, ProviderError) else play for play in plays)
        return self

    @property
    def calls(self) -> int:
        """How many calls came."""
        return len(self.bills)

    @property
    def tokens(self) -> int:
        """Everything billed."""
        return sum(bill.tokens for bill in self.bills)

    async def close(self) -> None:
        """Nothing to free."""

    async def complete(self, request: Request, reservation: Reservation) -> Completion:
        """A whole answer, as the play says."""
        play, bill = self._begin(request, reservation)
        self.under_way += 1
        try:
            # A provider that is already at work bills the answer whether or not somebody still waits for it.
            if play.error is None or play.bills_anyway:
                self._bill(bill, play, request, self._spoken(play, bill, request))
            await asyncio.sleep(play.delay_s + (self.door() if self.door else 0.0))
            if play.crash is not None:
                raise play.crash
            if play.error is not None:
                raise self._error(play, bill)
            return self._completion(play, bill, request)
        except asyncio.CancelledError:
            bill.closed_at = asyncio.get_running_loop().time()
            raise
        finally:
            self.under_way -= 1

    async def embed(self, request: EmbeddingRequest, reservation: Reservation) -> Completion:
        """One vector for each input, billed at the play's prompt and nothing else."""
        play, bill = self._begin(request, reservation)
        await asyncio.sleep(play.delay_s)
        if play.error is not None:
            raise self._error(play, bill)
        bill.prompt = play.prompt
        data = [{"object": "embedding", "index": index, "embedding": [1.0]} for index, _ in enumerate(request.inputs)]
        return Completion("", "stop", reservation.slot.model, self._stated(play, bill), {"object": "list", "data": data})

    async def stream(self, request: Request, reservation: Reservation) -> AsyncGenerator[Chunk, None]:
        """The answer in deltas, then the finish reason, then the usage."""
        play, bill = self._begin(request, reservation)
        self.under_way += 1
        ended = False
        try:
            await asyncio.sleep(play.delay_s + (self.door() if self.door else 0.0))
            async for chunk in self._deltas(play, bill, request):
                yield chunk
            if play.error is not None:
                raise self._error(play, bill)
            for chunk in self._last(play, bill, request):
                yield chunk
            ended = True
        except (asyncio.CancelledError, GeneratorExit):
            bill.closed_at = asyncio.get_running_loop().time()
            raise
        finally:
            self.under_way -= 1
            if play.bills_anyway and not ended:
                self._bill(bill, play, request, self._spoken(play, bill, request))

    def _begin(self, request: Asked, reservation: Reservation) -> tuple[Play, Bill]:
        assert reservation.slot.provider == self.name, "a reservation of another provider"
        assert reservation.id not in self._used, "a reservation used twice"
        assert self.pending is None or self.pending(reservation.id), "a call without a pending reservation"
        self._used.add(reservation.id)
        drawn = self.draw(request, reservation) if self.draw and not self.script else self.default
        play = self.script.popleft() if self.script else drawn
        bill = Bill(reservation, play)
        self.bills.append(bill)
        self.requests.append(request)
        return play, bill

    def _spoken(self, play: Play, bill: Bill, request: Request) -> int:
        """How many deltas the whole answer has."""
        deltas = len(play.reasoning) + len(play.words)
        limit = bill.reservation.output_tokens * request.n - play.hidden
        return min(deltas, max(limit, 0)) if play.obeys_limit else deltas

    def _bill(self, bill: Bill, play: Play, request: Request, deltas: int) -> None:
        limit = bill.reservation.output_tokens * request.n
        hidden = min(play.hidden, limit) if play.obeys_limit else play.hidden
        bill.prompt, bill.output = play.prompt, max(bill.output, deltas + hidden)

    async def _deltas(self, play: Play, bill: Bill, request: Request) -> AsyncGenerator[Chunk, None]:
        spoken = self._spoken(play, bill, request)
        parts = [Chunk(reasoning=part) for part in play.reasoning] + [Chunk(text=word, visible=True) for word in play.words]
        if play.error is None or play.after or play.bills_anyway:
            self._bill(bill, play, request, 0)
            yield self._chunk(bill, {"role": "assistant"})._replace(model=play.model or bill.reservation.slot.model)
        for number, part in enumerate(parts[:spoken], start=1):
            if play.error is not None and number > play.after:
                return
            self._bill(bill, play, request, number)
            key = "content" if part.visible else "reasoning_content"
            yield self._chunk(bill, {key: part.text or part.reasoning})._replace(text=part.text,
                          reasoning=part.reasoning, visible=part.visible)  # fmt: skip
            await asyncio.sleep(play.pause_s)
        for call in play.tool_calls:
            yield self._chunk(bill, {"tool_calls": [call]})._replace(visible=True)

    def _last(self, play: Play, bill: Bill, request: Request) -> list[Chunk]:
        self._bill(bill, play, request, self._spoken(play, bill, request))
        reason = self._finish_reason(play, bill, request)
        chunks = [self._chunk(bill, {}, reason)._replace(finish_reason=reason)]
        usage = self._stated(play, bill)
        return chunks if usage is None else [*chunks, self._chunk(bill, None)._replace(usage=usage)]

    def _completion(self, play: Play, bill: Bill, request: Request) -> Completion:
        words = max(self._spoken(play, bill, request) - len(play.reasoning), 0)
        text, reason = "".join(play.words[:words]), self._finish_reason(play, bill, request)
        model = play.model or bill.reservation.slot.model
        message: dict[str, object] = {"role": "assistant", "content": text}
        if play.tool_calls:
            message["tool_calls"] = list(play.tool_calls)
        body = {"id": bill.reservation.id, "object": "chat.completion", "model": model,
                "choices": [{"index": 0, "message": message, "finish_reason": reason}]}  # fmt: skip
        return Completion(text, reason, model, self._stated(play, bill), body)

    def _finish_reason(self, play: Play, bill: Bill, request: Request) -> str:
        whole = len(play.reasoning) + len(play.words)
        return "length" if self._spoken(play, bill, request) < whole else play.finish_reason

    def _stated(self, play: Play, bill: Bill) -> Usage | None:
        if not play.states_usage:
            return None
        return play.states or Usage(bill.prompt, bill.output, cached=play.cached)

    def _error(self, play: Play, bill: Bill) -> ProviderError:
        assert play.error is not None
        bill.sent = play.error.sent
        return play.error

    def _chunk(self, bill: Bill, delta: dict[str, object] | None, reason: str | None = None) -> Chunk:
        choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": reason}]
        return Chunk(body={"id": bill.reservation.id, "object": "chat.completion.chunk", "choices": choices})
