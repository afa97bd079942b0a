"""What the tests of the worker share."""

from collections.abc import AsyncIterator

import pytest

from tests.doubles.upstream import Script, Upstream


@pytest.fixture
async def up() -> AsyncIterator[Upstream]:
    """A scripted upstream that says five words."""
    async with Upstream(Script(pieces=5)) as upstream:
        yield upstream
