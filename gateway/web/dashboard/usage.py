"""Usage: sums by what one wants to know, a chart over time, and the rows as a file."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from urllib.parse import urlencode

from gateway.amounts import parse_period
from gateway.errors import InvalidRequest
from gateway.store.rebuild import SCOPE_COLUMNS
from gateway.store.usage import GROUPS
from gateway.web.dashboard.reports import desk_of
from gateway.web.dashboard.visit import Answer, View, Visit

ROWS_SHOWN = 200
HOURLY = timedelta(hours=50)
"""Up to this span the chart has hours, beyond it days."""
ADDED = ("attempts", "requests", "tokens", "cost_micro_usd", "estimated", "uncertain", "overrun")
SUMMED = ("attempts", "tokens", "cost_micro_usd", "estimated", "uncertain", "overrun")


async def sums(visit: Visit) -> Answer:
    """The page. Raises InvalidRequest for a period or a group that is none."""
    start, end = _period(visit)
    by = list(dict.fromkeys(name for name in visit.request.query.getall("by", ["provider"]) if name))
    only = _only(visit)
    books = visit.services.books
    step = "hour" if end - start <= HOURLY else "day"
    # One look at the rows for both: over a million of them it takes a second.
    over_time, rows = await books.together([[step, "provider"], by], start, end, visit.zone, only, ADDED)
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
        "presets": _presets(visit, visit.now.astimezone(visit.zone)),
        # A limit is one of more calls than are shown.
        "drawing": await (await desk_of(visit)).chart(over_time, step, start, end, limited=not only),
        "csv": "/usage.csv?" + urlencode(only | {name: visit.asked(name) for name in ("from", "to") if visit.asked(name)}),
        "only": [(kind, value, _place(visit, without=kind)) for kind, value in only.items()],
        "narrowed": lambda kind, value: _place(visit, {kind: value}) if kind in SCOPE_COLUMNS and value else "",
    }
    return View("usage.html", "Usage", fields)


async def export(visit: Visit) -> Answer:
    """The rows as CSV."""
    return await visit.export(visit.request, _only(visit))


def _presets(visit: Visit, today: datetime) -> list[tuple[str, str]]:
    """Links for the usual periods: their names and addresses."""
    days = (("Today", today), ("7 days", today - timedelta(days=6)), ("30 days", today - timedelta(days=29)))
    first = ("This month", today.replace(day=1))
    return [(name, _place(visit, {"from": f"{day:%Y-%m-%d}"}, without="to")) for name, day in (*days, first)]


def _only(visit: Visit) -> dict[str, str]:
    """What the attempts must have to be counted. Raises InvalidRequest for what no attempt can have."""
    only = {kind: visit.asked(kind) for kind in SCOPE_COLUMNS if visit.asked(kind)}
    for kind, value in only.items():
        if "\0" in value:
            raise InvalidRequest(f"there is no such {kind}", kind)
    return only


def _place(visit: Visit, other: Mapping[str, str] | None = None, *, without: str = "") -> str:
    """The page as it is asked for, but for what is given here."""
    replaced = {without, *(other or {})}
    kept = [(name, value) for name, value in visit.request.query.items() if name not in replaced and value]
    return "/usage?" + urlencode([*kept, *(other or {}).items()])


def _period(visit: Visit) -> tuple[datetime, datetime]:
    try:
        return parse_period(visit.asked("from") or None, visit.asked("to") or None, visit.zone, visit.now)
    except ValueError as error:
        raise InvalidRequest(f"the period: {error}", "from") from None
