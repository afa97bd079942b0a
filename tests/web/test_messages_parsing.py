"""What a body of Anthropic's shape becomes, and what is refused by name."""

from typing import Any

import orjson
import pytest

from gateway.errors import InvalidRequest
from gateway.web.messages_parsing import messages_call

HELLO = [{"role": "user", "content": "hello"}]
MARK = {"type": "ephemeral"}
TEXT = {"type": "text", "text": "a"}


def body(**fields: Any) -> bytes:
    return orjson.dumps({"model": "m", "max_tokens": 9, "messages": HELLO} | fields)


def test_a_plain_body_is_a_request() -> None:
    call = messages_call(body(stream=True, system="s", top_k=4, metadata={"user_id": "u"}))
    assert (call.target, call.stream, call.include_usage) == ("m", True, True)
    assert call.request.messages == [{"role": "system", "content": "s"}, *HELLO]
    assert (call.request.max_output_tokens, call.request.extra, call.request.clampable) == (9, {"top_k": 4}, True)
    assert call.request.anthropic


def test_cache_marks_and_thinking_stay_where_they_are() -> None:
    thought = {"type": "thinking", "thinking": "t", "signature": "s"}
    said = [thought, {"type": "thinking", "thinking": "from elsewhere", "signature": ""}, TEXT]
    call = messages_call(
        body(
            system=[TEXT, {**TEXT, "cache_control": MARK}],
            messages=[*HELLO, {"role": "assistant", "content": said}, *HELLO],
            thinking={"type": "enabled", "budget_tokens": 5},
            tools=[{"name": "t", "input_schema": {}, "cache_control": MARK, "type": "custom"}],
        )
    )
    system, _, assistant, _ = call.request.messages
    assert system["content"] == [TEXT, {**TEXT, "cache_control": MARK}]
    assert assistant == {"role": "assistant", "content": "a", "thinking_blocks": [thought]}
    assert call.request.extra["tools"] == [
        {"type": "function", "function": {"name": "t", "parameters": {}, "cache_control": MARK}}
    ]
    assert not call.request.clampable


def test_the_choice_of_tools_is_said_in_the_other_words() -> None:
    for choice, said in (
        ({"type": "auto"}, "auto"),
        ({"type": "any"}, "required"),
        ({"type": "none"}, "none"),
        ({"type": "tool", "name": "t"}, {"type": "function", "function": {"name": "t"}}),
    ):
        extra = messages_call(body(tool_choice={**choice, "disable_parallel_tool_use": True})).request.extra
        assert (extra["tool_choice"], extra["parallel_tool_calls"]) == (said, False)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"max_tokens": None}, "max_tokens"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"messages": []}, "messages"),
        ({"messages": ["hi"]}, "messages[0]"),
        ({"messages": [{"role": "system", "content": "a"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": []}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": [{"text": "a"}]}]}, "messages[0].content[0]"),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages[0].content[0]"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image", "source": {"type": "file", "file_id": "f"}}]}]},
            "messages[0].content[0].source",
        ),
        (
            {"messages": [{"role": "user", "content": [{**TEXT, "cache_control": MARK | {"ttl": "1h"}}]}]},
            "messages[0].content[0].cache_control.ttl",
        ),
        ({"messages": [{"role": "user", "content": [{"type": "tool_result"}]}]}, "messages[0].content[0].tool_use_id"),
        (
            {"messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "i", "content": 4}]}]},
            "messages[0].content[0].content",
        ),
        ({"messages": [{"role": "assistant", "content": [{"type": "tool_use", "id": "i"}]}]}, "messages[0].content[0]"),
        (
            {"messages": [{"role": "assistant", "content": [{"type": "tool_use", "id": "i", "name": "n", "input": 4}]}]},
            "messages[0].content[0].input",
        ),
        ({"system": 4}, "system"),
        ({"system": [{"type": "image"}]}, "system[0]"),
        ({"tools": {"name": "t"}}, "tools"),
        ({"tools": [{"name": "t"}]}, "tools[0].input_schema"),
        ({"tools": [{"name": "t", "input_schema": {}, "cache_control": {"ttl": "1h"}}]}, "tools[0].cache_control.ttl"),
        ({"tools": [{"name": "web_search", "type": "web_search_20260209"}]}, "tools[0].type"),
        ({"tool_choice": "auto"}, "tool_choice"),
        ({"tool_choice": {"type": "tool"}}, "tool_choice"),
        ({"stop_sequences": "END"}, "stop_sequences"),
        ({"stream": 1}, "stream"),
        ({"cache_control": {"type": "ephemeral", "ttl": "1h"}}, "cache_control.ttl"),
        ({"speed": "fast"}, "speed"),
        ({"inference_geo": "us"}, "inference_geo"),
        ({"container": "c"}, "container"),
        ({"mcp_servers": [{"url": "u"}]}, "mcp_servers"),
        ({"service_tier": "priority"}, "service_tier"),
    ],
)
def test_a_wrong_field_is_refused_by_name(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        messages_call(body(**fields))
    assert caught.value.param == param


def test_a_body_whose_tokens_are_counted_names_no_limit() -> None:
    assert messages_call(body(max_tokens=None), counting=True).request.max_output_tokens is None
