"""The periods of a report: whole days, weeks and months of the zone, also where clocks change and where it is late."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from gateway.reports.periods import Periods

MADRID = ZoneInfo("Europe/Madrid")


def at(kind: str, instant: str, now: str | None = None) -> Periods:
    due = datetime.fromisoformat(instant).replace(tzinfo=MADRID)
    return Periods.at(kind, MADRID, due, due if now is None else datetime.fromisoformat(now).replace(tzinfo=MADRID))


def local(periods: Periods) -> list[str]:
    edges = (periods.before, periods.previous, periods.start, periods.until)
    return [f"{edge.astimezone(MADRID):%m-%d %H:%M}" for edge in edges]


@pytest.mark.parametrize(
    ("kind", "instant", "expected"),
    [
        ("day", "2026-11-30T09:00", ["11-28 00:00", "11-29 00:00", "11-30 00:00", "11-30 09:00"]),
        ("day", "2026-11-30T00:00", ["11-28 00:00", "11-29 00:00", "11-30 00:00", "11-30 00:00"]),
        ("week", "2026-11-29T23:59", ["11-09 00:00", "11-16 00:00", "11-23 00:00", "11-29 23:59"]),
        ("week", "2026-11-30T09:00", ["11-16 00:00", "11-23 00:00", "11-30 00:00", "11-30 09:00"]),
        ("month", "2026-03-01T09:00", ["01-01 00:00", "02-01 00:00", "03-01 00:00", "03-01 09:00"]),
    ],
)
def test_they_are_whole_and_in_the_zone(kind: str, instant: str, expected: list[str]) -> None:
    assert local(at(kind, instant)) == expected


def test_a_late_report_is_about_the_periods_that_it_was_due_for() -> None:
    assert local(at("day", "2026-11-28T09:00", "2026-11-28T20:00")) == [
        "11-26 00:00",
        "11-27 00:00",
        "11-28 00:00",
        "11-28 20:00",
    ]
    # The next day the present period of then is over.
    assert local(at("day", "2026-11-28T09:00", "2026-11-29T20:00"))[-1] == "11-29 00:00"


@pytest.mark.parametrize(("day", "hours"), [("2026-03-30", 23), ("2026-10-26", 25), ("2026-10-27", 24)])
def test_the_day_of_a_change_of_clocks_has_the_hours_that_it_has(day: str, hours: int) -> None:
    periods = at("day", f"{day}T09:00")
    assert periods.start - periods.previous == timedelta(hours=hours)
    bars = periods.bars()
    assert len([bar for bar in bars if bar < periods.start]) == hours
    assert len({periods.bar_of(bar) for bar in bars}) == len(bars)
    assert bars[0].astimezone(UTC) == periods.previous


def test_the_same_point_never_lies_past_the_end_of_a_shorter_month() -> None:
    periods = at("month", "2026-03-31T12:00")
    assert periods.same == periods.start
    assert [bar.day for bar in at("month", "2026-03-02T09:00").bars()] == [*range(1, 29), 1, 2]
