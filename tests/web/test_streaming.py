"""Streams over real HTTP: bytes as they came, usage for those who asked, a clear end, and clients that leave."""

import asyncio
import json
from typing import Any

import orjson
import pytest

from gateway.chat import Chunk, Completion, Usage
from gateway.dispatcher import Begun, Priced, StreamBroken
from gateway.errors import Unanswered
from tests.doubles.own_time import within
from tests.web.shell import SLOT, Answer, reply, shell

RAW = b'{"id":"x", "choices":[{"message":{"content":"hi"}}] , "vendor":1}'
WHOLE = Completion("hi", "stop", "kimi", Usage(3, 2), orjson.loads(RAW), RAW)
BEGUN = Begun(SLOT, "default", ())


def delta(text: str, **rest: Any) -> Chunk:
    raw = json.dumps({"id": "c1", "created": 7, "model": "kimi", "choices": [{"index": 0, "delta": {"content": text}}]}).encode()
    return Chunk(text=text, visible=True, raw=raw, **rest)


FINISH = Chunk(
    finish_reason="stop",
    raw=b'{"id":"c1","created":7,"model":"kimi","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}',
)
USAGE = Chunk(
    usage=Usage(3, 2),
    raw=b'{"id":"c1","created":7,"model":"kimi","choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5}}',
)
PRICED = Priced(Usage(3, 2), 41)


def events_of(answer: Answer) -> list[Any]:
    blocks = [block for block in answer.body.decode().split("\n\n") if block]
    assert all(block.startswith("data: ") and "\n" not in block for block in blocks)
    return [block[6:] if block == "data: [DONE]" else json.loads(block[6:]) for block in blocks]


async def test_a_stream_is_forwarded_as_it_came_and_ends_with_done() -> None:
    async with shell(BEGUN, delta("he"), delta("llo"), FINISH, PRICED, USAGE) as web:
        answer = await web.chat({"stream": True})
    assert (answer.status, answer.header("Content-Type")) == (200, "text/event-stream")
    assert answer.header("x-sluicegate-provider") == "moonshot"
    assert answer.header("x-sluicegate-request-id")
    expected = b"".join(b"data: " + (chunk.raw or b"") + b"\n\n" for chunk in (delta("he"), delta("llo"), FINISH))
    assert answer.body == expected + b"data: [DONE]\n\n"


async def test_the_usage_chunk_is_for_those_who_asked() -> None:
    async with shell(BEGUN, delta("hello"), FINISH, PRICED, USAGE) as web:
        answer = await web.chat({"stream": True, "stream_options": {"include_usage": True}})
    *_, usage, done = events_of(answer)
    assert done == "[DONE]"
    assert usage["usage"]["total_tokens"] == 5
    assert usage["sluicegate"]["cost_micro_usd"] == 41
    assert usage["sluicegate"]["provider"] == "moonshot"
    assert usage["sluicegate"]["request_id"] == answer.header("x-sluicegate-request-id")


async def test_usage_that_no_provider_stated_is_said_in_a_chunk_of_its_own() -> None:
    async with shell(BEGUN, delta("hello"), FINISH, reply(WHOLE, "r")) as web:
        answer = await web.chat({"stream": True, "stream_options": {"include_usage": True}})
    _, finish, usage, done = events_of(answer)
    assert (finish["choices"][0]["finish_reason"], done) == ("stop", "[DONE]")
    assert (usage["choices"], usage["usage"]["total_tokens"]) == ([], 5)
    assert usage["sluicegate"]["cost_micro_usd"] == 41


LAST = Chunk(finish_reason="stop", usage=Usage(3, 2), body={"choices": [{"finish_reason": "stop"}], "usage": {"total_tokens": 5}})


@pytest.mark.parametrize("include", [False, True])
async def test_usage_inside_the_chunk_that_ends_the_answer_stays_there(include: bool) -> None:
    async with shell(BEGUN, delta("hello"), PRICED, LAST, reply(WHOLE, "r")) as web:
        events = events_of(await web.chat({"stream": True, "stream_options": {"include_usage": include}}))
    assert len(events) == 3
    assert events[1]["choices"][0]["finish_reason"] == "stop"
    assert events[1]["usage"] == {"total_tokens": 5}
    assert events[1].get("sluicegate", {}).get("cost_micro_usd") == (41 if include else None)
    assert events[2] == "[DONE]"


