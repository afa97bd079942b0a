"""The body of `POST /v1/messages`, Anthropic's shape, as the request that any provider understands.

What both shapes know is written in OpenAI's; what only Anthropic's has (cache marks, thinking, `top_k`, fields that are not
known here) stays in its place for providers of that format. Everything raises InvalidRequest with the field in `param`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from gateway.chat import Request
from gateway.errors import InvalidRequest
from gateway.web.parsing import (
    OUTPUT_TOKENS_MAX,
    ChatCall,
    count,
    flag,
    json_object,
    refuse_long_cache,
    refuse_unpriced,
    target_of,
)

Fields = Mapping[str, Any]

_READ = frozenset(
    {"model", "messages", "system", "max_tokens", "stream", "stop_sequences", "tools", "tool_choice", "metadata"}
    | {"max_completion_tokens", "n", "stream_options"}
)
"""Fields that are written anew, or have no say in this shape. `metadata` is about the caller's own users."""
_BESIDE = frozenset(("name", "description", "input_schema", "type"))
_CHOICES = {"auto": "auto", "any": "required", "none": "none"}


def messages_call(body: bytes, *, counting: bool = False) -> ChatCall:
    """Checks a body; `counting`: one whose tokens are asked for, which names no output limit. Raises InvalidRequest."""
    fields = json_object(body)
    target = target_of(fields)
    messages = fields.get("messages")
    if not isinstance(messages, list) or not messages:
        raise InvalidRequest("messages must be a non-empty list", "messages")
    limit = count(fields, "max_tokens", OUTPUT_TOKENS_MAX)
    if limit is None and not counting:
        raise InvalidRequest("max_tokens is missing", "max_tokens")
    refuse_unpriced({name: value for name, value in fields.items() if name != "tools"})
    refuse_long_cache(fields, "")
    said = _system(fields.get("system"))
    for index, message in enumerate(messages):
        said += _message(message, f"messages[{index}]")
    stream = flag(fields, "stream")
    extra = {name: value for name, value in fields.items() if name not in _READ} | _tools(fields) | _stop(fields)
    thinks = isinstance(extra.get("thinking"), dict) and extra["thinking"].get("type") == "enabled"
    # Thinking has a budget of its own within the output limit: a lowered limit would not hold it.
    request = Request(said, limit, extra=extra, clampable=not thinks, anthropic=True)
    return ChatCall(request, target, stream, include_usage=True)


def _wrong(place: str, must: str) -> InvalidRequest:
    return InvalidRequest(f"{place} must be {must}", place)


def _system(given: object) -> list[dict[str, Any]]:
    if given is None or given == "" or given == []:
        return []
    if isinstance(given, str):
        return [{"role": "system", "content": given}]
    if not isinstance(given, list):
        raise _wrong("system", "text or a list of text blocks")
    parts = [_text(_block(block, f"system[{index}]"), f"system[{index}]") for index, block in enumerate(given)]
    return [{"role": "system", "content": _content(parts)}]


def _message(message: object, place: str) -> list[dict[str, Any]]:
    """One message as one or more: each result of a tool is a message of its own in OpenAI's shape."""
    if not isinstance(message, dict):
        raise _wrong(place, "an object")
    role, content = message.get("role"), message.get("content")
    if role not in ("user", "assistant"):
        raise _wrong(f"{place}.role", "user or assistant")
    if isinstance(content, str):
        return [{"role": role, "content": content}]
    if not isinstance(content, list) or not content:
        raise _wrong(f"{place}.content", "text or a list of blocks that is not empty")
    blocks = [(_block(block, at), at) for index, block in enumerate(content) if (at := f"{place}.content[{index}]")]
    return [_assistant(blocks)] if role == "assistant" else _user(blocks)


def _block(block: object, place: str) -> Fields:
    if not isinstance(block, dict) or not isinstance(block.get("type"), str):
        raise _wrong(place, "an object with a type")
    refuse_long_cache(block, place)
    return block


def _user(blocks: list[tuple[Fields, str]]) -> list[dict[str, Any]]:
    results = [_result(block, place) for block, place in blocks if block["type"] == "tool_result"]
    parts = [_part(block, place) for block, place in blocks if block["type"] != "tool_result"]
    return [*results, {"role": "user", "content": _content(parts)}] if parts else results


def _assistant(blocks: list[tuple[Fields, str]]) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": None}
    parts = [_part(block, place) for block, place in blocks if block["type"] not in _NOT_PARTS]
    if parts:
        message["content"] = _content(parts)
    if calls := [_call(block, place) for block, place in blocks if block["type"] == "tool_use"]:
        message["tool_calls"] = calls
    if thoughts := [dict(block) for block, _ in blocks if _is_thought(block)]:
        message["thinking_blocks"] = thoughts
    elif not parts and not calls:
        message["content"] = ""
    return message


_NOT_PARTS = ("tool_use", "thinking", "redacted_thinking")


