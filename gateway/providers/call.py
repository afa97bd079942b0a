"""One call to a provider over HTTP, for every wire format: deadlines, caps, and errors turned into the product's own.

A call has three deadlines: the whole (`timeout_s`), the first token (`first_token_timeout_s`, which comments and empty
events do not meet) and the silence between events (`idle_timeout_s`). Nothing is sent twice.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import orjson

from gateway.chat import Chunk, Completion, Usage
from gateway.clock import Clock
from gateway.errors import ProviderError, Refused, Unanswered
from gateway.providers import classify, usage
from gateway.providers.http import Broken, HttpClient, NotSent, Response, TimedOut
from gateway.providers.sse import EventTooLarge, SseParser
from gateway.settings import ProviderSettings

ANSWER_BYTES_MAX = 32 << 20
ERROR_BYTES_MAX = 64 << 10
AFTER_FINISH_S = 5.0
"""How long usage may come after the finish reason."""
DRAIN_S = 0.1
"""How long the end of the body may come after the end of the events, so that the connection can be kept."""


class Endpoint:
    """Where and how one provider is called."""

    def __init__(
        self,
        settings: ProviderSettings,
        http: HttpClient,
        clock: Clock,
        url: str,
        headers: Mapping[str, str],
        table: tuple[classify.Row, ...],
    ) -> None:
        self.settings, self.url, self.headers, self.table = settings, url, headers, table
        self._http, self._clock = http, clock

    async def open(self, body: Mapping[str, Any], model: str, limit_name: str, *, stream: bool) -> Call:
        """Sends the body and waits for the head of a good answer. Raises Refused (and its kinds), Unanswered."""
        call = Call(self, model, limit_name)
        wait = call.first_token_s if stream else call.left_s()
        try:
            response = await self._http.post(self.url, self.headers, to_json(body), wait)
        except NotSent as error:
            raise Refused(self.settings.name, model, str(error), sent=False, code="no_connection") from None
        except TimedOut:
            raise call.unanswered(call.late()) from None
        except Broken as error:
            raise call.unanswered(str(error)) from None
        call.response = response
        if 200 <= response.status < 300:
            return call
        try:
            raise await self._error(call, response)
        finally:
            response.close()

    async def close(self) -> None:
        """Closes every connection."""
        await self._http.close()

    async def _error(self, call: Call, response: Response) -> ProviderError:
        data = b""
        try:
            while len(data) < ERROR_BYTES_MAX and (block := await response.block(call.left_s())):
                data += block
        except Broken:
            # The status has said it; what came of the body is all there is.
            pass
        wait = classify.retry_after_s(response.headers, self._clock.now())
        return call.refusal(response.status, data, retry_after_s=wait)


class Call:
    """One call in progress. The adapter sets `content_came` and `finished` as it reads."""

    response: Response

    def __init__(self, endpoint: Endpoint, model: str, limit_name: str) -> None:
        self._endpoint, self._model, self._limit_name = endpoint, model, limit_name
        self._limits = endpoint.settings.models.get(model, endpoint.settings)
        self._loop = asyncio.get_running_loop()
        now = self._loop.time()
        self.first_token_s = min(self._limits.timeout_s, self._limits.first_token_timeout_s)
        self._whole_at = now + self._limits.timeout_s
        self._life_at = now + self.first_token_s
        self._sse = SseParser()
        self._at_end = False
        self.content_came = False
        """Set once a visible or a reasoning token came: from then on a failure may have been billed."""
        self.finished = False
        """Set once a finish reason was seen: from then on the answer is whole, whatever happens to the connection."""
        self.usage: Usage | None = None
        """The final usage, once it was stated."""

    @property
    def is_json(self) -> bool:
        """True when the answer is one JSON document, also where a stream was asked for."""
        return self.response.headers.get("content-type", "").lower().startswith("application/json")

    def left_s(self) -> float:
        """Seconds until the whole deadline, never negative."""
        return max(0.0, self._whole_at - self._loop.time())

    async def read(self, bytes_max: int | None = None) -> bytes:
        """The whole body, of at most so many bytes (ANSWER_BYTES_MAX). Raises Unanswered."""
        bytes_max = ANSWER_BYTES_MAX if bytes_max is None else bytes_max
        blocks, size = [], 0
        try:
            while block := await self.response.block(self.left_s()):
                size += len(block)
                if size > bytes_max:
                    raise self.unanswered(f"an answer of more than {bytes_max} bytes")
                blocks.append(block)
        except Broken as error:
            raise self.unanswered(self.late() if isinstance(error, TimedOut) else str(error)) from None
        return blocks[0] if len(blocks) == 1 else b"".join(blocks)

    async def events(self) -> list[bytes] | None:
        """The next payloads of a stream, at least one; None at its end. Raises Unanswered while it is unfinished."""
        if self._at_end:
            return None
        idle_s = self._limits.idle_timeout_s
        if self.finished:
            self._life_at = self._loop.time() + min(idle_s, AFTER_FINISH_S)
        elif self.content_came:
            self._life_at = self._loop.time() + idle_s
        try:
            while True:
                until = min(self._whole_at, self._life_at)
                block = await self.response.block(max(0.0, until - self._loop.time()))
                if not block:
                    self._at_end = True
                    return self._sse.end() or None
                if payloads := self._sse.feed(block):
                    return payloads
        except (Broken, EventTooLarge) as error:
            self._at_end = True
            if self.finished:
                return None
            raise self.unanswered(self.late() if isinstance(error, TimedOut) else str(error)) from None

    async def drain(self) -> None:
        """Waits a moment for the end of the body after the last event, so that the connection can be used again."""
        try:
            while not self._at_end and await self.response.block(DRAIN_S):
                pass
        except Broken:
            # Then the connection is closed instead of kept.
            pass

    def close(self) -> None:
        """Closes the connection at once unless the answer was read to its end."""
        self.response.close()

    def late(self) -> str:
        """Which deadline has passed, in words."""
        limits = self._limits
        # A timer may fire a hair before its time.
        if self._loop.time() + 0.01 >= self._whole_at:
            return f"not finished within {limits.timeout_s:g} s"
        if not self.content_came:
            return f"no first token within {limits.first_token_timeout_s:g} s"
        return f"nothing came for {limits.idle_timeout_s:g} s"

    def unanswered(self, message: str) -> Unanswered:
        """What to raise when the answer did not come or is not one: it may have been billed."""
        settings = self._endpoint.settings
        return Unanswered(settings.name, self._model, classify.redacted(message, settings.api_key), usage=self.usage)

    def refusal(self, status: int | None, data: bytes, *, retry_after_s: float | None = None) -> ProviderError:
        """What to raise for an error of the provider: `data` is the body, or the event inside a 200 (status None)."""
        settings = self._endpoint.settings
        text = classify.redacted(data.decode("utf-8", "replace"), settings.api_key)
        try:
            parsed = orjson.loads(text)
        except orjson.JSONDecodeError:
            parsed = None
        error = classify.own_error(status or 200, parsed)
        billed = usage.openai(parsed.get("usage")) if isinstance(parsed, dict) else None
        fault = classify.read_fault(status, error, text)
        return classify.to_error(
            self._endpoint.table,
            fault,
            provider=settings.name,
            model=self._model,
            limit_name=self._limit_name,
            retry_after_s=retry_after_s,
            usage=billed or self.usage,
            content_came=self.content_came,
        )


def model_of(said: Mapping[str, Any]) -> str | None:
    """The model that an answer or an event names, None where it names none."""
    model = said.get("model")
    return model if isinstance(model, str) else None


def as_chunk(whole: Completion) -> Chunk:
    """The whole answer as one event, for a server that does not stream."""
    choices = [{**choice, "delta": choice.get("message") or {}} for choice in whole.body["choices"]]
    for choice in choices:
        choice.pop("message", None)
    body = {**whole.body, "object": "chat.completion.chunk", "choices": choices}
    return Chunk(whole.text, True, "", whole.finish_reason, whole.usage, whole.model, body)


def to_json(body: Mapping[str, Any]) -> bytes:
    """The body's bytes. Lone surrogates, which are no text but do occur, become U+FFFD."""
    try:
        return orjson.dumps(body, default=dict)
    except orjson.JSONEncodeError:
        return orjson.dumps(_mended(body))


def from_json(data: bytes) -> Any:
    """A parsed payload. Half an emoji, which some providers send as an escape, becomes U+FFFD.

    Raises ValueError for what is no JSON.
    """
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        if b"\\u" not in data:
            raise
        return _mended(json.loads(data))


def _mended(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, Mapping):
        return {_mended(key): _mended(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_mended(item) for item in value]
    return value
