"""How amounts, bars, times and tables look."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from gateway.cli.render import amount, bar, moment, plain_table, scope_text, span, stamp

NOON = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
MADRID = ZoneInfo("Europe/Madrid")


@pytest.mark.parametrize(
    ("unit", "value", "text"),
    [
        ("tokens", 1234567, "1,234,567"),
        ("requests", 0, "0"),
        ("micro_usd", 1, "$0.000001"),
        ("micro_usd", 2_500_000, "$2.50"),
        ("micro_usd", 1_000_000_000, "$1,000.00"),
        ("micro_usd", -1_234_500, "-$1.2345"),
    ],
)
def test_amounts(unit: str, value: int, text: str) -> None:
    assert amount(unit, value) == text


@pytest.mark.parametrize(
    ("spent", "held", "limit", "text"),
    [
        (0, 0, 100, ".........."),
        (50, 20, 100, "#####++..."),
        (1, 1, 10_000, "#+........"),
        (100, 0, 100, "##########"),
        (300, 50, 250, "##########"),
        (90, 90, 100, "#########+"),
        (0, 0, 0, "##########"),
    ],
)
def test_a_bar_shows_spent_held_and_left(spent: int, held: int, limit: int, text: str) -> None:
    assert bar(spent, held, limit, 10, plain=True) == text


def test_a_bar_is_not_full_before_the_budget_is() -> None:
    assert bar(9_999, 0, 10_000, 10, plain=True) == "#########."


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-3, "0 s"),
        (0.2, "1 s"),
        (59, "59 s"),
        (60, "1 min"),
        (61, "1 min 1 s"),
        (25_920, "7 h 12 min"),
        (86_400, "1 d"),
        (93_600, "1 d 2 h"),
    ],
)
def test_spans_have_two_units_at_most(seconds: float, text: str) -> None:
    assert span(seconds) == text


def test_moments_are_said_in_the_zone() -> None:
    assert moment(NOON + timedelta(minutes=23), MADRID, NOON) == "13:23 (in 23 min)"
    assert moment(NOON + timedelta(seconds=41), MADRID, NOON) == "13:00:41 (in 41 s)"
    assert moment(NOON + timedelta(hours=18), MADRID, NOON) == "2026-03-03 07:00 (in 18 h)"
    assert moment(None, MADRID, NOON) == "never"


def test_stamps_are_rfc_3339_in_utc() -> None:
    assert stamp(NOON) == "2026-03-02T12:00:00Z"
    assert stamp(NOON + timedelta(milliseconds=5)) == "2026-03-02T12:00:00.005000Z"
    assert stamp(None) is None


def test_plain_tables_align_and_end_without_spaces() -> None:
    text = plain_table(["name", "left"], [["moonshot-hour", "5"], ["day", "1,000"]], right={1})
    assert text.splitlines() == ["name            left", "moonshot-hour      5", "day            1,000"]
    assert plain_table(["a", "b"], [["1", ""]]).splitlines() == ["a  b", "1"]


def test_scopes() -> None:
    assert scope_text({}) == "every call"
    assert scope_text({"provider": "groq", "user": "1002"}) == "provider=groq user=1002"
