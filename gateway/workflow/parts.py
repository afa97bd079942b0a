"""What a run in work uses of the house."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path

from gateway.clock import Clock
from gateway.dispatcher import Dispatcher
from gateway.settings import Settings
from gateway.store.ledger_store import LedgerStore
from gateway.store.runs import Runs
from gateway.workflow.catalogue import Catalogue
from gateway.workflow.waits import Waits


class Calls:
    """The calls of models that are out: a stop waits a moment for their answers, since they are paid for."""

    def __init__(self) -> None:
        self._count = 0
        self._none = asyncio.Event()
        self._none.set()

    def __enter__(self) -> None:
        self._count += 1
        self._none.clear()

    def __exit__(self, *_: object) -> None:
        self._count -= 1
        if not self._count:
            self._none.set()

    async def ended(self) -> None:
        """Returns when none is out."""
        await self._none.wait()


@dataclass(frozen=True)
class Parts:
    """One per process."""

    dispatcher: Dispatcher
    store: LedgerStore
    runs: Runs
    settings: Settings
    catalogue: Catalogue
    clock: Clock
    folder: Path
    """The folder with one folder for each run."""
    waits: Waits = field(default_factory=Waits)
    closing: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once the process stops: no step is begun after it."""
    calls: Calls = field(default_factory=Calls)

    @property
    def default_chain(self) -> str:
        """The chain of steps that name none."""
        chains = self.settings.chains
        return "default" if "default" in chains else next(iter(chains), "")
