"""A thousand runs that wait for a budget: what they cost in memory, in idle CPU, and in a restart.

`python -m bench.parked [--runs 1000]` on SQLite, in a folder of its own, in this process.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import tempfile
import time
from pathlib import Path

import uvloop

from gateway.app import App
from gateway.runs import RunState, Starter
from gateway.settings import load
from gateway.store.migrations import upgrade

CONFIG = """
[gateway]
database_url = "sqlite:///sluicegate.db"
[workflows]
path = "flows"
[providers.none]
api = "openai"
base_url = "http://127.0.0.1:9/v1"
model = "m"
price = "free"
[chains]
default = ["none"]
[[budgets]]
name = "today"
tokens = 1_000
per = "day"
"""
FLOW = '''
from gateway.workflow import Context, workflow


@workflow
async def parks(ctx: Context) -> str:
    """One step, then a question that has no room."""
    await ctx.step(lambda: "done", name="first")
    return await ctx.ask("May I?", max_tokens=20)
'''
IDLE_S = 10.0


async def parked(app: App, runs: int) -> None:
    """Returns when so many runs are parked."""
    while app.worker is None or app.worker.parked < runs:  # noqa: ASYNC110 - the worker's own pace
        await asyncio.sleep(0.05)


def memory_mb() -> float:
    """What this process holds in memory now."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 1e6


async def measure(folder: Path, runs: int) -> dict[str, float]:
    """The figures, in megabytes, seconds and per cent of one core."""
    (folder / "flows").mkdir()
    (folder / "flows" / "parks.py").write_text(FLOW)
    (folder / "sluicegate.toml").write_text(CONFIG)
    settings = load(folder / "sluicegate.toml", {})
    upgrade(settings.database_url)
    seen: dict[str, float] = {"runs": runs}
    roles = frozenset({"worker"})
    async with App(settings, roles=roles).running() as app:
        await app.books.adjust("today", 990, "to be used up", "bench")
        await _one(app)
        before = memory_mb()
        began = time.perf_counter()
        for _ in range(runs):
            await app.desk.start("parks", {}, Starter("cli", "bench", admin=True))
        await parked(app, runs)
        seen["started_and_parked_s"] = time.perf_counter() - began
        await asyncio.sleep(2)
        seen["memory_mb"] = memory_mb()
        seen["memory_per_run_kb"] = (memory_mb() - before) * 1000 / runs
        cpu = time.process_time()
        await asyncio.sleep(IDLE_S)
        seen["idle_cpu_percent"] = (time.process_time() - cpu) / IDLE_S * 100
        began = time.perf_counter()
    seen["stop_s"] = time.perf_counter() - began
    began, cpu = time.perf_counter(), time.process_time()
    async with App(settings, roles=roles).running() as app:
        await parked(app, runs)
        seen["restart_until_all_wait_again_s"] = time.perf_counter() - began
        seen["restart_cpu_s"] = time.process_time() - cpu
    return seen


async def _one(app: App) -> None:
    """A first run, so that what the engine itself takes is not counted to the thousand."""
    run = await app.desk.start("parks", {}, Starter("cli", "bench", admin=True))
    await parked(app, 1)
    await app.desk.cancel(run.id, Starter("cli", "bench", admin=True))
    while (await app.runs.get(run.id)).state is not RunState.CANCELLED:  # noqa: ASYNC110 - the worker's own pace
        await asyncio.sleep(0.05)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=1000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        figures = runner.run(measure(Path(folder), given.runs))
    print(json.dumps({name: round(value, 1) for name, value in figures.items()}, indent=2))
