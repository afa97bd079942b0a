"""Replies of deduplicated requests: their fingerprint, the stored form, and how a stored one is given again.

Also the whole `chat.completion` object put together from the events of a stream.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import orjson

from gateway.chat import Asked, Chunk, Completion, EmbeddingRequest, Slot, Usage
from gateway.dispatcher.received import Received
from gateway.dispatcher.values import Begun, Priced, Reply

_NOT_SAID = frozenset(("role", "type", "id", "thinking_blocks"))
"""Parts of a message that generated nothing, or the same again."""


def fingerprint(request: Asked, target: str) -> str:
    """A digest of everything that is asked: the same id with another one is a conflict."""
    if isinstance(request, EmbeddingRequest):
        return _digest(["embeddings", target, list(request.inputs), dict(request.extra)])
    asked = [
        target,
        list(request.messages),
        request.max_output_tokens,
        request.n,
        dict(request.extra),
        request.clampable,
    ]
    return _digest(asked)


def _digest(asked: list[Any]) -> str:
    return hashlib.sha256(orjson.dumps(asked, option=orjson.OPT_SORT_KEYS)).hexdigest()


def stored(reply: Reply) -> bytes:
    """The form in which a reply is kept with its closing."""
    usage, completion = reply.usage, reply.completion
    return orjson.dumps(
        {
            "text": completion.text,
            "finish_reason": completion.finish_reason,
            "model": completion.model,
            "body": completion.body,
            "usage": {"prompt": usage.prompt, "output": usage.output, "cached": usage.cached, "reasoning": usage.reasoning},
            "provider": reply.slot.provider,
            "asked": reply.slot.model,
            "chain": reply.chain,
            "clamped": reply.clamped,
            "estimated": reply.estimated,
        },
        default=dict,
    )


def restored(data: bytes, request_id: str) -> Reply:
    """A stored reply, given again: it costs nothing."""
    kept = orjson.loads(data)
    usage = Usage(**kept["usage"])
    completion = Completion(kept["text"], kept["finish_reason"], kept["model"], usage, kept["body"])
    return Reply(
        completion,
        Slot(kept["provider"], kept["asked"]),
        kept["chain"],
        usage,
        cost_micro_usd=0,
        clamped=kept["clamped"],
        estimated=kept["estimated"],
        skipped=(),
        request_id=request_id,
        repeated=True,
    )


def as_events(reply: Reply) -> Iterator[Begun | Chunk | Priced | Reply]:
    """A whole reply as the events of a stream, with all of its content in one chunk."""
    completion = reply.completion
    head = {key: completion.body[key] for key in ("id", "created", "model") if key in completion.body}
    choices = [
        {"index": choice.get("index", 0), "delta": _delta(choice), "finish_reason": choice.get("finish_reason")}
        for choice in completion.body.get("choices", ())
    ]
    yield Begun(reply.slot, reply.chain, reply.skipped)
    yield Priced(reply.usage, reply.cost_micro_usd)
    yield Chunk(
        text=completion.text,
        visible=True,
        finish_reason=completion.finish_reason,
        usage=reply.usage,
        model=completion.model,
        body={**head, "object": "chat.completion.chunk", "choices": choices, "usage": usage_body(reply.usage)},
    )
    yield reply


def _delta(choice: Mapping[str, Any]) -> Mapping[str, Any]:
    """A whole message as one delta: in a stream, each tool call says which one it is."""
    message = choice.get("message") or {}
    calls = message.get("tool_calls")
    if not calls:
        return message
    return {**message, "tool_calls": [{"index": number, **call} for number, call in enumerate(calls)]}


def said(body: Mapping[str, Any]) -> str:
    """Everything that was generated in a whole `chat.completion` object: text, reasoning and calls of every answer."""
    return "".join(_words(choice.get("message")) for choice in body.get("choices") or ())


def _words(part: Any) -> str:
    if isinstance(part, Mapping):
        return "".join(_words(value) for key, value in part.items() if key not in _NOT_SAID)
    if isinstance(part, list):
        return "".join(map(_words, part))
    return part if isinstance(part, str) else ""


def usage_body(usage: Usage) -> dict[str, object]:
    """Usage in the OpenAI shape."""
    return {
        "prompt_tokens": usage.prompt,
        "completion_tokens": usage.output,
        "total_tokens": usage.tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
    }


def stopped_chunk(last: Chunk | None, usage: Usage, model: str) -> Chunk:
    """The last event of a stream that was cut off at its limit, in the shape of the events before it."""
    before = {} if last is None else payload(last)
    head = {key: before[key] for key in ("id", "created", "system_fingerprint") if key in before}
    body = {
        **head,
        "object": "chat.completion.chunk",
        "model": model,
        "choices": [{"index": 0, "delta": {}, "finish_reason": "length"}],
        "usage": usage_body(usage),
    }
    return Chunk(finish_reason="length", usage=usage, model=model, body=body)


def payload(chunk: Chunk) -> Mapping[str, Any]:
    """A chunk as an object in the OpenAI shape; {} where it has none."""
    if chunk.body is not None:
        return chunk.body
    loaded = orjson.loads(chunk.raw) if chunk.raw is not None else {}
    return loaded if isinstance(loaded, dict) else {}


def whole(received: Received, finish_reason: str, model: str, usage: Usage) -> dict[str, Any]:
    """The whole `chat.completion` object of a stream that has ended."""
    if received.keeps_all:
        return assembled(received.chunks, model, usage)
    message = {"role": "assistant", "content": received.text}
    if received.reasoning:
        message["reasoning_content"] = received.reasoning
    choice = {"index": 0, "message": message, "finish_reason": finish_reason}
    return {"object": "chat.completion", "model": model, "choices": [choice], "usage": usage_body(usage)}


def assembled(chunks: Iterable[Chunk], model: str, usage: Usage) -> dict[str, Any]:
    """The whole `chat.completion` object that a stream's events add up to, tool calls included."""
    head: dict[str, Any] = {}
    choices: dict[int, dict[str, Any]] = {}
    calls: dict[int, dict[int, dict[str, Any]]] = {}
    for chunk in chunks:
        event = payload(chunk)
        for key in ("id", "created"):
            if key in event:
                head.setdefault(key, event[key])
        for part in event.get("choices") or ():
            index = part.get("index") or 0
            choice = choices.setdefault(index, {"index": index, "message": {"role": "assistant"}, "finish_reason": None})
            delta = part.get("delta") or {}
            _grow(choice["message"], delta)
            for call in delta.get("tool_calls") or ():
                _grow_call(calls.setdefault(index, {}), call)
            choice["finish_reason"] = part.get("finish_reason") or choice["finish_reason"]
    for index, choice in choices.items():
        if index in calls:
            choice["message"]["tool_calls"] = list(calls[index].values())
        choice["message"].setdefault("content", None if index in calls else "")
    ordered = [choices[index] for index in sorted(choices)]
    return {**head, "object": "chat.completion", "model": model, "choices": ordered, "usage": usage_body(usage)}


def _grow(message: dict[str, Any], delta: Mapping[str, Any]) -> None:
    for key, value in delta.items():
        if key == "tool_calls":
            continue
        before = message.get(key) or ""
        if isinstance(value, str) and isinstance(before, str) and key != "role":
            message[key] = before + value
        elif value is not None:
            message[key] = value


def _grow_call(calls: dict[int, dict[str, Any]], part: Mapping[str, Any]) -> None:
    """Adds a part to the call that it names, whatever number the provider counts from."""
    index = part.get("index")
    made = {"type": "function", "function": {"name": "", "arguments": ""}}
    call = calls.setdefault(len(calls) if index is None else index, made)
    for key in ("id", "type"):
        if part.get(key):
            call[key] = part[key]
    function = part.get("function") or {}
    for key in ("name", "arguments"):
        call["function"][key] += function.get(key) or ""
