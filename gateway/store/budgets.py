"""Where every budget stands: what people and `GET /api/budgets` see, the proof that it is right, and corrections of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

import orjson
from sqlalchemy import Connection, func, insert, select, update

from gateway.budget import Budget, Budgets, Unit, Window
from gateway.clock import from_ms
from gateway.errors import InvalidRequest
from gateway.forecast import Pace, forecast
from gateway.ledger import Counter, Raises, fits_at, with_limits
from gateway.runs import stamp
from gateway.store.audit import record
from gateway.store.rebuild import SCOPE_COLUMNS, SPENT, basis, insert_missing, matches, recount
from gateway.store.rows import clean
from gateway.store.tables import adjustments, counters, definitions, usage

REASON_MAX = 2000

LATE_MS = 7 * 86_400_000
"""The pace of a lifetime budget is that of its last week."""
PACE_LEAST_MS = 3_600_000
"""One call a minute ago is no pace."""


@dataclass(frozen=True, slots=True)
class Balance:
    """One counter of a budget. Amounts in the budget's unit (micro-USD for money)."""

    name: str
    key: str
    """The counter within the budget: "" where its scope has no `*`."""
    scope: Mapping[str, str]
    """The budget's scope, with each `*` replaced by this counter's value."""
    unit: Unit
    limit: int
    spent: int
    held: int
    left: int
    """What may still be held; 0 when nothing may, also where more is spent than the limit."""
    resets_at: datetime | None
    """The end of a calendar window; when a rolling one's oldest spend leaves; None for lifetime, or where nothing leaves."""
    window: str
    label: str
    runs_out_at: datetime | None = None
    """When it is used up at its present pace, never later than it resets; None where it lasts. Now, where it is used up."""

    opens_at: datetime | None = None
    """Where it is used up, the first instant at which anything fits again, which a rolling window's first leaving spend may
    be too little for; None where that is never, or where there is room beside holds."""

    def as_json(self) -> dict[str, object]:
        """The fixed fields of a listed budget, and its forecast; instants in RFC 3339, UTC."""
        return {
            "name": self.name, "scope": dict(self.scope), "unit": str(self.unit), "limit": self.limit, "spent": self.spent,
            "held": self.held, "left": self.left, "resets_at": stamp(self.resets_at), "runs_out_at": stamp(self.runs_out_at),
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Difference:
    """A counter that is not what the usage rows say."""

    budget: str
    key: str
    what: str
    """spent | held"""
    counter: int
    rows: int


def balances(connection: Connection, budgets: Budgets, raises: Raises, now_ms: int) -> list[Balance]:
    """Every budget in configured order; one entry per counter of a `*` scope, by key."""
    found = _load(connection, budgets)
    listed = []
    for budget in budgets.all:
        paces = _paces(connection, budget, now_ms)
        keys = sorted(key for name, key in found if name == budget.name) if "*" in budget.scope.values() else [""]
        for key in keys:
            counter = found.get((budget.name, key), Counter())
            listed.append(_balance(budget, key, counter, raises, now_ms, paces.get(key)))
    return listed


def uncounted(connection: Connection, budgets: Budgets) -> list[Budget]:
    """Budgets that nobody counts as they are here: the configuration has changed, and no server goes by it yet."""
    known = {row.budget: row.signature for row in connection.execute(select(definitions))}
    return [budget for budget in budgets.all if known.get(budget.name) != budget.signature]


def check(connection: Connection, budgets: Budgets, now_ms: int) -> list[Difference]:
    """Counts every budget again from usage rows and adjustments alone; what differs from its counters.

    One that is counted otherwise, or not yet, has no counters that could be wrong.
    """
    found, others = _load(connection, budgets), uncounted(connection, budgets)
    differences = []
    for budget in budgets.all:
        if budget in others:
            continue
        stored = {key: counter for (name, key), counter in found.items() if name == budget.name}
        counted = recount(connection, budget, now_ms)
        for key in sorted(stored.keys() | counted.keys()):
            pairs = zip(
                ("spent", "held"),
                stored.get(key, Counter()).balance(budget.window, now_ms),
                counted.get(key, Counter()).balance(budget.window, now_ms),
                strict=True,
            )
            differences += [Difference(budget.name, key, what, has, says) for what, has, says in pairs if has != says]
    return differences


def adjust(
    connection: Connection, budget: Budget, scope: Mapping[str, str], amount: int, reason: str, actor: str, now_ms: int
) -> Counter:
    """Corrects what one counter has spent by an entry of ±amount, audited. Raises InvalidRequest.

    `scope` gives a value for each `*` of the budget's scope.
    """
    key, reason = _key(budget, scope), clean(reason, REASON_MAX) or ""
    if not amount:
        raise InvalidRequest("a correction by 0 corrects nothing", "spent")
    insert_missing(connection, [(budget.name, key, budget.signature)])
    wanted = counters.c.budget == budget.name, counters.c.key == key
    row = connection.execute(select(counters).where(*wanted).with_for_update()).one()
    if row.signature != budget.signature:
        raise InvalidRequest(f"budget {budget.name!r} has changed: start `serve` once, so that its counters are made anew")
    counter = Counter(orjson.loads(row.buckets))
    at_ms = max(now_ms, counter.newest)
    spent, _ = counter.balance(budget.window, at_ms)
    if spent + amount < 0:
        raise InvalidRequest(
            f"only {spent} {budget.unit.replace('_', '-')} are spent: no more than that can be taken back", "spent"
        )
    # What is taken back was counted in these buckets, and they may be others in another window.
    counts_while = basis(budget) if amount > 0 else budget.signature
    entry = {"budget": budget.name, "key": key, "basis": counts_while, "reason": reason, "actor": actor}
    parts = list(_parts(counter, budget.window, amount, at_ms))
    for at, part in parts:
        counter.add(budget.window.bucket(at), part, 0)
    spent, held = counter.balance(budget.window, at_ms)
    buckets = orjson.dumps(counter.dump()).decode()
    connection.execute(update(counters).where(*wanted).values(spent=spent, held=held, buckets=buckets))
    connection.execute(insert(adjustments), [entry | {"at": at, "amount": part} for at, part in parts])
    record(connection, now_ms, actor, "adjust", budget.name, key=key, spent=amount, reason=reason)
    return counter


def _parts(counter: Counter, window: Window, amount: int, at_ms: int) -> Iterator[tuple[int, int]]:
    """An adjustment as (instant, amount). What is taken back leaves when the spend does of which it is taken, oldest first.

    Taken from the current bucket alone it would outlive the spend, and open room beyond the limit.
    """
    current = window.bucket(at_ms)
    for start in sorted(counter.buckets):
        spent = counter.buckets[start][0]
        if amount < 0 and spent > 0 and start >= window.live_from(current):
            part = max(amount, -spent)
            amount -= part
            yield (at_ms if start == current else start), part
    if amount:
        yield at_ms, amount


def _key(budget: Budget, scope: Mapping[str, str]) -> str:
    stars = {kind for kind in budget.scope_kinds if budget.scope[kind] == "*"}
    if missing := stars - set(scope):
        raise InvalidRequest(f"budget {budget.name!r} has one counter each: say which {' and '.join(sorted(missing))}", "scope")
    if unknown := set(scope) - stars:
        raise InvalidRequest(f"budget {budget.name!r} has no counters by {' or '.join(sorted(unknown))}", "scope")
    key = budget.key(dict(budget.scope) | dict(scope))
    assert key is not None
    return key


def _load(connection: Connection, budgets: Budgets) -> dict[tuple[str, str], Counter]:
    rows = connection.execute(select(counters.c.budget, counters.c.key, counters.c.signature, counters.c.buckets))
    return {
        (name, key): Counter(orjson.loads(buckets))
        for name, key, signature, buckets in rows
        # What another configuration counted otherwise says nothing here.
        if (budget := budgets.by_name.get(name)) is not None and budget.signature == signature
    }


def _balance(budget: Budget, key: str, counter: Counter, raises: Raises, now_ms: int, pace: Pace | None) -> Balance:
    at_ms = max(now_ms, counter.newest)
    spent, held = counter.balance(budget.window, at_ms)
    (found,) = with_limits([(budget, key)], raises, False, now_ms)
    limit = found.limit
    opens = fits_at(counter, found, 1, at_ms) if spent >= limit else None
    leaves = _leaves(budget, counter, at_ms)
    spends = {start: amount for start, (amount, _) in counter.buckets.items()}
    runs_out = forecast(budget.window, limit, spends, held, at_ms, pace)
    return Balance(
        name=budget.name,
        key=key,
        scope=budget.scope_of(key),
        unit=budget.unit,
        limit=limit,
        spent=spent,
        held=held,
        left=max(0, limit - spent - held),
        resets_at=None if leaves is None else from_ms(leaves),
        window=budget.window.text,
        label=budget.label,
        runs_out_at=None if runs_out is None else from_ms(runs_out),
        opens_at=None if opens is None else from_ms(opens),
    )


def _paces(connection: Connection, budget: Budget, now_ms: int) -> dict[str, Pace]:
    """How fast each counter of a lifetime budget was spent of late, by its usage rows; those of single runs have no pace."""
    if budget.window.leaves_at(0) is not None or "run" in budget.scope:
        return {}
    stars = [kind for kind in budget.scope_kinds if budget.scope[kind] == "*"]
    columns = [SCOPE_COLUMNS[kind] for kind in stars]
    late = usage.c.started >= now_ms - LATE_MS, usage.c.started <= now_ms
    query = select(func.sum(SPENT[budget.unit]), func.min(usage.c.started), *columns).where(*matches(budget), *late)
    found = {}
    for amount, since, *values in connection.execute(query.group_by(*columns) if columns else query):
        key = budget.key(dict(budget.scope) | dict(zip(stars, values, strict=True)))
        if amount and key is not None:
            found[key] = Pace(int(amount), max(now_ms - since, PACE_LEAST_MS))
    return found


def _leaves(budget: Budget, counter: Counter, at_ms: int) -> int | None:
    window = budget.window
    bucket = window.bucket(at_ms)
    oldest = window.live_from(bucket)
    if oldest == bucket:
        return window.leaves_at(bucket)
    live = [start for start, (spent, _) in counter.buckets.items() if start >= oldest and spent]
    return window.leaves_at(min(live)) if live else None
