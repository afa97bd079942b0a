"""OpenAI's chat-completions wire format: OpenAI, Moonshot, Groq, DeepSeek, OpenRouter, Gemini's endpoint, Ollama, vLLM …

The request goes out as it came, with our model and output limit; the answer's own bytes are kept to be passed on.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Iterator, Mapping
from typing import Any

import orjson

from gateway.chat import Chunk, Completion, EmbeddingRequest, Request
from gateway.clock import Clock
from gateway.errors import NoVectors, OutputParameterRefused, Refused
from gateway.ledger import Reservation
from gateway.providers import classify, usage
from gateway.providers.anthropic_shape import without_anthropics_own
from gateway.providers.call import Call, Endpoint, as_chunk, from_json, model_of
from gateway.providers.http import HttpClient
from gateway.providers.plain import Plain, PlainEvents, with_content
from gateway.settings import ProviderSettings

MAX_TOKENS = "max_tokens"
MAX_COMPLETION_TOKENS = "max_completion_tokens"
_WANTS_COMPLETION_NAME = re.compile(r"(o[1-9]|gpt-[5-9])([-.].*)?")
_SHOWN = frozenset({"tool_calls", "function_call", "audio"})
"""Parts of a delta, beside its text, of which a client sees something."""
VECTORS_BYTES_MAX = 128 << 20
"""Vectors are long: 2,048 of 3,072 numbers are about 75 MB as text."""
_OURS = ("model", "messages", "stream", "stream_options", "n", MAX_TOKENS, MAX_COMPLETION_TOKENS)


class OpenAIProvider:
    """One provider of this wire format. Raises the tree under ProviderError."""

    def __init__(self, settings: ProviderSettings, http: HttpClient, clock: Clock) -> None:
        self.name = settings.name
        headers = {"Authorization": f"Bearer {settings.api_key}"} if settings.api_key else {}
        root = settings.base_url.rstrip("/")
        self._endpoint = Endpoint(settings, http, clock, f"{root}/chat/completions", headers, classify.OPENAI)
        self._embeddings = Endpoint(settings, http, clock, f"{root}/embeddings", headers, classify.OPENAI)
        self._limit_names: dict[str, str] = {}
        """By model, where it was flipped."""

    async def complete(self, request: Request, reservation: Reservation) -> Completion:
        """A whole answer."""
        body, limit_name = self._body(request, reservation), self._limit_name(reservation.slot.model)
        call = await self._open(body, reservation, limit_name, stream=False)
        try:
            return _completion(await call.read(), call, reservation.slot.model)
        finally:
            call.close()

    async def stream(self, request: Request, reservation: Reservation) -> AsyncGenerator[Chunk]:
        """An answer as it comes, in the provider's own events."""
        body, limit_name = self._body(request, reservation), self._limit_name(reservation.slot.model)
        body["stream"] = True
        body["stream_options"] = {**(request.extra.get("stream_options") or {}), "include_usage": True}
        call = await self._open(body, reservation, limit_name, stream=True)
        try:
            if call.is_json:
                yield as_chunk(_completion(await call.read(), call, reservation.slot.model))
                return
            answers = _Answers(request.n)
            while (payloads := await call.events()) is not None:
                done = b"[DONE]" in payloads
                for chunk in _chunks(payloads[: payloads.index(b"[DONE]")] if done else payloads, call, answers):
                    yield chunk
                if done:
                    answers.check(call)
                    await call.drain()
                    return
            answers.check(call)
        finally:
            call.close()

    async def embed(self, request: EmbeddingRequest, reservation: Reservation) -> Completion:
        """The vectors of every input, in the provider's own bytes."""
        model = reservation.slot.model
        body = {**request.extra, "model": model, "input": request.inputs}
        try:
            call = await self._embeddings.open(body, model, "", stream=False)
        except Refused as error:
            raise _read_anew(error) from None
        try:
            return _vectors(await call.read(VECTORS_BYTES_MAX), call, model, len(request.inputs))
        finally:
            call.close()

    async def close(self) -> None:
        """Closes every connection, those of both endpoints: they have one client."""
        await self._endpoint.close()

    async def _open(self, body: Mapping[str, Any], reservation: Reservation, limit_name: str, *, stream: bool) -> Call:
        model = reservation.slot.model
        try:
            # A name that was flipped once is not flipped back: the second refusal is the caller's to see.
            asked = "" if model in self._limit_names else limit_name
            return await self._endpoint.open(body, model, asked, stream=stream)
        except OutputParameterRefused:
            self._limit_names[model] = MAX_TOKENS if limit_name == MAX_COMPLETION_TOKENS else MAX_COMPLETION_TOKENS
            raise

    def _limit_name(self, model: str) -> str:
        default = MAX_COMPLETION_TOKENS if _WANTS_COMPLETION_NAME.fullmatch(model) else MAX_TOKENS
        return self._limit_names.get(model, default)

    def _body(self, request: Request, reservation: Reservation) -> dict[str, Any]:
        if request.anthropic:
            request = without_anthropics_own(request)
        body = {name: value for name, value in request.extra.items() if name not in _OURS}
        body["model"] = reservation.slot.model
        body["messages"] = request.messages
        body[self._limit_name(reservation.slot.model)] = reservation.output_tokens
        if request.n != 1:
            body["n"] = request.n
        return body


