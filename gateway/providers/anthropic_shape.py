"""Between OpenAI's chat shape and Anthropic's Messages, both ways. Pure; what has no counterpart passes untouched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import orjson

from gateway.chat import Message, Request, Usage
from gateway.providers import usage as usages

_TRANSLATED = frozenset(
    {"model", "messages", "max_tokens", "max_completion_tokens", "n", "stream", "stream_options", "user"}
    | {"tools", "tool_choice", "parallel_tool_calls", "stop", "response_format"}
)
"""Fields of OpenAI's body that are written anew, or that only we or OpenAI read."""
_COMMON = frozenset({"temperature", "top_p", "tools", "tool_choice", "parallel_tool_calls", "stop"})
_FUNCTION = frozenset({"name", "description", "parameters", "strict"})
_MESSAGE = frozenset({"role", "content", "tool_calls", "tool_call_id"})
_PART = frozenset({"type", "text", "image_url"})
"""What both formats know of a request's fields, of a tool, a message and a part."""
THINKING = ("thinking", "redacted_thinking")
_FINISH = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "pause_turn": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "refusal": "content_filter",
}


class Untranslatable(ValueError):
    """The request cannot be said in this format; `param` names the field."""

    def __init__(self, message: str, param: str) -> None:
        super().__init__(message)
        self.param = param


def to_anthropic(request: Request, model: str, output_tokens: int) -> dict[str, Any]:
    """The body of `POST /v1/messages`. Raises Untranslatable."""
    if request.n != 1:
        raise Untranslatable("this provider gives one answer at a time: n must be 1", "n")
    extra = request.extra
    body = {name: value for name, value in extra.items() if name not in _TRANSLATED}
    body |= {"model": model, "max_tokens": output_tokens, "messages": _turns(request.messages)}
    if system := _system(request.messages):
        body["system"] = system
    if extra.get("tools"):
        body["tools"] = [_tool(tool) for tool in extra["tools"]]
    if choice := _tool_choice(extra):
        body["tool_choice"] = choice
    if stop := extra.get("stop"):
        body["stop_sequences"] = [stop] if isinstance(stop, str) else list(stop)
    wanted = extra.get("response_format")
    if wanted and wanted != {"type": "text"}:
        body["response_format"] = wanted
    return body


def without_anthropics_own(request: Request) -> Request:
    """A request in Anthropic's shape without what only its format knows: strict servers of OpenAI's refuse unknown fields."""
    extra = {name: value for name, value in request.extra.items() if name in _COMMON}
    if "tools" in extra:
        extra["tools"] = [{**tool, "function": _only(tool["function"], _FUNCTION)} for tool in extra["tools"]]
    messages = []
    for message in request.messages:
        kept = _only(message, _MESSAGE)
        if isinstance(kept.get("content"), list):
            kept["content"] = [_only(part, _PART) for part in kept["content"]]
        messages.append(kept)
    return replace(request, messages=messages, extra=extra)


def _only(fields: Mapping[str, Any], names: frozenset[str]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name in names}


def _system(messages: Sequence[Message]) -> str | list[Any]:
    """System and developer messages, wherever they stand; as text unless their parts carry more than text."""
    contents = [message.get("content") for message in messages if message.get("role") in ("system", "developer")]
    parts = [part for content in contents for part in _parts(content)]
    if all(set(part) == {"type", "text"} for part in parts):
        return "\n\n".join(part["text"] for part in parts)
    return parts


def _turns(messages: Sequence[Message]) -> list[dict[str, Any]]:
    turns: list[dict[str, Any]] = []
    for message in messages:
        role = message.get("role")
        if role in ("system", "developer"):
            continue
        if role == "tool":
            result = {"type": "tool_result", "tool_use_id": message.get("tool_call_id"), "content": message.get("content") or ""}
            if isinstance(result["content"], list):
                result["content"] = _parts(result["content"])
            result |= {name: message[name] for name in ("is_error", "cache_control") if name in message}
            # All results of one turn must come together, in one message.
            if turns and turns[-1].get("results"):
                turns[-1]["content"].append(result)
            else:
                turns.append({"role": "user", "content": [result], "results": True})
        elif role == "assistant":
            turns.append({"role": "assistant", "content": _assistant(message)})
        else:
            content = message.get("content")
            turns.append({"role": role, "content": content if isinstance(content, str) else _parts(content)})
    return [{"role": turn["role"], "content": turn["content"]} for turn in turns]


