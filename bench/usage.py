"""A million usage rows: how long sums, reports and pages take, what an export holds in memory, and whether the gate notices.

`python -m bench.usage [--rows 1000000]` on SQLite, in a folder of its own; the server is this process, who asks it is another.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sqlite3
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from datetime import datetime, timedelta
from pathlib import Path

import aiohttp
import orjson
import uvloop

from gateway.app import App
from gateway.budget import Amounts
from gateway.chat import Origin, Slot, Usage
from gateway.clock import SystemClock, to_ms
from gateway.ledger import Closing, Draft, Outcome, State
from gateway.settings import Settings, load
from gateway.store.migrations import upgrade
from gateway.web.dashboard.door import COOKIE
from gateway.web.dashboard.live import LOOK_EVERY_S

CONFIG = """
[gateway]
database_url = "sqlite:///sluicegate.db"
timezone = "Europe/Madrid"
listen = "127.0.0.1:0"
[providers.p]
api = "demo"
model = "m"
[[budgets]]
name = "all"
tokens = 1_000_000_000_000
per = "month"
[[budgets]]
name = "provider-hour"
provider = "p"
tokens = 1_000_000_000_000
per = "rolling 1h"
[[budgets]]
name = "person-day"
user = "*"
tokens = 1_000_000_000
per = "day"
[[budgets]]
name = "chat-month"
chat = "*"
usd = 1_000_000
per = "month"
[[budgets]]
name = "ever"
usd = 1_000_000
per = "lifetime"
"""
DAYS = 30
GATE_S = 3.0
AT_ONCE = 16
PAGES = ("/", "/budgets", "/budgets/person-day", "/people", "/runs", "/api/budgets", "/usage", "/usage?by=user&by=chat")
SUMMED = (["provider"], ["provider", "model", "day"], ["provider", "hour"], ["user"], [])
DOWNLOAD = """
import sys, urllib.request
asked = urllib.request.Request(sys.argv[1], headers={"Authorization": "Bearer " + sys.argv[2]})
while True:
    with urllib.request.urlopen(asked) as answer:
        size = 0
        while block := answer.read(1 << 20):
            size += len(block)
    print(size, flush=True)
"""


def rows_of(count: int, until: datetime) -> Iterator[tuple[object, ...]]:
    """A month of calls, evenly spread, of 5 models, 200 people and 20 chats; one in twenty is the next try of the one before."""
    chance, start = random.Random(1), to_ms(until - timedelta(days=DAYS))
    step = DAYS * 86_400_000 / count
    for number in range(count):
        at, model, user = int(start + number * step), chance.randrange(5), chance.randrange(200)
        chat = str(-chance.randrange(20)) if user % 3 else None
        prompt, output = chance.randrange(50, 2000), chance.randrange(20, 800)
        tokens, outcome = prompt + output, "unanswered" if number % 20 == 18 else "answered"
        request, attempt = (number - 1, 2) if number % 20 == 19 else (number, 1)
        lines = [["all", "", "tokens", at, tokens, 10**12, tokens, 0], ["ever", "", "micro_usd", 0, tokens, 10**12, tokens, 0],
                 ["person-day", f"user={user}", "tokens", at, tokens, 10**9, tokens, 0]]  # fmt: skip
        yield (
            f"{at:012x}{number:020x}", f"{request:032x}", attempt, "telegram", str(user), chat,
            "digest" if user % 10 == 0 else None, "default", f"p{model % 3}", f"model-{model}", f"model-{model}", prompt, output,
            prompt * 3, "config", outcome, 300, 900, at, at + 900, "settled", "", 0, 1, tokens, orjson.dumps(lines).decode(),
        )  # fmt: skip


COLUMNS = (
    "id", "request_id", "attempt", "surface", "user", "chat", "workflow", "chain", "provider", "model_asked", "model_served",
    "prompt_tokens", "output_tokens", "cost_micro_usd", "price_source", "outcome", "latency_to_first_token_ms",
    "total_latency_ms", "started", "ended", "state", "owner", "deadline", "spent_requests", "spent_tokens", "lines",
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


async def timed(name: str, work: Callable[[], Awaitable[str]]) -> None:
    """Does it and prints how long it took, and what it says of itself."""
    began, worked = time.monotonic(), time.process_time()
    said = await work()
    took, work_s = time.monotonic() - began, time.process_time() - worked
    # On a busy machine the second figure says what the first would be on an idle one.
    print(f"{name}: {took:.3f} s, of which {work_s:.3f} s at work, {said}")


class Bench:
    """The server, who asks it, and a month of rows."""

    def __init__(self, app: App, key: str, session: aiohttp.ClientSession) -> None:
        self.app, self._key, self._session = app, key, session
        self.until = app.clock.now()
        self.since = self.until - timedelta(days=DAYS)

    async def gate(self) -> float:
        """Reservations held and settled in a second, so many at once."""
        done, end = 0, time.monotonic() + GATE_S
        chance, app = random.Random(time.monotonic_ns()), self.app

        async def call() -> None:
            nonlocal done
            while time.monotonic() < end:
                name, deadline = f"{chance.getrandbits(128):032x}", to_ms(app.clock.now()) + 60_000
                draft = Draft(name, Origin("r", "http"), 1, "default", Slot("p", "m"), Amounts(1, 100, 0), 50, 50, deadline)
                held = await app.store.reserve(draft)
                usage = Usage(50, 50)
                await app.store.close(held, Closing(State.SETTLED, Amounts(1, 100, 0), Outcome.ANSWERED, usage=usage))
                done += 1

        await asyncio.gather(*(call() for _ in range(AT_ONCE)))
        return done / GATE_S

    async def beside(self, name: str, busy: AbstractAsyncContextManager[object]) -> None:
        """Prints what the gate does while something else goes on, against what it does alone just before."""
        alone = await self.gate()
        async with busy:
            beside = await self.gate()
        print(f"gate while {name}: {beside:,.0f} calls/s, {beside / alone:.2f} of the {alone:,.0f} alone")

    async def sum(self, by: list[str]) -> str:
        """The month in groups."""
        return f"{len(await self.app.books.usage(by, self.since, self.until, self.app.settings.zone))} groups"

    async def report(self) -> str:
        """The month's report, in every form."""
        made = await self.app.reports.make("month", at=self.until + timedelta(days=5))
        forms = await asyncio.to_thread(lambda: (made.text(), made.png(), made.csv(), made.document()))
        return f"{len(forms[2]):,} characters of CSV"

    async def watch(self) -> None:
        """What an open overview does: it is made again each second."""
        await self.page("/")
        await asyncio.sleep(LOOK_EVERY_S)

    async def page(self, path: str) -> str:
        """A page or a document, as a browser or a program gets it."""
        query = f"{'&' if '?' in path else '?'}from={self.since:%Y-%m-%d}" if path.startswith("/usage") else ""
        async with self._session.get(f"{self.app.address}{path}{query}") as answer:
            assert answer.status == 200, answer.status
            return f"{len(await answer.read()):,} bytes"

    @asynccontextmanager
    async def meanwhile(self, work: Callable[[], Awaitable[object]]) -> AsyncIterator[None]:
        """The work again and again, as long as the block lasts."""

        async def repeat() -> None:
            while True:
                await work()

        task = asyncio.create_task(repeat())
        await asyncio.sleep(0.2)
        yield
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    @asynccontextmanager
    async def download(self, kind: str) -> AsyncIterator[asyncio.StreamReader]:
        """Another process that fetches the export again and again; it says how large each one was."""
        url = f"{self.app.address}/api/usage/export.{kind}?from={self.since:%Y-%m-%d}"
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", DOWNLOAD, url, self._key, stdout=asyncio.subprocess.PIPE
        )
        assert process.stdout is not None
        await asyncio.sleep(0.5)
        yield process.stdout
        process.kill()
        await process.wait()

    async def export(self, kind: str) -> str:
        """One export as a file."""
        before, most = memory_mb(), 0.0
        async with self.download(kind) as said:
            size = asyncio.create_task(said.readline())
            while not size.done():
                await asyncio.wait([size], timeout=0.05)
                most = max(most, memory_mb() - before)
            return f"{int(await size) / 1e6:.0f} MB, {most:.1f} MB of memory on top"


