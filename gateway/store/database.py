"""One database, SQLite or PostgreSQL: the engine, the writer thread and the reading threads.

Work is a plain function of a SQLAlchemy connection; it runs in a thread, in one transaction. All writes of a process
pass one writer, which commits what waits together.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from sqlalchemy import Connection

T = TypeVar("T")


class Database:
    """Opened with a `sqlite:///` or `postgresql+psycopg://` URL. The URL is never shown: it may hold a password."""

    def __init__(self, url: str) -> None:
        raise NotImplementedError

    async def read(self, work: Callable[[Connection], T]) -> T:
        """Runs `work` in a reading thread. Raises LedgerUnavailable when the database cannot be used."""
        raise NotImplementedError

    async def write(self, work: Callable[[Connection], T]) -> T:
        """Runs `work` in the writer's next transaction, by itself undone if it raises; returns after the commit."""
        raise NotImplementedError

    def create_tables(self) -> None:
        """Makes every table: for tests. The product uses alembic."""
        raise NotImplementedError

    async def close(self) -> None:
        """Ends the threads after what waits is written."""
        raise NotImplementedError
