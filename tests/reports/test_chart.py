"""The chart: its words are really drawn, its bars are as high as what they stand for, and no name breaks it."""

from __future__ import annotations

import re
from dataclasses import replace
from xml.etree import ElementTree
from zoneinfo import ZoneInfo

import pytest

from gateway.budget import Budget, Calendar, Unit
from gateway.reports.chart import (
    BOTTOM,
    COLOURS,
    HEIGHT,
    LEFT,
    PAGE,
    RIGHT,
    SERIES_MAX,
    TOP,
    WIDTH,
    ZOOM,
    Bar,
    Chart,
    Limit,
    png,
    svg,
)  # fmt: skip
from gateway.reports.drawing import _limit
from tests.reports.pixels import Pixel, read, share

CHART = Chart(
    title="Spend by hour",
    subtitle="Sun, Nov 29: $3.00",
    unit=Unit.MICRO_USD,
    bars=[
        Bar({"moonshot": 1_000_000, "groq": 500_000}, "00"),
        Bar({}),
        Bar({"groq": 500_000}, "02"),
        Bar({"moonshot": 1_000_000}),
    ],
    headings=("Sun, Nov 29", "since then"),
    border=3,
    limit=Limit(1_200_000, "limit money-hour: $1.20"),
)
INK, PAPER, RED = (0x1B, 0x1F, 0x24), (255, 255, 255), (0xC0, 0x27, 0x2D)


def colour(text: str) -> Pixel:
    return int(text[1:3], 16), int(text[3:5], 16), int(text[5:7], 16)


def drawn() -> list[list[Pixel]]:
    """The picture's pixels, in the drawing's own size."""
    rows = read(png(CHART))
    assert (len(rows[0]), len(rows)) == (WIDTH * ZOOM, HEIGHT * ZOOM)
    return [[rows[int(y * ZOOM)][int(x * ZOOM)] for x in range(WIDTH)] for y in range(HEIGHT)]


def test_the_words_of_the_title_are_dark_pixels_and_not_empty_paper() -> None:
    rows = drawn()
    middle = LEFT + (WIDTH - LEFT - RIGHT) // 8
    under = middle - 12, HEIGHT - BOTTOM + 14, middle + 12, HEIGHT - BOTTOM + 28
    for box in ((24, 22, 250, 54), (24, 62, 240, 90), under):
        assert share(rows, box, INK, 90) > 0.04, box
    assert share(rows, (300, 4, 600, 16), PAPER, 0) == 1
    # What is written in red says what the red line is.
    assert share(rows, (60, 102, 280, 122), RED, 90) > 0.04


def test_bars_are_stacked_and_as_high_as_what_they_stand_for() -> None:
    rows = drawn()
    slot = (WIDTH - LEFT - RIGHT) // 4
    blue, orange = colour(COLOURS[0]), colour(COLOURS[1])

    def height(bar: int, of: Pixel) -> int:
        x = LEFT + bar * slot + slot // 2
        return sum(all(abs(a - b) < 8 for a, b in zip(rows[y][x], of, strict=True)) for y in range(TOP - 30, HEIGHT - BOTTOM))

    # Of two dollars; the limit's line lies over a part of the first one's orange.
    full = HEIGHT - TOP - BOTTOM
    assert height(0, blue) == pytest.approx(full / 2, abs=3)
    assert height(2, orange) == pytest.approx(full / 4, abs=3)
    assert height(0, orange) == pytest.approx(full / 4 - 3, abs=5)
    assert (height(1, blue), height(1, orange), height(2, blue)) == (0, 0, 0)
    assert height(3, blue) == pytest.approx(height(0, blue), abs=2)


def test_a_limit_far_above_is_named_and_not_drawn() -> None:
    assert "stroke-dasharray" in svg(CHART)
    far = svg(replace(CHART, limit=Limit(99_000_000, "limit money-hour: $99.00")))
    assert "stroke-dasharray" not in far
    assert "↑ limit money-hour: $99.00" in far
    assert "limit" not in svg(replace(CHART, limit=None)).replace("text-anchor", "")


def test_names_are_text_whatever_is_in_them_and_the_page_needs_no_style() -> None:
    hostile = '<script>alert("x")</script>\x07'
    chart = replace(CHART, title=hostile, bars=[Bar({hostile: 5, "a" * 300: 7, "&amp;": 9}, hostile)], border=1)
    for theme in (None, PAGE):
        text = svg(chart) if theme is None else svg(chart, theme)
        root = ElementTree.fromstring(text)
        assert {element.tag.rpartition("}")[2] for element in root.iter()} <= {"svg", "title", "rect", "text", "path"}
        assert not re.search(r"\s(style|class|on\w+|href)=", text)
    assert png(chart)


def test_many_providers_are_the_greatest_and_the_rest() -> None:
    chart = replace(CHART, bars=[Bar({f"p{number}": number * 100 for number in range(1, 12)})], border=1, rest="others")
    text = svg(chart)
    assert len({fill for fill in COLOURS if f'fill="{fill}"' in text}) == SERIES_MAX - 1
    assert ">others<" in text
    assert ">p11<" in text
    assert ">p1<" not in text


@pytest.mark.parametrize("bars", [[], [Bar({})], [Bar({"p": 0})], [Bar({"p": 1})], [Bar({"p": 10**15})]])
def test_nothing_and_a_great_deal_are_drawn_too(bars: list[Bar]) -> None:
    assert len(png(replace(CHART, bars=bars, border=len(bars), limit=None))) > 1000


def test_whatever_is_spent_and_whatever_a_budget_is_called_all_words_stand_within_the_picture() -> None:
    for language in ("en", "es"):
        for most in (900, 90_000_000, 9_999_000_000, 450_000_000_000, 5_000_000_000_000, 10**15):
            chart = replace(CHART, bars=[Bar({"p": most})], border=1, limit=None, language=language)
            assert language == "en" or ">5 M US$<" in svg(replace(chart, bars=[Bar({"p": 5_000_000_000_000})]))
            rows = read(png(chart))
            # Beside the edge nothing is drawn: what is too long would begin beyond it.
            assert share(rows, (0, 200, 5, int((HEIGHT - BOTTOM + 20) * ZOOM)), PAPER, 8) == 1, (language, most)


def test_a_long_name_leaves_room_for_the_amount_of_the_line() -> None:
    budget = Budget("a-budget-whose-name-goes-on-and-on-and-on-and-on", Unit.TOKENS, 24_000, Calendar("day", ZoneInfo("UTC")))
    line = _limit([(budget, 24_000)], Unit.TOKENS, "es", hourly=True)
    assert line is not None
    assert line.label == "ritmo parejo de a-budget-whose-name-goe…: 1.000"
    rows = read(png(replace(CHART, limit=replace(line, value=1_200_000))))
    assert share(rows, (len(rows[0]) - 20, 0, len(rows[0]), 180), PAPER, 8) == 1
