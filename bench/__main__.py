"""Speed and size of the real server beside a bare pass-through: python -m bench [--rounds N]

The server under test has one core to itself, the scripted provider and the load share another. Each figure is the
median over rounds, and each ratio the median of the ratios of neighbouring rounds, so that a busy machine does less harm.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import uvloop

from bench import servers
from bench.load import Round, measure
from bench.servers import Server

SERVER_CORE, LOAD_CORE = 0, 1
CONNECTIONS = (1, 16, 64)
SECONDS = 0.5
BARE = "bare aiohttp pass-through"

Cell = tuple[bool, int]
"""Streaming or not, and how many connections."""


async def compare(targets: dict[str, Server], rounds: int) -> dict[Cell, dict[str, list[Round]]]:
    """Rounds of every target in turn, for each cell."""
    table: dict[Cell, dict[str, list[Round]]] = {}
    for stream in (False, True):
        for connections in CONNECTIONS:
            cell = table[stream, connections] = {name: [] for name in targets}
            for number in range(rounds + 1):
                for name, server in targets.items():
                    done = await ask(server, stream, connections)
                    if number:  # the first round only warms up
                        cell[name].append(done)
    return table


async def ask(server: Server, stream: bool, connections: int, seconds: float = SECONDS, **more: int | str) -> Round:
    """One round against one server."""
    url = f"{server.url}/v1/chat/completions"
    return await measure(url, key=server.key, connections=connections, stream=stream, seconds=seconds, **more)  # type: ignore[arg-type]


def ratio(ours: list[Round], bare: list[Round]) -> float:
    """The median of the ratios of requests per second of neighbouring rounds."""
    return statistics.median(a.per_s / b.per_s for a, b in zip(ours, bare, strict=True))


def added(ours: list[Round], bare: list[Round], field: str) -> float:
    """The median of the differences of one time of neighbouring rounds, in milliseconds."""
    return statistics.median(getattr(a, field) - getattr(b, field) for a, b in zip(ours, bare, strict=True))


def print_throughput(table: dict[Cell, dict[str, list[Round]]], names: list[str]) -> None:
    print("\n| requests/s (× bare) | " + " | ".join(f"{'stream' if s else 'whole'}, {c} at once" for s, c in table) + " |")
    print("| --- |" + " --- |" * len(table))
    for name in names:
        cells = []
        for rounds in table.values():
            middle = statistics.median(done.per_s for done in rounds[name])
            cells.append(f"{middle:,.0f}" + ("" if name == BARE else f" (×{ratio(rounds[name], rounds[BARE]):.2f})"))
        print(f"| {name} | " + " | ".join(cells) + " |")


def print_latency(table: dict[Cell, dict[str, list[Round]]], firsts: dict[str, list[Round]], names: list[str]) -> None:
    print("\n| | p50 added at 1, ms | p50 / p99 at 16, ms | first token of 16 slow streams later by, p50 / p99, ms |")
    print("| --- | --- | --- | --- |")
    for name in names:
        one = added(table[False, 1][name], table[False, 1][BARE], "p50_ms")
        p50, p99 = (statistics.median(getattr(done, field) for done in table[False, 16][name]) for field in ("p50_ms", "p99_ms"))
        first50, first99 = (added(firsts[name], firsts[BARE], field) for field in ("first_p50_ms", "first_p99_ms"))
        print(f"| {name} | {one:.2f} | {p50:.1f} / {p99:.1f} | {first50:.1f} / {first99:.1f} |")


async def first_tokens(targets: dict[str, Server], rounds: int) -> dict[str, list[Round]]:
    """Streams from an upstream that waits 50 ms, 16 at once."""
    found: dict[str, list[Round]] = {name: [] for name in targets}
    for _ in range(rounds):
        for name, server in targets.items():
            model = "wait-50" if name == BARE else "slow"
            found[name].append(await ask(server, True, 16, 0.4, model=model))
    return found


async def fill(server: Server, requests: int) -> None:
    """That many requests, in bounded rounds."""
    left = requests
    while left > 0:
        left -= (await ask(server, False, 16, 20, most=left)).requests


def help_s() -> float:
    """How long `sluicegate --help` takes, in seconds: the median of five."""
    times = []
    for _ in range(5):
        began = time.perf_counter()
        subprocess.run([sys.executable, "-m", "gateway", "--help"], check=True, capture_output=True)
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def machine() -> str:
    """What it ran on, in a line."""
    model = platform.processor() or platform.machine()
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), model)
    return f"{os.cpu_count()} cores, {model}, {platform.system()}, Python {platform.python_version()}"


async def run(folder: Path, rounds: int) -> None:
    servers.pin(LOAD_CORE)
    with contextlib.ExitStack() as stack:
        upstream = stack.enter_context(servers.upstream(LOAD_CORE, folder))
        postgres = stack.enter_context(servers.postgres(folder))
        bare = stack.enter_context(servers.passthrough(upstream, SERVER_CORE, folder))
        sqlite = stack.enter_context(
            servers.gateway("sqlite", "sqlite:///bench.db", upstream, SERVER_CORE, folder),
        )
        on_postgres = stack.enter_context(servers.gateway("postgresql", postgres, upstream, SERVER_CORE, folder))
        targets = {BARE: bare, "sluicegate, SQLite": sqlite, "sluicegate, PostgreSQL": on_postgres}
        print(f"Machine: {machine()}. Load {os.getloadavg()[0]:.1f} before the start; {rounds} rounds of {SECONDS} s each.")
        rest = {name: server.memory_mb() for name, server in targets.items()}
        for server in targets.values():
            await fill(server, 10_000)
        after = {name: server.memory_mb() for name, server in targets.items()}
        table = await compare(targets, rounds)
        firsts = await first_tokens(targets, rounds)
        end = {name: server.memory_mb() for name, server in targets.items()}
    print_throughput(table, list(targets))
    print_latency(table, firsts, list(targets))
    print("\n| | memory at rest / after 10,000 requests / at the end, MB | start to ready, s |\n| --- | --- | --- |")
    for name, server in targets.items():
        print(f"| {name} | {rest[name]:.0f} / {after[name]:.0f} / {end[name]:.0f} | {server.ready_s:.2f} |")
    print(f"\n`sluicegate --help`: {help_s():.2f} s")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="sluicegate-bench-") as folder:
        uvloop.run(asyncio.wait_for(run(Path(folder), arguments.rounds), 300))


if __name__ == "__main__":
    main()
