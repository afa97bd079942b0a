"""The packaged small model, for real: its child process starts with the first call and ends with the parent."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest

from gateway.chat import Request
from gateway.errors import Refused
from gateway.providers import local, local_available
from gateway.providers.lean import LeanClient
from gateway.providers.local import LocalProvider, LocalServer
from gateway.settings import ProviderSettings
from tests.doubles.clock import SettableClock
from tests.providers.calls import collect, reservation, text

needs_model = pytest.mark.skipif(not local_available(), reason=f"the packaged model is {local.missing()}")
QUESTION = Request([{"role": "user", "content": "What is the capital of France?"}])


def provider(server: LocalServer) -> LocalProvider:
    settings = ProviderSettings(name="p", api="local", model="smollm2-135m", first_token_timeout_s=60)
    return LocalProvider(settings, LeanClient(), SettableClock(), server)


@pytest.fixture
async def server() -> AsyncIterator[LocalServer]:
    shared = LocalServer()
    yield shared
    await shared.stop()


@needs_model
async def test_two_providers_share_one_child_which_answers_and_stops(server: LocalServer) -> None:
    first, second = provider(server), provider(server)
    answer, chunks = await asyncio.gather(
        first.complete(QUESTION, reservation(output_tokens=12)),
        collect(second.stream(QUESTION, reservation(output_tokens=12))),
    )
    assert answer.text
    assert answer.model == "smollm2-135m"
    assert answer.usage is not None
    assert 0 < answer.usage.output <= 12
    assert text(chunks)
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.prompt > 10
    child = server.pid
    assert child is not None
    await first.close()
    await second.close()
    assert server.pid is None
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)


@needs_model
async def test_leaving_stops_the_model_and_the_next_call_is_served(server: LocalServer) -> None:
    one = provider(server)
    async with aclosing(one.stream(QUESTION, reservation(output_tokens=1000))) as stream:
        async for chunk in stream:
            if chunk.text:
                break
    assert (await one.complete(QUESTION, reservation(output_tokens=4))).text
    await one.close()


@needs_model
async def test_a_child_that_died_is_started_again(server: LocalServer) -> None:
    one = provider(server)
    await one.complete(QUESTION, reservation(output_tokens=2))
    before = server.pid
    assert before is not None
    os.kill(before, signal.SIGKILL)
    while server.pid is not None:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    assert (await one.complete(QUESTION, reservation(output_tokens=2))).text
    assert server.pid not in (None, before)
    await one.close()


@needs_model
async def test_the_child_dies_with_a_parent_that_is_killed() -> None:
    script = (
        "import asyncio\nfrom gateway.providers.local import LocalServer\n"
        "async def main():\n"
        "    server = LocalServer()\n    await server.ready()\n    print(server.pid, flush=True)\n    await asyncio.sleep(60)\n"
        "asyncio.run(main())\n"
    )
    parent = await asyncio.create_subprocess_exec(sys.executable, "-c", script, stdout=asyncio.subprocess.PIPE)
    assert parent.stdout is not None
    child = int(await asyncio.wait_for(parent.stdout.readline(), 60))
    parent.kill()
    await parent.wait()
    async with asyncio.timeout(30):
        while _alive(child):  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def test_without_the_package_the_call_is_refused_and_says_why(server: LocalServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "_PACKAGES", {"no_such_package": "no-such-package"})
    assert not local_available()
    with pytest.raises(Refused, match="no-such-package") as caught:
        await provider(server).complete(QUESTION, reservation())
    assert not caught.value.sent


def _alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
