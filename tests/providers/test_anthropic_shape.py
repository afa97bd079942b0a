"""OpenAI-shaped requests as Anthropic's Messages, and answers back."""

from collections.abc import Callable
from typing import Any

import pytest

from gateway.chat import Request
from gateway.errors import CallerFault
from gateway.providers import Provider
from gateway.providers.anthropic_shape import from_anthropic, to_anthropic, without_anthropics_own
from tests.doubles.upstream import Script, Upstream
from tests.providers.calls import ask, reservation

Make = Callable[..., Provider]
CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}


def body(messages: list[dict[str, Any]], **extra: Any) -> dict[str, Any]:
    return to_anthropic(Request(messages, extra=extra), "claude", 50)


def test_system_and_developer_messages_go_to_the_top() -> None:
    made = body(
        [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "hi"},
            {"role": "developer", "content": [{"type": "text", "text": "In Spanish."}]},
        ]
    )
    assert made == {
        "model": "claude",
        "max_tokens": 50,
        "system": "Be brief.\n\nIn Spanish.",
        "messages": [{"role": "user", "content": "hi"}],
    }


def test_a_cached_system_part_stays_a_part() -> None:
    part = {"type": "text", "text": "long", "cache_control": {"type": "ephemeral"}}
    assert body([{"role": "system", "content": [part]}, {"role": "user", "content": "hi"}])["system"] == [part]


def test_tool_calls_and_all_their_results_make_one_turn_each() -> None:
    made = body(
        [
            {"role": "user", "content": "1+1, 2+2?"},
            {"role": "assistant", "content": "Let me see.", "tool_calls": [CALL, {**CALL, "id": "c2"}]},
            {"role": "tool", "tool_call_id": "c1", "content": "2"},
            {"role": "tool", "tool_call_id": "c2", "content": [{"type": "text", "text": "4"}]},
            {"role": "assistant", "content": None, "tool_calls": [{**CALL, "function": {"name": "done", "arguments": ""}}]},
        ]
    )
    assert made["messages"][1]["content"] == [
        {"type": "text", "text": "Let me see."},
        {"type": "tool_use", "id": "c1", "name": "add", "input": {"a": 1}},
        {"type": "tool_use", "id": "c2", "name": "add", "input": {"a": 1}},
    ]
    assert made["messages"][2] == {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": "c1", "content": "2"},
            {"type": "tool_result", "tool_use_id": "c2", "content": [{"type": "text", "text": "4"}]},
        ],
    }
    assert made["messages"][3]["content"] == [{"type": "tool_use", "id": "c1", "name": "done", "input": {}}]


def test_images_by_url_and_as_base64_and_parts_of_its_own() -> None:
    own = {"type": "document", "source": {"type": "text", "data": "x"}}
    parts = [
        {"type": "text", "text": "what?"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
        {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}},
        own,
    ]
    assert body([{"role": "user", "content": parts}])["messages"][0]["content"] == [
        {"type": "text", "text": "what?"},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}},
        {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}},
        own,
    ]


def test_tools_and_their_choice() -> None:
    tool = {"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object"}}}
    bare = {"type": "function", "function": {"name": "g"}}
    made = body([], tools=[tool, bare, {"type": "bash_20250124", "name": "bash"}])
    assert made["tools"] == [
        {"name": "f", "description": "d", "input_schema": {"type": "object"}},
        {"name": "g", "input_schema": {"type": "object", "properties": {}}},
        {"type": "bash_20250124", "name": "bash"},
    ]
    for choice, expected in (
        ("auto", {"type": "auto"}),
        ("none", {"type": "none"}),
        ("required", {"type": "any"}),
        ({"type": "function", "function": {"name": "f"}}, {"type": "tool", "name": "f"}),
    ):
        assert body([], tools=[tool], tool_choice=choice)["tool_choice"] == expected
    assert body([], tools=[tool], parallel_tool_calls=False)["tool_choice"] == {
        "type": "auto",
        "disable_parallel_tool_use": True,
    }
    assert "tool_choice" not in body([], tools=[tool])


