"""A report as a table and as a document for programs. Pure.

The rows of the table are what the totals were added up from: each column's sum is the total.
"""

from __future__ import annotations

import csv
import io
from dataclasses import asdict
from datetime import datetime
from typing import Any

from gateway.reports.figures import BEFORE, PRESENT, BudgetFigures, Report, Share, Sums
from gateway.runs import stamp
from gateway.store.spans import ADDED

SPANS = {BEFORE: "before", PRESENT: "present"}
FORMULA = ("=", "+", "-", "@", "\t", "\r")


def csv_of(report: Report) -> str:
    """One row per period and group, with a header; lines end as RFC 4180 has it."""
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(["period", *report.by, *ADDED])
    sums: dict[tuple[str, ...], list[int]] = {}
    for group in report.groups:
        key = (SPANS.get(group.span, "previous"), *(_cell(value) for value in group.values))
        held = sums.setdefault(key, [0] * len(ADDED))
        for number, name in enumerate(ADDED):
            held[number] += group.sums[name]
    writer.writerows([*key, *values] for key, values in sums.items())
    return out.getvalue()


def _cell(value: str | None) -> str:
    """A name, so that no spreadsheet takes it for a formula: it may have come from anywhere."""
    if value is None:
        return ""
    return f"'{value}" if value.startswith(FORMULA) and not value.lstrip("-").isdigit() else value


def document(report: Report) -> dict[str, Any]:
    """Everything, in the names of the usage rows; instants in RFC 3339, UTC; money in micro-USD."""
    periods = report.periods
    return {
        "period": periods.kind,
        "timezone": periods.zone.key,
        "present": _part(periods.start, periods.until, report.present)
        | {"change": _change(report, report.present, report.same), "refusals": asdict(report.turned_present)},
        "previous": _part(periods.previous, periods.start, report.previous)
        | {"change": _change(report, report.previous, report.before), "refusals": asdict(report.turned)},
        "before": _part(periods.before, periods.previous, report.before),
        "budgets": [_budget(line) for line in report.budgets],
        "users": [_share(share) for share in report.users],
        "workflows": [_share(share) for share in report.workflows],
        "models": [_share(share) for share in report.models],
    }


def _part(start: datetime, end: datetime, sums: Sums) -> dict[str, Any]:
    return {"from": stamp(start), "to": stamp(end), **asdict(sums)}


def _change(report: Report, now: Sums, then: Sums) -> dict[str, float | None]:
    """By how much of it each grew, as a fraction; null where there was nothing."""
    pairs = {name: (getattr(now, name), getattr(then, name)) for name in ("requests", "tokens", "cost_micro_usd")}
    return {name: round((new - old) / old, 4) if old else None for name, (new, old) in pairs.items()}


def _share(share: Share) -> dict[str, Any]:
    return {"name": share.name, "share": round(share.share, 4), **asdict(share.sums)}


def _budget(line: BudgetFigures) -> dict[str, Any]:
    spent = {"previous": line.previous, "before": line.before, "present": line.present}
    return line.fullest.as_json() | {"counters": line.counters, "spent_in": spent}