async def test_a_finished_choice_with_usage_does_not_end_the_other_choices() -> None:
    more = delta("the second choice goes on")
    async with shell(BEGUN, delta("hello"), PRICED, LAST, more, PRICED, LAST, PRICED, USAGE, reply(WHOLE, "r")) as web:
        answer = await web.chat({"stream": True, "stream_options": {"include_usage": True}})
    events = events_of(answer)
    assert [event["choices"][0].get("finish_reason") for event in events[:4]] == [None, "stop", None, "stop"]
    assert ["sluicegate" in event for event in events[:5]] == [False] * 4 + [True]
    assert events[5:] == ["[DONE]"]


async def test_a_payload_on_several_lines_stays_one_event() -> None:
    async with shell(BEGUN, Chunk(text="a", visible=True, raw=b'{\r\n"choices":\n[]}'), FINISH, PRICED, USAGE) as web:
        assert events_of(await web.chat({"stream": True}))[0] == {"choices": []}


@pytest.mark.parametrize("error", [StreamBroken(SLOT, "hel", Unanswered("moonshot", "kimi", "it was cut")), ValueError("prompt")])
async def test_case_32_after_the_first_chunk_a_failure_is_one_clear_last_event(error: Exception) -> None:
    async with shell(BEGUN, delta("hel"), error) as web:
        answer = await web.chat({"stream": True})
        assert web.played.closed == 1
    assert answer.status == 200
    shown, last = events_of(answer)
    assert shown["choices"][0]["delta"]["content"] == "hel"
    assert last["choices"] == [{"index": 0, "delta": {}, "finish_reason": "error"}]
    assert last["error"]["request_id"] == answer.header("x-sluicegate-request-id")
    assert b"prompt" not in answer.body
    assert b"[DONE]" not in answer.body


async def test_settling_keeps_neither_the_client_nor_its_next_request_waiting_but_a_stop_waits_for_it() -> None:
    async with shell(BEGUN, delta("hello"), FINISH, PRICED, USAGE, "settle") as web:
        async with asyncio.timeout(30):
            assert (await web.chat({"stream": True})).body.endswith(b"data: [DONE]\n\n")
            assert (await web.call("GET", "/healthz")).status == 200
        assert web.played.closed == 0
        stop = asyncio.create_task(web.server.stop())
        await asyncio.sleep(0.1)
        assert not stop.done()
        web.played.settle.set()
        await asyncio.wait_for(stop, 30)
        assert web.played.closed == 1


async def test_a_stop_lets_an_answer_under_way_come_to_its_end() -> None:
    async with shell(BEGUN, delta("hel"), "settle", delta("lo"), FINISH, PRICED, USAGE) as web:
        call = asyncio.create_task(web.chat({"stream": True}))
        await _until(lambda: web.metrics.streams_open._value.get() == 1)
        stop = asyncio.create_task(web.server.stop())
        await asyncio.sleep(0.1)
        assert not stop.done()
        web.played.settle.set()
        assert (await call).body.endswith(b"data: [DONE]\n\n")
        await asyncio.wait_for(stop, 30)


async def test_a_client_that_leaves_closes_the_dispatchers_stream_at_once() -> None:
    async with shell(BEGUN, delta("hello"), "wait") as web:
        body = {"model": "default", "stream": True, "messages": [{"role": "user", "content": "x"}]}
        headers = {"Authorization": "Bearer sk-user"}
        async with web.session.post(web.base + "/v1/chat/completions", json=body, headers=headers) as response:
            await response.content.readany()
            await web.played.waiting.wait()
            response.close()
        await _until(lambda: web.played.closed == 1)
        assert web.metrics.streams_open._value.get() == 0


async def test_a_client_that_leaves_before_the_first_chunk_closes_it_too() -> None:
    async with shell("wait") as web:
        for stream in (True, False):
            web.played.plays = ["wait"]
            web.played.waiting.clear()
            call = asyncio.create_task(web.chat({"stream": stream}))
            await web.played.waiting.wait()
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)
        await _until(lambda: web.played.closed == 2)


async def _until(true: Any) -> None:
    async with within(1):
        while not true():  # noqa: ASYNC110 - any condition, of any object
            await asyncio.sleep(0.005)