def test_stop_sampling_and_fields_of_either_side() -> None:
    made = body([], stop="END", temperature=0.2, top_p=0.9, user="u", response_format={"type": "text"}, top_k=5, seed=1)
    assert made == {
        "model": "claude",
        "max_tokens": 50,
        "messages": [],
        "stop_sequences": ["END"],
        "temperature": 0.2,
        "top_p": 0.9,
        "top_k": 5,
        "seed": 1,
    }
    assert body([], stop=["a", "b"])["stop_sequences"] == ["a", "b"]
    assert body([], response_format={"type": "json_object"})["response_format"] == {"type": "json_object"}


@pytest.mark.parametrize(
    ("request_", "param"),
    [
        (Request([{"role": "user", "content": "hi"}], n=2), "n"),
        (
            Request([{"role": "assistant", "tool_calls": [{**CALL, "function": {"name": "f", "arguments": "{no"}}]}]),
            "messages",
        ),
    ],
)
async def test_what_cannot_be_said_is_the_callers_fault_and_not_sent(
    upstream: Upstream, make: Make, request_: Request, param: str
) -> None:
    with pytest.raises(CallerFault) as caught:
        await make("anthropic").complete(request_, reservation())
    assert not caught.value.sent
    assert caught.value.status == 400
    assert caught.value.body is not None
    assert caught.value.body["error"]["param"] == param  # type: ignore[index]
    assert upstream.meter.requests == 0


async def test_headers_and_path_with_and_without_v1(upstream: Upstream, make: Make) -> None:
    for base_url in (upstream.root, upstream.base_url, upstream.base_url + "/"):
        await ask(make("anthropic", base_url=base_url), False)
    assert {seen.path for seen in upstream.seen} == {"/v1/messages"}
    assert upstream.seen[0].headers["anthropic-version"] == "2023-06-01"


@pytest.mark.parametrize(
    ("stop", "finish"), [("end_turn", "stop"), ("stop_sequence", "stop"), ("refusal", "content_filter"), ("new", "new")]
)
async def test_stop_reasons(upstream: Upstream, make: Make, stop: str, finish: str) -> None:
    upstream.default = Script(finish=stop)
    assert (await make("anthropic").complete(Request([]), reservation())).finish_reason == finish


def test_thinking_comes_back_with_its_signature_and_results_keep_their_marks() -> None:
    blocks = [{"type": "thinking", "thinking": "t", "signature": "s"}, {"type": "text", "text": "a"}]
    message = {"id": "i", "model": "m", "content": blocks, "stop_reason": "stop_sequence", "stop_sequence": "END"}
    choice = from_anthropic(message, None, 1)["choices"][0]
    assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", "END")
    marks = {"is_error": True, "cache_control": {"type": "ephemeral"}}
    result = {"role": "tool", "tool_call_id": "c", "content": "r", **marks}
    sent = to_anthropic(Request([{"role": "user", "content": "q"}, choice["message"], result]), "m", 9)["messages"]
    assert sent[1] == {"role": "assistant", "content": blocks}
    assert sent[2]["content"] == [{"type": "tool_result", "tool_use_id": "c", "content": "r", **marks}]


def test_what_only_anthropic_knows_is_left_out_elsewhere() -> None:
    mark = {"cache_control": {"type": "ephemeral"}}
    function = {"name": "t", "parameters": {}, "strict": True}
    plain = [
        {"role": "user", "content": [{"type": "text", "text": "a"}]},
        {"role": "assistant", "content": "b", "tool_calls": []},
        {"role": "tool", "tool_call_id": "c", "content": "r"},
    ]
    marked = [
        {"role": "user", "content": [{"type": "text", "text": "a", **mark}]},
        {**plain[1], "thinking_blocks": [{"type": "thinking"}]},
        {**plain[2], "is_error": True, **mark},
    ]
    extra = {"top_p": 0.5, "top_k": 4, "thinking": {}, "tools": [{"type": "function", "function": function | mark}]}
    left = without_anthropics_own(Request(marked, 9, extra=extra, anthropic=True))
    assert list(left.messages) == plain
    assert left.extra == {"top_p": 0.5, "tools": [{"type": "function", "function": function}]}
    assert left.max_output_tokens == 9
