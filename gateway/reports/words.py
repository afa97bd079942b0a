"""Numbers, spans and instants of a report as people write them in a language. Pure."""

from __future__ import annotations

from datetime import date, datetime, timedelta

from babel.dates import format_date, format_interval, format_skeleton, format_time
from babel.numbers import format_compact_currency, format_compact_decimal, format_currency

from gateway.budget import Unit
from gateway.notice import money, percent, text, whole
from gateway.notice.catalogue import best
from gateway.reports.periods import Periods

DOLLAR = 1_000_000
"""In micro-USD."""


def short(language: str, number: int) -> str:
    """Three figures or so: 1.2M."""
    if abs(number) < 10_000:
        return whole(language, number)
    return format_compact_decimal(number, locale=best(language), fraction_digits=1 if abs(number) >= 1_000_000 else 0)


def amount(language: str, unit: Unit, value: int) -> str:
    """An amount in few figures, without the name of its unit."""
    return money(language, value) if unit is Unit.MICRO_USD else short(language, value)


def shortened(name: str, most: int) -> str:
    """A name of so many letters at most."""
    return name if len(name) <= most else f"{name[: most - 1]}…"


def tick(language: str, unit: Unit, value: int, step: int) -> str:
    """An amount beside an axis whose ticks are so far apart: whole dollars without cents, and what is much in few figures."""
    if unit is not Unit.MICRO_USD or step < DOLLAR:
        return amount(language, unit, value)
    locale, dollars = best(language), value // DOLLAR
    if dollars >= 10_000:
        return format_compact_currency(dollars, "USD", locale=locale, fraction_digits=1 if dollars % 1_000_000 else 0)
    return format_currency(dollars, "USD", "#,##0 ¤" if locale == "es" else "¤#,##0", locale=locale, currency_digits=False)


def calls(language: str, number: int) -> str:
    """How many calls, every digit."""
    return text(language, "report_requests_one" if number == 1 else "report_requests", amount=whole(language, number))


def with_unit(language: str, unit: Unit, value: int) -> str:
    """The same with the name of its unit."""
    said = amount(language, unit, value)
    return said if unit is Unit.MICRO_USD else text(language, f"report_{unit}", amount=said)


def change(language: str, now: int, then: int) -> str:
    """How much more or less: "▲ 12%"; "" where there is nothing to measure by."""
    if not then:
        return ""
    part = (now - then) / then
    if round(abs(part), 2) == 0:
        return "＝"
    return f"{'▲' if part > 0 else '▼'} {percent(language, abs(part))}"


def period(language: str, periods: Periods) -> str:
    """The previous period: "Sunday, November 29, 2026", "Nov 23 – 29, 2026", "November 2026"."""
    return _span(language, periods, periods.previous, periods.start, "full")


def period_before(language: str, periods: Periods) -> str:
    """The one before that, in few letters."""
    return _span(language, periods, periods.before, periods.previous, "short")


def period_short(language: str, periods: Periods) -> str:
    """The previous one in few letters."""
    return _span(language, periods, periods.previous, periods.start, "short")


def between(language: str, first: date, last: date) -> str:
    """From a day to another, both of them in it."""
    if first == last:
        return format_skeleton("MMMEd", first, locale=best(language))
    return format_interval(first, last, "yMMMd", locale=best(language))


def _span(language: str, periods: Periods, start: datetime, end: datetime, style: str) -> str:
    locale, zone, first = best(language), periods.zone, start.astimezone(periods.zone)
    if periods.kind == "day":
        return format_date(first.date(), "full", locale) if style == "full" else format_skeleton("MMMEd", first, locale=locale)
    if periods.kind == "month":
        return format_skeleton("yMMMM", first, locale=locale) if style == "full" else format_date(first.date(), "LLLL", locale)
    last = (end - timedelta(hours=12)).astimezone(zone)
    return format_interval(first.date(), last.date(), "yMMMd" if style == "full" else "MMMd", locale=locale)


def moment(language: str, periods: Periods, instant: datetime) -> str:
    """A time of day, with the day where that is not plain from the period."""
    local, locale = instant.astimezone(periods.zone), best(language)
    clock = format_time(local, "HH:mm", locale=locale)
    return clock if periods.kind == "day" else f"{format_skeleton('MMMEd', local, locale=locale)} {clock}"
