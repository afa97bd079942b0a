"""The chart of any time: a place for every hour and day of the zone, labels that have room, and the limit that fits."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from gateway.budget import Budget, Calendar, Unit
from gateway.reports.chart import PAGE, Chart, svg
from gateway.reports.drawing import BARS_MAX, LABELS, chart_over
from gateway.store.database import Database
from tests.reports.office import Office

MADRID, CAIRO = ZoneInfo("Europe/Madrid"), ZoneInfo("Africa/Cairo")
HOWE = ZoneInfo("Australia/Lord_Howe")


def row(step: str, begin: str, zone: ZoneInfo, tokens: int, cost: int = 0) -> dict[str, Any]:
    start = datetime.fromisoformat(begin).astimezone(zone)
    return {"provider": "p", step: start, "requests": 1, "cost_micro_usd": cost, "tokens": tokens}


def drawn(rows: list[dict[str, Any]], step: str, zone: ZoneInfo, *, since: str = "", until: str = "", **more: Any) -> Chart:
    first = datetime.fromisoformat(since) if since else rows[0][step]
    last = datetime.fromisoformat(until) if until else rows[-1][step].astimezone(UTC) + timedelta(minutes=20)
    chart = chart_over(rows, step, (first, last), zone, more.get("limits", ()), more.get("language", "en"))
    assert chart is not None
    return chart


@pytest.mark.parametrize(
    ("step", "zone", "first", "second", "places"),
    [
        # The same hour by the clock, twice.
        ("hour", MADRID, "2026-10-25T00:00Z", "2026-10-25T01:00Z", 2),
        ("hour", MADRID, "2026-03-29T00:00Z", "2026-03-29T02:00Z", 3),
        # Clocks go back by half an hour, and forward.
        ("hour", HOWE, "2026-04-04T13:00Z", "2026-04-04T17:30Z", 5),
        ("hour", HOWE, "2026-10-03T14:30Z", "2026-10-03T18:00Z", 5),
        ("day", MADRID, "2026-10-23T22:00Z", "2026-10-25T23:00Z", 3),
        # The day that has no midnight.
        ("day", CAIRO, "2026-04-23T22:00Z", "2026-04-24T21:00Z", 2),
    ],
)
def test_each_hour_and_day_has_a_place_of_its_own_when_clocks_change(
    step: str, zone: ZoneInfo, first: str, second: str, places: int
) -> None:
    chart = drawn([row(step, first, zone, 10), row(step, second, zone, 5)], step, zone)
    assert [bar.values.get("p") for bar in chart.bars] == [10, *[None] * (places - 2), 5]
    shape = "%Y-%m-%d %H:%M" if step == "hour" else "%Y-%m-%d"
    ends = [f"{datetime.fromisoformat(each).astimezone(UTC).astimezone(zone):{shape}}" for each in (first, second)]
    assert [chart.bars[0].said, chart.bars[-1].said] == ends


def test_the_whole_of_the_asked_time_is_drawn_and_its_sum_is_said() -> None:
    rows = [row("day", "2026-11-10T00:00Z", MADRID, 9, 1_500_000), row("day", "2026-11-12T00:00Z", MADRID, 9, 500_000)]
    chart = drawn(rows, "day", MADRID, since="2026-10-31T23:00Z", until="2026-11-30T11:00Z")
    assert (len(chart.bars), chart.unit, chart.subtitle) == (30, Unit.MICRO_USD, "Nov 1\u2009–\u200930, 2026: $2.00")
    assert [bar.label for bar in chart.bars if bar.label] == ["1", "5", "10", "15", "20", "25"]
    assert "<title>2026-11-10 p: $1.50</title>" in svg(chart, PAGE)
    spanish = drawn(rows, "day", MADRID, since="2026-10-31T23:00Z", until="2026-11-30T11:00Z", language="es")
    assert (spanish.title, spanish.subtitle[-8:]) == ("Gasto por día", "2,00 US$")
    assert chart_over([row("day", "2026-11-10T00:00Z", MADRID, 0)], "day", (rows[0]["day"],) * 2, MADRID, (), "en") is None


def test_more_than_can_be_drawn_is_the_last_of_it() -> None:
    first = row("day", "2024-12-31T23:00Z", MADRID, 9)
    chart = drawn([first], "day", MADRID, since="2020-01-01T00:00Z", until="2025-01-05T11:00Z")
    assert [bar.said for bar in chart.bars][:: len(chart.bars) - 1] == ["2025-01-01", "2025-01-05"]
    chart = drawn([first], "day", MADRID, since="2020-01-01T00:00Z", until="2026-11-30T11:00Z")
    assert (len(chart.bars), chart.bars[-1].said) == (BARS_MAX, "2026-11-30")


@pytest.mark.parametrize(("step", "places"), [("hour", places) for places in (1, 9, 10, 24, 25, 50)])
def test_hours_have_no_more_labels_than_have_room(step: str, places: int) -> None:
    begin = datetime(2026, 3, 1, 23, tzinfo=UTC).astimezone(MADRID)
    until = begin + timedelta(hours=places)
    chart = drawn([row(step, begin.isoformat(), MADRID, 3)], step, MADRID, until=until.isoformat())
    assert len(chart.bars) == places
    assert 1 <= sum(bool(bar.label) for bar in chart.bars) <= LABELS


@pytest.mark.parametrize(
    ("days", "labels"),
    [
        (1, ["Sat"]),
        (7, ["Sat", "Sun", "Mon", "Tue", "Wed", "Thu", "Fri"]),
        (9, ["28", "1", "2", "3", "4", "5", "6", "7", "8"]),
        (20, ["1", "5", "10", "15"]),
        (100, ["Mar", "Apr", "May", "Jun"]),
        (400, ["Mar", "May", "Jul", "Sep", "Nov", "Jan", "Mar"]),
    ],
)
def test_days_are_named_as_their_number_allows(days: int, labels: list[str]) -> None:
    begin = datetime(2026, 2, 28, 12, tzinfo=UTC)
    rows = [row("day", "2026-02-27T23:00Z", MADRID, 3)]
    chart = drawn(rows, "day", MADRID, since=begin.isoformat(), until=(begin + timedelta(days=days - 1)).isoformat())
    assert [bar.label for bar in chart.bars if bar.label] == labels


async def test_what_the_books_say_is_drawn_with_the_limit_that_holds_now(sqlite_url: str, tmp_path: Path) -> None:
    office = Office(Database(sqlite_url), tmp_path)
    await office.store.start()
    await office.three_days()
    since, now = office.clock.now() - timedelta(days=5), office.clock.now()
    rows = await office.books.usage(["day", "provider"], since, now, MADRID)
    text = await office.reports.chart(rows, "day", since, now)
    assert text is not None
    assert "limit money-day: $2.00" in text
    await office.store.raise_limit("money-day", "+", 1_000_000, None, "cli:root")
    assert "limit money-day: $3.00" in str(await office.reports.chart(rows, "day", since, now))
    assert await office.reports.chart([], "day", since, now) is None
    # What is still to come has no place yet.
    later = await office.reports.chart(rows, "day", since, now + timedelta(days=300))
    assert later == await office.reports.chart(rows, "day", since, now)
    await office.store.stop()
    await office.database.close()


def test_a_budget_of_a_part_of_the_calls_is_no_line() -> None:
    rows = [row("day", "2026-11-10T00:00Z", MADRID, 9)]
    budgets = [
        Budget("one", Unit.TOKENS, 5, Calendar("day", MADRID), {"user": "*"}),
        Budget("money", Unit.MICRO_USD, 5, Calendar("day", MADRID)),
        Budget("none", Unit.TOKENS, 0, Calendar("day", MADRID)),
    ]
    assert drawn(rows, "day", MADRID, limits=[(each, each.limit) for each in budgets]).limit is None
    month = Budget("month", Unit.TOKENS, 3_000, Calendar("month", MADRID))
    found = drawn(rows, "day", MADRID, limits=[(month, 6_000)]).limit
    assert found is not None
    assert (found.value, found.label) == (200, "even pace of month: 200")
