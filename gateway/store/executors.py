"""Which workers live: each holds a lock in its own name while it runs, and whoever can take that lock knows it is dead.

On PostgreSQL it is an advisory lock of one connection with keepalives, so that a dead machine's lock comes free; on SQLite an
exclusive lock of a file beside the database. Either goes with the process, whatever way that ends. All of them share one
more lock, so that anybody can see whether there is a worker at all.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import sqlite3
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol, TypeVar

from sqlalchemy import Connection, TextClause, make_url, text
from sqlalchemy.engine import URL

from gateway.errors import LedgerUnavailable
from gateway.store.database import make_engine
from gateway.store.faults import is_unavailable, unavailable

T = TypeVar("T")

_TAKE = text("SELECT pg_try_advisory_lock(hashtextextended('sluicegate-worker:' || :name, 0))")
_GIVE = text("SELECT pg_advisory_unlock(hashtextextended('sluicegate-worker:' || :name, 0))")
_SHARE = text("SELECT pg_advisory_lock_shared(hashtextextended('sluicegate-workers', 0))")
_ALONE = text("SELECT pg_try_advisory_xact_lock(hashtextextended('sluicegate-workers', 0))")


def engine_database(database_url: str) -> str:
    """Where the engine of workflows keeps its checkpoints: on SQLite a file of its own beside the database, ready to be used.

    In one file with the ledger its writes would make the gate's wait; PostgreSQL has room for both.
    """
    url = make_url(database_url)
    if url.get_backend_name() != "sqlite":
        return database_url
    database = Path(url.database or "sluicegate.db")
    path = database.with_name(f"{database.stem}-engine.db")
    path.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
    return f"sqlite:///{path}"


class Executors:
    """The locks of one process. Every method raises LedgerUnavailable when the database cannot be reached."""

    def __init__(self, database_url: str) -> None:
        url = make_url(database_url)
        self._locks: _Locks = _FileLocks(url) if url.get_backend_name() == "sqlite" else _ServerLocks(url)
        # One thread, since a connection's locks are the connection's.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="executor-locks")

    async def take(self, name: str) -> bool:
        """Takes the lock in a name, for this process's own or to see whether another is dead. False when it is held."""
        return await self._call(lambda: self._locks.take(name))

    async def give(self, name: str) -> None:
        """Gives a lock back."""
        await self._call(lambda: self._locks.give(name))

    async def hold(self) -> bool:
        """Whether what was taken is still held: a connection that broke has lost its locks."""
        return await self._call(self._locks.hold)

    async def announce(self) -> None:
        """Says that there is a worker, until this process ends or its connection breaks."""
        await self._call(self._locks.announce)

    async def anybody(self) -> bool:
        """True when some process has announced itself."""
        return await self._call(self._locks.anybody)

    @contextlib.asynccontextmanager
    async def dead(self, name: str) -> AsyncIterator[bool]:
        """True for the length of a `with` block when the worker of that name is dead; nobody else sees it so meanwhile."""
        taken = await self.take(name)
        try:
            yield taken
        finally:
            if taken:
                with contextlib.suppress(LedgerUnavailable):
                    await self.give(name)

    async def close(self) -> None:
        """Gives everything back."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._locks.close)
        self._thread.shutdown(wait=False)

    async def _call(self, work: Callable[[], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)
        except Exception as error:
            if is_unavailable(error):
                raise unavailable(error) from None
            raise


class _Locks(Protocol):
    """Called in one thread."""

    def take(self, name: str) -> bool: ...
    def give(self, name: str) -> None: ...
    def hold(self) -> bool: ...
    def announce(self) -> None: ...
    def anybody(self) -> bool: ...
    def close(self) -> None: ...


class _FileLocks:
    def __init__(self, url: URL) -> None:
        self._database = Path(url.database or "sluicegate.db")
        self._open: dict[str, int] = {}
        self._announced: int | None = None

    def take(self, name: str) -> bool:
        path = self._path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            return False
        self._open[name] = file
        return True

    def give(self, name: str) -> None:
        file = self._open.pop(name, None)
        if file is not None:
            # A name is never used again, so nobody can be about to lock the file that goes.
            self._path(name).unlink(missing_ok=True)
            os.close(file)

    def hold(self) -> bool:
        return True

    def announce(self) -> None:
        if self._announced is None:
            self._announced = self._shared()
            fcntl.flock(self._announced, fcntl.LOCK_SH)

    def anybody(self) -> bool:
        file = self._shared()
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(file)
        return False

    def close(self) -> None:
        for name in list(self._open):
            self.give(name)
        announced, self._announced = self._announced, None
        if announced is not None:
            os.close(announced)

    def _shared(self) -> int:
        path = self._database.with_name(f"{self._database.stem}-workers.lock")
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def _path(self, name: str) -> Path:
        return self._database.with_name(f"{self._database.stem}-worker-{name}.lock")


class _ServerLocks:
    def __init__(self, url: URL) -> None:
        self._engine = make_engine(url)
        self._connection: Connection | None = None

    def take(self, name: str) -> bool:
        return bool(self._ask(_TAKE, name=name))

    def give(self, name: str) -> None:
        self._ask(_GIVE, name=name)

    def hold(self) -> bool:
        if self._connection is None:
            return False
        try:
            self._connection.execute(text("SELECT 1"))
        except Exception as error:
            if not is_unavailable(error):
                raise
            self._drop()
            return False
        return True

    def announce(self) -> None:
        self._ask(_SHARE)

    def anybody(self) -> bool:
        # In a statement of its own: the lock, if it comes, goes with it.
        return not self._ask(_ALONE)

    def close(self) -> None:
        self._drop()
        self._engine.dispose()

    def _ask(self, statement: TextClause, **values: str) -> object:
        if self._connection is None:
            self._connection = self._engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        try:
            return self._connection.execute(statement, values).scalar_one()
        except Exception:
            self._drop()
            raise

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.invalidate()
            connection.close()
