"""Amounts and spans as people write them."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from gateway.amounts import parse_amount, parse_change, parse_period, parse_span
from gateway.budget import Unit


@pytest.mark.parametrize(
    ("text", "unit", "expected"),
    [
        ("50k", Unit.TOKENS, 50_000),
        ("250_000", Unit.TOKENS, 250_000),
        ("1.5M", Unit.TOKENS, 1_500_000),
        ("10,000", Unit.REQUESTS, 10_000),
        ("0", Unit.TOKENS, 0),
        ("0.5", Unit.MICRO_USD, 500_000),
        ("$0.000001", Unit.MICRO_USD, 1),
        ("2k", Unit.MICRO_USD, 2_000_000_000),
    ],
)
def test_an_amount_is_read_in_the_budgets_unit(text: str, unit: Unit, expected: int) -> None:
    assert parse_amount(text, unit) == expected


@pytest.mark.parametrize(
    ("text", "unit"),
    [
        ("", Unit.TOKENS),
        ("1.5", Unit.TOKENS),
        ("-5", Unit.TOKENS),
        ("5x", Unit.TOKENS),
        ("0.0000001", Unit.MICRO_USD),
        ("9" * 30, Unit.TOKENS),
    ],
)
def test_a_wrong_amount_is_refused(text: str, unit: Unit) -> None:
    with pytest.raises(ValueError, match="is"):
        parse_amount(text, unit)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("+50k", ("+", 50_000)), ("50k", ("+", 50_000)), ("+20%", ("%", 20)), ("=300k", ("=", 300_000)), ("=0", ("=", 0))],
)
def test_a_change_adds_scales_or_replaces(text: str, expected: tuple[str, int]) -> None:
    assert parse_change(text, Unit.TOKENS) == expected


@pytest.mark.parametrize("text", ["", "+", "=", "%", "-20%", "+1.5%", "--5", "=+5"])
def test_a_wrong_change_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not"):
        parse_change(text, Unit.TOKENS)


@pytest.mark.parametrize(
    ("text", "expected"), [("90s", 90), ("30m", 1800), ("30min", 1800), ("2h", 7200), ("1d", 86_400), ("1W", 604_800)]
)
def test_a_span_is_read_in_seconds(text: str, expected: int) -> None:
    assert parse_span(text) == expected


@pytest.mark.parametrize("text", ["", "2", "0h", "-1h", "h", "1.5h", "1 h 5"])
def test_a_wrong_span_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="span"):
        parse_span(text)


NOW = datetime(2026, 3, 29, 12, 0, tzinfo=UTC)
MADRID = ZoneInfo("Europe/Madrid")


@pytest.mark.parametrize(
    ("since", "until", "start", "end"),
    [
        (None, None, "2026-03-01T00:00:00+01:00", "2026-03-29T12:00:01+00:00"),
        # The clocks go forward on 29 March: the day ends 23 hours after it began.
        ("2026-03-29", "2026-03-29", "2026-03-28T23:00:00+00:00", "2026-03-29T22:00:00+00:00"),
        ("2026-03-01T06:00:00Z", "2026-03-02T06:00", "2026-03-01T06:00:00+00:00", "2026-03-02T05:00:00+00:00"),
    ],
)
def test_a_period_is_named_by_dates_or_instants(since: str | None, until: str | None, start: str, end: str) -> None:
    found = parse_period(since, until, MADRID, NOW)
    assert found == (datetime.fromisoformat(start), datetime.fromisoformat(end))


@pytest.mark.parametrize(
    ("since", "until"),
    [("yesterday", None), ("2026-13-01", None), (None, "9999-12-31"), ("2026-03-02", "2026-03-01"), ("", None),
     ("0001-01-01", None), ("0001-01-01T00:00:00Z", "2026-03-01"), (None, "9999-12-31T23:59:59-12:00")],
)  # fmt: skip
def test_what_is_no_period_is_refused(since: str | None, until: str | None) -> None:
    with pytest.raises(ValueError, match=r"date|after"):
        parse_period(since, until, MADRID, NOW)


@pytest.mark.parametrize("text", ["3651d", "9" * 400 + "s"])
def test_a_span_has_an_end(text: str) -> None:
    with pytest.raises(ValueError, match="ten years"):
        parse_span(text)
