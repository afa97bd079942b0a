"""What stands after /run, and text from outside on its way into a message."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.telegram_bot.runs.words import Asked, one_line, read_asked, some_lines


@pytest.mark.parametrize(
    ("text", "name", "pairs"),
    [
        ("", "", {}),
        ("digest", "digest", {}),
        ("digest topic=oil", "digest", {"topic": "oil"}),
        ('digest topic="oil  prices" limit=3', "digest", {"topic": "oil  prices", "limit": "3"}),
        ("digest topic='a \"b\" c'", "digest", {"topic": 'a "b" c'}),
        ("digest topic=“oil prices”", "digest", {"topic": "oil prices"}),
        ('digest topic="said “so”"', "digest", {"topic": "said “so”"}),
        ("digest topic=a\\ b", "digest", {"topic": "a b"}),
        ("digest note=", "digest", {"note": ""}),
        ("digest url=https://x/?a=b&c=d#e", "digest", {"url": "https://x/?a=b&c=d#e"}),
        ("digest\n  topic=oil\n  more='two\nlines'", "digest", {"topic": "oil", "more": "two\nlines"}),
        ("digest x=$(rm -rf /);`id`|cat", "digest", {"x": "$(rm"}),
    ],
)
def test_case_56_pairs_are_read_as_in_a_shell_and_nothing_is_run(text: str, name: str, pairs: dict[str, str]) -> None:
    asked = read_asked(text)
    assert asked.name == name
    assert dict(asked.given) == pairs


def test_case_56_what_is_no_pair_is_named() -> None:
    assert read_asked("digest oil =x a=1 a=2 b=3") == Asked("digest", (("a", "1"), ("b", "3")), ("oil", "=x"), ("a",))
    assert read_asked("digest oil").wrong
    open_quote = read_asked("digest topic=what's up")
    assert open_quote.unclosed
    assert open_quote.wrong
    assert open_quote.name == "digest"


@given(st.text(max_size=200))
def test_whatever_stands_after_run_is_read(text: str) -> None:
    asked = read_asked(text)
    assert len(asked.name) <= 64
    assert len({key for key, _ in asked.given}) == len(asked.given)


def test_text_from_outside_stays_on_its_line() -> None:
    assert one_line("a\n\nb\t c\u2028d", 40) == "a b c d"
    assert one_line("\u202egnp.exe\u202c \u200b\x1b[31mred\0", 40) == "gnp.exe [31mred"
    assert one_line("👩\u200d🚀 ok", 40) == "👩\u200d🚀 ok"
    assert one_line("x" * 50, 10) == "x" * 9 + "…"
    assert some_lines("  one\r\n\n\ntwo\u202e \n", 40) == "one\ntwo"
    assert len(some_lines("y\n" * 10_000, 100)) <= 100


@given(st.text(max_size=300), st.integers(2, 50))
def test_one_line_is_one_bounded_line(text: str, length: int) -> None:
    line = one_line(text, length)
    assert len(line) <= length
    assert len(line.splitlines()) <= 1
