"""A scripted provider inside the process: it streams, states usage, and can be told to fail, stall or be slow.

Every answer begins with "[demo]", so that nobody takes it for a model's. The same request gets the same answer. The
script (`[providers.<name>.script]`, all optional):

reply           text of the answer; `{question}` stands for the last user message. Default: a few lines on the gate
delay_s         before each word, default 0.02
start_s         before the first word, default 0.1
stall_s         silence after the first word
fail            "refused" (503), "rate_limited" (429, asks to wait `retry_after_s`, default 1) or "unanswered"
first_n_fail    only the first n calls fail as `fail` says (without `fail`: refused); default: every call
output_tokens   tokens stated and billed for the answer, never more than the limit; default: one per word
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import struct
from collections.abc import AsyncGenerator, Mapping
from typing import Any

from gateway.chat import Chunk, Completion, EmbeddingRequest, Request, Usage
from gateway.clock import Clock
from gateway.errors import ProviderError, Refused, Unanswered
from gateway.ledger import Reservation
from gateway.providers.usage import to_openai
from gateway.settings import ProviderSettings

LABEL = "[demo]"
_REPLY = (
    "You wrote: {question}\n\n"
    "This is a scripted answer: no model was asked and nothing was paid. Before it began, the gate held room for the "
    "longest answer that was allowed; now that it has ended, what was not used has gone back. Ask a few more times, "
    "and the budget runs out: the next provider answers, and when none has room you are told when it opens again."
)
_QUESTION_CHARS = 200
_DIMENSIONS = 8
_DIMENSIONS_MAX = 4096


class DemoProvider:
    """One scripted provider. Its calls fail, stall and answer as the script says; nothing leaves the process."""

    def __init__(self, settings: ProviderSettings, clock: Clock) -> None:
        self.name = settings.name
        self._settings, self._clock = settings, clock
        self._calls = 0

    async def complete(self, request: Request, reservation: Reservation) -> Completion:
        """A whole answer."""
        chunks = [chunk async for chunk in self.stream(request, reservation)]
        text = "".join(chunk.text for chunk in chunks)
        finish, stated = str(chunks[-2].finish_reason), chunks[-1].usage
        message = {"role": "assistant", "content": text}
        body = self._head(reservation, "chat.completion")
        body["choices"] = [{"index": 0, "message": message, "finish_reason": finish}]
        body["usage"] = chunks[-1].body["usage"] if chunks[-1].body else None
        return Completion(text, finish, reservation.slot.model, stated, body)

    async def stream(self, request: Request, reservation: Reservation) -> AsyncGenerator[Chunk]:
        """The script's answer word by word, never more words than the output limit."""
        self._calls += 1
        await asyncio.sleep(self._number("start_s", 0.1))
        if (error := self._failure(reservation)) is not None:
            raise error
        limit = reservation.output_tokens
        words = self._words(request)
        finish = "stop" if len(words) <= limit else "length"
        yield self._chunk(reservation, {"role": "assistant", "content": ""})
        for index, word in enumerate(words[:limit]):
            await asyncio.sleep(self._number("stall_s", 0.0) if index == 1 else self._number("delay_s", 0.02))
            yield self._chunk(reservation, {"content": word}, text=word)
        yield self._chunk(reservation, {}, finish=finish)
        output = min(int(self._number("output_tokens", len(words))), limit)
        usage = Usage(prompt=sum(len(text.split()) + 1 for text in _texts(request)), output=output)
        body = {**self._head(reservation), "choices": [], "usage": to_openai(usage)}
        yield Chunk(usage=usage, model=reservation.slot.model, body=body)

    async def embed(self, request: EmbeddingRequest, reservation: Reservation) -> Completion:
        """A vector for each input that says nothing but that inputs differ; the script's failures hold for it too."""
        self._calls += 1
        await asyncio.sleep(self._number("start_s", 0.1))
        if (error := self._failure(reservation)) is not None:
            raise error
        asked = request.extra.get("dimensions")
        dimensions = min(asked, _DIMENSIONS_MAX) if isinstance(asked, int) and asked > 0 else _DIMENSIONS
        packed = request.extra.get("encoding_format") == "base64"
        made = [_vector(each, dimensions) for each in request.inputs]
        data = [
            {"object": "embedding", "index": index, "embedding": _base64(each) if packed else each}
            for index, each in enumerate(made)
        ]
        usage = Usage(sum(len(each.split()) + 1 if isinstance(each, str) else len(each) for each in request.inputs), 0)
        stated = {"prompt_tokens": usage.prompt, "total_tokens": usage.prompt}
        body = {"object": "list", "data": data, "model": reservation.slot.model, "usage": stated}
        return Completion("", "stop", reservation.slot.model, usage, body)

    async def close(self) -> None:
        """Nothing is open."""

    def _words(self, request: Request) -> list[str]:
        asked = [text for message, text in zip(request.messages, _texts(request), strict=True) if message.get("role") == "user"]
        question = " ".join(asked[-1].split())[:_QUESTION_CHARS] if asked else ""
        reply = str(self._settings.script.get("reply", _REPLY)).replace("{question}", question)
        return [*(word + " " for word in f"{LABEL} {reply}".split(" ")[:-1]), f"{LABEL} {reply}".split(" ")[-1]]

    def _failure(self, reservation: Reservation) -> ProviderError | None:
        script = self._settings.script
        first = script.get("first_n_fail")
        if (first is None and "fail" not in script) or (isinstance(first, int) and self._calls > first):
            return None
        model, kind = reservation.slot.model, script.get("fail", "refused")
        if kind == "unanswered":
            return Unanswered(self.name, model, f"{LABEL} the connection broke, as the script says")
        if kind == "rate_limited":
            wait = self._number("retry_after_s", 1.0)
            return Refused(self.name, model, f"{LABEL} too many requests", status=429, retry_after_s=wait, code="rate_limited")
        return Refused(self.name, model, f"{LABEL} overloaded, as the script says", status=503, code="overloaded")

    def _number(self, name: str, default: float) -> float:
        value = self._settings.script.get(name, default)
        return float(value) if isinstance(value, int | float) else default

    def _head(self, reservation: Reservation, kind: str = "chat.completion.chunk") -> dict[str, Any]:
        created = int(self._clock.now().timestamp())
        return {"id": f"demo-{reservation.id}", "object": kind, "created": created, "model": reservation.slot.model}

    def _chunk(self, reservation: Reservation, delta: Mapping[str, Any], *, text: str = "", finish: str | None = None) -> Chunk:
        body = {**self._head(reservation), "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}
        return Chunk(text, bool(text), "", finish, None, reservation.slot.model, body)


def _vector(given: object, dimensions: int) -> list[float]:
    """Numbers from -1 to 1 out of the input's digest."""
    seed = hashlib.sha256(repr(given).encode("utf-8", "surrogatepass")).digest()
    return [byte / 127.5 - 1.0 for byte in (seed * (dimensions // len(seed) + 1))[:dimensions]]


def _base64(vector: list[float]) -> str:
    """As `encoding_format` base64 has it: little-endian floats of four bytes."""
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()


def _texts(request: Request) -> list[str]:
    """The text of each message."""
    texts = []
    for message in request.messages:
        content = message.get("content") or ""
        parts = [content] if isinstance(content, str) else [str(part.get("text", "")) for part in content]
        texts.append(" ".join(parts))
    return texts
