"""What alerts are decided from, read about once a second beside the gate: counters that are nearly full, new refusals,
deliveries that are stuck. Cheap while nothing happens: only what has changed since the last look is read whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import orjson
from sqlalchemy import Connection, and_, func, or_, select, tuple_

from gateway.budget import Budget, Budgets, is_cap, limit_at
from gateway.clock import Clock, to_ms
from gateway.ledger import Counter, CounterId, Raises, changes_of
from gateway.store.database import Database
from gateway.store.run_tables import outbox
from gateway.store.tables import counters, refusals, tg_updates

REFUSALS_MAX = 200
"""The newest refusals of one look: of a flood the rest says the same."""
NAMES_MAX = 1000
"""Counters that are asked for in one statement: databases take only so many values in one."""
UNDELIVERED = ("received", "answering")


@dataclass(frozen=True, slots=True)
class Standing:
    """Where one counter stands now; amounts in the budget's unit."""

    budget: Budget
    key: str
    bucket: int
    """The start of the current bucket: of a calendar window, its own."""
    spent: int
    held: int
    limit: int
    leaves_ms: int | None
    """When a calendar window ends."""


@dataclass(frozen=True, slots=True)
class Passed:
    """A slot that was passed over: the error's class and its facts."""

    kind: str
    provider: str
    model: str
    detail: Mapping[str, Any]


class Standings:
    """Remembers what it has looked at; one per process. Every method raises LedgerUnavailable."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database, self._clock = database, clock
        self._looked: dict[CounterId, int] = {}
        self._under: tuple[Budgets, Raises] | None = None
        self._refusal: int | None = None

    async def risen(self, budgets: Budgets, raises: Raises) -> list[Standing]:
        """The counters that have reached the lowest of their thresholds and changed since the last look."""
        if self._under is None or self._under[0] is not budgets or self._under[1] != raises:
            # Under other limits every counter may stand otherwise.
            self._under, self._looked = (budgets, raises), {}
        watched = [budget for budget in budgets.all if is_watched(budget)]
        if not watched:
            return []
        found = await self._database.read(partial(_reached, watched=watched, raises=raises))
        changed = [name for name, spent in found.items() if self._looked.get(name) != spent]
        standings = await self.of(changed, budgets, raises) if changed else []
        # What has sunk is looked at again when it rises; only what was read is remembered.
        self._looked = found
        return standings

    def forget(self) -> None:
        """Looks at every counter again."""
        self._under = None

    async def of(self, names: list[CounterId], budgets: Budgets, raises: Raises) -> list[Standing]:
        """Where these counters stand; those that are gone, or count something else now, are left out."""
        now = to_ms(self._clock.now())

        def work(connection: Connection) -> list[Standing]:
            few = (names[start : start + NAMES_MAX] for start in range(0, len(names), NAMES_MAX))
            return [one for part in few for one in _standings(connection, part, budgets, raises, now)]

        return await self._database.read(work)

    async def passed(self) -> list[Passed]:
        """The newest refusals since the last look; the first look only remembers where it begins."""
        before = self._refusal

        def work(connection: Connection) -> tuple[int, list[Passed]]:
            newest = connection.scalar(select(func.max(refusals.c.id))) or 0
            if before is None or newest <= before:
                return newest, []
            query = select(refusals).where(refusals.c.id > before, refusals.c.kind.in_(("Exhausted", "UnknownPrice")))
            rows = connection.execute(query.order_by(refusals.c.id.desc()).limit(REFUSALS_MAX))
            return newest, [Passed(row.kind, row.provider, row.model, orjson.loads(row.detail)) for row in rows]

        self._refusal, found = await self._database.read(work)
        return found

    async def stuck(self, before_ms: int) -> dict[str, tuple[int, int]]:
        """Messages from ("inbox") and to people ("outbox") that wait since before then: how many, and since when."""

        def work(connection: Connection) -> dict[str, tuple[int, int]]:
            late = outbox.c.state == "pending", outbox.c.created < before_ms
            out = connection.execute(select(func.count(), func.min(outbox.c.created)).where(*late)).one()
            # What waited for its window is late only by what it waits beyond that.
            due = or_(tg_updates.c.due_ms.is_(None), tg_updates.c.due_ms < before_ms)
            unanswered = and_(tg_updates.c.state.in_(UNDELIVERED), tg_updates.c.received_ms < before_ms, due)
            came = connection.execute(select(func.count(), func.min(tg_updates.c.received_ms)).where(unanswered)).one()
            return {name: (count, since) for name, (count, since) in (("outbox", out), ("inbox", came)) if count}

        return await self._database.read(work)


def is_watched(budget: Budget) -> bool:
    """True for a budget of whose state operators hear.

    One counter for each person or chat would be many alerts: those are only for operators who ask, by `warn_at`. What
    caps single runs is told in the run.
    """
    return not is_cap(budget.name) and (bool(budget.warn_at) or "*" not in budget.scope.values())


def _reached(connection: Connection, watched: list[Budget], raises: Raises) -> dict[CounterId, int]:
    """What is kept as spent only sinks until the next change, so that a counter below the floor is below it now."""
    floors = [and_(counters.c.budget == budget.name, counters.c.spent >= _floor(budget, raises)) for budget in watched]
    rows = connection.execute(select(counters.c.budget, counters.c.key, counters.c.spent).where(or_(*floors)))
    return {(budget, key): spent for budget, key, spent in rows}


def _floor(budget: Budget, raises: Raises) -> int:
    """The least that any counter of the budget may have spent when it reaches a threshold; at least 1."""
    if raises.get(budget.name):
        return 1
    limit = min((limit for limit in (budget.limit, *budget.exceptions.values()) if limit > 0), default=0)
    return max(1, int(limit * min(budget.warn_at, default=1.0)))


def _standings(connection: Connection, names: list[CounterId], budgets: Budgets, raises: Raises, now: int) -> Iterator[Standing]:
    wanted = tuple_(counters.c.budget, counters.c.key).in_(names)
    query = select(counters.c.budget, counters.c.key, counters.c.signature, counters.c.buckets).where(wanted)
    for name, key, signature, buckets in connection.execute(query.order_by(counters.c.budget, counters.c.key)):
        budget = budgets.by_name.get(name)
        if budget is None or budget.signature != signature:
            continue
        counter = Counter(orjson.loads(buckets))
        bucket = budget.window.bucket(max(now, counter.newest))
        spent, held = counter.live(budget.window, bucket)
        limit = limit_at(budget.base_limit(key), changes_of(raises, budget, key), now)
        yield Standing(budget, key, bucket, spent, held, limit, budget.window.leaves_at(bucket))
