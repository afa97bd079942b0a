"""What a chat body may be, and what is refused by name."""

from typing import Any

import orjson
import pytest

from gateway.errors import InvalidRequest
from gateway.web.parsing import (
    ANSWERS_MAX,
    DEPTH_MAX,
    INPUTS_MAX,
    OUTPUT_TOKENS_MAX,
    chat_call,
    embedding_call,
    idempotency_key,
    json_object,
)

HELLO = [{"role": "user", "content": "hello"}]


def body(**fields: Any) -> bytes:
    return orjson.dumps({"model": "default", "messages": HELLO} | fields)


def refused(raw: bytes) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        chat_call(raw)
    assert caught.value.status == 400
    return caught.value


def test_a_plain_body_is_a_request() -> None:
    call = chat_call(body())
    assert (call.target, call.stream, call.include_usage) == ("default", False, False)
    assert list(call.request.messages) == HELLO
    assert (call.request.max_output_tokens, call.request.n, call.request.extra) == (None, 1, {})
    assert call.request.clampable


def test_unknown_fields_and_tools_travel_untouched() -> None:
    extra = {"temperature": 0.3, "tools": [{"type": "function", "function": {"name": "f"}}], "top_k": 4, "user": "someone"}
    assert chat_call(body(**extra)).request.extra == extra


@pytest.mark.parametrize(
    ("fields", "limit"),
    [
        ({"max_tokens": 7}, 7),
        ({"max_completion_tokens": 8}, 8),
        ({"max_tokens": 9, "max_completion_tokens": 5}, 5),
        ({"max_tokens": None}, None),
        ({"max_tokens": OUTPUT_TOKENS_MAX}, OUTPUT_TOKENS_MAX),
    ],
)
def test_both_names_of_the_output_limit_are_read(fields: dict[str, Any], limit: int | None) -> None:
    request = chat_call(body(**fields)).request
    assert request.max_output_tokens == limit
    assert not request.extra


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens", "n"])
@pytest.mark.parametrize("value", [0, -1, True, False, "5", 1.0, 1e30, [1], {}, 2**63, 10**30])
def test_a_count_that_is_none_is_refused_by_name(name: str, value: Any) -> None:
    raw = body().replace(b'"model"', b'"%s":%s,"model"' % (name.encode(), _json(value)))
    assert refused(raw).param == name


def _json(value: Any) -> bytes:
    return str(value).encode() if isinstance(value, int) and not isinstance(value, bool) else orjson.dumps(value)


def test_n_has_a_bound() -> None:
    assert chat_call(body(n=ANSWERS_MAX)).request.n == ANSWERS_MAX
    assert refused(body(n=ANSWERS_MAX + 1)).param == "n"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"model": None}, "model"),
        ({"model": ""}, "model"),
        ({"model": 5}, "model"),
        ({"model": "a\x00b"}, "model"),
        ({"model": "m" * 257}, "model"),
        ({"messages": None}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": "hi"}, "messages"),
        ({"messages": {"role": "user"}}, "messages"),
        ({"messages": ["hi"]}, "messages[0]"),
        ({"messages": [{"content": "hi"}]}, "messages[0].role"),
        ({"messages": [{"role": "robot", "content": "hi"}]}, "messages[0].role"),
        ({"messages": [{"role": ["user"], "content": "hi"}]}, "messages[0].role"),
        ({"messages": [*HELLO, {"role": "user"}]}, "messages[1].content"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": {"type": "text"}}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": ["hi"]}]}, "messages[0].content[0]"),
        ({"messages": [{"role": "user", "content": [{"text": "hi"}]}]}, "messages[0].content[0].type"),
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": 5}]}]}, "messages[0].content[0].text"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": "x"}]}]},
            "messages[0].content[0].image_url",
        ),
        ({"messages": [{"role": "assistant", "tool_calls": "x"}]}, "messages[0].tool_calls"),
        ({"messages": [{"role": "assistant", "tool_calls": [{"function": 5}]}]}, "messages[0].tool_calls"),
        ({"messages": [{"role": "user", "content": "x", "name": 5}]}, "messages[0].name"),
        ({"tools": "x"}, "tools"),
        ({"tools": [5]}, "tools[0]"),
        ({"tools": [{"type": ["function"]}]}, "tools[0]"),
        ({"stream": "yes"}, "stream"),
        ({"stream": 1}, "stream"),
        ({"stream": True, "stream_options": []}, "stream_options"),
        ({"stream": True, "stream_options": {"include_usage": "yes"}}, "include_usage"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
    ],
)
def test_a_wrong_field_is_refused_by_name(fields: dict[str, Any], param: str) -> None:
    error = refused(body(**fields))
    assert error.param == param
    assert param.split("[")[0] in error.message


