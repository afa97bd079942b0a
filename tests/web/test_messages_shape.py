"""Answers of `/v1/messages` as they go out: blocks of every kind, and providers that are odd."""

from typing import Any

import orjson

from gateway.chat import Chunk, Completion, Usage
from gateway.dispatcher import Begun, Priced
from gateway.dispatcher.replies import as_events
from tests.web.shell import SLOT, Answer, Shell, reply, shell

USAGE = Usage(30, 5, cached=20, cache_written=4)
BODY: dict[str, Any] = {"model": "default", "max_tokens": 9, "messages": [{"role": "user", "content": "hello"}]}
THINKING = {"type": "enabled", "budget_tokens": 4}


async def ask(web: Shell, **fields: Any) -> Answer:
    return await web.call("POST", "/v1/messages", json=BODY | fields)


def events(answer: Answer) -> list[dict[str, Any]]:
    blocks = [block.split("\ndata: ") for block in answer.body.decode().split("\n\n") if block]
    loaded = [(head.removeprefix("event: "), orjson.loads(data)) for head, data in blocks]
    assert all(head == data["type"] for head, data in loaded)
    return [data for _, data in loaded]


def delta(finish: str | None = None, *, text: str = "", usage: Usage | None = None, **fields: Any) -> Chunk:
    choice: dict[str, Any] = {"index": 0, "delta": fields | ({"content": text} if text else {}), "finish_reason": finish}
    reasoning = str(fields.get("reasoning_content", ""))
    return Chunk(text, bool(text or fields.get("tool_calls")), reasoning, finish, usage, "kimi", {"choices": [choice]})


def completion(message: dict[str, Any], finish: str = "stop", **choice: Any) -> Completion:
    body = {"choices": [{"index": 0, "message": message, "finish_reason": finish, **choice}]}
    return Completion(message.get("content") or "", finish, "kimi", USAGE, body)


async def test_every_reason_to_stop_has_its_word() -> None:
    for finish, choice, stop in (
        ("stop", {}, ("end_turn", None)),
        ("length", {}, ("max_tokens", None)),
        ("content_filter", {}, ("refusal", None)),
        ("stop", {"stop_reason": "END"}, ("stop_sequence", "END")),
        ("stop", {"stop_reason": 4}, ("end_turn", None)),
    ):
        async with shell(completion({"content": "a"}, finish, **choice)) as web:
            said = orjson.loads((await ask(web)).body)
        assert (said["stop_reason"], said["stop_sequence"]) == stop
    assert said["content"] == [{"type": "text", "text": "a"}]


async def test_thinking_is_shown_to_those_who_asked_and_arguments_that_are_no_object_are_passed_on() -> None:
    block = {"type": "thinking", "thinking": "hm", "signature": "s"}
    call = {"id": None, "function": {"name": "t", "arguments": "no json"}}
    said = {"content": None, "reasoning_content": "hm", "tool_calls": [call]}
    plays = [completion(said), completion(said), completion(said | {"thinking_blocks": [block]})]
    async with shell(*plays) as web:
        plain, shown, signed = [
            orjson.loads((await ask(web, **more)).body) for more in ({}, {"thinking": THINKING}, {"thinking": THINKING})
        ]
    (tool,) = plain["content"]
    assert (tool["type"], tool["name"], tool["input"], plain["stop_reason"]) == (
        "tool_use",
        "t",
        {"arguments": "no json"},
        "tool_use",
    )
    assert tool["id"].startswith("toolu_")
    assert shown["content"][0] == {"type": "thinking", "thinking": "hm", "signature": ""}
    assert signed["content"][0] == block


