"""What the end-to-end tests share."""

from collections.abc import AsyncIterator
from pathlib import Path

import psycopg
import pytest

from tests.doubles.upstream import Upstream


@pytest.fixture
async def up() -> AsyncIterator[Upstream]:
    """A scripted upstream with its own meter."""
    async with Upstream() as upstream:
        yield upstream


@pytest.fixture
async def other() -> AsyncIterator[Upstream]:
    """A second one."""
    async with Upstream() as upstream:
        yield upstream


@pytest.fixture(params=["sqlite", "postgresql"])
def empty_database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a database without tables, on SQLite and on PostgreSQL: the program makes them, as it does for a user."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/empty.db"
    url: str = request.getfixturevalue("postgres_url")
    with psycopg.connect(url.replace("postgresql+psycopg://", "postgresql://"), autocommit=True) as connection:
        connection.execute("DROP SCHEMA public CASCADE")
        connection.execute("CREATE SCHEMA public")
    return url
