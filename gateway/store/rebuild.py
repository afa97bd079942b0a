"""Counters made again from usage rows: when a budget is new or has changed, and to prove that they are right."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import orjson
from sqlalchemy import ColumnElement, Connection, case, delete, func, insert, literal, select, text, update
from sqlalchemy.dialects import postgresql, sqlite

from gateway.budget import Amounts, Budget, Calendar, Lifetime, Rolling, Unit
from gateway.ledger import Counter, Line, State
from gateway.store.rows import dump_lines, load_lines
from gateway.store.tables import adjustments, counters, definitions, usage

SCOPE_COLUMNS = {
    "provider": usage.c.provider,
    "chain": usage.c.chain,
    "model": usage.c.model_asked,
    "user": usage.c.user,
    "chat": usage.c.chat,
    "workflow": usage.c.workflow,
    "run": usage.c.run,
    "key": usage.c.key,
    "surface": usage.c.surface,
}
"""Where a usage row keeps each attribute that a scope may name."""

SPENT = {Unit.REQUESTS: usage.c.spent_requests, Unit.TOKENS: usage.c.spent_tokens, Unit.MICRO_USD: usage.c.cost_micro_usd}
HELD = {Unit.REQUESTS: usage.c.held_requests, Unit.TOKENS: usage.c.held_tokens, Unit.MICRO_USD: usage.c.held_micro_usd}


def basis(budget: Budget) -> str:
    """Unit and scope of a budget: an adjustment counts only while both are as they were; one downwards, the window too."""
    return budget.signature.rpartition("|")[0]


def insert_missing(connection: Connection, new: Sequence[tuple[str, str, str]]) -> None:
    """Makes empty counters (budget, key, signature) where there are none, in this order."""
    dialect = sqlite if connection.dialect.name == "sqlite" else postgresql
    rows = [{"budget": budget, "key": key, "signature": signature} for budget, key, signature in new]
    connection.execute(dialect.insert(counters).values(rows).on_conflict_do_nothing())


def rebuild(connection: Connection, budgets: Iterable[Budget], at_ms: int) -> None:
    """Makes the counters of these budgets again from usage rows and adjustments, and the lines of what is pending."""
    if connection.dialect.name == "postgresql":
        # Before any row is locked: a batch that holds some and waits for us would never end.
        connection.execute(text("LOCK TABLE usage, counters, definitions IN EXCLUSIVE MODE"))
    for budget in budgets:
        connection.execute(delete(counters).where(counters.c.budget == budget.name))
        connection.execute(delete(definitions).where(definitions.c.budget == budget.name))
        connection.execute(insert(definitions).values(budget=budget.name, signature=budget.signature))
        _rewrite_lines(connection, budget)
        rows = [_row(budget, key, counter) for key, counter in sorted(recount(connection, budget, at_ms).items())]
        if rows:
            connection.execute(insert(counters), rows)


def drop(connection: Connection, names: Sequence[str]) -> None:
    """Forgets the counters and the definitions of budgets that are no more. Their usage rows and adjustments stay."""
    connection.execute(delete(counters).where(counters.c.budget.in_(names)))
    connection.execute(delete(definitions).where(definitions.c.budget.in_(names)))


def recount(connection: Connection, budget: Budget, at_ms: int) -> dict[str, Counter]:
    """What the counters of a budget must be at an instant, by key, from usage rows and adjustments alone."""
    window = budget.window
    newest = connection.scalar(select(func.max(usage.c.started)).where(*_matches(budget)))
    oldest = window.live_from(window.bucket(max(at_ms, newest or 0)))
    found: dict[str, Counter] = {}
    bucket = _bucket(budget, oldest)
    stars = [kind for kind in budget.scope_kinds if budget.scope[kind] == "*"]
    held = func.sum(case((usage.c.state == State.PENDING.value, HELD[budget.unit]), else_=0))
    groups: list[ColumnElement[Any]] = [*(SCOPE_COLUMNS[kind] for kind in stars), bucket]
    counts = usage.c.started >= oldest
    if window.holds_outlive:
        counts |= usage.c.state == State.PENDING.value
    query = select(func.sum(SPENT[budget.unit]), held, *groups).where(*_matches(budget), counts).group_by(*groups)
    for spent, pending, *values, start in connection.execute(query):
        key = budget.key(dict(budget.scope) | dict(zip(stars, values, strict=True)))
        assert key is not None
        found.setdefault(key, Counter()).add(int(start), int(spent), int(pending))
    corrections = select(adjustments.c.key, adjustments.c.at, adjustments.c.amount).where(
        adjustments.c.budget == budget.name,
        adjustments.c.basis.in_((basis(budget), budget.signature)),
        adjustments.c.at >= oldest,
    )
    for key, at, amount in connection.execute(corrections):
        found.setdefault(key, Counter()).add(window.bucket(at), amount, 0)
    return found


def _matches(budget: Budget) -> list[ColumnElement[bool]]:
    return [
        SCOPE_COLUMNS[kind].is_not(None) if value == "*" else SCOPE_COLUMNS[kind] == value for kind, value in budget.scope.items()
    ]


def _bucket(budget: Budget, oldest: int) -> ColumnElement[int]:
    """The start of the bucket that a usage row counts in, as SQL. Written out: PostgreSQL must see one expression twice."""
    window = budget.window
    if isinstance(window, Rolling):
        return usage.c.started - usage.c.started % literal(window.bucket_ms, literal_execute=True)
    assert isinstance(window, Lifetime | Calendar)
    # One bucket counts. PostgreSQL groups by no constant.
    return usage.c.started * literal(0, literal_execute=True) + literal(oldest, literal_execute=True)


def _rewrite_lines(connection: Connection, budget: Budget) -> None:
    """Lets what is pending settle into the counters as they are made now."""
    query = select(
        usage.c.id, usage.c.started, usage.c.guest, usage.c.held_requests, usage.c.held_tokens, usage.c.held_micro_usd,
        usage.c.lines, *SCOPE_COLUMNS.values(),
    ).where(usage.c.state == State.PENDING.value)  # fmt: skip
    for attempt_id, started, guest, requests, tokens, micro_usd, lines, *values in connection.execute(query).all():
        kept = [line for line in load_lines(lines) if line.budget != budget.name]
        attributes = dict(zip(SCOPE_COLUMNS, values, strict=True))
        key = budget.key({kind: value for kind, value in attributes.items() if value is not None})
        if key is not None:
            amount = Amounts(requests, tokens, micro_usd).of(budget.unit)
            limit = budget.base_limit(key, guest)
            kept.append(Line(budget.name, key, budget.unit, budget.window.bucket(started), amount, limit, 0, 0))
        connection.execute(update(usage).where(usage.c.id == attempt_id).values(lines=dump_lines(sorted(kept))))


def _row(budget: Budget, key: str, counter: Counter) -> dict[str, object]:
    spent, held = counter.balance(budget.window, 0)
    buckets = orjson.dumps(counter.dump()).decode()
    return {"budget": budget.name, "key": key, "signature": budget.signature, "spent": spent, "held": held, "buckets": buckets}
