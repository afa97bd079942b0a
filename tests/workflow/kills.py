"""kill -9 of the serving program at random moments of a run, and another start each time, until the run has ended.

`python -m tests.workflow.kills --kills 20` does it on SQLite and PostgreSQL, with the sample `clone_petroserver` and with a
run of every kind of step, and prints what it saw; the suite does it with few.
"""

from __future__ import annotations

import argparse
import asyncio
import filecmp
import os
import random
import signal
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from sqlalchemy import select

import workflows
from gateway.clock import SystemClock
from gateway.runs import Run, RunState, Starter, StepState
from gateway.settings import Settings
from gateway.store.books import Books
from gateway.store.database import Database
from gateway.store.runs import Runs
from gateway.store.tables import usage
from gateway.workflow.caps import with_caps
from gateway.workflow.catalogue import Catalogue
from gateway.workflow.desk import Desk
from gateway.workflow.git import git_environment
from tests.cli.program import COMMAND, environment
from tests.doubles.upstream import Script, Upstream
from tests.e2e.rig import config, prepared, provider, section

FLOWS = Path(__file__).parent / "flows"
SAMPLES = Path(workflows.__file__).parent
ANSWER = "some words in answer"
OPERATOR = Starter("cli", "tester", admin=True)
START_S = 60.0
END_S = 120.0


class Serving:
    """The program as an operating-system process: killed and started at will."""

    def __init__(self, folder: Path, number: int = 0) -> None:
        self._folder, self._number = folder, number
        self._process: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.end(signal.SIGKILL)

    async def start(self) -> None:
        """Returns when it takes work."""
        log = self._folder / f"serve-{self._number}.log"
        seen = log.stat().st_size if log.exists() else 0
        with log.open("ab") as out:
            self._process = await asyncio.create_subprocess_exec(
                *COMMAND, "serve", "--only", "worker", cwd=self._folder, env=environment(), stderr=out
            )
        async with asyncio.timeout(START_S):
            while b'"started"' not in log.read_bytes()[seen:]:
                assert self._process.returncode is None, log.read_text()[-2000:]
                await asyncio.sleep(0.05)

    async def end(self, number: signal.Signals) -> None:
        """Ends it by a signal, if it still runs."""
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            process.send_signal(number)
            await asyncio.wait_for(process.wait(), 30)


class Beside:
    """The test's own view of the database, beside the program: the desk, the rows, the books."""

    def __init__(self, settings: Settings) -> None:
        clock = SystemClock()
        catalogue = Catalogue.load(settings)
        self.settings = settings
        self.database = Database(settings.database_url)
        self.runs = Runs(self.database, clock)
        self.desk = Desk(self.runs, catalogue, settings, clock)
        self.books = Books(self.database, with_caps(settings.budgets, catalogue.definitions.values()), clock)

    async def finished(self, run: str) -> dict[str, int]:
        """The steps that are shown as finished, with their attempts."""
        return {step.name: step.attempts for step in await self.runs.steps(run) if step.state is StepState.SUCCEEDED}

    async def ends(self, run: str) -> Run:
        """Waits until the run has ended."""
        async with asyncio.timeout(END_S):
            while not (found := await self.runs.get(run)).state.ended:  # noqa: ASYNC110 - another process's work
                await asyncio.sleep(0.05)
            return found

    async def spent(self) -> tuple[int, int]:
        """Tokens of all usage rows, and of those that a crash has left to be counted at their worst case."""
        query = select(usage.c.outcome, usage.c.spent_tokens)
        rows = await self.database.read(lambda connection: connection.execute(query).all())
        assert all(outcome != "pending" for outcome, _ in rows)
        return sum(tokens for _, tokens in rows), sum(tokens for outcome, tokens in rows if outcome == "expired")


@dataclass(frozen=True)
class Seen:
    """What the kills of one run showed."""

    kills: int
    ledger_tokens: int
    expired_tokens: int
    meter_tokens: int


def written(folder: Path, upstream: Upstream, url: str) -> Settings:
    """A configuration in a folder, its database upgraded."""
    flows = section("[workflows]", {"path": str(FLOWS)})
    database = url.replace("postgresql+psycopg", "postgresql")
    text = config(provider("main", upstream, max_attempts=1), flows, chain=["main"], database_url=database)
    return prepared(folder, text, {})


def right_after_journey(runs: Path, run: str) -> None:
    """Asserts that the files of the flow `journey` are as one undisturbed run leaves them."""
    place = runs / run
    assert (place / "REPORT.md").read_text() == ANSWER
    assert (place / "made").read_text() == "made\n"
    assert set((place / "marks").read_text().split()) == {"begin", "a", "b", "c", "end"}


