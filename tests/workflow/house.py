"""A house with a worker in this process: rows in by the desk, rows out; models played by a scripted upstream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from gateway.app import App
from gateway.runs import Caps, Detail, Run, RunState, Starter, StepState
from tests.doubles.clock import SettableClock
from tests.doubles.upstream import Upstream
from tests.e2e.rig import config, prepared, provider, section

FLOWS = Path(__file__).parent / "flows"
OPERATOR = Starter("cli", "tester", admin=True)
WORKER = frozenset({"worker"})
PATIENCE_S = 30.0


class House:
    """One worker on a database; it may be stopped and started again."""

    def __init__(
        self,
        folder: Path,
        upstream: Upstream,
        *sections: str,
        clock: SettableClock | None = None,
        url: str | None = None,
        flows: Path = FLOWS,
    ) -> None:
        self.folder, self.upstream, self.clock = folder, upstream, clock or SettableClock()
        flow_section = section("[workflows]", {"path": str(flows)})
        self.text = config(provider("main", upstream, max_attempts=1), *sections, flow_section, chain=["main"])
        self.environ = {} if url is None else {"DATABASE_URL": url}
        self.roles = WORKER

    async def start(self) -> None:
        """Another start on the same database."""
        settings = await asyncio.to_thread(prepared, self.folder, self.text, self.environ)
        self.app = App(settings, self.clock, roles=self.roles)
        await self.app.start()
        self.runs, self.desk = self.app.runs, self.app.desk

    async def stop(self) -> None:
        """Gracefully; then the books must be right."""
        differences = await self.app.books.check()
        await self.app.stop()
        assert differences == []

    async def restart(self) -> None:
        """Stops and starts."""
        await self.stop()
        await self.start()

    async def begin(self, workflow: str, *, caps: Caps | None = None, key: str | None = None, **params: Any) -> str:
        """Starts a run and gives its id."""
        return (await self.desk.start(workflow, params, OPERATOR, caps=caps, key=key)).id

    async def until(self, true: Callable[[], bool], timeout_s: float = PATIENCE_S) -> None:
        """Waits until a condition holds."""
        async with asyncio.timeout(timeout_s):
            while not true():  # noqa: ASYNC110 - any condition, of any object
                await asyncio.sleep(0.02)

    async def reaches(self, run: str, *states: RunState, timeout_s: float = PATIENCE_S) -> Run:
        """Waits until a run is in one of the states; an end that is none of them is an error."""
        async with asyncio.timeout(timeout_s):
            while True:
                found = await self.runs.get(run)
                if found.state in states:
                    return found
                assert not found.state.ended, f"{found.state}: {found.error}"
                await asyncio.sleep(0.02)

    async def ends(self, run: str, timeout_s: float = PATIENCE_S) -> Run:
        """Waits until a run has ended, in whatever way."""
        return await self.reaches(run, *(state for state in RunState if state.ended), timeout_s=timeout_s)

    async def succeeds(self, run: str, timeout_s: float = PATIENCE_S) -> Run:
        """Waits until a run has succeeded."""
        return await self.reaches(run, RunState.SUCCEEDED, timeout_s=timeout_s)

    async def detail(self, run: str) -> Detail:
        """A run with its steps."""
        return await self.runs.detail(run)

    async def steps(self, run: str) -> dict[str, tuple[StepState, int]]:
        """State and attempts of each step."""
        return {step.name: (step.state, step.attempts) for step in await self.runs.steps(run)}


@asynccontextmanager
async def house(folder: Path, upstream: Upstream, *sections: str, **rest: Any) -> AsyncIterator[House]:
    """A started house."""
    made = House(folder, upstream, *sections, **rest)
    await made.start()
    try:
        yield made
    finally:
        await made.stop()


def lines(path: Path) -> Collection[str]:
    """The lines of a file; none where there is no file."""
    return path.read_text().splitlines() if path.exists() else []


def alive(marker: str) -> list[str]:
    """The processes that were started under a label."""
    found = []
    for environment in Path("/proc").glob("[0-9]*/environ"):
        try:
            if f"SLUICEGATE_STEP={marker}".encode() in environment.read_bytes():
                found.append(environment.parent.name)
        except OSError:
            continue
    return found
