"""The providers against a server that we did not write: `llmock`, which breaks answers in both wire formats."""

import asyncio
import socket
import sys
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from gateway.chat import Request
from gateway.errors import ProviderError, Refused, Unanswered
from gateway.providers import Provider
from gateway.providers.http import HttpClient
from tests.providers import calls
from tests.providers.calls import collect, reservation, text


@pytest.fixture(scope="module")
def port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@pytest.fixture
async def root(port: int) -> AsyncIterator[str]:
    command = [sys.executable, "-c", "from llmock.cli import app; app()", "serve", "-h", "127.0.0.1", "-p", str(port)]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL)
    root = f"http://127.0.0.1:{port}"
    try:
        async with asyncio.timeout(100), aiohttp.ClientSession() as session:
            while not await _answers(session, root):  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        yield root
    finally:
        process.kill()
        await process.wait()


async def _answers(session: aiohttp.ClientSession, root: str) -> bool:
    try:
        async with session.get(f"{root}/_llmock/scenario") as response:
            return response.status == 200
    except aiohttp.ClientConnectorError:
        return False


async def _script(root: str, **behavior: Any) -> None:
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{root}/_llmock/scenario", json={"behaviors": [behavior]}) as got,
    ):
        assert got.status == 201


async def test_answers_and_faults(root: str, http: HttpClient, api: str) -> None:
    hasty = {"first_token_timeout_s": 3, "idle_timeout_s": 3}
    model = "gpt-4o" if api == "openai" else "claude-sonnet-4-5"
    provider: Provider = calls.provider(api, f"{root}/v1" if api == "openai" else f"{root}/anthropic", http, **hasty)
    ask, asked = reservation(model=model), Request([{"role": "user", "content": f"tell me about {api}"}])

    whole = await provider.complete(asked, ask)
    chunks = await collect(provider.stream(asked, ask))
    assert whole.text
    assert text(chunks)
    assert whole.usage is not None
    assert chunks[-1].usage is not None
    assert whole.usage.prompt > 0

    for status, kind in ((429, Refused), (500, Refused), (503, Refused), (401, Refused)):
        await _script(root, type="fail", status=status, **({"retry_after": 7} if status == 429 else {}))
        with pytest.raises(ProviderError) as caught:
            await provider.complete(asked, ask)
        assert (type(caught.value), caught.value.status) == (kind, status)
        assert status != 429 or caught.value.retry_after_s == 7.0

    for fault in ("disconnect", "truncate", "stall", "malformed"):
        await _script(root, type="stream_fault", kind=fault, after_chunks=2, stall_seconds=60)
        with pytest.raises(Unanswered):
            await collect(provider.stream(asked, ask))