class _Answers:
    """Which of the `n` answers of a stream have begun and which have finished, and what its plain events look like."""

    def __init__(self, n: int) -> None:
        self.one = n == 1
        self.plain = PlainEvents()
        self._n = n
        self._begun: set[int] = set()
        self._done: set[int] = set()

    def see(self, choices: list[Any], call: Call) -> None:
        """Notes the choices of one event; the call is finished once all `n` are."""
        for choice in choices:
            index = choice.get("index") or 0
            self._begun.add(index)
            if choice.get("finish_reason"):
                self._done.add(index)
                call.finished = len(self._done) >= self._n

    def check(self, call: Call) -> None:
        """At the end of a stream: raises Unanswered unless every answer that began was finished."""
        if not self._done or self._begun != self._done:
            raise call.unanswered("the stream ended without a finish reason")


def _chunks(payloads: list[bytes], call: Call, answers: _Answers) -> Iterator[Chunk]:
    """The events of one block of bytes. Neighbours that have nothing but content become one chunk. Raises as `_chunk` does.

    Nearly every event is such a one: each that went its own way through the house would cost more than reading it does.
    """
    left = len(payloads)
    for found in answers.plain.runs(payloads) if answers.one else payloads:
        if isinstance(found, Plain):
            left -= found.deltas
            call.content_came = True
            body = with_content(found.like, found.content)
            yield Chunk(found.content, True, "", None, None, model_of(body), body, found.data, left > 0, found.deltas)
        else:
            left -= 1
            yield _chunk(found, call, answers, more=left > 0)


def _chunk(data: bytes, call: Call, answers: _Answers, *, more: bool) -> Chunk:
    """One event. Raises what an error object in it means, Unanswered when it is no event of this format."""
    try:
        event = from_json(data)
        choices = event.get("choices") or []
        first = choices[0] if choices else {}
        finish = first.get("finish_reason") or None
        if event.get("error") or event.get("object") == "error" or finish == "error" or first.get("error"):
            raise call.refusal(None, _error_bytes(event, first, data))
        stated = usage.find_openai(event)
        text, visible, reasoning = "", False, ""
        for choice in choices:
            delta = choice.get("delta") or {}
            _check(choice, delta)
            if not delta:
                continue
            said, thought = _said(delta), _thought(delta)
            visible = visible or bool(said or (not _SHOWN.isdisjoint(delta) and any(delta.get(part) for part in _SHOWN)))
            # Encrypted reasoning has no text, but it is life; so is whatever the other answers say.
            call.content_came = call.content_came or visible or bool(thought or delta.get("reasoning_details"))
            if (choice.get("index") or 0) == 0:
                text, reasoning = said, thought
        answers.see(choices, call)
    except (ValueError, AttributeError, TypeError, LookupError):
        raise call.unanswered("an event of the stream is malformed") from None
    if stated is not None and (finish or not choices):
        call.usage = stated
    return Chunk(text, visible, reasoning, finish, stated, model_of(event), event, data, more)


