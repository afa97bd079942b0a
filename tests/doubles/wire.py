"""What the scripted upstream says, in OpenAI's and in Anthropic's wire format. Pure: scripts in, events and bodies out."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain as chained
from itertools import count, islice
from typing import Any


@dataclass
class Script:
    """How one request is answered. Every field may also come as JSON (`POST /__script`, or `script` in a request's body).

    `stall` and `cut` are "headers" (before the status line), "first" (after the headers, before any content) or k
    (after k content events). `malformed` and `error_at` are the index of the event that is garbage or an error object
    (0 is the first event of the stream, of whatever kind).
    """

    text: str | None = None
    """The answer, one piece (token) per word; None: `pieces` made-up words."""
    pieces: int = 5
    prompt_tokens: int | None = None
    """None: one per word of the messages."""
    output_tokens: int | None = None
    """What is billed and stated; None: one per piece. Never more than the limit asked, unless `ignore_limit`."""
    finish: str | None = "stop"
    """None: the stream ends without a finish reason."""
    done: bool = True
    """Whether `[DONE]` ends the stream."""
    usage: str = "top"
    """top | choice | x_groq | cumulative | none | zero | cost | cost_zero"""
    cached_tokens: int = 0
    cached_shape: str = "details"
    """details | top (Moonshot) | deepseek"""
    cost: float = 0.0012
    """USD, for usage = "cost"."""
    reasoning: int = 0
    """Reasoning pieces before the visible ones."""
    reasoning_field: str = "reasoning_content"
    reasoning_outside: bool = False
    """Reasoning tokens are in `total_tokens` only, as Gemini counts them."""
    tool_calls: list[dict[str, Any]] = field(default_factory=list)
    """`{"id", "name", "arguments"}` each."""
    model: str | None = None
    """The model that serves; None: the one asked."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: Any = None
    """Sent as it is instead of an answer: text, or JSON for anything else."""
    content_type: str | None = None

    start_delay_s: float = 0.0
    delay_s: float = 0.0
    """Before each content event."""
    gate: bool = False
    """Held before the headers until `release`."""
    stall: str | int | None = None
    cut: str | int | None = None
    malformed: int | None = None
    error_at: int | None = None
    error: dict[str, Any] = field(default_factory=lambda: {"message": "upstream overloaded", "type": "server_error", "code": 503})

    ignore_limit: bool = False
    endless: bool = False
    refuse_max_tokens: bool = False
    context_tokens: int | None = None
    """A longer prompt is refused, in words only."""

    comments: bool = False
    crlf: bool = False
    multiline: bool = False
    """Each JSON payload is spread over several `data:` lines."""
    events: list[str] | None = None
    """Raw bytes of the stream's body, block by block (latin-1), instead of events made from the script."""


@dataclass
class Plan:
    """A script applied to one request: what will be said and billed."""

    script: Script
    model: str
    prompt_tokens: int
    pieces: Iterator[str]
    limit: int | None
    finish: str | None
    total: int | None
    """Pieces in all; None for an endless stream."""

    def output_tokens(self, sent: int) -> int:
        """Tokens billed once `sent` pieces were generated."""
        stated = self.script.output_tokens
        if stated is None or self.total is None:
            return sent
        if self.limit is not None and not self.script.ignore_limit:
            stated = min(stated, self.limit)
        return stated if sent >= self.total else min(sent, stated)


@dataclass
class Event:
    """One SSE event. `content` marks those that carry generated tokens."""

    data: str
    name: str | None = None
    content: bool = False


def plan(script: Script, body: Mapping[str, Any], model: str) -> Plan:
    """Decides the length of the answer: the limit asked is kept unless the script ignores it."""
    limit = body.get("max_completion_tokens", body.get("max_tokens"))
    words = [word + " " for word in script.text.split(" ")] if script.text is not None else None
    if words:
        words[-1] = words[-1][:-1]
    total: int | None = script.reasoning + (len(words) if words is not None else script.pieces)
    finish = script.finish
    if script.endless:
        total = None
    elif limit is not None and not script.ignore_limit and total is not None and total > limit:
        total, finish = limit, "length"
    made = (f"w{index} " for index in count())
    pieces = chained((f"r{index} " for index in range(script.reasoning)), words if words is not None else made)
    prompt = script.prompt_tokens
    if prompt is None:
        prompt = sum(len(str(part).split()) for part in _texts(body))
    return Plan(
        script, script.model or model, prompt, islice(pieces, total) if total is not None else pieces, limit, finish, total
    )


def _texts(body: Mapping[str, Any]) -> Iterator[str]:
    for message in (*body.get("messages", ()), {"content": body.get("system", "")}):
        content = message.get("content") or ""
        if isinstance(content, str):
            yield content
        else:
            yield from (str(part.get("text", "")) for part in content if isinstance(part, dict))


# OpenAI


def openai_usage(made: Plan, sent: int) -> dict[str, Any]:
    """The usage object after `sent` pieces, in the script's shape."""
    script, output = made.script, made.output_tokens(sent)
    if script.usage == "zero":
        return {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
    inside = output - min(script.reasoning, output) if script.reasoning_outside else output
    usage: dict[str, Any] = {
        "prompt_tokens": made.prompt_tokens,
        "completion_tokens": inside,
        "total_tokens": made.prompt_tokens + output,
    }
    if script.reasoning and not script.reasoning_outside:
        usage["completion_tokens_details"] = {"reasoning_tokens": min(script.reasoning, output)}
    if script.cached_tokens and script.cached_shape == "details":
        usage["prompt_tokens_details"] = {"cached_tokens": script.cached_tokens}
    elif script.cached_tokens and script.cached_shape == "top":
        usage["cached_tokens"] = script.cached_tokens
    elif script.cached_tokens:
        usage["prompt_cache_hit_tokens"] = script.cached_tokens
        usage["prompt_cache_miss_tokens"] = made.prompt_tokens - script.cached_tokens
    if script.usage in ("cost", "cost_zero"):
        usage["cost"] = script.cost if script.usage == "cost" else 0
    return usage


def openai_body(made: Plan) -> tuple[dict[str, Any], int]:
    """The whole `chat.completion` and the number of pieces in it."""
    script = made.script
    pieces = list(made.pieces)
    message: dict[str, Any] = {"role": "assistant", "content": "".join(pieces[script.reasoning :])}
    if script.reasoning:
        message[script.reasoning_field] = "".join(pieces[: script.reasoning])
    if script.tool_calls:
        message["tool_calls"] = [_tool_call(index, call) for index, call in enumerate(script.tool_calls)]
    choice: dict[str, Any] = {"index": 0, "message": message, "finish_reason": made.finish}
    body: dict[str, Any] = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": made.model}
    body["choices"] = [choice]
    usage = openai_usage(made, len(pieces))
    if script.usage == "choice":
        choice["usage"] = usage
    elif script.usage == "x_groq":
        body["x_groq"] = {"id": "req_1", "usage": usage}
    elif script.usage != "none":
        body["usage"] = usage
    return body, len(pieces)


def embeddings_body(script: Script, body: Mapping[str, Any], model: str) -> dict[str, Any]:
    """A vector of two numbers for each input: its place, and its length in words or tokens, which are what is billed."""
    given = body["input"] if isinstance(body["input"], list) else [body["input"]]
    lengths = [len(each.split() if isinstance(each, str) else each) for each in given]
    vectors: list[Any] = [[float(index), float(length)] for index, length in enumerate(lengths)]
    if body.get("encoding_format") == "base64":
        vectors = [base64.b64encode(struct.pack("<2f", *vector)).decode() for vector in vectors]
    prompt = sum(lengths) if script.prompt_tokens is None else script.prompt_tokens
    data = [{"object": "embedding", "index": index, "embedding": vector} for index, vector in enumerate(vectors)]
    usage = {"prompt_tokens": prompt, "total_tokens": prompt}
    return {"object": "list", "data": data, "model": script.model or model, "usage": usage}


def _tool_call(index: int, call: Mapping[str, Any]) -> dict[str, Any]:
    function = {"name": call["name"], "arguments": call["arguments"]}
    return {"index": index, "id": call["id"], "type": "function", "function": function}


def openai_events(made: Plan, include_usage: bool) -> Iterator[Event]:
    """A streamed answer. Usage comes as the script places it; OpenAI's own place only when it was asked for."""
    script = made.script

    def chunk(delta: dict[str, Any], finish: str | None = None, **more: Any) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": made.model}
        nothing = {"usage": None} if script.usage == "top" and include_usage else {}
        return {**head, "choices": [choice], **nothing, **more}

    yield Event(json.dumps(chunk({"role": "assistant", "content": ""})))
    sent = 0
    for sent, piece in enumerate(made.pieces, 1):
        more = {"usage": openai_usage(made, sent)} if script.usage == "cumulative" else {}
        key = script.reasoning_field if sent <= script.reasoning else "content"
        yield Event(json.dumps(chunk({key: piece}, **more)), content=True)
    for index, call in enumerate(script.tool_calls):
        yield Event(json.dumps(chunk({"tool_calls": [_tool_call(index, call)]})), content=True)
    usage = openai_usage(made, sent)
    last = chunk({}, made.finish)
    if script.usage == "choice":
        last["choices"][0]["usage"] = usage
    elif script.usage == "x_groq":
        last["x_groq"] = {"id": "req_1", "usage": usage}
    elif script.usage == "cumulative":
        last["usage"] = usage
    if made.finish is not None:
        yield Event(json.dumps(last))
    if script.usage in ("top", "zero", "cost", "cost_zero") and include_usage:
        yield Event(json.dumps({**chunk({}), "choices": [], "usage": usage}))
    if script.done:
        yield Event("[DONE]")


# Anthropic

_STOP = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use", None: None}


def anthropic_usage(made: Plan, sent: int) -> dict[str, int]:
    """Anthropic counts cached tokens beside, not inside, `input_tokens`."""
    if made.script.usage == "zero":
        return {"input_tokens": 0, "output_tokens": 0}
    cached = made.script.cached_tokens
    return {
        "input_tokens": made.prompt_tokens - cached,
        "cache_read_input_tokens": cached,
        "cache_creation_input_tokens": 0,
        "output_tokens": made.output_tokens(sent),
    }


def anthropic_body(made: Plan) -> tuple[dict[str, Any], int]:
    """The whole message and the number of pieces in it."""
    script, pieces = made.script, list(made.pieces)
    content: list[dict[str, Any]] = []
    if script.reasoning:
        content.append({"type": "thinking", "thinking": "".join(pieces[: script.reasoning]), "signature": "s"})
    content.append({"type": "text", "text": "".join(pieces[script.reasoning :])})
    for call in script.tool_calls:
        content.append({"type": "tool_use", "id": call["id"], "name": call["name"], "input": json.loads(call["arguments"])})
    body: dict[str, Any] = {"id": "msg_1", "type": "message", "role": "assistant", "model": made.model, "content": content}
    body["stop_reason"] = _STOP.get(made.finish, made.finish)
    body["stop_sequence"] = None
    if script.usage != "none":
        body["usage"] = anthropic_usage(made, len(pieces))
    return body, len(pieces)


def anthropic_events(made: Plan) -> Iterator[Event]:
    """A streamed message: thinking, text and tool blocks, usage at both ends."""
    script, with_usage = made.script, made.script.usage != "none"

    def event(kind: str, content: bool = False, **fields: Any) -> Event:
        return Event(json.dumps({"type": kind, **fields}), kind, content)

    head: dict[str, Any] = {"id": "msg_1", "type": "message", "role": "assistant", "model": made.model, "content": []}
    if with_usage:
        head["usage"] = {**anthropic_usage(made, 0), "output_tokens": 0 if script.usage == "zero" else 1}
    yield event("message_start", message=head)
    block, sent = 0, 0
    if script.reasoning:
        yield event("content_block_start", index=0, content_block={"type": "thinking", "thinking": ""})
    else:
        yield event("content_block_start", index=0, content_block={"type": "text", "text": ""})
    yield event("ping")
    for sent, piece in enumerate(made.pieces, 1):
        if sent <= script.reasoning:
            delta = {"type": "thinking_delta", "thinking": piece}
        else:
            if sent == script.reasoning + 1 and script.reasoning:
                yield event("content_block_stop", index=0)
                block = 1
                yield event("content_block_start", index=1, content_block={"type": "text", "text": ""})
            delta = {"type": "text_delta", "text": piece}
        yield event("content_block_delta", True, index=block, delta=delta)
    yield event("content_block_stop", index=block)
    for call in script.tool_calls:
        block += 1
        opened = {"type": "tool_use", "id": call["id"], "name": call["name"], "input": {}}
        yield event("content_block_start", index=block, content_block=opened)
        half = len(call["arguments"]) // 2
        for part in (call["arguments"][:half], call["arguments"][half:]):
            yield event("content_block_delta", True, index=block, delta={"type": "input_json_delta", "partial_json": part})
        yield event("content_block_stop", index=block)
    if made.finish is None:
        return
    usage = {"usage": {"output_tokens": anthropic_usage(made, sent)["output_tokens"]}} if with_usage else {}
    yield event("message_delta", delta={"stop_reason": _STOP.get(made.finish, made.finish), "stop_sequence": None}, **usage)
    yield event("message_stop")