def prepared(folder: Path, rows: int) -> Settings:
    """A configuration and its database, filled."""
    folder.mkdir()
    (folder / "sluicegate.toml").write_text(CONFIG)
    settings = load(folder / "sluicegate.toml", {})
    upgrade(settings.database_url)
    fill(folder / "sluicegate.db", rows)
    print(f"{rows:,} rows, {(folder / 'sluicegate.db').stat().st_size / 1e6:,.0f} MB")
    return settings


@asynccontextmanager
async def served(folder: Path, rows: int) -> AsyncIterator[Bench]:
    """A server on a database with so many rows, which its counters are made of."""
    settings = await asyncio.to_thread(prepared, folder, rows)
    async with App(settings, roles=frozenset({"scheduler", "web"})).running() as app:
        key = await app.keys.create("bench", admin=True, actor="bench")
        cookies, headers = {COOKIE: await app.sessions.open_by_key("bench")}, {"Authorization": f"Bearer {key}"}
        async with aiohttp.ClientSession(cookies=cookies, headers=headers) as session:
            yield Bench(app, key, session)


async def measure(folder: Path, count: int) -> None:
    """Prints the figures."""
    async with served(folder / "few", 1000) as bench:
        print(f"gate: {await bench.gate():,.0f} calls/s")
    async with served(folder / "many", count) as bench:
        print(f"gate: {await bench.gate():,.0f} calls/s")
        await figures(bench)


async def figures(bench: Bench) -> None:
    """With the rows there."""
    for by in SUMMED:
        await timed(f"month by {','.join(by) or 'nothing'}", lambda by=by: bench.sum(by))
    await bench.page("/")
    for path in PAGES:
        await timed(f"page {path}", lambda path=path: bench.page(path))
    await timed("report of the month", bench.report)
    for kind in ("csv", "jsonl"):
        await timed(f"export as {kind}", lambda kind=kind: bench.export(kind))
    for name, work in (
        ("sums are made", lambda: bench.sum(["provider", "day"])),
        ("the usage page is asked for", lambda: bench.page("/usage")),
        ("the overview is open", bench.watch),
        ("reports are made", bench.report),
    ):
        await bench.beside(name, bench.meanwhile(work))
    for kind in ("csv", "jsonl"):
        await bench.beside(f"an export as {kind} runs", bench.download(kind))


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        uvloop.run(measure(Path(folder), arguments.rows))


if __name__ == "__main__":
    main()
