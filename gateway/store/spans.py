"""Usage rows and refusals added up over several spans of time at once, for reports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from sqlalchemy import ColumnElement, Connection, case, func, literal, select, union_all

from gateway.ledger import Outcome
from gateway.store.rebuild import SCOPE_COLUMNS
from gateway.store.tables import refusals, usage
from gateway.store.usage import ENDED, IN_SPAN, SUMS, whole

ADDED = ("attempts", "requests", "tokens", "cost_micro_usd", "estimated", "uncertain", "overrun", "overrun_micro_usd")
"""What is added up, of `SUMS`. Each one more makes a look at a million rows slower."""
ANSWERED = (Outcome.ANSWERED.value, Outcome.CLAMPED.value, Outcome.CUT_OFF.value)
FAILED = (Outcome.REFUSED.value, Outcome.UNANSWERED.value, Outcome.NOT_SENT.value, Outcome.EXPIRED.value)
FALLBACK_MS = 300_000
"""An answer within this time of a refusal came from another slot; a later one from a window that had opened."""


@dataclass(frozen=True, slots=True)
class Group:
    """What the attempts of one group in one span add up to."""

    span: int
    """The span's number: 0 is between the first two edges."""
    values: tuple[str | None, ...]
    sums: dict[str, int]


@dataclass(frozen=True, slots=True)
class Turned:
    """Requests that found some slot closed or failing: how many, and what became of them."""

    refused: int = 0
    """By a budget, a pause, an open breaker, or because the slot could not serve them."""
    failed: int = 0
    """By none of these: a provider was called and gave no answer."""
    saved: int = 0
    """Answered by another slot at once."""
    later: int = 0
    """Answered later."""
    never: int = 0


def spans(connection: Connection, edges: Sequence[int], by: Sequence[str]) -> list[Group]:
    """Ended attempts between neighbouring edges (ms, ascending), added up by one attribute of a scope or more."""
    columns = [SCOPE_COLUMNS[kind].label(f"by_{kind}") for kind in by]
    query = select(*columns, *(whole(SUMS[name]).label(name) for name in ADDED)).where(IN_SPAN, ENDED)
    query, width = query.group_by(*columns).order_by(*columns), len(columns)
    return [
        Group(number, tuple(row[:width]), dict(zip(ADDED, row[width:], strict=True)))
        for number, (since, until) in enumerate(pairwise(edges))
        for row in connection.execute(query, {"since": since, "until": until})
    ]


def turned(connection: Connection, edges: Sequence[int]) -> list[Turned]:
    """What became of requests that found a slot closed or failing, per span."""
    passed = select(refusals.c.request_id, refusals.c.at.label("at"), literal(1).label("refused")).where(
        refusals.c.at >= edges[0], refusals.c.at < edges[-1]
    )
    tried = select(usage.c.request_id, usage.c.started.label("at"), literal(0).label("refused")).where(
        usage.c.started >= edges[0], usage.c.started < edges[-1], usage.c.outcome.in_(FAILED)
    )
    met = union_all(passed, tried).subquery()
    first = func.min(met.c.at).label("at")
    asked = select(met.c.request_id, first, func.max(met.c.refused).label("refused")).group_by(met.c.request_id).subquery()
    good = usage.c.request_id == asked.c.request_id, usage.c.outcome.in_(ANSWERED), usage.c.started >= asked.c.at
    soon = select(usage.c.id).where(*good, usage.c.started <= asked.c.at + FALLBACK_MS).exists()
    ever = select(usage.c.id).where(*good).exists()
    each = select(
        _span(asked.c.at, edges).label("span"),
        asked.c.refused.label("refused"),
        case((soon, 1), else_=0).label("saved"),
        case((ever, 1), else_=0).label("answered"),
    ).subquery()
    sums = [func.sum(each.c[name]) for name in ("refused", "saved", "answered")]
    found = [Turned() for _ in edges[1:]]
    for number, count, *values in connection.execute(select(each.c.span, func.count(), *sums).group_by(each.c.span)):
        refused, saved, answered = map(int, values)
        found[number] = Turned(refused, count - refused, saved, answered - saved, count - answered)
    return found


def _span(instant: ColumnElement[Any], edges: Sequence[int]) -> ColumnElement[int]:
    """The number of the span that an instant is in. Numbers are written out: PostgreSQL must see the same expression twice."""
    inner = [
        (instant < literal(edge, literal_execute=True), literal(i, literal_execute=True)) for i, edge in enumerate(edges[1:-1])
    ]
    last = literal(len(edges) - 2, literal_execute=True)
    return case(*inner, else_=last) if inner else last
