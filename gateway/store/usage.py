"""Usage rows, read: sums by any of their attributes, single attempts, and the story of one request."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import orjson
from sqlalchemy import BigInteger, ColumnElement, Connection, Row, Select, and_, bindparam, case, cast, func, select

from gateway.budget import Calendar
from gateway.clock import from_ms
from gateway.ledger import State
from gateway.store.rebuild import SCOPE_COLUMNS
from gateway.store.tables import refusals, usage

TIMES = ("hour", "day")
GROUPS = (*SCOPE_COLUMNS, *TIMES)
"""What usage may be grouped by."""

KINDS_TOGETHER = 2
"""By more attributes than these there may be as many groups as rows: added up here, they cost more than a second look."""

_Groups = dict[tuple[Any, ...], list[int]]
IN_SPAN = and_(usage.c.started >= bindparam("since"), usage.c.started < bindparam("until"))
ENDED = usage.c.state != State.PENDING.value

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


def together(
    connection: Connection,
    groupings: Sequence[Sequence[str]],
    from_ms: int,
    to_ms: int,
    zone: ZoneInfo | None = None,
    only: Mapping[str, str] | None = None,
    added: Sequence[str] = tuple(SUMS),
) -> list[list[dict[str, Any]]]:
    """Ended attempts that were started in [from, to), added up per group of each grouping: in one look, where that is quicker.

    A grouping holds any of GROUPS. What comes of it is a dict per group, of the groups' values and what `added` names of
    SUMS, sorted by the values. Hours and days are those of `zone` (UTC without one), as aware datetimes. `only` holds
    values of SCOPE_COLUMNS that the attempts must have. Raises ValueError for an unknown group.
    """
    names = list(dict.fromkeys(name for by in groupings for name in by))
    if unknown := [name for name in names if name not in GROUPS]:
        raise ValueError(f"usage cannot be grouped by {', '.join(unknown)}; choose from {', '.join(GROUPS)}")
    times, kinds = [name for name in names if name in TIMES], [name for name in names if name not in TIMES]
    if len(groupings) > 1 and len(kinds) > KINDS_TOGETHER:
        return [together(connection, [by], from_ms, to_ms, zone, only, added)[0] for by in groupings]
    where = [[(*times, *kinds).index(name) for name in by] for by in groupings]
    columns = [SCOPE_COLUMNS[kind].label(f"by_{kind}") for kind in kinds]
    amounts = [whole(SUMS[name]).label(name) for name in added]
    query = select(*columns, func.count().label("counted"), *amounts).where(IN_SPAN, ENDED, *having(only))
    query = query.group_by(*columns) if columns else query
    later = select(func.min(usage.c.started)).where(IN_SPAN, *having(only))
    zone = zone or ZoneInfo("UTC")
    window = Calendar("hour" if "hour" in times else "day", zone) if times else None
    found: list[_Groups] = [{} for _ in groupings]
    for begin, rows in _looks(connection, query, later, from_ms, to_ms, window):
        begins = [_beginning(begin, name, zone) for name in times]
        for row in rows:
            values = (*begins, *row[: len(kinds)])
            for groups, places in zip(found, where, strict=True):
                _add(groups, tuple([values[place] for place in places]), row[len(kinds) + 1 :])
    return [_listed(groups, by, added, zone) for groups, by in zip(found, groupings, strict=True)]


def _looks(
    connection: Connection, query: Select[Any], later: Select[Any], from_ms: int, to_ms: int, window: Calendar | None
) -> Iterator[tuple[int, Sequence[Row[Any]]]]:
    """What the query finds in each bucket of a window in turn, or in all of the time at once.

    Bucket by bucket SQLite sorts what fits into the processor's cache, and no row's own hour or day has to be reckoned.
    """
    if window is None:
        yield from_ms, connection.execute(query, {"since": from_ms, "until": to_ms}).all()
        return
    since = from_ms
    while since < to_ms:
        begin = window.bucket(since)
        end = min(window.leaves_at(begin), to_ms)
        if rows := [row for row in connection.execute(query, {"since": since, "until": end}) if row.counted]:
            yield begin, rows
            since = end
        else:
            # Nothing for years, it may be: on to the next attempt.
            following = connection.scalar(later, {"since": end, "until": to_ms})
            since = to_ms if following is None else following


def _add(groups: _Groups, key: tuple[Any, ...], amounts: Sequence[int | None]) -> None:
    held = groups.get(key)
    if held is None:
        # Without groups the sums of no attempts are NULL.
        groups[key] = [amount or 0 for amount in amounts]
        return
    for place, amount in enumerate(amounts):
        held[place] += amount or 0


def _listed(groups: _Groups, by: Sequence[str], added: Sequence[str], zone: ZoneInfo) -> list[dict[str, Any]]:
    """Sorted; instants, which were UTC so that they could be told apart, by the clock of the zone."""
    found = []
    for key in sorted(groups, key=lambda key: [str(value or "") for value in key]):
        shown = (value.astimezone(zone) if isinstance(value, datetime) else value for value in key)
        found.append(dict(zip(by, shown, strict=True)) | dict(zip(added, groups[key], strict=True)))
    return found


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


def whole(amount: ColumnElement[Any]) -> ColumnElement[int]:
    """A sum as a whole number on PostgreSQL too, where it is a decimal."""
    return cast(amount, BigInteger)


def having(values: Mapping[str, str] | None) -> list[ColumnElement[bool]]:
    """Attempts with these values of SCOPE_COLUMNS."""
    return [SCOPE_COLUMNS[kind] == value for kind, value in (values or {}).items()]


def _beginning(at_ms: int, name: str, zone: ZoneInfo) -> datetime:
    """The instant in UTC: by the clock of the zone the two hours that an autumn night has twice would be one."""
    local = from_ms(at_ms).astimezone(zone).replace(minute=0)
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
