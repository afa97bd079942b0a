"""Usage: sums by what one wants to know, a chart over time, and the rows as a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlencode

from gateway.amounts import parse_period
from gateway.errors import InvalidRequest
from gateway.store.usage import GROUPS
from gateway.web.dashboard.reports import desk_of
from gateway.web.dashboard.visit import Answer, View, Visit

ROWS_SHOWN = 200
HOURLY = timedelta(hours=50)
"""Up to this span the chart has hours, beyond it days."""
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
        "drawing": await (await desk_of(visit)).chart(over_time, step, start, end),
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
