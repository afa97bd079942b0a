"""Amounts and spans as people write and read them: `+50k`, `+20%`, `=300k`, `2h`; `$0.000123`, `7 h 12 min`. Pure.

Amounts are in the configuration's unit: requests, tokens, or US dollars (kept as micro-USD).
"""

from __future__ import annotations

import re
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Literal
from zoneinfo import ZoneInfo

from gateway.budget import Unit

_NUMBER = re.compile(r"(?P<digits>\d[\d_,]*(?:\.\d+)?|\.\d+)(?P<suffix>[kKmM]?)\Z")
_SPAN = re.compile(r"(\d+)(s|m|min|h|d|w)\Z")
_SECONDS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400, "w": 604_800}
_FACTORS = {"": 1, "k": 1000, "m": 1_000_000}
AMOUNT_MAX = 10**15
SPAN_MAX_S = 10 * 365 * 86_400
FIRST_YEAR, LAST_YEAR = 1970, 9000
"""Of an instant that a period begins or ends with: those at the very edge have no hour in every zone."""

Operation = Literal["+", "%", "="]


def parse_amount(text: str, unit: Unit) -> int:
    """`50k`, `250_000`, `1.5M`, `$0.50` → the budget's own unit (micro-USD for money). Raises ValueError with what is wrong."""
    found = _NUMBER.match(text.strip().removeprefix("$"))
    if found is None:
        raise ValueError(f"{text!r} is not an amount: write a number such as 300, 50k or 1.5M")
    value = Decimal(found["digits"].replace("_", "").replace(",", "")) * _FACTORS[found["suffix"].lower()]
    if unit is Unit.MICRO_USD:
        value *= 1_000_000
    if value != int(value):
        raise ValueError(f"{text!r} is not a whole number of {unit.replace('_', '-')}")
    if value > AMOUNT_MAX:
        raise ValueError(f"{text!r} is too large")
    return int(value)


def parse_signed(text: str, unit: Unit) -> int:
    """`+50k`, `-1.5`, or a bare number that adds, in the unit as `parse_amount`. Raises ValueError."""
    body = text.strip()
    value = parse_amount(body[1:] if body[:1] in ("+", "-") else body, unit)
    return -value if body.startswith("-") else value


def amount(unit: str, value: int) -> str:
    """An amount in a budget's unit for people: `12,345`, or dollars for micro-USD."""
    if unit != "micro_usd":
        return f"{value:,}"
    sign, micro = ("-" if value < 0 else ""), abs(value)
    digits = f"{micro / 1_000_000:,.6f}".rstrip("0")
    whole, _, rest = digits.partition(".")
    return f"{sign}${whole}.{rest.ljust(2, '0')}"


def unit_name(unit: str) -> str:
    """A budget's unit for people."""
    return "USD" if unit == "micro_usd" else unit


def span(seconds: float) -> str:
    """A length of time for people, in its two largest units, rounded up to the second: `7 h 12 min`."""
    left = max(0, -int(-seconds // 1))
    days, rest = divmod(left, 86_400)
    hours, rest = divmod(rest, 3600)
    minutes, second = divmod(rest, 60)
    parts = [(days, "d"), (hours, "h"), (minutes, "min"), (second, "s")]
    while len(parts) > 1 and not parts[0][0]:
        parts.pop(0)
    return " ".join(f"{value} {name}" for value, name in parts[:2] if value or len(parts) == 1)


def parse_change(text: str, unit: Unit) -> tuple[Operation, int]:
    """`+50k` or a bare number adds, `+20%` adds a percentage of the limit, `=300k` replaces it. Raises ValueError."""
    body = text.strip()
    if body.startswith("="):
        return "=", parse_amount(body[1:], unit)
    body = body.removeprefix("+").strip()
    if body.endswith("%"):
        if not re.fullmatch(r"\d{1,6}", body[:-1]):
            raise ValueError(f"{text!r} is not a percentage: write a whole number such as +20%")
        return "%", int(body[:-1])
    return "+", parse_amount(body, unit)


def parse_span(text: str) -> int:
    """`30m`, `2h`, `1d`, `1w`, `90s` → seconds, at least one and at most SPAN_MAX_S. Raises ValueError."""
    found = _SPAN.match(text.strip().lower())
    seconds = int(found[1][:20]) * _SECONDS[found[2]] if found is not None else 0
    if not seconds:
        raise ValueError(f"{text[:40]!r} is not a span of time: write it as 30m, 2h or 1d")
    if seconds > SPAN_MAX_S:
        raise ValueError(f"{text[:40]!r} is longer than ten years")
    return seconds


def parse_period(since: str | None, until: str | None, zone: ZoneInfo, now: datetime) -> tuple[datetime, datetime]:
    """The span that two texts name, its end excluded; month to date without them. Raises ValueError.

    Each is a date in the zone or an RFC 3339 instant; a last date is counted whole.
    """
    local = now.astimezone(zone)
    first = local.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    start = first if since is None else _instant(since, zone, 0)
    end = now + timedelta(seconds=1) if until is None else _instant(until, zone, 1)
    if start >= end:
        raise ValueError("the end must be after the beginning")
    return start, end


def _instant(text: str, zone: ZoneInfo, days_later: int) -> datetime:
    instant = _read_instant(text, zone, days_later)
    if not FIRST_YEAR <= instant.year <= LAST_YEAR:
        raise ValueError(f"{text[:40]!r} is no date between the years {FIRST_YEAR} and {LAST_YEAR}")
    return instant


def _read_instant(text: str, zone: ZoneInfo, days_later: int) -> datetime:
    try:
        if len(text) == len("2026-03-02"):
            day = date.fromisoformat(text) + timedelta(days=days_later)
            return datetime(day.year, day.month, day.day, tzinfo=zone)
        instant = datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        raise ValueError(f"{text[:40]!r} is neither a date (2026-03-02) nor an instant (2026-03-02T12:00:00Z)")
    return instant if instant.tzinfo is not None else instant.replace(tzinfo=zone)
