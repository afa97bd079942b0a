"""Usage: sums by what one wants to know, a chart over time, and the rows as a file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any
from urllib.parse import urlencode
from zoneinfo import ZoneInfo

from gateway.amounts import amount, parse_period
from gateway.errors import InvalidRequest
from gateway.store.usage import GROUPS
from gateway.web.dashboard.visit import Answer, View, Visit

ROWS_SHOWN = 200
SERIES = 5
"""Providers with a colour of their own; the others share one."""
HOURLY = timedelta(hours=50)
"""Up to this span the chart has hours, beyond it days."""
BARS_MAX = 400
HEIGHT, WIDTH = 200, 1000
Time = date
"""A place on the chart: a datetime, which is a date, for an hour."""
SUMMED = ("attempts", "tokens", "cost_micro_usd", "estimated", "uncertain", "overrun")


async def sums(visit: Visit) -> Answer:
    """The page. Raises InvalidRequest for a period or a group that is none."""
    start, end = _period(visit)
    by = list(dict.fromkeys(name for name in visit.request.query.getall("by", ["provider"]) if name))
    books = visit.services.books
    step = "hour" if end - start <= HOURLY else "day"
    over_time = await books.usage([step, "provider"], start, end, visit.zone)
    # Over a million rows a sum takes a second or two: the usual one is made of what the chart has anyway.
    rows = _summed(over_time) if by == ["provider"] else await books.usage(by, start, end, visit.zone)
    rows.sort(key=lambda row: (row["cost_micro_usd"], row["tokens"]), reverse=not {"hour", "day"} & set(by))
    fields = {
        "by": by,
        "groups": GROUPS,
        "rows": rows[:ROWS_SHOWN],
        "more": max(0, len(rows) - ROWS_SHOWN),
        "total": {name: sum(row[name] for row in rows) for name in SUMMED},
        "since": visit.asked("from"),
        "until": visit.asked("to"),
        "start": start,
        "end": end,
        "presets": _presets(visit.now.astimezone(visit.zone)),
        "chart": chart(over_time, step, visit.zone),
        "csv": "/usage.csv?" + urlencode({name: visit.asked(name) for name in ("from", "to") if visit.asked(name)}),
    }
    return View("usage.html", "Usage", fields)


def _summed(over_time: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The sums of each provider over all times."""
    groups: dict[str, dict[str, Any]] = {}
    for row in over_time:
        group = groups.setdefault(row["provider"], {"provider": row["provider"]} | dict.fromkeys(SUMMED, 0))
        for name in SUMMED:
            group[name] += row[name]
    return list(groups.values())


async def export(visit: Visit) -> Answer:
    """The rows as CSV."""
    return await visit.export(visit.request)


def chart(rows: Sequence[dict[str, Any]], step: str, zone: ZoneInfo) -> dict[str, Any] | None:
    """Bars over time, stacked by provider: of money where any was spent, else of tokens. None without anything to show."""
    unit = "micro_usd" if any(row["cost_micro_usd"] for row in rows) else "tokens"
    spent: dict[str, dict[Time, int]] = {}
    for row in rows:
        spent.setdefault(row["provider"], {})[_time(row[step], step)] = row["cost_micro_usd" if unit == "micro_usd" else "tokens"]
    names = sorted(spent, key=lambda name: -sum(spent[name].values()))
    times = sorted({_time(row[step], step) for row in rows})[-BARS_MAX:]
    most = max((sum(spent[name].get(time, 0) for name in names) for time in times), default=0)
    if not most:
        return None
    shown = _every(times, step)
    said = [_said(time, zone) for time in shown]
    bars = [bar for place, time in enumerate(shown) for bar in _stack(spent, names, time, place, said, most, unit)]
    series = [(min(number, SERIES), name) for number, name in enumerate(names)]
    ends = {"first": said[0], "last": said[-1]}
    return {"bars": bars, "series": series, "most": amount(unit, most), "unit": unit, "step": step} | ends


def _stack(
    spent: Mapping[str, Mapping[Time, int]],
    names: Sequence[str],
    time: Time,
    place: int,
    said: Sequence[str],
    most: int,
    unit: str,
) -> Iterator[dict[str, Any]]:
    """The bars of one hour or day, the largest provider's at the bottom; `said` is what every place is called."""
    width, below = WIDTH / len(said), 0.0
    for number, name in enumerate(names):
        if value := spent[name].get(time, 0):
            high = HEIGHT * value / most
            below += high
            box = {"x": place * width + width * 0.1, "y": HEIGHT - below, "width": min(width * 0.8, 60.0), "height": high}
            words = {"series": min(number, SERIES), "said": said[place], "name": name, "value": amount(unit, value)}
            yield {key: round(length, 2) for key, length in box.items()} | words


def _time(begin: datetime, step: str) -> Time:
    """An hour as an instant in UTC, since an autumn night has one twice by the clock; a day as its date."""
    return begin.astimezone(UTC) if step == "hour" else begin.date()


def _said(time: Time, zone: ZoneInfo) -> str:
    return f"{time.astimezone(zone):%Y-%m-%d %H:%M}" if isinstance(time, datetime) else f"{time:%Y-%m-%d}"


def _every(times: Sequence[Time], step: str) -> list[Time]:
    """Every hour or day from the first to the last: a time in which nothing was spent has its place too."""
    shown = [times[0]]
    while shown[-1] < times[-1] and len(shown) < BARS_MAX:
        shown.append(shown[-1] + timedelta(**{f"{step}s": 1}))
    return shown


def _presets(today: datetime) -> list[tuple[str, str]]:
    """Links for the usual periods: their names and addresses."""
    days = (("Today", today), ("7 days", today - timedelta(days=6)), ("30 days", today - timedelta(days=29)))
    presets = [(name, f"/usage?from={day:%Y-%m-%d}") for name, day in days]
    return [*presets, ("This month", f"/usage?from={today:%Y-%m}-01")]


def _period(visit: Visit) -> tuple[datetime, datetime]:
    try:
        return parse_period(visit.asked("from") or None, visit.asked("to") or None, visit.zone, visit.now)
    except ValueError as error:
        raise InvalidRequest(f"the period: {error}", "from") from None
