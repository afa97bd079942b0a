"""What a ledger needs beside calls: definitions kept true, dead processes' holds swept, old things dropped."""

from __future__ import annotations

from collections.abc import Sequence

import orjson
from sqlalchemy import Connection, delete, select

from gateway import ledger
from gateway.budget import Amounts, Budgets, Lifetime, Window, counter_name, is_cap
from gateway.ledger import Counter, State
from gateway.store import in_force
from gateway.store.batch import Ending
from gateway.store.claims import LEASE_MS, living
from gateway.store.rebuild import drop, rebuild
from gateway.store.tables import counters, definitions, owners, raises, refusals, requests, usage

SWEEP_MAX = 500
"""Holds ended in one go: a sweep must not keep the gate waiting."""
REFUSALS_KEPT_MS = 90 * 86_400_000
EMPTY_KEPT_MS = 86_400_000
"""How long an empty counter of a `*` scope stays after its newest bucket: bucket time must not go back with it."""


def sync_budgets(connection: Connection, budgets: Budgets, now_ms: int) -> list[str]:
    """Rebuilds counters of budgets that are new or were something else; drops those of removed ones. Their names.

    A changed limit is no change here: it is read from the configuration at each call.
    """
    removed = drop_unknown(connection, budgets)
    known = {row.budget: row.signature for row in connection.execute(select(definitions))}
    changed = [budget for budget in budgets.all if known.get(budget.name) != budget.signature]
    if changed:
        rebuild(connection, changed, now_ms)
    return [*(budget.name for budget in changed), *removed]


def drop_unknown(connection: Connection, budgets: Budgets) -> list[str]:
    """Drops the counters of budgets that this configuration has not: its calls do not count there. Their names.

    Whoever has such a budget makes its counters again from the rows.
    """
    unknown = sorted(set(connection.scalars(select(definitions.c.budget))) - set(budgets.by_name))
    if unknown:
        drop(connection, unknown)
    return unknown


def overdue(connection: Connection, now_ms: int) -> list[Ending]:
    """Holds of dead owners and holds past their deadline, at most SWEEP_MAX, each with its end at the worst case."""
    alive = living(connection, now_ms)
    query = (
        select(usage.c.id, usage.c.request_id, usage.c.held_requests, usage.c.held_tokens, usage.c.held_micro_usd)
        .where(usage.c.state == State.PENDING.value, (usage.c.deadline < now_ms) | usage.c.owner.not_in(alive))
        .limit(SWEEP_MAX)
    )
    return [
        Ending(attempt_id, request_id, ledger.expiry(Amounts(*held)))
        for attempt_id, request_id, *held in connection.execute(query)
    ]


def drop_old(connection: Connection, budgets: Budgets, now_ms: int) -> None:
    """Drops what nobody needs any more: old replies and refusals, dead leases, empty counters of `*` scopes."""
    connection.execute(delete(requests).where(requests.c.expires <= now_ms))
    connection.execute(delete(refusals).where(refusals.c.at < now_ms - REFUSALS_KEPT_MS))
    holders = select(usage.c.owner).where(usage.c.state == State.PENDING.value)
    connection.execute(delete(owners).where(owners.c.seen < now_ms - 10 * LEASE_MS, owners.c.id.not_in(holders)))
    in_force.drop_old(connection)
    _drop_empty(connection, budgets, now_ms)


def forget_runs(connection: Connection, budgets: Budgets, ids: Sequence[str]) -> None:
    """Drops what was counted for single runs, and the changes of those counters' limits."""
    for budget in (budget for budget in budgets.all if is_cap(budget.name)):
        keys = [key for run in ids if (key := budget.key({**budget.scope, "run": run})) is not None]
        connection.execute(delete(counters).where(counters.c.budget == budget.name, counters.c.key.in_(keys)))
        names = [counter_name(budget.name, key) for key in keys]
        connection.execute(delete(raises).where(raises.c.budget.in_(names)))


def _drop_empty(connection: Connection, budgets: Budgets, now_ms: int) -> None:
    stars = [budget for budget in budgets.all if "*" in budget.scope.values() and not isinstance(budget.window, Lifetime)]
    for budget in stars:
        # Locked, so that nobody reserves on a counter that is about to go.
        query = select(counters.c.key, counters.c.buckets).where(counters.c.budget == budget.name, counters.c.held == 0)
        rows = connection.execute(query.order_by(counters.c.key).with_for_update(skip_locked=True))
        empty = [key for key, buckets in rows if _is_empty(budget.window, buckets, now_ms)]
        for start in range(0, len(empty), SWEEP_MAX):
            keys = empty[start : start + SWEEP_MAX]
            connection.execute(delete(counters).where(counters.c.budget == budget.name, counters.c.key.in_(keys)))


def _is_empty(window: Window, buckets: str, now_ms: int) -> bool:
    counter = Counter(orjson.loads(buckets))
    return counter.newest + EMPTY_KEPT_MS < now_ms and counter.balance(window, now_ms) == (0, 0)