def _assistant(message: Message) -> str | list[Any]:
    calls = message.get("tool_calls") or ()
    content = message.get("content")
    thoughts = message.get("thinking_blocks")
    if not calls and not thoughts and isinstance(content, str):
        return content
    blocks = list(thoughts) if isinstance(thoughts, list) else []
    blocks += [part for part in _parts(content) if part.get("type") != "text" or part.get("text")]
    for call in calls:
        function = call.get("function") or {}
        try:
            given = orjson.loads(function.get("arguments") or "{}")
        except orjson.JSONDecodeError:
            raise Untranslatable("the arguments of a tool call are not JSON", "messages") from None
        blocks.append({"type": "tool_use", "id": call.get("id"), "name": function.get("name"), "input": given})
    return blocks


def _parts(content: Any) -> list[dict[str, Any]]:
    if content is None:
        return []
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [_part(part) for part in content]


def _part(part: Mapping[str, Any]) -> dict[str, Any]:
    """An image by URL or as base64 is put into Anthropic's shape; every other part is left as it is."""
    if part.get("type") != "image_url":
        return dict(part)
    image = part.get("image_url")
    url = str(image.get("url", "") if isinstance(image, Mapping) else image)
    source: dict[str, Any] = {"type": "url", "url": url}
    if url.startswith("data:"):
        head, _, data = url.removeprefix("data:").partition(",")
        source = {"type": "base64", "media_type": head.removesuffix(";base64"), "data": data}
    rest = {name: value for name, value in part.items() if name not in ("type", "image_url")}
    return {"type": "image", "source": source, **rest}


def _tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    function = tool.get("function")
    if not isinstance(function, Mapping):
        return dict(tool)
    made = {name: value for name, value in function.items() if name != "parameters"}
    made["input_schema"] = function.get("parameters") or {"type": "object", "properties": {}}
    return made


def _tool_choice(extra: Mapping[str, Any]) -> dict[str, Any] | None:
    choice = extra.get("tool_choice")
    made: dict[str, Any] | None = None
    if isinstance(choice, str):
        made = {"type": "any" if choice == "required" else choice}
    elif isinstance(choice, Mapping):
        function = choice.get("function")
        made = {"type": "tool", "name": function.get("name")} if isinstance(function, Mapping) else dict(choice)
    if extra.get("parallel_tool_calls") is False and extra.get("tools"):
        made = {**(made or {"type": "auto"}), "disable_parallel_tool_use": True}
    return made


def finish_reason(stop_reason: str) -> str:
    """Anthropic's stop reason in OpenAI's words; an unknown one stays as it is."""
    return _FINISH.get(stop_reason, stop_reason)


def from_anthropic(message: Mapping[str, Any], usage: Usage | None, created: int) -> dict[str, Any]:
    """A `chat.completion` from a whole message."""
    blocks = message.get("content") or []
    text = "".join(block.get("text") or "" for block in blocks if block.get("type") == "text")
    thinking = "".join(block.get("thinking") or "" for block in blocks if block.get("type") == "thinking")
    calls = [_call(block) for block in blocks if block.get("type") == "tool_use"]
    said: dict[str, Any] = {"role": "assistant", "content": text if text or not calls else None}
    if thinking:
        said["reasoning_content"] = thinking
    if kept := [block for block in blocks if block.get("type") in THINKING]:
        # Their signatures must come back with the results of tools.
        said["thinking_blocks"] = kept
    if calls:
        said["tool_calls"] = calls
    choice = {"index": 0, "message": said, "finish_reason": finish_reason(message["stop_reason"])}
    if message.get("stop_sequence"):
        choice["stop_reason"] = message["stop_sequence"]
    body = {"id": message.get("id"), "object": "chat.completion", "created": created, "model": message.get("model")}
    body["choices"] = [choice]
    if usage is not None:
        body["usage"] = usages.to_openai(usage)
    return body


def _call(block: Mapping[str, Any]) -> dict[str, Any]:
    function = {"name": block.get("name"), "arguments": orjson.dumps(block.get("input") or {}).decode()}
    return {"id": block.get("id"), "type": "function", "function": function}
