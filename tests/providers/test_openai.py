"""What is particular to OpenAI's wire format: bytes kept as they came, several answers, vendors' own shapes."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as settings_
from hypothesis import strategies as st

from gateway.chat import EmbeddingRequest, Request, Usage
from gateway.dispatcher.replies import assembled
from gateway.errors import NoVectors, Unanswered
from gateway.providers import Embedder, Provider, classify, openai
from gateway.providers.call import Call, Endpoint
from gateway.providers.lean import LeanClient
from tests.doubles.clock import SettableClock
from tests.doubles.upstream import Script, Upstream
from tests.providers.calls import ASK, collect, reservation, settings, text

Make = Callable[..., Provider]


def events(*payloads: Any, done: bool = True) -> list[str]:
    framed = [f"data: {payload if isinstance(payload, str) else json.dumps(payload)}\n\n" for payload in payloads]
    return framed + ["data: [DONE]\n\n"] * done


def delta(finish: str | None = None, index: int = 0, **fields: Any) -> dict[str, Any]:
    return {"choices": [{"index": index, "delta": fields, "finish_reason": finish}]}


async def test_the_providers_bytes_are_kept(upstream: Upstream, make: Make) -> None:
    odd = '{"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":"stop"}] , "vendor":1.50}'
    upstream.default = Script(events=events(odd))
    (chunk,) = await collect(make().stream(ASK, reservation()))
    assert chunk.raw == odd.encode()
    whole = '{"choices": [{"message": {"content": "a"}, "finish_reason": "stop"}], "vendor": 1.50}'
    upstream.default = Script(body=whole)
    assert (await make().complete(ASK, reservation())).raw == whole.encode()


async def test_the_body_is_the_requests_with_our_model_and_limit(upstream: Upstream, make: Make) -> None:
    extra = {"max_tokens": 9999, "max_completion_tokens": 9999, "model": "theirs", "stream": True, "tools": [{"type": "x"}]}
    await make().complete(Request(ASK.messages, n=3, extra=extra), reservation(output_tokens=12))
    assert upstream.seen[0].body == {
        "model": "m",
        "messages": [{"role": "user", "content": "one two three"}],
        "max_tokens": 12,
        "n": 3,
        "tools": [{"type": "x"}],
    }


async def test_several_answers_end_when_each_has_ended(upstream: Upstream, make: Make) -> None:
    both = [delta(content="a"), delta(content="b", index=1), delta("stop", 0)]
    upstream.default = Script(events=events(*both, delta("stop", 1)))
    chunks = await collect(make().stream(Request(ASK.messages, n=2), reservation()))
    assert text(chunks) == "a"
    assert [chunk.visible for chunk in chunks] == [True, True, False, False]
    upstream.default = Script(events=events(*both))
    with pytest.raises(Unanswered):
        await collect(make().stream(Request(ASK.messages, n=2), reservation()))


async def test_a_missing_done_and_a_last_event_without_its_empty_line(upstream: Upstream, make: Make) -> None:
    usage = {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 1}}
    framed = events(delta(content="a"), delta("stop"), usage, done=False)
    upstream.default = Script(events=[*framed[:-1], framed[-1].rstrip("\n")])
    chunks = await collect(make().stream(ASK, reservation()))
    assert text(chunks) == "a"
    assert chunks[-1].usage == Usage(3, 1)


async def test_a_reset_after_the_finish_reason_leaves_the_answer_whole(upstream: Upstream, make: Make) -> None:
    upstream.default = Script(events=[*events(delta(content="a"), delta("stop"), done=False), "hang"])
    chunks = await collect(make(idle_timeout_s=1.0).stream(ASK, reservation()))
    assert text(chunks) == "a"


async def test_reasoning_in_every_vendors_field_counts_as_life(upstream: Upstream, make: Make) -> None:
    parts = [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}]
    for thought in ({"reasoning": "hm"}, {"reasoning_content": "hm"}, {"content": parts}):
        upstream.default = Script(events=events(delta(**thought), delta(content="a"), delta("stop")))
        chunks = await collect(make().stream(ASK, reservation()))
        assert [chunk.reasoning for chunk in chunks if chunk.reasoning] == ["hm"]
        assert text(chunks) == "a"
    hidden = {"reasoning_details": [{"type": "reasoning.encrypted", "data": "x"}]}
    upstream.default = Script(events=events(delta(**hidden), delta(content="a"), delta("stop")), delay_s=0.8)
    chunks = await collect(make(first_token_timeout_s=1.4).stream(ASK, reservation()))
    assert text(chunks) == "a"


async def test_a_refusal_and_parts_of_text_are_visible(upstream: Upstream, make: Make) -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    upstream.default = Script(events=events(delta(refusal="No."), delta(content=parts), delta("stop")))
    assert text(await collect(make().stream(ASK, reservation()))) == "No.ab"


async def test_half_an_emoji_does_not_break_a_stream(upstream: Upstream, make: Make) -> None:
    halves = [r'{"choices":[{"delta":{"content":"\ud83d"}}]}', r'{"choices":[{"delta":{"content":"\ude00 ok"}}]}']
    upstream.default = Script(events=events(*halves, delta("stop")))
    shown = text(await collect(make().stream(ASK, reservation())))
    assert shown == "\ufffd\ufffd ok"
    await make().complete(Request([{"role": "user", "content": "half \ud83d"}]), reservation())
    assert upstream.seen[-1].body["messages"][0]["content"] == "half \ufffd"


async def test_a_server_that_does_not_stream_is_understood(upstream: Upstream, make: Make) -> None:
    body = {"model": "m2", "choices": [{"index": 0, "message": {"content": "whole"}, "finish_reason": "stop"}]}
    upstream.default = Script(body={**body, "usage": {"prompt_tokens": 3, "completion_tokens": 1}})
    (chunk,) = await collect(make().stream(ASK, reservation()))
    assert (chunk.text, chunk.finish_reason, chunk.usage, chunk.visible) == ("whole", "stop", Usage(3, 1), True)
    assert chunk.body is not None
    assert chunk.body["choices"] == [{"index": 0, "finish_reason": "stop", "delta": {"content": "whole"}}]


async def test_a_whole_answer_without_a_finish_reason_is_unanswered_with_its_usage(upstream: Upstream, make: Make) -> None:
    upstream.default = Script(finish=None)
    with pytest.raises(Unanswered) as caught:
        await make().complete(ASK, reservation())
    assert caught.value.usage == Usage(3, 5)


async def test_an_answer_that_is_too_large_is_left(upstream: Upstream, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.providers.call.ANSWER_BYTES_MAX", 10_000)
    upstream.default = Script(body="x" * 20_000, content_type="application/json")
    with pytest.raises(Unanswered, match="more than 10000 bytes"):
        await make().complete(ASK, reservation())


_values = st.sampled_from([None, "", "a", 0, 1, [], {}, "stop", {"prompt_tokens": 1, "completion_tokens": 2}])
_deltas = st.dictionaries(st.sampled_from(["role", "content", "tool_calls", "reasoning", "refusal"]), _values, max_size=3)
_finishes = st.sampled_from([None, "stop", ""])
_choices = st.fixed_dictionaries(
    {"delta": st.one_of(st.just({"content": "a"}), _deltas)},
    optional={"index": st.sampled_from([0, 1, None]), "finish_reason": _finishes, "usage": _values, "error": _values},
)
_choice_lists = st.one_of(st.none(), st.lists(_choices, max_size=2))
_events = st.fixed_dictionaries({"choices": _choice_lists}, optional={"usage": _values, "x_groq": _values, "error": _values})


@settings_(max_examples=400)
@given(st.lists(_events, min_size=1, max_size=5))
async def test_events_that_are_read_together_say_what_they_say_one_by_one(block: list[dict[str, Any]]) -> None:
    def read(one: bool) -> object:
        call = Call(
            Endpoint(settings("openai", "http://127.0.0.1"), LeanClient(), SettableClock(), "", {}, classify.OPENAI), "m", ""
        )
        answers, chunks, error = openai._Answers(1), [], None
        answers.one = one
        try:
            for chunk in openai._chunks([json.dumps(event).encode() for event in block], call, answers):
                chunks.append(chunk)
        except Exception as failure:
            error = type(failure)
        sent = [data for chunk in chunks for data in (chunk.raw or b"").split(b"\n\ndata: ")]
        shown = sum(chunk.deltas for chunk in chunks if chunk.visible or chunk.reasoning)
        ends = [(chunk.finish_reason, chunk.usage) for chunk in chunks if chunk.finish_reason or chunk.usage]
        whole = assembled(chunks, "m", Usage(1, 1))
        return sent, text(chunks), shown, ends, whole, error, call.content_came, call.finished, call.usage

    assert read(True) == read(False)


async def test_plain_events_that_come_together_are_one_chunk_with_all_their_bytes(upstream: Upstream, make: Make) -> None:
    sent = [delta(content="a"), delta(content="b"), delta(content="c"), delta("stop")]
    upstream.default = Script(events=["".join(events(*sent))])
    first, last = await collect(make().stream(ASK, reservation()))
    assert (first.text, first.deltas, first.more, last.finish_reason) == ("abc", 3, True, "stop")
    assert first.raw is not None
    assert [json.loads(data) for data in first.raw.split(b"\n\ndata: ")] == sent[:3]


async def test_a_gzipped_answer_is_understood(upstream: Upstream, make: Make) -> None:
    upstream.compress = True
    assert (await make().complete(ASK, reservation())).text
    assert text(await collect(make().stream(ASK, reservation()))) == "w0 w1 w2 w3 w4 "


async def test_an_empty_finish_reason_is_none(upstream: Upstream, make: Make) -> None:
    upstream.default = Script(events=events(delta("", content="a"), delta("", content="", role="assistant")))
    with pytest.raises(Unanswered, match="without a finish reason"):
        await collect(make().stream(ASK, reservation()))


async def test_parts_of_tool_calls_are_numbered_as_the_provider_likes(upstream: Upstream, make: Make) -> None:
    def part(index: int, arguments: str) -> dict[str, Any]:
        return delta(tool_calls=[{"index": index, "function": {"name": "", "arguments": arguments}}])

    upstream.default = Script(events=events(part(10**9, "{"), part(1, "[]"), part(10**9, "}"), delta("tool_calls")))
    body = assembled(await collect(make().stream(ASK, reservation())), "m", Usage(1, 1))
    calls = body["choices"][0]["message"]["tool_calls"]
    assert [call["function"]["arguments"] for call in calls] == ["{}", "[]"]


MALFORMED = [
    {"index": "0"},
    {"index": [0]},
    {"tool_calls": "x"},
    {"tool_calls": [5]},
    {"tool_calls": [{"index": "0"}]},
    {"tool_calls": [{"function": 5}]},
    {"tool_calls": [{"function": {"arguments": 5}}]},
]


@pytest.mark.parametrize("part", MALFORMED, ids=str)
async def test_what_no_answer_can_be_made_of_is_malformed(upstream: Upstream, make: Make, part: dict[str, Any]) -> None:
    said = {name: value for name, value in part.items() if name != "index"}
    choice = {"index": part.get("index", 0), "finish_reason": "stop"}
    upstream.default = Script(events=events({"choices": [{**choice, "delta": said}]}))
    with pytest.raises(Unanswered):
        await collect(make().stream(ASK, reservation()))
    upstream.default = Script(body={"choices": [{**choice, "message": said}]})
    with pytest.raises(Unanswered):
        await make().complete(ASK, reservation())


async def test_a_whole_answer_for_a_stream_need_not_have_a_message_and_names_its_model_or_not(
    upstream: Upstream, make: Make
) -> None:
    upstream.default = Script(body={"model": 5, "choices": [{"finish_reason": "stop"}]}, content_type="Application/JSON")
    (chunk,) = await collect(make().stream(ASK, reservation()))
    assert (chunk.text, chunk.finish_reason, chunk.model) == ("", "stop", "m")


@pytest.mark.parametrize(
    "body",
    ["no json", {"object": "list"}, {"data": 4}, {"data": [{"embedding": [1.0]}]}, [1]],
)
async def test_vectors_that_are_none_or_too_few_may_have_been_billed(upstream: Upstream, make: Make, body: Any) -> None:
    upstream.default = Script(body=body)
    provider = make()
    assert isinstance(provider, Embedder)
    with pytest.raises(Unanswered):
        await provider.embed(EmbeddingRequest(["a", "b"]), reservation())


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (404, "<html>Not Found</html>"),
        (404, {"error": {"message": "no such model", "code": "model_not_found"}}),
        (405, {"detail": "Method Not Allowed"}),
        (501, {"error": {"message": "This server does not support embeddings", "type": "not_supported_error"}}),
        (500, {"error": "this model does not support embeddings"}),
    ],
)
async def test_a_server_that_makes_no_vectors_is_known_by_what_it_says(
    upstream: Upstream, make: Make, status: int, body: Any
) -> None:
    upstream.default = Script(status=status, body=body)
    provider = make()
    assert isinstance(provider, Embedder)
    with pytest.raises(NoVectors):
        await provider.embed(EmbeddingRequest(["a"]), reservation())
