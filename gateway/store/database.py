"""One database, SQLite or PostgreSQL: the engine, the writer thread and the reading threads.

Work is a plain function of a SQLAlchemy connection; it runs in a thread, in one transaction. All writes of a process
pass one writer, which commits what waits together.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, create_engine, event, make_url
from sqlalchemy.engine import URL

from gateway.store.faults import is_lost, is_unavailable, unavailable
from gateway.store.tables import metadata
from gateway.store.writer import Group, Job, Writer

T = TypeVar("T")

READERS = 4
BUSY_TIMEOUT_S = 3
"""How long a transaction waits for another process before the ledger counts as unavailable."""
CONNECT_TIMEOUT_S = 3
BY_KEY = "-c enable_seqscan=off -c enable_hashjoin=off -c enable_mergejoin=off"
"""For the writer on PostgreSQL, whose statements find their rows by key. A plan that was made while a table was small, and
kept, reads it all: a few milliseconds more per transaction for every ten thousand rows."""


class Database:
    """Opened with a `sqlite:///` or `postgresql+psycopg://` URL. The URL is never shown: it may hold a password.

    Nothing is connected before the first use. Belongs to one event loop at a time.
    """

    def __init__(self, url: str) -> None:
        self._url = make_url(url)
        self._engine = make_engine(self._url)
        self._writing = self._engine if self.is_sqlite else make_engine(self._url, BY_KEY)
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="ledger-reader")
        self._writer = Writer(self._connect_writer)

    @property
    def is_sqlite(self) -> bool:
        """True for SQLite, false for PostgreSQL."""
        return self._engine.dialect.name == "sqlite"

    async def read(self, work: Callable[[Connection], T]) -> T:
        """Runs `work` in a reading thread, in one snapshot. Raises LedgerUnavailable when the database cannot be used."""
        return await asyncio.get_running_loop().run_in_executor(self._readers, self._read, work)

    async def write(self, work: Callable[[Connection], T]) -> T:
        """Runs `work` in the writer's next transaction, by itself undone if it raises; returns after the commit.

        Raises what `work` raises, or LedgerUnavailable. `work` may run more than once (a conflict with another
        process undoes it first), so it must touch nothing but its connection.
        """
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._writer.submit(Job(future, work=work))
        return await future

    def join(self, group: Group, member: Any, patient: bool = False) -> asyncio.Future[Any]:
        """Adds a member to a group's part of the writer's next transaction; resolved after the commit."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._writer.submit(Job(future, group=group, member=member, patient=patient))
        return future

    def insist(self, work: Callable[[Connection], object]) -> asyncio.Future[Any]:
        """As `write`, but kept and tried again while the database is gone: the future is then resolved before it is done."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._writer.submit(Job(future, work=work, patient=True))
        return future

    @property
    def disturbed(self) -> int:
        """As Writer.disturbed."""
        return self._writer.disturbed

    def create_tables(self) -> None:
        """Makes every table: for tests. The product uses alembic."""
        with self._engine.begin() as connection:
            metadata.create_all(connection)
        self._engine.dispose()

    async def close(self) -> None:
        """Ends the threads after what waits is written."""
        self._writer.hand_over()
        await asyncio.get_running_loop().run_in_executor(self._readers, self._writer.stop)
        self._readers.shutdown()
        self._engine.dispose()
        self._writing.dispose()

    def _connect_writer(self) -> Connection:
        return self._writing.connect().execution_options(writes=True)

    def _read(self, work: Callable[[Connection], T]) -> T:
        try:
            try:
                return self._read_once(work)
            except Exception as error:
                if not is_lost(error):
                    raise
                return self._read_once(work)
        except Exception as error:
            if is_unavailable(error):
                raise unavailable(error) from None
            raise

    def _read_once(self, work: Callable[[Connection], T]) -> T:
        with self._engine.connect() as connection:
            if not self.is_sqlite:
                connection = connection.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
            with connection.begin():
                return work(connection)


def make_engine(url: URL, options: str = "") -> Engine:
    """An engine with the settings that the ledger needs: durable commits, bounded waits, explicit BEGIN on SQLite.

    `options` are further ones for PostgreSQL.
    """
    if url.get_backend_name() == "sqlite":
        return _sqlite_engine(url)
    arguments = {
        "connect_timeout": CONNECT_TIMEOUT_S,
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "keepalives_count": 3,
        "tcp_user_timeout": 10_000,
        "options": f"-c lock_timeout={BUSY_TIMEOUT_S}s -c idle_in_transaction_session_timeout=60s {options}",
        "application_name": "sluicegate",
    }
    return create_engine(url, connect_args=arguments, pool_size=READERS + 1, hide_parameters=True)


def _sqlite_engine(url: URL) -> Engine:
    if url.database:
        Path(url.database).parent.mkdir(parents=True, exist_ok=True)
    arguments = {"timeout": BUSY_TIMEOUT_S, "check_same_thread": False, "cached_statements": 512}
    engine = create_engine(url, connect_args=arguments, pool_size=READERS + 1, hide_parameters=True)

    @event.listens_for(engine, "connect")
    def set_up(driver_connection: Any, _record: object) -> None:
        # The driver's own BEGIN comes late and deferred: two writers would then fail instead of waiting in turn.
        driver_connection.isolation_level = None
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", "wal_autocheckpoint=4000"):
            driver_connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        writes = connection.get_execution_options().get("writes", False)
        # Straight to the driver: this runs once per transaction of the gate.
        driver: Any = connection.connection.driver_connection
        driver.execute("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine
