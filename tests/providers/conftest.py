"""Every test of a wire format runs over real HTTP, on the client that the product uses."""

from collections.abc import AsyncIterator, Callable

import pytest

from gateway.providers import Provider
from gateway.providers.http import HttpClient
from gateway.providers.lean import LeanClient
from tests.doubles.upstream import Upstream
from tests.providers import calls


@pytest.fixture
async def upstream() -> AsyncIterator[Upstream]:
    async with Upstream() as server:
        yield server


@pytest.fixture
async def http() -> AsyncIterator[HttpClient]:
    client = LeanClient()
    yield client
    await client.close()


@pytest.fixture(params=["openai", "anthropic"])
def api(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def make(upstream: Upstream, http: HttpClient) -> Callable[..., Provider]:
    """`make(api, **settings)`: a provider that calls the scripted upstream."""

    def made(api: str = "openai", **more: object) -> Provider:
        base_url = str(more.pop("base_url", upstream.base_url))
        return calls.provider(api, base_url, http, **more)

    return made
