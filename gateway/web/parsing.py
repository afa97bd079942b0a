"""The bodies of chat completions and embeddings, checked by hand: what is wrong is refused by name before anything is asked.

Everything raises InvalidRequest with the field in `param`. Checks follow the published OpenAI shape, and no more: a
field that is not known here travels on untouched.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from gateway.chat import EmbeddingRequest, Request
from gateway.errors import InvalidRequest
from gateway.estimate import refused_fields

ANY_BYTES_MAX = 64 << 10
"""Bytes of what a run may be told."""
BODY_BYTES_MAX = 20 * 1024 * 1024
OUTPUT_TOKENS_MAX = 100_000_000
ANSWERS_MAX = 128
TARGET_CHARS_MAX = 256
INPUTS_MAX = 2048
"""Of one request for embeddings, as OpenAI has it."""
TOKEN_MAX = 1 << 31
DEPTH_MAX = 100
"""Deeper JSON than this is refused: encoders and the estimate walk it, and each has its own limit further up."""

ROLES = frozenset(("system", "developer", "user", "assistant", "tool", "function"))
_TAKEN = frozenset(("model", "messages", "max_tokens", "max_completion_tokens", "n", "stream", "stream_options"))


_OTHER_INPUTS = ("messages", "inputs", "texts", "images", "content")
"""Fields in which some servers take further inputs of an embedding: there would be no bound for them."""


@dataclass(frozen=True, slots=True)
class ChatCall:
    """A checked request: `target` is the chain, provider or model asked; `include_usage` asks for the usage chunk."""

    request: Request
    target: str
    stream: bool
    include_usage: bool


def chat_call(body: bytes) -> ChatCall:
    """Checks a body of POST /v1/chat/completions. Raises InvalidRequest (status 400)."""
    fields = json_object(body)
    target = target_of(fields)
    messages = fields.get("messages")
    if not isinstance(messages, list) or not messages:
        raise InvalidRequest("messages must be a non-empty list", "messages")
    for index, message in enumerate(messages):
        _check_message(message, index)
    _check_tools(fields.get("tools"))
    refuse_unpriced(fields)
    stream = flag(fields, "stream")
    include_usage = _include_usage(fields, stream)
    n = count(fields, "n", ANSWERS_MAX)
    return ChatCall(
        Request(
            messages=messages,
            max_output_tokens=_output_limit(fields),
            n=1 if n is None else n,
            extra={name: value for name, value in fields.items() if name not in _TAKEN},
        ),
        target,
        stream,
        include_usage,
    )


def embedding_call(body: bytes) -> tuple[EmbeddingRequest, str]:
    """Checks a body of POST /v1/embeddings; the second value is its target. Raises InvalidRequest (status 400)."""
    fields = json_object(body)
    target = target_of(fields)
    inputs = _inputs(fields.get("input"))
    for name in _OTHER_INPUTS:
        if fields.get(name) is not None:
            raise InvalidRequest(f"{name}: only input is read", name)
    refuse_unpriced(fields)
    if not isinstance(fields.get("encoding_format", ""), str):
        raise InvalidRequest("encoding_format must be a string", "encoding_format")
    return EmbeddingRequest(inputs, {name: value for name, value in fields.items() if name not in ("model", "input")}), target


def _inputs(given: object) -> list[str] | list[list[int]]:
    """The inputs as a list, whichever of the four shapes came: a text, texts, tokens, lists of tokens."""
    if isinstance(given, str) or (isinstance(given, list) and given and all(map(_is_token, given))):
        given = [given]
    if not isinstance(given, list) or not given:
        raise InvalidRequest("input must be a text, a list of texts, a list of tokens or a list of such lists", "input")
    if len(given) > INPUTS_MAX:
        raise InvalidRequest(f"input has {len(given)} entries; at most {INPUTS_MAX} are taken", "input")
    of_text = isinstance(given[0], str)
    for index, each in enumerate(given):
        if not each or (not isinstance(each, str) if of_text else not isinstance(each, list) or not all(map(_is_token, each))):
            kind = "a text that is not empty" if of_text else "a list of tokens that is not empty"
            raise InvalidRequest(f"input[{index}] must be {kind}, as the first one is", f"input[{index}]")
    return given


def _is_token(value: object) -> bool:
    return type(value) is int and 0 <= value < TOKEN_MAX


def target_of(fields: Mapping[str, Any]) -> str:
    """What `model` names. Raises InvalidRequest."""
    target = fields.get("model")
    if not isinstance(target, str) or not target:
        raise InvalidRequest("model must be a non-empty string", "model")
    if len(target) > TARGET_CHARS_MAX or not target.isprintable():
        raise InvalidRequest(f"model must be at most {TARGET_CHARS_MAX} printable characters", "model")
    return target


def refuse_unpriced(fields: Mapping[str, Any]) -> None:
    """Raises InvalidRequest for fields that change what the call costs or where it goes."""
    if refused := refused_fields(fields):
        names = ", ".join(refused)
        raise InvalidRequest(f"{names}: would change the price or the destination of the call, and is refused", refused[0])


def refuse_long_cache(holder: Mapping[str, Any], place: str) -> None:
    """Raises InvalidRequest for a cache mark that lasts longer than is usual: writing it costs more than its worst case."""
    mark = holder.get("cache_control")
    if isinstance(mark, dict) and mark.get("ttl") not in (None, "5m"):
        name = f"{place}.cache_control.ttl".removeprefix(".")
        raise InvalidRequest(f"{name}: another one than 5m would change the price of the call, and is refused", name)


def any_json(body: bytes) -> Any:
    """A body that may be any JSON, or nothing, which is None. Raises InvalidRequest."""
    if len(body) > ANY_BYTES_MAX:
        raise InvalidRequest(f"a signal has at most {ANY_BYTES_MAX} bytes", None, 413)
    if not body.strip():
        return None
    try:
        orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise InvalidRequest(f"the body is not valid JSON: {error}"[:300]) from None
    # Inside an object, so that the check of its depth is the same.
    return json_object(b'{"data":%s}' % body)["data"]


def json_object(body: bytes) -> dict[str, Any]:
    """A body that must be one JSON object, in UTF-8, not nested deeper than DEPTH_MAX. Raises InvalidRequest."""
    try:
        fields = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise InvalidRequest(f"the body is not valid JSON: {error}"[:300])
    if not isinstance(fields, dict):
        raise InvalidRequest("the body must be a JSON object")
    # Counting brackets costs microseconds and clears nearly every body; only a suspicious one is walked.
    if body.count(b"[") + body.count(b"{") > DEPTH_MAX and _depth_passes(fields):
        raise InvalidRequest(f"the body is nested deeper than {DEPTH_MAX} levels")
    return fields


def _depth_passes(value: Any) -> bool:
    level = [value]
    for _ in range(DEPTH_MAX):
        deeper: list[Any] = []
        for container in level:
            inner = container.values() if isinstance(container, dict) else container
            deeper += [item for item in inner if isinstance(item, dict | list)]
        if not deeper:
            return False
        level = deeper
    return True


def _check_message(message: object, index: int) -> None:
    if not isinstance(message, dict):
        raise InvalidRequest(f"messages[{index}] must be an object", f"messages[{index}]")
    role = message.get("role")
    if not isinstance(role, str) or role not in ROLES:
        raise InvalidRequest(
            f"messages[{index}].role must be one of {', '.join(sorted(ROLES))}",
            f"messages[{index}].role",
        )
    content = message.get("content")
    if isinstance(content, list):
        for part_index, part in enumerate(content):
            _check_part(part, f"messages[{index}].content[{part_index}]")
    elif content is None:
        if role != "assistant":
            raise InvalidRequest(f"messages[{index}].content is missing", f"messages[{index}].content")
    elif not isinstance(content, str):
        raise InvalidRequest(f"messages[{index}].content must be text or a list of parts", f"messages[{index}].content")
    for field, kind, said in _MESSAGE_FIELDS:
        value = message.get(field)
        if value is not None and not kind(value):
            raise InvalidRequest(f"messages[{index}].{field} must be {said}", f"messages[{index}].{field}")


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_calls(value: object) -> bool:
    return isinstance(value, list) and all(
        isinstance(call, dict) and (call.get("function") is None or isinstance(call["function"], dict)) for call in value
    )


_MESSAGE_FIELDS: tuple[tuple[str, Callable[[object], bool], str], ...] = (
    ("name", _is_text, "a string"),
    ("tool_call_id", _is_text, "a string"),
    ("tool_calls", _is_calls, "a list of objects"),
)

_PART_BODIES: dict[str, Callable[[object], bool]] = {
    "text": _is_text,
    "refusal": _is_text,
    "image_url": lambda value: isinstance(value, dict) and isinstance(value.get("url"), str),
}


def _check_part(part: object, place: str) -> None:
    if not isinstance(part, dict):
        raise InvalidRequest(f"{place} must be an object", place)
    kind = part.get("type")
    if not isinstance(kind, str):
        raise InvalidRequest(f"{place}.type must be a string", f"{place}.type")
    refuse_long_cache(part, place)
    well_formed = _PART_BODIES.get(kind)
    if well_formed is not None and not well_formed(part.get(kind)):
        raise InvalidRequest(f"{place}.{kind} is missing or has the wrong type", f"{place}.{kind}")


def _check_tools(tools: object) -> None:
    """Only their outline: what a tool says of itself is between the caller and the model."""
    if tools is None:
        return
    if not isinstance(tools, list):
        raise InvalidRequest("tools must be a list", "tools")
    for index, tool in enumerate(tools):
        if not isinstance(tool, dict) or not isinstance(tool.get("type"), str):
            raise InvalidRequest(f"tools[{index}] must be an object with a type", f"tools[{index}]")
        for holder in (tool, tool.get("function")):
            if isinstance(holder, dict):
                refuse_long_cache(holder, f"tools[{index}]")


def _output_limit(fields: dict[str, Any]) -> int | None:
    """Both names are accepted; a body that gives both means the smaller."""
    given = [
        limit for name in ("max_completion_tokens", "max_tokens") if (limit := count(fields, name, OUTPUT_TOKENS_MAX)) is not None
    ]
    return min(given, default=None)


def count(fields: Mapping[str, Any], name: str, most: int) -> int | None:
    """A number from 1 to `most`, None where there is none. Raises InvalidRequest."""
    value = fields.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidRequest(f"{name} must be an integer", name)
    if not 1 <= value <= most:
        raise InvalidRequest(f"{name} must be between 1 and {most}", name)
    return value


def flag(fields: Mapping[str, Any], name: str) -> bool:
    """True or false; false where there is none. Raises InvalidRequest."""
    value = fields.get(name)
    if value is not None and not isinstance(value, bool):
        raise InvalidRequest(f"{name} must be true or false", name)
    return bool(value)


def _include_usage(fields: dict[str, Any], stream: bool) -> bool:
    options = fields.get("stream_options")
    if options is None:
        return False
    if not isinstance(options, dict):
        raise InvalidRequest("stream_options must be an object", "stream_options")
    if not stream:
        raise InvalidRequest("stream_options is only allowed when stream is true", "stream_options")
    return flag(options, "include_usage")


def idempotency_key(value: str) -> str:
    """The header's value, 1 to 255 printable ASCII characters. Raises InvalidRequest."""
    if not 1 <= len(value) <= 255 or not value.isascii() or not value.isprintable():
        raise InvalidRequest("Idempotency-Key must be 1 to 255 printable ASCII characters", "Idempotency-Key")
    return value
