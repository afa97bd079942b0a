"""From the figures of a report to its chart: which unit, which labels, and which limit is the line. Pure."""

from __future__ import annotations

from datetime import timedelta

from babel.dates import format_skeleton

from gateway.budget import Calendar, Rolling, Window
from gateway.notice import text
from gateway.notice.catalogue import best
from gateway.reports.chart import Bar, Chart, Limit
from gateway.reports.figures import BudgetFigures, Report
from gateway.reports.words import amount, period_short, with_unit

HOURS_BETWEEN = 6
DAYS_BETWEEN = 5
LABELLED_MAX = 25
"""A later day's number would touch the next month's first."""


def chart_of(report: Report, language: str) -> Chart:
    """The chart of a report's previous period and the present one so far."""
    periods, unit = report.periods, report.unit
    starts = periods.bars()
    bars = [
        Bar({name: amounts.of(unit) for name, amounts in taken.items()}, label)
        for taken, label in zip(report.bars, _labels(report, language), strict=True)
    ]
    return Chart(
        title=text(language, f"report_chart_{periods.bar}_{'money' if report.money else 'tokens'}"),
        subtitle=f"{period_short(language, periods)}: {with_unit(language, unit, _sum(report))}",
        unit=unit,
        bars=bars,
        headings=(period_short(language, periods), text(language, "report_chart_since")),
        border=sum(start < periods.start for start in starts),
        limit=_limit(report, language),
        rest=text(language, "report_chart_rest"),
        language=language,
    )


def _sum(report: Report) -> int:
    return report.previous.cost_micro_usd if report.money else report.previous.tokens


def _labels(report: Report, language: str) -> list[str]:
    periods = report.periods
    starts = periods.bars()
    if periods.hourly:
        return [f"{start:%H}" if start.hour % HOURS_BETWEEN == 0 and not start.fold else "" for start in starts]
    if periods.kind == "week":
        return [format_skeleton("E", start, locale=best(language)) for start in starts]
    days = {1, *range(DAYS_BETWEEN, LABELLED_MAX + 1, DAYS_BETWEEN)}
    return [str(start.day) if start.day in days else "" for start in starts]


def _limit(report: Report, language: str) -> Limit | None:
    """The limit of every call that is tightest per bar; of a longer window its even share."""
    found = [pair for line in report.budgets if (pair := _per_bar(report, line)) is not None]
    if not found:
        return None
    # One that is about a bar itself says more than a share of a longer one.
    parts, value, line = min(found, key=lambda each: (each[0] > 1, each[1]))
    said = amount(language, report.unit, value)
    key = "report_chart_limit" if parts == 1 else "report_chart_pace"
    return Limit(value, text(language, key, name=line.budget.name, amount=said))


def _per_bar(report: Report, line: BudgetFigures) -> tuple[int, int, BudgetFigures] | None:
    budget = line.budget
    parts = _bars_in(budget.window, hourly=report.periods.hourly)
    if budget.scope or budget.unit is not report.unit or parts is None or line.fullest.limit <= 0:
        return None
    return parts, max(line.fullest.limit // parts, 1), line


def _bars_in(window: Window, *, hourly: bool) -> int | None:
    """How many bars a window is long; None where it is shorter than one, or has no length."""
    if isinstance(window, Rolling):
        length = timedelta(seconds=window.length_s)
    elif isinstance(window, Calendar) and window.kind != "minute":
        length = {"hour": timedelta(hours=1), "day": timedelta(days=1), "week": timedelta(days=7)}.get(
            window.kind, timedelta(days=30)
        )
    else:
        return None
    parts = length // timedelta(hours=1 if hourly else 24)
    return parts or None