@pytest.mark.parametrize(
    "raw", [b"", b"{", b"[]", b'"x"', b"null", b"NaN", b'{"a":NaN}', b'{"a":1e999}', b"\xff\xfe{}", b'{"a":"\\ud800"}']
)
def test_what_is_no_json_object_is_refused(raw: bytes) -> None:
    refused(raw)


def test_deep_nesting_is_refused_before_anything_walks_it() -> None:
    def nested(levels: int) -> bytes:
        return b'{"a":' + b"[" * (levels - 1) + b"]" * (levels - 1) + b"}"

    assert json_object(nested(DEPTH_MAX))
    for levels in (DEPTH_MAX + 1, 300, 1000, 5000):
        with pytest.raises(InvalidRequest):
            json_object(nested(levels))


def test_a_wide_body_is_not_a_deep_one() -> None:
    assert json_object(b'{"a":[' + b",".join([b"{}"] * 5000) + b"]}")


def test_stream_options_say_whether_usage_is_shown() -> None:
    call = chat_call(body(stream=True, stream_options={"include_usage": True}))
    assert call.stream
    assert call.include_usage
    assert not call.request.extra


def test_a_tool_conversation_passes() -> None:
    messages = [
        {"role": "developer", "content": "be brief"},
        {"role": "user", "content": [{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": "http://x"}}]},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f"}}]},
        {"role": "tool", "tool_call_id": "1", "content": ""},
    ]
    assert list(chat_call(body(messages=messages)).request.messages) == messages


@pytest.mark.parametrize("value", ["", "x" * 256, "a\nb", "é", "\x00"])
def test_an_idempotency_key_is_short_and_printable(value: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        idempotency_key(value)
    assert caught.value.param == "Idempotency-Key"
    assert idempotency_key("x" * 255) == "x" * 255


@pytest.mark.parametrize(
    "field", ["service_tier", "models", "route", "provider", "plugins", "prediction", "web_search_options", "transforms"]
)
def test_case_60_fields_that_change_price_or_destination_are_refused_by_name(field: str) -> None:
    error = refused(body(**{field: "x"}))
    assert error.param == field
    assert field in error.message


@pytest.mark.parametrize(
    ("given", "read"),
    [("a", ["a"]), (["a", "b"], ["a", "b"]), ([1, 2], [[1, 2]]), ([[1], [2, 3]], [[1], [2, 3]])],
)
def test_an_embeddings_input_has_four_shapes(given: Any, read: Any) -> None:
    asked, target = embedding_call(orjson.dumps({"model": "m", "input": given, "encoding_format": "base64", "dimensions": 4}))
    assert (list(asked.inputs), target) == (read, "m")
    assert asked.extra == {"encoding_format": "base64", "dimensions": 4}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": ""}, "input[0]"),
        ({"input": []}, "input"),
        ({"input": None}, "input"),
        ({"input": {"text": "a"}}, "input"),
        ({"input": ["a", ""]}, "input[1]"),
        ({"input": ["a", [1]]}, "input[1]"),
        ({"input": [1, "a"]}, "input[0]"),
        ({"input": [[1], []]}, "input[1]"),
        ({"input": [[1, -1]]}, "input[0]"),
        ({"input": [[True]]}, "input[0]"),
        ({"input": ["a"] * (INPUTS_MAX + 1)}, "input"),
        ({"encoding_format": 4}, "encoding_format"),
        ({"messages": HELLO}, "messages"),
        ({"service_tier": "priority"}, "service_tier"),
        ({"model": ""}, "model"),
    ],
)
def test_an_embeddings_field_that_is_wrong_is_refused_by_name(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        embedding_call(orjson.dumps({"model": "m", "input": "a"} | fields))
    assert caught.value.param == param


LONG = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        (
            {"messages": [{"role": "user", "content": [{"type": "text", "text": "a", **LONG}]}]},
            "messages[0].content[0].cache_control.ttl",
        ),
        ({"tools": [{"type": "function", "function": {"name": "f", **LONG}}]}, "tools[0].cache_control.ttl"),
    ],
)
def test_case_60_a_cache_that_lasts_longer_than_its_worst_case_is_refused(fields: dict[str, Any], param: str) -> None:
    assert refused(body(**fields)).param == param
    in_time = orjson.loads(orjson.dumps(fields).replace(b"1h", b"5m"))
    assert chat_call(body(**in_time)).target == "default"
