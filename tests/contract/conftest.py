"""The worlds in which every promise of the contract is tried."""

from collections.abc import AsyncIterator

import pytest

from tests.contract.world import DatabaseWorld, MemoryWorld, World


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
async def world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    if request.param == "memory":
        made: World = MemoryWorld()
    else:
        made = DatabaseWorld(request.getfixturevalue("sqlite_url" if request.param == "sqlite" else "postgres_url"))
    yield made
    await made.close()