def right_after_clone(runs: Path, run: str) -> None:
    """Asserts that the sample's clone is whole and clean, and that its report is complete and was kept once."""
    place = runs / run
    shipped = SAMPLES / "_petroserver"
    names = [str(path.relative_to(shipped)) for path in shipped.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    assert filecmp.cmpfiles(shipped, place / "clone", names, shallow=False) == (names, [], [])
    for check in (["status", "--porcelain"], ["fsck", "--strict"]):
        command = ["git", "-C", str(place / "clone"), *check]
        said = subprocess.run(command, check=True, capture_output=True, env={"PATH": os.defpath, **git_environment(str(place))})
        assert said.stdout == b""
    report = (place / "REPORT.md").read_text()
    assert report.count(f"> {ANSWER}") == 3
    assert "no answer" not in report
    assert {path.name: path.read_text() for path in (runs.parent / "reports").iterdir()} == {f"petroserver-{run}.md": report}


WORKFLOWS: dict[str, Callable[[Path, str], None]] = {"clone_petroserver": right_after_clone, "journey": right_after_journey}
"""What is killed, and what must be right in its folder then."""


async def killed(folder: Path, url: str, workflow: str, kills: int, chance: random.Random) -> Seen:
    """One run, killed so often at random moments; asserts everything that must hold then. What it asks is answered by yes."""
    async with Upstream(Script(text=ANSWER, start_delay_s=0.15)) as upstream:
        beside = Beside(await asyncio.to_thread(written, folder, upstream, url))
        serving = Serving(folder)
        run = (await beside.desk.start(workflow, {}, OPERATOR)).id
        answering = asyncio.create_task(_approve(beside, run))
        done: dict[str, int] = {}
        made = 0
        try:
            for _ in range(kills):
                change = (await beside.runs.get(run)).change
                await serving.start()
                await _moved(beside, run, change + chance.randint(1, 3))
                await asyncio.sleep(chance.uniform(0, 0.3))
                await serving.end(signal.SIGKILL)
                made += 1
                now = await beside.finished(run)
                assert done.items() <= now.items(), f"made again: {done} {now}"
                done = now
                if (await beside.runs.get(run)).state.ended:
                    break
            await serving.start()
            ended = await beside.ends(run)
            assert (ended.state, ended.error) == (RunState.SUCCEEDED, "")
            now = await beside.finished(run)
            assert done.items() <= now.items(), f"made again: {done} {now}"
        finally:
            answering.cancel()
            await serving.end(signal.SIGTERM)
        assert await beside.books.check() == []
        spent, expired = await beside.spent()
        meter = upstream.meter.tokens
        assert spent - expired <= meter <= spent, f"ledger {spent}, of it expired {expired}; upstream {meter}"
        await asyncio.to_thread(WORKFLOWS[workflow], beside.settings.runs_folder, run)
        await beside.database.close()
        return Seen(made, spent, expired, meter)


async def _approve(beside: Beside, run: str) -> None:
    """Says yes to whatever the run asks."""
    while True:
        for asked in await beside.runs.open_approvals(run):
            await beside.desk.decide(asked.id, True, OPERATOR)
        await asyncio.sleep(0.3)


async def _moved(beside: Beside, run: str, change: int) -> None:
    """Waits until the run has had so many changes, or has ended."""
    async with asyncio.timeout(END_S):
        while (found := await beside.runs.get(run)).change < change:
            if found.state.ended:
                return
            await asyncio.sleep(0.01)


async def _kills(kills: int, seed: int) -> Sequence[str]:
    from tests.conftest import empty_postgres, postgres_server

    said = []
    with tempfile.TemporaryDirectory() as folder, postgres_server() as data:
        for workflow in WORKFLOWS:
            for name in ("SQLite", "PostgreSQL"):
                rounds: list[Seen] = []
                while (left := kills - sum(seen.kills for seen in rounds)) > 0:
                    place = Path(folder) / f"{workflow}-{name}-{len(rounds)}"
                    with empty_postgres(data) as url:
                        where = f"sqlite:///{place}/sluicegate.db" if name == "SQLite" else url
                        chance = random.Random(seed + len(rounds))
                        rounds.append(await killed(place, where, workflow, left, chance))
                said.append(f"{workflow} on {name}: {_summary(rounds)}")
    return said


def _summary(rounds: Sequence[Seen]) -> str:
    ledger, expired, meter = (
        sum(getattr(seen, field) for seen in rounds) for field in ("ledger_tokens", "expired_tokens", "meter_tokens")
    )
    return (
        f"{sum(seen.kills for seen in rounds)} kills over {len(rounds)} runs, all completed, no finished step made again, "
        f"the folders are right; tokens: ledger {ledger}, of which {expired} for attempts that a kill cut off, upstream {meter}"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    for line in asyncio.run(_kills(given.kills, given.seed)):
        print(line)