def _is_thought(block: Fields) -> bool:
    """Thinking that its vendor takes back: what came from elsewhere has no signature."""
    return block["type"] == "redacted_thinking" or (block["type"] == "thinking" and bool(block.get("signature")))


def _part(block: Fields, place: str) -> dict[str, Any]:
    """A part of a message. What is neither text nor an image is left as it is: no provider has a bound for it."""
    if block["type"] == "text":
        return _text(block, place)
    return _image(block, place) if block["type"] == "image" else dict(block)


def _text(block: Fields, place: str) -> dict[str, Any]:
    if block["type"] != "text" or not isinstance(block.get("text"), str):
        raise _wrong(place, "a text block")
    marks = {"cache_control": block["cache_control"]} if block.get("cache_control") else {}
    return {"type": "text", "text": block["text"], **marks}


def _image(block: Fields, place: str) -> dict[str, Any]:
    source = block.get("source")
    kind = source.get("type") if isinstance(source, dict) else None
    names = {"base64": ("media_type", "data"), "url": ("url",)}.get(str(kind), ())
    if not isinstance(source, dict) or not names or not all(isinstance(source.get(name), str) for name in names):
        raise _wrong(f"{place}.source", "an image as base64 with its media_type, or by its url")
    url = source["url"] if kind == "url" else f"data:{source['media_type']};base64,{source['data']}"
    marks = {"cache_control": block["cache_control"]} if block.get("cache_control") else {}
    return {"type": "image_url", "image_url": {"url": url}, **marks}


def _content(parts: list[dict[str, Any]]) -> str | list[dict[str, Any]]:
    """One plain text as text, which every server understands."""
    return parts[0]["text"] if len(parts) == 1 and parts[0].keys() == {"type", "text"} else parts


def _result(block: Fields, place: str) -> dict[str, Any]:
    given, content = block.get("content"), block.get("content") or ""
    if not isinstance(block.get("tool_use_id"), str):
        raise _wrong(f"{place}.tool_use_id", "a string")
    if isinstance(given, list) and given:
        parts = [(_block(part, at), at) for index, part in enumerate(given) if (at := f"{place}.content[{index}]")]
        content = _content([_part(part, at) for part, at in parts])
    elif not isinstance(content, str):
        raise _wrong(f"{place}.content", "text or a list of blocks")
    marks = {name: block[name] for name in ("is_error", "cache_control") if block.get(name)}
    return {"role": "tool", "tool_call_id": block["tool_use_id"], "content": content, **marks}


def _call(block: Fields, place: str) -> dict[str, Any]:
    if not isinstance(block.get("id"), str) or not isinstance(block.get("name"), str):
        raise _wrong(place, "a tool_use block with an id and a name")
    if not isinstance(block.get("input", {}), dict):
        raise _wrong(f"{place}.input", "an object")
    function = {"name": block["name"], "arguments": orjson.dumps(block.get("input", {})).decode()}
    return {"id": block["id"], "type": "function", "function": function}


def _tools(fields: Fields) -> dict[str, Any]:
    made: dict[str, Any] = {}
    if tools := fields.get("tools"):
        if not isinstance(tools, list):
            raise _wrong("tools", "a list")
        made["tools"] = [_tool(tool, f"tools[{index}]") for index, tool in enumerate(tools)]
    choice = fields.get("tool_choice")
    if choice is None:
        return made
    kind = choice.get("type") if isinstance(choice, dict) else None
    if kind == "tool" and isinstance(choice.get("name"), str):
        made["tool_choice"] = {"type": "function", "function": {"name": choice["name"]}}
    elif isinstance(kind, str) and kind in _CHOICES:
        made["tool_choice"] = _CHOICES[kind]
    else:
        raise _wrong("tool_choice", "an object with the type auto, any, none, or tool with a name")
    if flag(choice, "disable_parallel_tool_use"):
        made["parallel_tool_calls"] = False
    return made


def _tool(tool: object, place: str) -> dict[str, Any]:
    if not isinstance(tool, dict) or not isinstance(tool.get("name"), str):
        raise _wrong(place, "an object with a name")
    if tool.get("type") not in (None, "custom"):
        raise InvalidRequest(f"{place}.type: the vendor's own tools are billed apart, and are refused", f"{place}.type")
    if not isinstance(tool.get("input_schema"), dict):
        raise _wrong(f"{place}.input_schema", "an object")
    refuse_long_cache(tool, place)
    rest = {name: value for name, value in tool.items() if name not in _BESIDE}
    described = {"description": tool["description"]} if tool.get("description") else {}
    return {"type": "function", "function": {"name": tool["name"], **described, "parameters": tool["input_schema"], **rest}}


def _stop(fields: Fields) -> dict[str, Any]:
    stops = fields.get("stop_sequences")
    if not stops:
        return {}
    if not isinstance(stops, list) or not all(isinstance(stop, str) for stop in stops):
        raise _wrong("stop_sequences", "a list of texts")
    return {"stop": stops}
