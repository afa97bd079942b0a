"""Answers in the shape of Anthropic's Messages: whole, as a stream's events, and errors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from gateway.chat import Chunk, Slot, Usage
from gateway.dispatcher import Reply
from gateway.dispatcher.replies import payload
from gateway.web.exchange import Exchange, Whole
from gateway.web.problems import REQUEST_ID, Problem

THEIR_REQUEST_ID = "request-id"
"""Where Anthropic's clients look for the request's id."""
_KINDS = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
}
_STOPS = {"length": "max_tokens", "tool_calls": "tool_use", "function_call": "tool_use", "content_filter": "refusal"}


def refusal(found: Problem, request_id: str) -> Whole:
    """A refusal or failure in Anthropic's shape: our fields stand inside `error`, as they do in OpenAI's."""
    headers = {"Content-Type": "application/json", REQUEST_ID: request_id, THEIR_REQUEST_ID: request_id, **found.headers}
    return Whole(found.status, headers, orjson.dumps(_error(found, request_id)))


def _error(found: Problem, request_id: str) -> dict[str, object]:
    kind = _KINDS.get(found.status, "api_error" if found.status >= 500 else "invalid_request_error")
    return {"type": "error", "error": {**found.error(request_id), "type": kind}, "request_id": request_id}


def message(reply: Reply, *, thinking: bool) -> dict[str, Any]:
    """A whole answer. `thinking`: the caller asked to see it."""
    choices = reply.completion.body.get("choices") or [{}]
    choice = choices[0]
    said = choice.get("message") or {}
    content: list[Mapping[str, Any]] = list(_thoughts(said)) if thinking else []
    if reply.completion.text:
        content.append({"type": "text", "text": reply.completion.text})
    calls = said.get("tool_calls") or []
    content += [_tool_use(call, f"toolu_{reply.request_id}_{number}") for number, call in enumerate(calls)]
    stop = _Stop(reply.completion.finish_reason, choice.get("stop_reason"), called=bool(calls))
    return {
        **_head(reply.request_id, reply.completion.model),
        "content": content,
        **stop.fields(),
        "usage": usage_body(reply.usage),
    }


def usage_body(usage: Usage) -> dict[str, int]:
    """Usage as Anthropic counts it: what was cached stands beside `input_tokens`."""
    return {
        "input_tokens": usage.prompt - usage.cached - usage.cache_written,
        "cache_creation_input_tokens": usage.cache_written,
        "cache_read_input_tokens": usage.cached,
        "output_tokens": usage.output,
    }


def _head(request_id: str, model: str) -> dict[str, Any]:
    return {"id": f"msg_{request_id}", "type": "message", "role": "assistant", "model": model}


def _thoughts(said: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Thinking with its signatures where the provider gave them."""
    blocks = said.get("thinking_blocks")
    if isinstance(blocks, list):
        yield from blocks
    elif isinstance(text := said.get("reasoning_content") or said.get("reasoning"), str):
        yield {"type": "thinking", "thinking": text, "signature": ""}


def _tool_use(call: Mapping[str, Any], spare_id: str) -> dict[str, Any]:
    function = call.get("function") or {}
    arguments = function.get("arguments") or "{}"
    try:
        given = orjson.loads(arguments)
    except orjson.JSONDecodeError:
        given = None
    # A model that wrote no JSON object has called its tool all the same: the tool's own check says what is wrong.
    given = given if isinstance(given, dict) else {"arguments": arguments}
    return {"type": "tool_use", "id": call.get("id") or spare_id, "name": function.get("name") or "", "input": given}


class _Stop:
    """Why an answer ended, in Anthropic's words."""

    def __init__(self, finish_reason: str | None, stopped_at: object, *, called: bool) -> None:
        self._sequence = stopped_at if isinstance(stopped_at, str) and finish_reason == "stop" else None
        self._reason = _STOPS.get(finish_reason or "", "end_turn")
        if self._sequence is not None:
            self._reason = "stop_sequence"
        elif self._reason == "end_turn" and called:
            self._reason = "tool_use"

    def fields(self) -> dict[str, str | None]:
        return {"stop_reason": self._reason, "stop_sequence": self._sequence}


