"""Numbers, spans and instants of a report as people write them in a language. Pure."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from decimal import Decimal

from babel.dates import format_date, format_interval, format_skeleton, format_time
from babel.numbers import format_compact_decimal, format_currency, format_decimal, format_percent

from gateway.budget import Unit
from gateway.notice import text
from gateway.notice.catalogue import best
from gateway.reports.periods import Periods

CENT = 10_000
"""In micro-USD."""


def money(language: str, micro_usd: int) -> str:
    """Dollars and cents; under a cent with as many places as are needed for two figures."""
    dollars = Decimal(micro_usd) / 1_000_000
    places = 2 if not micro_usd or abs(micro_usd) >= CENT else 1 - dollars.adjusted()
    pattern = {"es": "#,##0.{} ¤"}.get(best(language), "¤#,##0.{}").format("0" * places)
    return format_currency(dollars, "USD", pattern, locale=best(language), currency_digits=False)


def whole(language: str, number: int) -> str:
    """Every digit."""
    return format_decimal(number, locale=best(language))


def short(language: str, number: int) -> str:
    """Three figures or so: 1.2M."""
    if abs(number) < 10_000:
        return whole(language, number)
    return format_compact_decimal(number, locale=best(language), fraction_digits=1 if abs(number) >= 1_000_000 else 0)


def amount(language: str, unit: Unit, value: int, *, exact: bool = False) -> str:
    """An amount without the name of its unit."""
    if unit is Unit.MICRO_USD:
        return money(language, value)
    return whole(language, value) if exact else short(language, value)


def calls(language: str, number: int) -> str:
    """How many calls, every digit."""
    return text(language, "report_requests_one" if number == 1 else "report_requests", amount=whole(language, number))


def with_unit(language: str, unit: Unit, value: int) -> str:
    """The same with the name of its unit."""
    said = amount(language, unit, value)
    return said if unit is Unit.MICRO_USD else text(language, f"report_{unit}", amount=said)


def percent(language: str, share: float) -> str:
    """A share; one that is not nought never reads as nought."""
    pattern = "#,##0.0%" if 0 < abs(share) < 0.01 else "#,##0%"
    return format_percent(share, pattern if best(language) != "es" else pattern.replace("%", " %"), locale=best(language))


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
