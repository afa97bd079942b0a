"""Usage rows, read: sums by any of their attributes, single attempts, and the story of one request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import orjson
from sqlalchemy import ColumnElement, Connection, Row, case, func, literal, select

from gateway.clock import from_ms
from gateway.ledger import State
from gateway.store.rebuild import SCOPE_COLUMNS
from gateway.store.tables import refusals, usage

TIMES = ("hour", "day")
GROUPS = (*SCOPE_COLUMNS, *TIMES)
"""What usage may be grouped by."""

QUARTER_MS = 900_000
"""Every zone's hours and days begin at a whole quarter of an hour."""

FIELDS = (
    "id", "request_id", "attempt", "surface", "user", "chat", "workflow", "run", "step", "key", "chain", "provider",
    "model_asked", "model_served", "prompt_tokens", "cached_tokens", "output_tokens", "reasoning_tokens", "cost_micro_usd",
    "price_source", "outcome", "estimated", "uncertain", "overrun", "overrun_micro_usd", "latency_to_first_token_ms",
    "total_latency_ms", "started", "ended",
)  # fmt: skip
"""The fields of a usage row that people and programs see, in this order."""

LINE_FIELDS = ("budget", "key", "unit", "bucket", "amount", "limit", "spent", "held")

SUMS: dict[str, ColumnElement[Any]] = {
    "attempts": func.count(),
    "requests": func.sum(usage.c.spent_requests),
    "prompt_tokens": func.sum(usage.c.prompt_tokens),
    "cached_tokens": func.sum(usage.c.cached_tokens),
    "output_tokens": func.sum(usage.c.output_tokens),
    "reasoning_tokens": func.sum(usage.c.reasoning_tokens),
    "tokens": func.sum(usage.c.spent_tokens),
    "cost_micro_usd": func.sum(usage.c.cost_micro_usd),
    "estimated": func.sum(case((usage.c.estimated, 1), else_=0)),
    "uncertain": func.sum(case((usage.c.uncertain, 1), else_=0)),
    "overrun": func.sum(usage.c.overrun),
    "overrun_micro_usd": func.sum(usage.c.overrun_micro_usd),
}
"""What is added up in each group; `estimated` and `uncertain` count attempts."""


@dataclass(frozen=True, slots=True)
class Story:
    """What is known of one request: its attempts with their budget lines, and the slots that were passed over."""

    attempts: Sequence[dict[str, Any]]
    refusals: Sequence[dict[str, Any]]


def sums(
    connection: Connection,
    by: Sequence[str],
    from_ms: int,
    to_ms: int,
    zone: ZoneInfo | None = None,
    only: Mapping[str, str] | None = None,
) -> list[dict[str, Any]]:
    """Ended attempts that were started in [from, to), added up per group; each a dict of the groups' values and SUMS.

    `by` holds any of GROUPS; hours and days are those of `zone` (UTC without one), as aware datetimes. `only` holds values
    of SCOPE_COLUMNS that the attempts must have. Sorted by the groups' values. Raises ValueError for an unknown group.
    """
    if unknown := [name for name in by if name not in GROUPS]:
        raise ValueError(f"usage cannot be grouped by {', '.join(unknown)}; choose from {', '.join(GROUPS)}")
    kinds = [name for name in by if name not in TIMES]
    columns = [SCOPE_COLUMNS[kind].label(f"by_{kind}") for kind in kinds]
    if len(kinds) < len(by):
        quarter = usage.c.started - usage.c.started % literal(QUARTER_MS, literal_execute=True)
        columns.append(quarter.label("by_quarter"))
    period = usage.c.started >= from_ms, usage.c.started < to_ms, usage.c.state != State.PENDING.value
    query = select(*columns, *(column.label(name) for name, column in SUMS.items())).where(*period, *having(only))
    groups: dict[tuple[Any, ...], dict[str, Any]] = {}
    zone = zone or ZoneInfo("UTC")
    for row in connection.execute(query.group_by(*columns) if columns else query):
        values = row._mapping
        key = tuple(_beginning(values["by_quarter"], name, zone) if name in TIMES else values[f"by_{name}"] for name in by)
        group = groups.get(key)
        if group is None:
            shown = (value.astimezone(zone) if isinstance(value, datetime) else value for value in key)
            group = groups[key] = dict(zip(by, shown, strict=True)) | dict.fromkeys(SUMS, 0)
        for name in SUMS:
            group[name] += int(values[name] or 0)
    return [groups[key] for key in sorted(groups, key=lambda key: tuple(str(value or "") for value in key))]


def newest(connection: Connection, rows: int, of: Mapping[str, str]) -> list[dict[str, Any]]:
    """The newest attempts first, FIELDS only; `of` holds values of FIELDS that they must have."""
    wanted = [usage.c[name] == value for name, value in of.items()]
    query = select(usage).where(*wanted).order_by(usage.c.started.desc(), usage.c.id.desc()).limit(rows)
    return [_attempt(row) for row in connection.execute(query)]


def story(connection: Connection, request_id: str) -> Story:
    """What is known of one request, in the order in which it happened; both empty where nothing is."""
    tried = select(usage).where(usage.c.request_id == request_id).order_by(usage.c.started, usage.c.attempt)
    passed = select(refusals).where(refusals.c.request_id == request_id).order_by(refusals.c.id)
    return Story(
        [_attempt(row) | _details(row) for row in connection.execute(tried)],
        [_refusal(row) for row in connection.execute(passed)],
    )


def having(values: Mapping[str, str] | None) -> list[ColumnElement[bool]]:
    """Attempts with these values of SCOPE_COLUMNS."""
    return [SCOPE_COLUMNS[kind] == value for kind, value in (values or {}).items()]


def _beginning(quarter_ms: int, name: str, zone: ZoneInfo) -> datetime:
    """The instant in UTC: by the clock of the zone the two hours that an autumn night has twice would be one."""
    local = from_ms(quarter_ms).astimezone(zone).replace(minute=0)
    return (local.replace(hour=0, fold=0) if name == "day" else local).astimezone(UTC)


def _attempt(row: Row[Any]) -> dict[str, Any]:
    values = {name: row._mapping[name] for name in FIELDS}
    values["started"] = from_ms(row.started)
    values["ended"] = None if row.ended is None else from_ms(row.ended)
    return values


def _details(row: Row[Any]) -> dict[str, Any]:
    lines = [dict(zip(LINE_FIELDS, line, strict=True)) for line in orjson.loads(row.lines)]
    return {
        "state": row.state, "detail": row.detail, "held_requests": row.held_requests, "held_tokens": row.held_tokens,
        "held_micro_usd": row.held_micro_usd, "spent_requests": row.spent_requests, "spent_tokens": row.spent_tokens,
        "output_limit": row.output_limit, "lines": lines,
    }  # fmt: skip


def _refusal(row: Row[Any]) -> dict[str, Any]:
    kept = {name: row._mapping[name] for name in ("chain", "provider", "model", "kind", "message")}
    return kept | {"at": from_ms(row.at), "detail": orjson.loads(row.detail)}