async def test_a_stream_has_one_block_after_the_other_and_the_usage_at_its_end() -> None:
    begun = {"index": 0, "id": "c1", "function": {"name": "t", "arguments": ""}}
    more = {"index": 0, "function": {"arguments": "{}"}}
    other = {"index": 0, "id": "c2", "function": {"name": "u", "arguments": "{}"}}
    unnumbered = [{"id": "c3", "function": {"name": "v", "arguments": "{"}}, {"function": {"arguments": "}"}}]
    chunks = [
        delta(reasoning_content="h"),
        delta(reasoning_content="m"),
        delta(thinking_signature="s"),
        delta(text="a"),
        *(delta(tool_calls=[call]) for call in (begun, more, other, *unnumbered)),
        delta("tool_calls"),
    ]
    last = Chunk(usage=USAGE, body={"choices": []})
    async with shell(Begun(SLOT, "default", ()), *chunks, Priced(USAGE, 41), last) as web:
        answer = await ask(web, stream=True, thinking=THINKING)
    sent = events(answer)
    assert [each["type"] for each in sent[:2] + sent[-2:]] == ["message_start", "ping", "message_delta", "message_stop"]
    blocks: list[Any] = []
    for each in sent[2:-2]:
        if each["type"] == "content_block_start":
            assert each["index"] == len(blocks)
            blocks.append([each["content_block"]["type"]])
        elif each["type"] == "content_block_delta":
            blocks[each["index"]].append(next(value for key, value in each["delta"].items() if key != "type"))
    assert blocks == [["thinking", "h", "m", "s"], ["text", "a"], ["tool_use", "{}"], ["tool_use", "{}"], ["tool_use", "{", "}"]]
    assert sum(each["type"] == "content_block_stop" for each in sent) == len(blocks)
    ended = sent[-2]
    assert ended["delta"] == {"stop_reason": "tool_use", "stop_sequence": None}
    assert ended["usage"] == {
        "input_tokens": 6, "cache_creation_input_tokens": 4, "cache_read_input_tokens": 20, "output_tokens": 5,
    }  # fmt: skip
    assert (ended["sluicegate"]["provider"], ended["sluicegate"]["cost_micro_usd"]) == ("moonshot", 41)
    assert answer.header("x-sluicegate-provider") == "moonshot"


async def test_a_stored_answer_comes_as_a_stream_too() -> None:
    block = {"type": "redacted_thinking", "data": "d"}
    call = {"id": "c", "type": "function", "function": {"name": "t", "arguments": "{}"}}
    kept = completion({"content": "a", "thinking_blocks": [block], "tool_calls": [call]}, "tool_calls")
    async with shell(*as_events(reply(kept, "r"))) as web:
        sent = events(await ask(web, stream=True, thinking=THINKING))
    started = [each["content_block"] for each in sent if each["type"] == "content_block_start"]
    assert started[0] == block
    assert [each["type"] for each in started[1:]] == ["text", "tool_use"]
    assert sent[-2]["usage"]["output_tokens"] == 2


async def test_refusals_of_this_address_have_its_shape_whoever_refuses() -> None:
    async with shell() as web:
        for answer, status, kind in (
            (await web.call("GET", "/v1/messages"), 405, "invalid_request_error"),
            (await web.call("POST", "/v1/messages", data=b"no json"), 400, "invalid_request_error"),
            (await web.call("POST", "/v1/messages", key=None, json=BODY), 401, "authentication_error"),
        ):
            said = orjson.loads(answer.body)
            assert (answer.status, said["type"], said["error"]["type"]) == (status, "error", kind)
            assert said["request_id"] == said["error"]["request_id"] == answer.header("request-id")


async def test_a_key_comes_in_either_header() -> None:
    async with shell(completion({"content": "a"}), completion({"content": "a"})) as web:
        by_name = await web.call("POST", "/v1/messages", key=None, headers={"x-api-key": "sk-user"}, json=BODY)
        wrong = await web.call("POST", "/v1/messages", key=None, headers={"x-api-key": "sk-nobody"}, json=BODY)
        assert (by_name.status, wrong.status, (await ask(web)).status) == (200, 401, 200)
