"""Anthropic's Messages wire format, spoken in OpenAI's shape to the rest of the house."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from typing import Any

from gateway.chat import Chunk, Completion, Request
from gateway.clock import Clock
from gateway.errors import CallerFault
from gateway.ledger import Reservation
from gateway.providers import classify, usage
from gateway.providers.anthropic_shape import THINKING, Untranslatable, finish_reason, from_anthropic, to_anthropic
from gateway.providers.call import Call, Endpoint, as_chunk, from_json, model_of
from gateway.providers.http import HttpClient
from gateway.settings import ProviderSettings

API_VERSION = "2023-06-01"


class AnthropicProvider:
    """One provider of this wire format. Raises the tree under ProviderError."""

    def __init__(self, settings: ProviderSettings, http: HttpClient, clock: Clock) -> None:
        self.name = settings.name
        self._clock = clock
        headers = {"anthropic-version": API_VERSION}
        if settings.api_key:
            headers["x-api-key"] = settings.api_key
        # Anthropic's own clients are given the URL without /v1, everybody else's with it.
        root = settings.base_url.rstrip("/").removesuffix("/v1")
        self._endpoint = Endpoint(settings, http, clock, f"{root}/v1/messages", headers, classify.ANTHROPIC)

    async def complete(self, request: Request, reservation: Reservation) -> Completion:
        """A whole answer."""
        call = await self._open(request, reservation, stream=False)
        try:
            return self._completion(await call.read(), call, reservation.slot.model)
        finally:
            call.close()

    async def stream(self, request: Request, reservation: Reservation) -> AsyncGenerator[Chunk]:
        """An answer as it comes, event by event, each as a `chat.completion.chunk`."""
        call = await self._open(request, reservation, stream=True)
        try:
            if call.is_json:
                yield as_chunk(self._completion(await call.read(), call, reservation.slot.model))
                return
            reader = _Reader(call, int(self._clock.now().timestamp()))
            while (payloads := await call.events()) is not None:
                for data in payloads:
                    for chunk in reader.read(data):
                        yield chunk
                    if reader.ended:
                        await call.drain()
                        return
            if not call.finished:
                raise call.unanswered("the stream ended without a stop reason")
        finally:
            call.close()

    async def close(self) -> None:
        """Closes every connection."""
        await self._endpoint.close()

    async def _open(self, request: Request, reservation: Reservation, *, stream: bool) -> Call:
        model = reservation.slot.model
        try:
            body = to_anthropic(request, model, reservation.output_tokens)
        except Untranslatable as error:
            raise CallerFault(
                self.name,
                model,
                str(error),
                status=400,
                sent=False,
                code="unsupported_parameter",
                body={"error": {"message": str(error), "type": "invalid_request_error", "param": error.param}},
            ) from None
        if stream:
            body["stream"] = True
        return await self._endpoint.open(body, model, "", stream=stream)

    def _completion(self, data: bytes, call: Call, model: str) -> Completion:
        try:
            message = from_json(data)
            if message.get("type") == "error" or message.get("error"):
                raise call.refusal(None, data)
            call.usage = usage.anthropic(message.get("usage") or {})
            if not message.get("stop_reason"):
                raise call.unanswered("the answer has no stop reason")
            body = from_anthropic(message, call.usage, int(self._clock.now().timestamp()))
        except (ValueError, AttributeError, TypeError, LookupError):
            words = classify.bounded(data[:400].decode("utf-8", "replace"))
            raise call.unanswered(f"the answer is not of this format: {words}") from None
        choice = body["choices"][0]
        text = choice["message"]["content"] or ""
        return Completion(text, choice["finish_reason"], model_of(body) or model, call.usage, body)


class _Reader:
    """Turns the events of one stream into chunks of OpenAI's shape."""

    def __init__(self, call: Call, created: int) -> None:
        self.ended = False
        """Set by `message_stop`."""
        self._call = call
        self._head: dict[str, Any] = {"id": None, "object": "chat.completion.chunk", "created": created, "model": None}
        self._stated: dict[str, Any] = {}
        self._tools: dict[int, int] = {}
        """Place among the tool calls, by content block."""

    def read(self, data: bytes) -> list[Chunk]:
        """The chunks that one event makes. Raises what an error event means, Unanswered for a malformed one."""
        try:
            event = from_json(data)
            kind = event["type"]
            if kind == "error":
                raise self._call.refusal(None, data)
            if kind == "content_block_delta":
                return self._block_delta(event["index"], event["delta"])
            if kind == "content_block_start":
                return self._block_start(event["index"], event["content_block"])
            if kind == "message_start":
                return self._message_start(event["message"])
            if kind == "message_delta":
                return self._message_delta(event)
            self.ended = kind == "message_stop"
        except (ValueError, AttributeError, TypeError, LookupError):
            raise self._call.unanswered("an event of the stream is malformed") from None
        return []

    def _message_start(self, message: Mapping[str, Any]) -> list[Chunk]:
        self._head["id"], self._head["model"] = message.get("id"), model_of(message)
        # Its output count is only a beginning, so it is no usage yet.
        self._stated.update(message.get("usage") or {})
        return [self._chunk({"role": "assistant", "content": ""})]

    def _block_start(self, index: int, block: Mapping[str, Any]) -> list[Chunk]:
        kind = block.get("type")
        if kind == "tool_use":
            place = self._tools[index] = len(self._tools)
            function = {"name": _words(block.get("name")), "arguments": ""}
            call = {"index": place, "id": block.get("id"), "type": "function", "function": function}
            return [self._chunk({"tool_calls": [call]}, visible=True)]
        if kind == "text" and block.get("text"):
            return [self._chunk({"content": block["text"]}, text=_words(block["text"]))]
        if kind in THINKING:
            # Thinking may be withheld and then sends no text: it is life all the same.
            self._call.content_came = True
            if kind == "redacted_thinking":
                return [self._chunk({"thinking_blocks": [block]})]
        return []

    def _block_delta(self, index: int, delta: Mapping[str, Any]) -> list[Chunk]:
        kind = delta["type"]
        if kind == "text_delta":
            return [self._chunk({"content": delta["text"]}, text=_words(delta["text"]))]
        if kind == "thinking_delta":
            return [self._chunk({"reasoning_content": delta["thinking"]}, reasoning=_words(delta["thinking"]))]
        if kind == "signature_delta":
            return [self._chunk({"thinking_signature": _words(delta["signature"])})]
        if kind == "input_json_delta" and index in self._tools:
            call = {"index": self._tools[index], "function": {"arguments": _words(delta["partial_json"])}}
            return [self._chunk({"tool_calls": [call]}, visible=True)]
        return []

    def _message_delta(self, event: Mapping[str, Any]) -> list[Chunk]:
        self._stated.update({name: value for name, value in (event.get("usage") or {}).items() if value is not None})
        ended = event.get("delta") or {}
        stop = ended.get("stop_reason")
        if not stop:
            return []
        self._call.finished = True
        finish = finish_reason(stop)
        chunks = [self._chunk({}, finish=finish, stop_sequence=ended.get("stop_sequence"))]
        # Without its own usage the event leaves only the beginning's output count, which is too low to settle.
        stated = usage.anthropic(self._stated) if event.get("usage") else None
        if stated is not None:
            self._call.usage = stated
            body = {**self._head, "choices": [], "usage": usage.to_openai(stated)}
            chunks.append(Chunk(usage=stated, model=self._head["model"], body=body))
        return chunks

    def _chunk(
        self,
        delta: dict[str, Any],
        *,
        text: str = "",
        reasoning: str = "",
        visible: bool = False,
        finish: str | None = None,
        stop_sequence: str | None = None,
    ) -> Chunk:
        self._call.content_came = self._call.content_came or bool(text or reasoning or visible)
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        if stop_sequence:
            # The name that vLLM gives it.
            choice["stop_reason"] = stop_sequence
        return Chunk(
            text, visible or bool(text), reasoning, finish, None, self._head["model"], {**self._head, "choices": [choice]}
        )


def _words(value: Any) -> str:
    """The value, which must be text. Raises TypeError."""
    if not isinstance(value, str):
        raise TypeError
    return value
