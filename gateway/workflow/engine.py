"""The port of the durable engine: what keeps checkpoints, and replays a run from them after a crash.

The rows of `gateway.store.runs` say what runs there are and where each stands; the engine keeps what each step gave, so that
a finished one is not made again. It knows nothing of budgets, people or waiting: a step that waits is a step that takes long.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from gateway.errors import GatewayError
from gateway.runs import JSON

Work = Callable[[], Awaitable[JSON]]
"""The work of one step. What it gives is kept; it is called again after a crash that came before that."""


class Checkpoints(Protocol):
    """The steps of one run, or of one branch of it, in the order in which they are asked for.

    That order must be the same whenever the run is replayed; `Diverged` is raised where it is not.
    """

    @property
    def here(self) -> int:
        """The place of the newest step, from 1; 0 before the first. Only `End.again_from` has a use for it."""
        ...

    async def step(self, name: str, work: Work) -> JSON:
        """What the work gives, or gave before a restart."""
        ...

    async def branches(self, name: str, works: Sequence[Branch], limit: int, generation: int) -> list[End]:
        """Runs each with checkpoints of its own, at most `limit` at once. Those that failed in an earlier generation go on."""
        ...


Branch = Callable[[Checkpoints], Awaitable["End"]]
"""A part of a run with checkpoints of its own."""

Body = Callable[[str, Checkpoints], Awaitable["End"]]
"""What a run does: the id of the run, its checkpoints. It raises nothing but what cancels it."""

Ended = Callable[[str, "End"], None]
"""Told when a run has ended and its end is kept; returns at once."""


@dataclass(frozen=True, slots=True)
class End:
    """How a run or a branch ended. `error` is "" for a success."""

    generation: int
    result: JSON = None
    error: str = ""
    again_from: int = 0
    """The place from which a retry goes on: of the step that failed, or behind the newest one."""


class Diverged(GatewayError):
    """After a restart a run took another way than before it: its code depends on time, chance or something outside a step."""

    def __str__(self) -> str:
        return (
            "after a restart the run took another way than before it: what depends on the time, on chance or on the world "
            f"outside belongs into a step of its own ({super().__str__()})"
        )


@dataclass(frozen=True, slots=True)
class Known:
    """What the engine has of a run: whether it is going on, and its end if it has one."""

    active: bool
    end: End | None


class Engine(Protocol):
    """One per process. It runs only what it was told to run."""

    async def open(self, body: Body, ended: Ended) -> None:
        """Makes its tables if they are not there, and takes work from now on."""
        ...

    async def start(self, run: str) -> None:
        """Begins a run. One that the engine has is left alone."""
        ...

    async def adopt(self, worker: str, runs: Collection[str]) -> None:
        """Goes on here with these runs of a worker that is dead, from their checkpoints; begins those that the engine lacks.

        Those that have ended are left as they are.
        """
        ...

    async def retry(self, run: str) -> None:
        """Goes on with a failed run from the step that failed; begins one that the engine lacks."""
        ...

    async def cancel(self, run: str) -> None:
        """Stops a run for good, and returns when nothing of it runs any more."""
        ...

    async def known(self, runs: Collection[str]) -> Mapping[str, Known]:
        """What the engine has of these runs; those that it lacks are left out."""
        ...

    def running(self) -> Collection[str]:
        """The runs that go on in this process."""
        ...

    async def suspend(self) -> None:
        """Stops everything that runs here, as a crash would: another worker, or the next start, may go on with it."""
        ...

    def resume(self) -> None:
        """Takes work again after a suspension."""
        ...

    async def prune(self, runs: Collection[str]) -> None:
        """Forgets ended runs."""
        ...

    async def close(self) -> None:
        """Suspends, and lets go of the database."""
        ...
