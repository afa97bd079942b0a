"""From figures to the chart: which unit, which labels, and which limit is the line. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from babel.dates import format_date, format_skeleton

from gateway.budget import Amounts, Budget, Calendar, Rolling, Unit, Window
from gateway.notice import text
from gateway.notice.catalogue import best
from gateway.reports.chart import Bar, Chart, Limit
from gateway.reports.figures import Report
from gateway.reports.periods import hour_of, hours
from gateway.reports.words import amount, between, period_short, shortened, with_unit

HOURS_BETWEEN = 6
DAYS_BETWEEN = 5
LINE_NAME_MAX = 24
"""Beside the name of the line's budget its amount must have room."""
LABELLED_MAX = 25
"""A later day's number would touch the next month's first."""
BARS_MAX = 400
LABELS = 9
"""As many fit beneath a chart of any time."""
HOURS = (1, 2, 3, 6, 12)
WEEK, MONTH = 7, 31
MONTHS_BETWEEN = 62
"""Of more days than these it is the months that are named."""

Place = date
"""A day, or an hour: a datetime is a date."""


def chart_of(report: Report, language: str) -> Chart:
    """The chart of a report's previous period and the present one so far."""
    periods, unit = report.periods, report.unit
    starts = periods.bars()
    bars = [
        Bar({name: amounts.of(unit) for name, amounts in taken.items()}, label, _said(start, hourly=periods.hourly))
        for start, taken, label in zip(starts, report.bars, _labels(report, language), strict=True)
    ]
    return Chart(
        title=_title(periods.bar, unit, language),
        subtitle=f"{period_short(language, periods)}: {with_unit(language, unit, _sum(report))}",
        unit=unit,
        bars=bars,
        headings=(period_short(language, periods), text(language, "report_chart_since")),
        border=sum(start < periods.start for start in starts),
        limit=_limit(((line.budget, line.fullest.limit) for line in report.budgets), unit, language, hourly=periods.hourly),
        rest=text(language, "report_chart_rest"),
        language=language,
    )


def chart_over(
    rows: Sequence[Mapping[str, Any]],
    bar: str,
    span: tuple[datetime, datetime],
    zone: ZoneInfo,
    limits: Iterable[tuple[Budget, int]],
    language: str,
) -> Chart | None:
    """The chart of any time: of sums by `bar` ("hour" or "day") and provider. None where nothing was spent.

    A span of more than BARS_MAX bars is drawn from the first one with anything in it, and the last of them alone.
    """
    unit, hourly = Unit.MICRO_USD if any(row["cost_micro_usd"] for row in rows) else Unit.TOKENS, bar == "hour"
    spent: dict[Place, dict[str, int]] = {}
    for row in rows:
        if value := Amounts(row["requests"], row["tokens"], row["cost_micro_usd"]).of(unit):
            spent.setdefault(_place(row[bar], hourly=hourly), {})[row["provider"]] = value
    if not spent:
        return None
    start, end = (instant.astimezone(UTC) for instant in span)
    if end - start > (longest := BARS_MAX * timedelta(hours=1 if hourly else 24)):
        start = max(min(row[bar] for row in rows).astimezone(UTC), end - longest)
    places = _places(start, end, zone, hourly=hourly)[-BARS_MAX:]
    local = [place.astimezone(zone) if isinstance(place, datetime) else place for place in places]
    labels = _few(local, language, hourly=hourly)
    total = sum(sum(spent.get(place, {}).values()) for place in places)
    said = between(language, _day(local[0]), _day(local[-1]))
    return Chart(
        title=_title(bar, unit, language),
        subtitle=f"{said}: {with_unit(language, unit, total)}",
        unit=unit,
        bars=[
            Bar(spent.get(place, {}), label, _said(start, hourly=hourly))
            for place, start, label in zip(places, local, labels, strict=True)
        ],
        headings=("", ""),
        border=len(places),
        limit=_limit(limits, unit, language, hourly=hourly),
        rest=text(language, "report_chart_rest"),
        language=language,
    )


