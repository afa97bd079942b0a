"""Markdown to text and entities, judged by Telegram's own library."""

from __future__ import annotations

import random
from dataclasses import asdict

import pytest

from gateway.telegram_bot.markup import Entity, Part, legal, parts, plain_parts, units
from tests.doubles.tdlib import problem


def checked(markdown: str) -> list[Part]:
    found = parts(markdown)
    for part in found:
        entities = [{k: v for k, v in asdict(e).items() if v is not None} for e in part.entities]
        assert problem(part.text, entities) is None, (part, problem(part.text, entities))
    return found


def shown(markdown: str) -> str:
    return "".join(part.text for part in checked(markdown))


def styles(markdown: str) -> set[tuple[str, str]]:
    found = set()
    for part in checked(markdown):
        raw = part.text.encode("utf-16-le")
        found |= {(e.type, raw[2 * e.offset : 2 * e.end].decode("utf-16-le")) for e in part.entities}
    return found


@pytest.mark.parametrize(
    ("markdown", "text", "wanted"),
    [
        ("***x***", "x", {("bold", "x"), ("italic", "x")}),
        ("**a _b** c_", "a _b c_", {("bold", "a _b")}),
        ("battery_alarm", "battery_alarm", set()),
        ("i < len(s) && x", "i < len(s) && x", set()),
        ("if a<b and c>d", "if a<b and c>d", set()),
        ("<h1>", "<h1>", set()),
        ("<!-- no comment -->", "<!-- no comment -->", set()),
        ("[a_b_c](http://x.y/a_b_c)", "a_b_c", {("text_link", "a_b_c")}),
        ("http://x.y/a_b_c", "http://x.y/a_b_c", set()),
        ("<https://x.y/a>", "https://x.y/a", {("text_link", "https://x.y/a")}),
        ("`a<b>`", "a<b>", {("code", "a<b>")}),
        ("```\n|a|b|\n|-|-|\n```", "|a|b|\n|-|-|", {("pre", "|a|b|\n|-|-|")}),
        ("```py\nif x < 1:", "if x < 1:", {("pre", "if x < 1:")}),
        ("**bold `code` x**", "bold code x", {("bold", "bold "), ("code", "code"), ("bold", " x")}),
        ("[`code`](http://x.y)", "code", {("text_link", "code")}),
        ("> q\n> > nested", "q\nnested", {("blockquote", "q\nnested")}),
        ("It costs $5 and $10", "It costs $5 and $10", set()),
        ("see [^1]\n\n[^1]: note", "see [^1]\n\n[^1]: note", set()),
        ("# Title", "Title", {("bold", "Title"), ("underline", "Title")}),
    ],
)
def test_case_37_markdown_is_well_formed_and_nothing_is_lost(markdown: str, text: str, wanted: set[tuple[str, str]]) -> None:
    assert shown(markdown).strip() == text
    assert styles(markdown) == wanted


def test_case_37_a_pipe_table_keeps_its_cells() -> None:
    text = shown("|name|price|\n|-|-|\n|tea|2 < 3|")
    assert all(word in text for word in ("name", "price", "tea", "2 < 3"))
    assert {kind for kind, _ in styles("|a|b|\n|-|-|\n|1|2|")} == {"pre"}


def test_case_38_a_one_line_fence_of_ten_thousand_characters() -> None:
    found = checked("```py\n" + "x" * 10_000 + "\n```")
    assert [units(part.text) for part in found] == [4096, 4096, 10_000 - 8192]
    assert all(part.entities == (Entity("pre", 0, units(part.text), None, "py"),) for part in found)


def test_case_38_five_thousand_emoji() -> None:
    found = checked("😀" * 5000)
    assert "".join(part.text for part in found) == "😀" * 5000
    assert [units(part.text) for part in found] == [4096, 4096, 1808]


def test_case_38_a_lone_surrogate_is_replaced_and_a_pair_is_joined() -> None:
    assert shown("a\ud83db") == "a\ufffdb"
    assert shown("a\ud83d\ude00b") == "a😀b"


def test_case_38_a_code_block_across_the_split_is_closed_and_reopened() -> None:
    code = "\n".join(f"    line_{n} = {n} < 3" for n in range(300))
    found = checked(f"Here:\n\n```python\n{code}\n```\n\nDone **now**.")
    assert len(found) > 1
    assert all(any(e.type == "pre" and e.language == "python" for e in part.entities) for part in found)
    assert "".join(part.text for part in found).replace("\n", "").count("line_") == 300
    assert found[0].text.endswith("\n"), "the cut is between lines"


def test_a_cut_prefers_the_end_of_a_line_then_a_word() -> None:
    assert [part.text for part in plain_parts("aaaa\nbbbb cccc dddd", 12)] == ["aaaa\nbbbb ", "cccc dddd"]
    assert [part.text for part in plain_parts("a\n" + "b" * 20, 12)] == ["a\n" + "b" * 10, "b" * 10]


def test_whitespace_only_is_nothing_to_show() -> None:
    assert parts("  \n\n ") == []
    assert parts("") == []


def test_more_than_a_hundred_entities_make_another_part() -> None:
    text = " ".join(f"**b{n}**" for n in range(250))
    found = checked(text)
    assert sum(len(part.entities) for part in found) >= 250
    assert "".join(part.text for part in found).split() == [f"b{n}" for n in range(250)]


def test_overlapping_entities_are_cut_so_that_they_nest() -> None:
    assert legal([Entity("bold", 0, 5), Entity("italic", 3, 5)]) == [
        Entity("bold", 0, 5), Entity("italic", 3, 2), Entity("italic", 5, 3),
    ]  # fmt: skip


def test_any_mixture_of_marks_is_well_formed_and_keeps_its_words() -> None:
    chance = random.Random(7)
    marks = [
        "**",
        "_",
        "`",
        "```\n",
        "> ",
        "~~",
        "||",
        "[",
        "](http://x.y)",
        "<",
        ">",
        "\n",
        " ",
        "- ",
        "# ",
        "|",
        "😀",
        "&",
        "\\",
        "$",
    ]
    for _ in range(400):
        words = [f"w{n}" for n in range(chance.randint(1, 12))]
        text = "".join(word + chance.choice(marks) + chance.choice(marks) for word in words)
        result = shown(text)
        for word in words:
            assert word in result, (text, result)


def test_code_holds_no_code_and_a_quote_no_quote() -> None:
    assert legal([Entity("pre", 0, 9), Entity("code", 2, 3)]) == [Entity("pre", 0, 9)]
    assert legal([Entity("blockquote", 0, 9), Entity("blockquote", 2, 3), Entity("code", 4, 1)]) == [
        Entity("blockquote", 0, 9), Entity("code", 4, 1),
    ]  # fmt: skip
