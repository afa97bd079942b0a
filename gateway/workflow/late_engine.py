"""The engine, made when it is first needed: its libraries take a second and 27 MB, and many a process never runs a workflow."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from importlib import import_module

from gateway.store.executors import engine_database
from gateway.workflow.engine import Body, Ended, Engine, Known


class LateEngine:
    """As Engine. Until there is something to run, nothing runs here, so there is nothing to stop either."""

    def __init__(self, make: Callable[[], Awaitable[Engine]]) -> None:
        self._make = make
        self._made: Engine | None = None
        self._making = asyncio.Lock()
        self._body: Body | None = None
        self._ended: Ended | None = None

    async def open(self, body: Body, ended: Ended) -> None:
        """As Engine.open, when the time comes."""
        self._body, self._ended = body, ended

    async def start(self, run: str) -> None:
        """As Engine.start."""
        await (await self._engine()).start(run)

    async def adopt(self, worker: str, runs: Collection[str]) -> None:
        """As Engine.adopt."""
        await (await self._engine()).adopt(worker, runs)

    async def retry(self, run: str) -> None:
        """As Engine.retry."""
        await (await self._engine()).retry(run)

    async def cancel(self, run: str) -> None:
        """As Engine.cancel."""
        await (await self._engine()).cancel(run)

    async def known(self, runs: Collection[str]) -> Mapping[str, Known]:
        """As Engine.known."""
        return await (await self._engine()).known(runs)

    def running(self) -> Collection[str]:
        """As Engine.running."""
        return () if self._made is None else self._made.running()

    async def suspend(self) -> None:
        """As Engine.suspend."""
        if self._made is not None:
            await self._made.suspend()

    def resume(self) -> None:
        """As Engine.resume."""
        if self._made is not None:
            self._made.resume()

    async def prune(self, runs: Collection[str]) -> None:
        """As Engine.prune."""
        await (await self._engine()).prune(runs)

    async def close(self) -> None:
        """As Engine.close."""
        async with self._making:
            if self._made is not None:
                await self._made.close()

    async def _engine(self) -> Engine:
        async with self._making:
            if self._made is None:
                assert self._body is not None, "not opened"
                assert self._ended is not None, "not opened"
                made = await self._make()
                await made.open(self._body, self._ended)
                self._made = made
            return self._made


async def dbos(database_url: str, worker: str) -> Engine:
    """A worker's real engine, beside the database. Its libraries are heavy, and the loop goes on while they are read."""
    await asyncio.to_thread(import_module, "gateway.workflow.dbos_engine")
    from gateway.workflow.dbos_engine import DbosEngine

    return DbosEngine(await asyncio.to_thread(engine_database, database_url), worker)
