"""Counters made again from usage rows: when a budget is new or has changed, and to prove that they are right."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson
from sqlalchemy import ColumnElement, Connection, case, delete, func, insert, literal, select, text, true, update
from sqlalchemy.dialects import postgresql, sqlite

from gateway.budget import Amounts, Budget, Rolling, Unit, is_cap
from gateway.ledger import Counter, Line, State
from gateway.store.rows import dump_lines, load_lines
from gateway.store.run_tables import runs
from gateway.store.tables import adjustments, counters, definitions, usage

CHUNK = 500
"""Names in one statement."""

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


def rebuild(connection: Connection, budgets: Sequence[Budget], at_ms: int) -> None:
    """Makes the counters of these budgets again from usage rows and adjustments, and the lines of what is pending."""
    if connection.dialect.name == "postgresql":
        # Before any row is locked: a batch that holds some and waits for us would never end.
        connection.execute(text("LOCK TABLE usage, counters, definitions IN EXCLUSIVE MODE"))
    drop(connection, [budget.name for budget in budgets])
    connection.execute(insert(definitions), [{"budget": budget.name, "signature": budget.signature} for budget in budgets])
    _rewrite_lines(connection, budgets)
    if connection.scalar(select(usage.c.id).limit(1)) is None and connection.scalar(select(adjustments.c.id).limit(1)) is None:
        return
    for budget in budgets:
        rows = [_row(budget, key, counter) for key, counter in sorted(recount(connection, budget, at_ms).items())]
        if rows:
            connection.execute(insert(counters), rows)


def drop(connection: Connection, names: Sequence[str]) -> None:
    """Forgets the counters and the definitions of budgets. Their usage rows and adjustments stay."""
    for start in range(0, len(names), CHUNK):
        some = names[start : start + CHUNK]
        connection.execute(delete(counters).where(counters.c.budget.in_(some)))
        connection.execute(delete(definitions).where(definitions.c.budget.in_(some)))


def recount(connection: Connection, budget: Budget, at_ms: int) -> dict[str, Counter]:
    """What the counters of a budget must be at an instant, by key, from usage rows and adjustments alone."""
    window = budget.window
    current = window.bucket(at_ms)
    oldest = window.live_from(current)
    found: dict[str, Counter] = {}
    stars = [kind for kind in budget.scope_kinds if budget.scope[kind] == "*"]
    values_of = [SCOPE_COLUMNS[kind] for kind in stars]

    def add(values: Sequence[str], bucket: int, spent: int, held: int) -> None:
        key = budget.key(dict(budget.scope) | dict(zip(stars, values, strict=True)))
        assert key is not None
        found.setdefault(key, Counter()).add(bucket, spent, held)

    held = case((usage.c.state == State.PENDING.value, HELD[budget.unit]), else_=0)
    for bucket, counts in _buckets(budget, current, oldest):
        groups: list[ColumnElement[Any]] = [*values_of, bucket]
        query = select(func.sum(SPENT[budget.unit]), func.sum(held), *groups).where(*matches(budget), counts)
        for spent, pending, *values, start in connection.execute(query.group_by(*groups)):
            add(values, window.bucket(int(start)), int(spent), int(pending))
    corrections = select(adjustments.c.key, adjustments.c.at, adjustments.c.amount).where(
        adjustments.c.budget == budget.name,
        adjustments.c.basis.in_((basis(budget), budget.signature)),
        adjustments.c.at >= oldest,
    )
    for key, at, amount in connection.execute(corrections):
        found.setdefault(key, Counter()).add(window.bucket(at), amount, 0)
    return found


def matches(budget: Budget) -> list[ColumnElement[bool]]:
    """The usage rows that count in a budget, whenever they were started."""
    found = [
        SCOPE_COLUMNS[kind].is_not(None) if value == "*" else SCOPE_COLUMNS[kind] == value for kind, value in budget.scope.items()
    ]
    if is_cap(budget.name):
        # The counter of a run goes with the run; what it spent stays in the usage rows.
        found.append(SCOPE_COLUMNS["run"].in_(select(runs.c.id)))
    return found


def _buckets(budget: Budget, current: int, oldest: int) -> list[tuple[ColumnElement[int], ColumnElement[bool]]]:
    """An instant in the bucket that a usage row counts in, as SQL, and the rows for which it is right.

    Numbers are written out, since PostgreSQL must see the same expression twice.
    """
    window, started = budget.window, usage.c.started
    if isinstance(window, Rolling):
        # A rolling hold counts until it is closed, even after its bucket has left.
        live = (started >= oldest) | (usage.c.state == State.PENDING.value)
        return [(started - started % literal(window.bucket_ms, literal_execute=True), live)]
    constant = started * literal(0, literal_execute=True) + literal(current, literal_execute=True)
    end = window.leaves_at(current)
    if end is None:
        return [(constant, true())]
    # After the clock went back there may be attempts of later buckets: few, so that each is looked at by itself.
    return [(constant, (started >= current) & (started < end)), (started + literal(0, literal_execute=True), started >= end)]


def _rewrite_lines(connection: Connection, budgets: Sequence[Budget]) -> None:
    """Lets what is pending settle into the counters as they are made now."""
    names = {budget.name for budget in budgets}
    query = select(
        usage.c.id, usage.c.started, usage.c.guest, usage.c.held_requests, usage.c.held_tokens, usage.c.held_micro_usd,
        usage.c.lines, *SCOPE_COLUMNS.values(),
    ).where(usage.c.state == State.PENDING.value)  # fmt: skip
    for attempt_id, started, guest, requests, tokens, micro_usd, lines, *values in connection.execute(query).all():
        kept = [line for line in load_lines(lines) if line.budget not in names]
        attributes = {kind: value for kind, value in zip(SCOPE_COLUMNS, values, strict=True) if value is not None}
        held = Amounts(requests, tokens, micro_usd)
        for budget in budgets:
            key = budget.key(attributes)
            if key is not None:
                limit, bucket = budget.base_limit(key, guest), budget.window.bucket(started)
                kept.append(Line(budget.name, key, budget.unit, bucket, held.of(budget.unit), limit, 0, 0))
        connection.execute(update(usage).where(usage.c.id == attempt_id).values(lines=dump_lines(sorted(kept))))


def _row(budget: Budget, key: str, counter: Counter) -> dict[str, object]:
    spent, held = counter.balance(budget.window, 0)
    buckets = orjson.dumps(counter.dump()).decode()
    return {"budget": budget.name, "key": key, "signature": budget.signature, "spent": spent, "held": held, "buckets": buckets}
