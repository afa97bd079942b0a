"""The books, for those who look and correct: sums of usage, the story of a request, the proof, adjustments, histories."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any
from zoneinfo import ZoneInfo

from sqlalchemy import Connection

from gateway.budget import Budget, Budgets, Raise
from gateway.clock import Clock, to_ms
from gateway.errors import InvalidRequest
from gateway.store import audit, budgets, export, raises, spans, usage
from gateway.store.audit import Entry
from gateway.store.budgets import Balance, Difference
from gateway.store.database import Database
from gateway.store.export import Format, Place
from gateway.store.spans import Group, Turned
from gateway.store.usage import SUMS, Story

BARS = ("requests", "tokens", "cost_micro_usd")


@dataclass(frozen=True, slots=True)
class Statement:
    """What the rows say of several spans of time, and where budgets stand."""

    groups: Sequence[Group]
    turned: Sequence[Turned]
    """Per span."""
    bars: Sequence[dict[str, Any]]
    """With the sums of BARS."""
    balances: Sequence[Balance]


class Books:
    """Reads and corrects; needs no lease and starts nothing. Every method raises LedgerUnavailable."""

    def __init__(self, database: Database, budgets: Budgets, clock: Clock) -> None:
        self._database, self._budgets, self._clock = database, budgets, clock

    def use(self, budgets: Budgets) -> None:
        """From now on, these budgets are shown."""
        self._budgets = budgets

    async def balances(self) -> list[Balance]:
        """Where every budget stands now, raises included."""
        now = self._now()
        return await self._database.read(
            lambda connection: budgets.balances(connection, self._budgets, raises.current(connection, now), now)
        )

    async def usage(
        self,
        by: Sequence[str],
        since: datetime,
        until: datetime,
        zone: ZoneInfo | None = None,
        only: Mapping[str, str] | None = None,
    ) -> list[dict[str, Any]]:
        """Sums of ended attempts started in [since, until) per group (`usage.GROUPS`), with the fields of `usage.SUMS`.

        `only` holds values of a scope's attributes that the attempts must have. Raises InvalidRequest for an unknown group.
        """
        return (await self.together([by], since, until, zone, only))[0]

    async def together(
        self,
        groupings: Sequence[Sequence[str]],
        since: datetime,
        until: datetime,
        zone: ZoneInfo | None = None,
        only: Mapping[str, str] | None = None,
        added: Sequence[str] = tuple(SUMS),
    ) -> list[list[dict[str, Any]]]:
        """As `usage`, of several groupings in one look at the rows; `added` names what is wanted of `usage.SUMS`."""
        if unknown := [name for by in groupings for name in by if name not in usage.GROUPS]:
            raise InvalidRequest(f"usage cannot be grouped by {', '.join(unknown)}: it can by {', '.join(usage.GROUPS)}", "by")
        start, end = to_ms(since), to_ms(until)
        return await self._database.read(lambda connection: usage.together(connection, groupings, start, end, zone, only, added))

    async def statement(self, edges: Sequence[datetime], by: Sequence[str], bar: str, zone: ZoneInfo) -> Statement:
        """Everything that a report is made of, in one snapshot.

        Usage per span between neighbouring instants, grouped by attributes of a scope; what became of refused requests;
        usage by provider and `bar` ("hour" or "day" of the zone) from the second edge on; and where every budget stands now.
        """
        cut, now = [to_ms(edge) for edge in edges], self._now()

        def work(connection: Connection) -> Statement:
            return Statement(
                spans.spans(connection, cut, by),
                spans.turned(connection, cut),
                usage.together(connection, [[bar, "provider"]], cut[1], cut[-1], zone, None, BARS)[0],
                budgets.balances(connection, self._budgets, raises.current(connection, now), now),
            )

        return await self._database.read(work)

    async def pages(
        self, kind: Format, since: datetime, until: datetime, rows: int = 1000, only: Mapping[str, str] | None = None
    ) -> AsyncGenerator[bytes, None]:
        """The attempts started in [since, until), oldest first, as lines of a file: what is held is never more than a page.

        `only` as for `usage`.
        """
        read = partial(export.page, kind=kind, to_ms=to_ms(until), rows=rows, only=only or {})
        after: Place | None = (to_ms(since), "")
        while after is not None:
            found = await self._database.read(partial(read, after=after))
            if found.lines:
                yield found.lines
            after = found.after

    async def newest(self, rows: int, of: Mapping[str, str] | None = None) -> list[dict[str, Any]]:
        """The newest attempts first, with the fields of `usage.FIELDS`; `of` holds values of these that they must have."""
        return await self._database.read(partial(usage.newest, rows=rows, of=of or {}))

    async def story(self, request_id: str) -> Story:
        """Every attempt and refusal of one request."""
        return await self._database.read(partial(usage.story, request_id=request_id))

    async def check(self) -> list[Difference]:
        """What the counters have otherwise than the usage rows say; empty when all is right."""
        now = self._now()
        return await self._database.read(lambda connection: budgets.check(connection, self._budgets, now))

    async def uncounted(self) -> list[str]:
        """The names of budgets that no server counts as this configuration has them: it must be started, or reload."""
        return await self._database.read(lambda connection: [one.name for one in budgets.uncounted(connection, self._budgets)])

    async def adjust(self, budget: str, amount: int, reason: str, actor: str, scope: Mapping[str, str] | None = None) -> None:
        """Corrects what a budget has spent by ±amount in its unit; `scope` names the counter of a `*` budget.

        Raises InvalidRequest.
        """
        found, now = self._budget(budget), self._now()
        await self._database.write(lambda connection: budgets.adjust(connection, found, scope or {}, amount, reason, actor, now))

    async def history(self, budget: str) -> list[Raise]:
        """The raises of a budget, newest first, ended ones too. Raises InvalidRequest."""
        self._budget(budget)
        return await self._database.read(partial(raises.history, budget=budget))

    async def audit(self, subject: str | None = None, **wanted: Any) -> list[Entry]:
        """Who changed what, newest first; `wanted` are further fields of `audit.Asked`."""
        return await self._database.read(partial(audit.entries, asked=audit.Asked(subject, **wanted)))

    def _budget(self, name: str) -> Budget:
        found = self._budgets.by_name.get(name)
        if found is None:
            raise InvalidRequest(f"there is no budget named {name!r}", "budget")
        return found

    def _now(self) -> int:
        return to_ms(self._clock.now())
