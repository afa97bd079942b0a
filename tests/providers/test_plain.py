"""Plain events read by a template say what they say when each is read whole, whatever comes where the text should be."""

import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.providers.call import from_json
from gateway.providers.plain import BETWEEN, LEARN_MAX, Plain, PlainEvents, plain_content, with_content

HEAD = b'{"id":"c1","object":"chat.completion.chunk","created":7,"model":"m","choices":[{"index":0,"delta":{"content":'
TAIL = b'},"finish_reason":null}]}'


def event(text: str) -> bytes:
    return HEAD + orjson.dumps(text) + TAIL


def naive(data: bytes) -> tuple[str, Any] | None:
    """The text and the whole event of a plain one, without any template."""
    try:
        found = from_json(data)
        content = plain_content(found)
    except (ValueError, AttributeError, TypeError, LookupError):
        return None
    return (content, found) if content and b"\n" not in data else None


def read(events: PlainEvents, data: bytes) -> tuple[str, Any] | None:
    found = events.read(data)
    if found is None:
        return None
    assert found.data is data
    return found.content, with_content(found.like, found.content)


_inside = st.sampled_from(
    [
        b'"',
        b"\\",
        b'\\"',
        b'","content":"',
        b'","x":"y',
        b"\\n",
        b"\n",
        b"\\ud83d",
        b"\\ude00",
        b"\xff",
        b"\x00",
        b"?",
        b"a",
        b" b",
    ]
)
_forged = st.lists(_inside, max_size=5).map(lambda parts: HEAD + b'"' + b"".join(parts) + b'"' + TAIL)
_honest = st.text(max_size=6).map(lambda text: HEAD + json.dumps(text).encode() + TAIL)
_others = st.sampled_from(
    [
        event("hi").replace(b'"delta":{', b'"delta":{"role":"assistant",'),
        event("hi").replace(b'"finish_reason":null', b'"finish_reason":"stop"'),
        event("hi").replace(b'"id":"c1"', b'"id":"c2"'),
        event("hi").replace(b'"m"', b'"hi"'),
        event("hi")[:-1] + b',"content":"hi"}',
        event("hi")[:-1] + b',"usage":{"prompt_tokens":1,"completion_tokens":1}}',
        event("hi").replace(b'"content":"hi"', b'"content":"hi","content":"ho"'),
        event("hi").replace(b'"content":"hi"', b'"content":["hi"]'),
        event("hi").replace(b",", b",\n"),
        HEAD[:-1],
        TAIL,
        b"[DONE]",
        b"",
    ]
)


_clean = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=4).map(event)


@given(st.lists(st.lists(_clean | _honest | _forged | _others, max_size=6), max_size=4))
def test_a_block_says_what_its_events_say_one_by_one(blocks: list[list[bytes]]) -> None:
    events = PlainEvents()
    for block in blocks:
        came: list[bytes] = []
        for found in events.runs(block):
            if not isinstance(found, Plain):
                assert naive(found) is None
                came.append(found)
                continue
            ones = [naive(data) for data in block[len(came) : len(came) + found.deltas]]
            assert found.data == BETWEEN.join(block[len(came) : len(came) + found.deltas])
            assert found.content == "".join(one[0] for one in ones if one is not None)
            assert None not in ones
            assert with_content(found.like, "") == with_content(ones[-1][1], "")  # type: ignore[index]
            came += block[len(came) : len(came) + found.deltas]
        assert came == block


def test_payloads_that_look_like_two_events_are_one() -> None:
    events = PlainEvents()
    events.read(event("first"))
    (found,) = events.runs([event("a"), event("b")])
    assert isinstance(found, Plain)
    assert (found.content, found.deltas) == ("ab", 2)
    split = BETWEEN.join([event("a"), event("b")])
    assert [found if isinstance(found, bytes) else found.deltas for found in events.runs([split, event("c")])] == [split, 1]


@given(st.lists(_clean | _honest | _forged | _others, max_size=12))
def test_a_template_never_changes_what_an_event_says(stream: list[bytes]) -> None:
    events = PlainEvents()
    for data in stream:
        assert read(events, data) == naive(data)


def test_a_text_that_stands_elsewhere_too_makes_no_template_of_the_wrong_place() -> None:
    events = PlainEvents()
    for served in (b"m", b"another model"):
        data = b'{"choices":[{"index":0,"delta":{"content":"m"}}],"model":"%b"}' % served
        assert read(events, data) == naive(data)


@pytest.mark.parametrize("text", [",", ":", "id", "}],", ",c", "?"])
def test_a_text_that_is_part_of_the_events_own_marks_is_read_as_any_other(text: str) -> None:
    data = b'{"choices":[{"finish_reason":null,"index":0,"delta":{"content":%b}}],"id":"c","model":"m"}' % orjson.dumps(text)
    events = PlainEvents()
    for _ in range(2):
        assert read(events, data) == naive(data) == (text, json.loads(data))


def test_after_the_first_event_no_other_is_parsed_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    events = PlainEvents()
    assert events.read(event("first")) is not None
    monkeypatch.setattr("gateway.providers.plain.from_json", None)
    for text in ("second", ' "quoted" \\ \n', "🙂"):
        found = events.read(event(text))
        assert found is not None
        assert found.content == text


def test_a_provider_whose_events_differ_is_tried_a_few_times_only(monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[str] = []
    learn = PlainEvents._learn
    monkeypatch.setattr(
        PlainEvents, "_learn", lambda self, found, text, data: (tries.append(text), learn(self, found, text, data))[1]
    )
    events = PlainEvents()
    for number in range(20):
        data = event("x")[:-1] + b',"obfuscation":"%d"}' % number
        assert read(events, data) == naive(data)
    assert len(tries) == LEARN_MAX
