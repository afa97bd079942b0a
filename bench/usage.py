"""A million usage rows: how long sums take, what an export holds in memory, and whether the gate notices either.

`python -m bench.usage [--rows 1000000]` on SQLite, in a folder of its own, in this process.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sqlite3
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from datetime import datetime, timedelta
from pathlib import Path

import uvloop

from gateway.app import App
from gateway.budget import Amounts
from gateway.chat import Origin, Slot, Usage
from gateway.clock import SystemClock, to_ms
from gateway.ledger import Closing, Draft, Outcome, State
from gateway.settings import load
from gateway.store.export import csv_lines, json_lines
from gateway.store.migrations import upgrade

CONFIG = """
[gateway]
database_url = "sqlite:///sluicegate.db"
[providers.p]
api = "demo"
model = "m"
[[budgets]]
name = "all"
tokens = 1_000_000_000_000
per = "month"
"""
DAYS = 30
GATE_S = 3.0
AT_ONCE = 16
BATCH = 20_000


def rows_of(count: int, until: datetime) -> Iterator[tuple[object, ...]]:
    """A month of calls, evenly spread, of 5 models, 200 people and 20 chats."""
    chance, start = random.Random(1), to_ms(until - timedelta(days=DAYS))
    step = DAYS * 86_400_000 / count
    for number in range(count):
        at, model = int(start + number * step), chance.randrange(5)
        prompt, output = chance.randrange(50, 2000), chance.randrange(20, 800)
        yield (
            f"{at:012x}{number:020x}", f"r{number}", 1, "telegram", str(chance.randrange(200)), str(-chance.randrange(20)),
            "default", f"p{model % 3}", f"model-{model}", f"model-{model}", prompt, output, prompt * 3, "config", "answered", 300,
            900, at, at + 900, "settled", "", 0, 1, prompt + output,
        )  # fmt: skip


COLUMNS = (
    "id", "request_id", "attempt", "surface", "user", "chat", "chain", "provider", "model_asked", "model_served",
    "prompt_tokens", "output_tokens", "cost_micro_usd", "price_source", "outcome", "latency_to_first_token_ms",
    "total_latency_ms", "started", "ended", "state", "owner", "deadline", "spent_requests", "spent_tokens",
)  # fmt: skip


def fill(file: Path, count: int) -> None:
    """Writes the rows straight into the database: the gate would take minutes."""
    connection = sqlite3.connect(file)
    names, marks = ", ".join(f'"{name}"' for name in COLUMNS), ", ".join("?" * len(COLUMNS))
    with connection:
        connection.executemany(f"INSERT INTO usage ({names}) VALUES ({marks})", rows_of(count, SystemClock().now()))
    connection.execute("ANALYZE")
    connection.close()


def memory_mb() -> float:
    """What this process holds in memory now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 1e6


async def gate_per_s(app: App, seconds: float = GATE_S) -> float:
    """Reservations held and settled in a second, so many at once."""
    done, end = 0, time.monotonic() + seconds
    chance = random.Random(time.monotonic_ns())

    async def call() -> None:
        nonlocal done
        while time.monotonic() < end:
            draft = Draft(
                f"{chance.getrandbits(128):032x}", Origin("r", "http"), 1, "default", Slot("p", "m"), Amounts(1, 100, 0), 50, 50,
                to_ms(app.clock.now()) + 60_000,
            )  # fmt: skip
            held = await app.store.reserve(draft)
            usage = Usage(50, 50)
            await app.store.close(held, Closing(State.SETTLED, Amounts(1, 100, 0), Outcome.ANSWERED, usage=usage))
            done += 1

    await asyncio.gather(*(call() for _ in range(AT_ONCE)))
    return done / seconds


@asynccontextmanager
async def meanwhile(work: Callable[[], Awaitable[object]]) -> AsyncIterator[None]:
    """The work again and again, as long as the block lasts."""

    async def repeat() -> None:
        while True:
            await work()

    task = asyncio.create_task(repeat())
    yield
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def export(app: App, since: datetime, until: datetime, lines: Callable[..., bytes]) -> tuple[int, float]:
    """Bytes that an export makes, and the most memory that it held on top, in MB."""
    before, most, size = memory_mb(), 0.0, 0
    async for page in app.books.pages(since, until):
        size += len(lines(page))
        most = max(most, memory_mb() - before)
    return size, most


async def measure(folder: Path, count: int) -> None:
    """Prints the figures."""
    (folder / "sluicegate.toml").write_text(CONFIG)
    settings = load(folder / "sluicegate.toml", {})
    upgrade(settings.database_url)
    async with App(settings, roles=frozenset({"scheduler"})).running() as app:
        print(f"gate with an empty table: {await gate_per_s(app):,.0f} calls/s")
        began = time.monotonic()
        await asyncio.to_thread(fill, folder / "sluicegate.db", count)
        print(f"{count:,} rows written in {time.monotonic() - began:.0f} s")
        until = app.clock.now()
        since = until - timedelta(days=DAYS)
        print(f"gate with {count:,} rows: {await gate_per_s(app):,.0f} calls/s")
        for by in (["provider"], ["provider", "model", "day"], ["user"], []):
            began, worked = time.monotonic(), time.process_time()
            found = await app.books.usage(by, since, until, settings.zone)
            took, work = time.monotonic() - began, time.process_time() - worked
            # On a busy machine the second figure says what the first would be on an idle one.
            print(f"month by {','.join(by) or 'nothing'}: {took:.2f} s, of which {work:.2f} s at work, {len(found)} groups")
        for name, lines in (("csv", csv_lines), ("jsonl", json_lines)):
            began = time.monotonic()
            size, most = await export(app, since, until, lines)
            print(f"export as {name}: {size / 1e6:.0f} MB in {time.monotonic() - began:.0f} s, {most:.1f} MB of memory on top")
        async with meanwhile(lambda: app.books.usage(["provider", "day"], since, until, settings.zone)):
            print(f"gate while sums are made: {await gate_per_s(app):,.0f} calls/s")
        async with meanwhile(lambda: export(app, since, until, csv_lines)):
            print(f"gate while an export runs: {await gate_per_s(app):,.0f} calls/s")


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        uvloop.run(measure(Path(folder), arguments.rows))


if __name__ == "__main__":
    main()