def _check(choice: Mapping[str, Any], said: Mapping[str, Any]) -> None:
    """Raises TypeError for a choice of which no whole answer could be put together."""
    if not isinstance(choice.get("index") or 0, int):
        raise TypeError
    for call in said.get("tool_calls") or ():
        function = call.get("function") or {}
        texts = [function.get(name) or "" for name in ("name", "arguments")]
        if not isinstance(call.get("index") or 0, int) or not all(isinstance(text, str) for text in texts):
            raise TypeError


def _completion(data: bytes, call: Call, model: str) -> Completion:
    """A whole answer. Raises as `_chunk` does, and Unanswered when no finish reason is in it."""
    try:
        body = from_json(data)
        choices = body.get("choices") or []
        first = choices[0] if choices else {}
        for choice in choices:
            _check(choice, choice.get("message") or {})
        message = first.get("message") or {}
        finish = first.get("finish_reason") or None
        call.usage = usage.find_openai(body)
        text = _said(message)
        call.content_came = bool(text or message.get("tool_calls"))
        if body.get("error") or body.get("object") == "error" or finish == "error" or first.get("error"):
            raise call.refusal(None, _error_bytes(body, first, data))
    except (ValueError, AttributeError, TypeError, LookupError):
        raise call.unanswered(
            f"the answer is not of this format: {classify.bounded(data[:400].decode('utf-8', 'replace'))}"
        ) from None
    if not finish:
        raise call.unanswered("the answer has no finish reason")
    return Completion(text, finish, model_of(body) or model, call.usage, body, data)


def _read_anew(error: Refused) -> Refused:
    """The same error, or that the model or its server makes no vectors, which servers say in many ways.

    A slot that answers chats well must not be left alone because somebody asked it for vectors.
    """
    words = error.message.lower()
    if error.status not in (404, 405, 501) and not ("embedding" in words and "support" in words):
        return error
    return NoVectors(
        error.provider, error.model, error.message, status=error.status, code=error.code or "no_embeddings", body=error.body
    )


def _vectors(data: bytes, call: Call, model: str, inputs: int) -> Completion:
    """The vectors, one for each input. Raises what an error object in them means, Unanswered when they are none."""
    try:
        body = from_json(data)
        call.usage = usage.find_openai(body)
        if body.get("error") or body.get("object") == "error":
            raise call.refusal(None, data)
        made = len(body["data"])
    except (ValueError, AttributeError, TypeError, LookupError):
        words = classify.bounded(data[:400].decode("utf-8", "replace"))
        raise call.unanswered(f"the answer is not of this format: {words}") from None
    if made != inputs:
        raise call.unanswered(f"{made} vectors came for {inputs} inputs")
    return Completion("", "stop", model_of(body) or model, call.usage, body, data)


def _error_bytes(event: Mapping[str, Any], first: Mapping[str, Any], data: bytes) -> bytes:
    """The event itself, or the error that OpenRouter puts into a choice, in the usual place."""
    if event.get("error") or event.get("object") == "error":
        return data
    return orjson.dumps({"error": first.get("error") or {"message": "the provider stopped with an error"}})


def _said(message: Mapping[str, Any]) -> str:
    """The visible text of a message or a delta."""
    return _text(message.get("content")) or _text(message.get("refusal"))


def _thought(delta: Mapping[str, Any]) -> str:
    """The reasoning text of a delta."""
    content = delta.get("content")
    if isinstance(content, list):
        # Mistral's thinking comes as parts of the content.
        return "".join(_text(part.get("thinking")) for part in content)
    return _text(delta.get("reasoning_content")) or _text(delta.get("reasoning"))


def _text(content: Any) -> str:
    """Text, or the text parts of a list of parts."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "".join(part["text"] for part in content if isinstance(part.get("text"), str))
    return ""