def _title(bar: str, unit: Unit, language: str) -> str:
    return text(language, f"report_chart_{bar}_{'money' if unit is Unit.MICRO_USD else 'tokens'}")


def _sum(report: Report) -> int:
    return report.previous.cost_micro_usd if report.money else report.previous.tokens


def _place(local: datetime, *, hourly: bool) -> Place:
    return hour_of(local) if hourly else local.date()


def _places(start: datetime, end: datetime, zone: ZoneInfo, *, hourly: bool) -> list[Place]:
    """Every hour or day of a span: a time in which nothing was spent has its place too."""
    if hourly:
        return list(hours(start, end, zone))
    first, last = start.astimezone(zone).date(), (end - timedelta(milliseconds=1)).astimezone(zone).date()
    return [first + timedelta(days=number) for number in range((last - first).days + 1)]


def _day(local: Place) -> date:
    return local.date() if isinstance(local, datetime) else local


def _said(start: Place, *, hourly: bool) -> str:
    return f"{start:%Y-%m-%d %H:%M}" if hourly else f"{start:%Y-%m-%d}"


def _labels(report: Report, language: str) -> list[str]:
    periods = report.periods
    starts = periods.bars()
    if periods.hourly:
        return _hours(starts, HOURS_BETWEEN)
    if periods.kind == "week":
        return [_weekday(start, language) for start in starts]
    return _numbers(starts)


def _weekday(day: Place, language: str) -> str:
    return format_skeleton("E", day, locale=best(language))


def _hours(starts: Sequence[Place], between: int) -> list[str]:
    clocks = [start for start in starts if isinstance(start, datetime)]
    return [f"{start:%H}" if start.hour % between == 0 and not start.fold else "" for start in clocks]


def _numbers(days: Sequence[Place]) -> list[str]:
    named = {1, *range(DAYS_BETWEEN, LABELLED_MAX + 1, DAYS_BETWEEN)}
    return [str(day.day) if day.day in named else "" for day in days]


def _few(places: Sequence[Place], language: str, *, hourly: bool) -> list[str]:
    """Beneath any number of bars no more labels than there is room for."""
    if hourly:
        return _hours(places, next((every for every in HOURS if len(places) <= every * LABELS), HOURS[-1]))
    if len(places) <= WEEK:
        return [_weekday(day, language) for day in places]
    if len(places) <= LABELS:
        return [str(day.day) for day in places]
    if len(places) <= MONTHS_BETWEEN:
        return _numbers(places)
    every = 1 if len(places) <= MONTH * LABELS else 2
    return [format_date(day, "LLL", best(language)) if day.day == 1 and (day.month - 1) % every == 0 else "" for day in places]


def _limit(limits: Iterable[tuple[Budget, int]], unit: Unit, language: str, *, hourly: bool) -> Limit | None:
    """The limit of every call that is tightest per bar; of a longer window its even share."""
    found = [
        (parts, max(limit // parts, 1), budget)
        for budget, limit in limits
        if not budget.scope and budget.unit is unit and limit > 0 and (parts := _bars_in(budget.window, hourly=hourly))
    ]
    if not found:
        return None
    # One that is about a bar itself says more than a share of a longer one.
    parts, value, budget = min(found, key=lambda each: (each[0] > 1, each[1]))
    key = "report_chart_limit" if parts == 1 else "report_chart_pace"
    return Limit(value, text(language, key, name=shortened(budget.name, LINE_NAME_MAX), amount=amount(language, unit, value)))


def _bars_in(window: Window, *, hourly: bool) -> int:
    """How many bars a window is long; 0 where it is shorter than one, or has no length."""
    if isinstance(window, Rolling):
        length = timedelta(seconds=window.length_s)
    elif isinstance(window, Calendar) and window.kind != "minute":
        length = {"hour": timedelta(hours=1), "day": timedelta(days=1), "week": timedelta(days=7)}.get(
            window.kind, timedelta(days=30)
        )
    else:
        return 0
    return length // timedelta(hours=1 if hourly else 24)
