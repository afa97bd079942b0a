"""Server-sent events: any cut of the bytes gives the same payloads."""

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.providers import sse
from gateway.providers.sse import EventTooLarge, SseParser


def parse(blocks: list[bytes]) -> list[bytes]:
    parser = SseParser()
    got = [payload for block in blocks for payload in parser.feed(block)]
    return got + parser.end()


STREAM = (
    "\ufeff: OPENROUTER PROCESSING\n\n"
    'event: message\ndata: {"a": "é😀"}\nid: 7\n\n'
    "data:no space\r\n\r\n"
    "data: first\rdata:  second\rretry: 5\r\r"
    "data\n\n\n\n: only a comment\n\ndata: x: y\n\nevent: ping\n\ndata: [DONE]\n\ndata: cut off"
).encode()
PAYLOADS = ['{"a": "é😀"}'.encode(), b"no space", b"first\n second", b"x: y", b"[DONE]", b"cut off"]


def test_each_form_of_line_end_field_and_comment() -> None:
    assert parse([STREAM]) == PAYLOADS


@pytest.mark.parametrize(
    ("block", "payloads"),
    [
        (b"data: a\n\ndata: b\n\n", [b"a", b"b"]),
        (b"data: a\n\ndata: \n\ndata: b\n\n", [b"a", b"b"]),
        (b"data: a\n\ndata: b\n\n\n\n", [b"a", b"b"]),
        (b"data: a\ndata: b\n\n", [b"a\nb"]),
        (b"data: a\n\nevent: x\ndata: b\n\n", [b"a", b"b"]),
        (b"data: a\n\n: data: x\n\ndata: b\n\n", [b"a", b"b"]),
        (b"data: \n\n", []),
    ],
)
def test_a_block_of_whole_events(block: bytes, payloads: list[bytes]) -> None:
    assert parse([b": begin\n\n", block]) == payloads


def test_byte_by_byte() -> None:
    assert parse([STREAM[at : at + 1] for at in range(len(STREAM))]) == PAYLOADS


@given(st.lists(st.integers(0, len(STREAM)), max_size=12))
def test_any_cut_gives_the_same(cuts: list[int]) -> None:
    places = [0, *sorted(cuts), len(STREAM)]
    assert parse([STREAM[a:b] for a, b in pairwise(places)]) == PAYLOADS


_line = st.text(st.characters(blacklist_characters="\r\n", blacklist_categories=["Cs"]), min_size=1, max_size=20)


@given(
    st.lists(
        st.tuples(st.lists(_line, min_size=1, max_size=3), st.sampled_from(["\n", "\r\n", "\r"]), st.booleans()), max_size=6
    ),
    st.data(),
)
def test_what_is_framed_is_found(events: list[tuple[list[str], str, bool]], data: st.DataObject) -> None:
    framed, expected = b"", []
    for lines, end, comment in events:
        framed += "".join([": hello" + end if comment else "", *(f"data: {line}{end}" for line in lines), end]).encode()
        expected.append("\n".join(lines).encode())
    cuts = sorted(data.draw(st.lists(st.integers(0, len(framed)), max_size=8)))
    places = [0, *cuts, len(framed)]
    assert parse([framed[a:b] for a, b in pairwise(places)]) == expected


def test_an_event_that_never_ends_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "EVENT_BYTES_MAX", 1000)
    parser = SseParser()
    for _ in range(1000):
        assert parser.feed(b"x") == []
    with pytest.raises(EventTooLarge):
        parser.feed(b"x")
    with pytest.raises(EventTooLarge):
        SseParser().feed(b"data: " + json.dumps("x" * 1000).encode() + b"\n")
