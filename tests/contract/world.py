"""One disk and the processes on it, so that the same promises are tried on memory, SQLite and PostgreSQL."""

from __future__ import annotations

import itertools
from typing import Any, Protocol

import orjson
from sqlalchemy import Connection, select

from gateway.budget import Amounts, Budget, Budgets
from gateway.chat import Origin, Slot, Usage
from gateway.clock import to_ms
from gateway.ledger import Closing, Draft, Outcome, State
from gateway.store.database import Database
from gateway.store.ledger_store import LedgerStore
from gateway.store.tables import counters, refusals, usage
from tests.doubles.clock import SettableClock
from tests.doubles.memory_store import Disk, MemoryStore

AnyStore = MemoryStore | LedgerStore


class World(Protocol):
    """What a test of the contract sees."""

    clock: SettableClock

    async def process(self, *budgets: Budget, owner: str = "owner-1") -> AnyStore:
        """Starts a process with these budgets."""
        ...

    async def rows(self) -> list[dict[str, Any]]:
        """The usage rows in the order in which they were started."""
        ...

    async def refusals(self) -> list[dict[str, Any]]:
        """What was refused, oldest first."""
        ...

    async def balance(self, budget: Budget, key: str = "") -> tuple[int, int]:
        """What is spent and held of one counter now."""
        ...

    async def close(self) -> None:
        """Ends everything."""
        ...


class MemoryWorld:
    """In memory."""

    def __init__(self) -> None:
        self.clock = SettableClock()
        self.disk = Disk()

    async def process(self, *budgets: Budget, owner: str = "owner-1") -> AnyStore:
        return MemoryStore(Budgets(budgets), self.clock, disk=self.disk, owner=owner)

    async def rows(self) -> list[dict[str, Any]]:
        return sorted(self.disk.rows.values(), key=lambda row: (row["started"], row["id"]))

    async def refusals(self) -> list[dict[str, Any]]:
        return self.disk.refusals

    async def balance(self, budget: Budget, key: str = "") -> tuple[int, int]:
        counter = self.disk.counters.get((budget.name, key))
        return counter.balance(budget.window, to_ms(self.clock.now())) if counter else (0, 0)

    async def close(self) -> None:
        pass


class DatabaseWorld:
    """On a database; each process has its own connections and its own writer."""

    def __init__(self, url: str) -> None:
        self.clock = SettableClock()
        self.url = url
        self._open: list[Database] = []

    async def process(self, *budgets: Budget, owner: str = "owner-1") -> AnyStore:
        database = Database(self.url)
        self._open.append(database)
        store = LedgerStore(database, Budgets(budgets), self.clock, owner)
        await store.start()
        return store

    async def rows(self) -> list[dict[str, Any]]:
        query = select(usage).order_by(usage.c.started, usage.c.id)
        return await self._open[-1].read(lambda connection: [dict(row._mapping) for row in connection.execute(query)])

    async def refusals(self) -> list[dict[str, Any]]:
        def look(connection: Connection) -> list[dict[str, Any]]:
            found = [dict(row._mapping) for row in connection.execute(select(refusals).order_by(refusals.c.id))]
            return [row | {"detail": orjson.loads(row["detail"])} for row in found]

        return await self._open[-1].read(look)

    async def balance(self, budget: Budget, key: str = "") -> tuple[int, int]:
        from gateway.ledger import Counter

        def look(connection: Connection) -> tuple[int, int]:
            wanted = counters.c.budget == budget.name, counters.c.key == key
            buckets = connection.scalar(select(counters.c.buckets).where(*wanted))
            return Counter(orjson.loads(buckets or "[]")).balance(budget.window, to_ms(self.clock.now()))

        return await self._open[-1].read(look)

    async def close(self) -> None:
        for database in self._open:
            await database.close()


_numbers = itertools.count(1)


def draft(
    tokens: int = 10,
    *,
    requests: int = 1,
    micro_usd: int = 0,
    provider: str = "moonshot",
    chain: str = "default",
    deadline_ms: int = 10**15,
    attempt: int = 1,
    request_id: str | None = None,
    prefix: str = "a",
    **origin: Any,
) -> Draft:
    """An attempt that asks for so much; its prompt is half of the tokens."""
    number = next(_numbers)
    asker = Origin(request_id or f"request-{number}", origin.pop("surface", "http"), **origin)
    held = Amounts(requests, tokens, micro_usd)
    prompt = tokens // 2
    return Draft(f"{prefix}{number:06}", asker, attempt, chain, Slot(provider, "m-1"), held, tokens - prompt, prompt, deadline_ms)


def settled(tokens: int, micro_usd: int = 0, **fields: Any) -> Closing:
    """An answer that took so many tokens."""
    usage_of = Usage(tokens // 2, tokens - tokens // 2)
    return Closing(State.SETTLED, Amounts(1, tokens, micro_usd), Outcome.ANSWERED, usage=usage_of, **fields)


RELEASED = Closing(State.RELEASED, Amounts(), Outcome.REFUSED, detail="503")