class MessagePage:
    """The page of a streamed message: blocks one after the other, usage at the end. `thinking`: the caller asked to see it."""

    def __init__(self, exchange: Exchange, request_id: str, slot: Slot, _: int, *, thinking: bool) -> None:
        self.cost_micro_usd = 0
        self.complete = False
        self._exchange, self._request_id, self._slot, self._thinking = exchange, request_id, slot, thinking
        self._ready: list[bytes] = []
        self._usage: Usage | None = None
        self._finish: str | None = None
        self._stopped_at: object = None
        self._begun = False
        self._open: str | None = None
        """The kind of the block that is open."""
        self._blocks = 0
        self._calls: dict[int, int] = {}
        """The block of each tool call, by the call's number."""

    def take(self, chunk: Chunk) -> None:
        """Adds what a chunk brings."""
        if not self._begun:
            self._begin(chunk.model or self._slot.model)
        body = payload(chunk)
        choices = body.get("choices") or ()
        # Only one answer can be asked for in this shape.
        choice = choices[0] if choices else {}
        delta = choice.get("delta") or {}
        if self._thinking:
            self._thoughts(chunk, delta)
        if chunk.text:
            self._add("text", {"type": "text", "text": ""}, {"type": "text_delta", "text": chunk.text})
        for call in delta.get("tool_calls") or ():
            self._call(call)
        if chunk.finish_reason is not None:
            self._finish = chunk.finish_reason
        self._stopped_at = choice.get("stop_reason") or self._stopped_at
        if chunk.usage is not None:
            self._usage = chunk.usage
            self.complete = self._finish is not None and not choices

    def say_usage(self, usage: Usage) -> None:
        """The usage that was settled."""
        self._usage = usage

    async def flush(self) -> None:
        """Writes what is ready, in one piece."""
        if self._ready:
            data = b"".join(self._ready)
            self._ready.clear()
            await self._exchange.write(data)

    async def end(self) -> None:
        """Writes the rest, why it ended, the usage and the end."""
        self._close()
        ours = {"provider": self._slot.provider, "cost_micro_usd": self.cost_micro_usd, "request_id": self._request_id}
        usage = usage_body(self._usage or Usage(0, 0))
        stop = _Stop(self._finish, self._stopped_at, called=bool(self._calls))
        self._event("message_delta", delta=stop.fields(), usage=usage, sluicegate=ours)
        self._event("message_stop")
        await self._exchange.end(b"".join(self._ready))

    async def fail(self, failure: Problem) -> None:
        """Writes the rest and the `error` event that SDKs look for."""
        self._ready.append(_frame("error", _error(failure, self._request_id)))
        await self._exchange.end(b"".join(self._ready))

    def _begin(self, model: str) -> None:
        self._begun = True
        # How many tokens the prompt has is known at the end; `message_delta` has the whole usage.
        head = {**_head(self._request_id, model), "content": [], "stop_reason": None, "stop_sequence": None}
        self._event("message_start", message={**head, "usage": usage_body(Usage(0, 0))})
        self._event("ping")

    def _thoughts(self, chunk: Chunk, delta: Mapping[str, Any]) -> None:
        empty = {"type": "thinking", "thinking": "", "signature": ""}
        blocks = delta.get("thinking_blocks") or ()
        # A whole answer as one event has its thinking in its message alone.
        if thought := chunk.reasoning or (not blocks and delta.get("reasoning_content")):
            self._add("thinking", empty, {"type": "thinking_delta", "thinking": thought})
        if delta.get("thinking_signature") and self._open in (None, "thinking"):
            self._add("thinking", empty, {"type": "signature_delta", "signature": delta["thinking_signature"]})
            self._close()
        for block in blocks:
            self._close()
            self._start("thinking", block)
            self._close()

    def _call(self, call: Mapping[str, Any]) -> None:
        """A part of a tool call: its first one opens a block. Some providers number none, or all of them with nought."""
        number, function = call.get("index"), call.get("function") or {}
        if number is None:
            number = len(self._calls) if function.get("name") else len(self._calls) - 1
        block = self._calls.get(number)
        if block is None or (call.get("id") and function.get("name") and self._open != f"call {call['id']}"):
            self._close()
            made = call.get("id") or f"toolu_{self._request_id}_{len(self._calls)}"
            block = self._calls[number] = self._blocks
            opened: dict[str, Any] = {"type": "tool_use", "id": made, "name": function.get("name") or "", "input": {}}
            self._start(f"call {made}", opened)
        if function.get("arguments"):
            given = {"type": "input_json_delta", "partial_json": function["arguments"]}
            self._event("content_block_delta", index=block, delta=given)

    def _add(self, kind: str, empty: Mapping[str, Any], delta: Mapping[str, Any]) -> None:
        """Adds to the open block, or to a new one where another kind is open."""
        if self._open != kind:
            self._close()
            self._start(kind, empty)
        self._event("content_block_delta", index=self._blocks - 1, delta=delta)

    def _start(self, kind: str, block: Mapping[str, Any]) -> None:
        self._event("content_block_start", index=self._blocks, content_block=block)
        self._open = kind
        self._blocks += 1

    def _close(self) -> None:
        if self._open is not None:
            self._event("content_block_stop", index=self._blocks - 1)
            self._open = None

    def _event(self, kind: str, **fields: object) -> None:
        self._ready.append(_frame(kind, {"type": kind, **fields}))


def _frame(kind: str, body: Mapping[str, object]) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), orjson.dumps(body))
