"""The scripted upstream is itself checked: what it says, what it bills, and when it sees a client leave."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator

import aiohttp
import pytest

from tests.doubles.own_time import within
from tests.doubles.upstream import Script, Upstream

ASK = {"model": "m", "messages": [{"role": "user", "content": "one two three"}]}


@pytest.fixture
async def upstream() -> AsyncIterator[Upstream]:
    async with Upstream() as server:
        yield server


@pytest.fixture
async def client() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


async def test_it_bills_what_it_says(upstream: Upstream, client: aiohttp.ClientSession) -> None:
    upstream.queue.append(Script(pieces=20))
    async with client.post(f"{upstream.base_url}/chat/completions", json={**ASK, "max_tokens": 7}) as response:
        body = await response.json()
    assert body["choices"][0]["finish_reason"] == "length"
    assert body["usage"] == {"prompt_tokens": 3, "completion_tokens": 7, "total_tokens": 10}
    assert upstream.meter.tokens == 10
    assert upstream.meter.by_model == {"m": {"requests": 1, "tokens": 10}}


async def test_a_stream_in_both_formats(upstream: Upstream, client: aiohttp.ClientSession) -> None:
    asked = {**ASK, "stream": True, "stream_options": {"include_usage": True}, "max_tokens": 50}
    async with client.post(f"{upstream.base_url}/chat/completions", json=asked) as response:
        events = [json.loads(line[6:]) for line in (await response.text()).split("\n\n") if line and "[DONE]" not in line]
    assert "".join(e["choices"][0]["delta"].get("content", "") for e in events if e["choices"]) == "w0 w1 w2 w3 w4 "
    assert events[-1]["usage"]["total_tokens"] == 8
    async with client.post(f"{upstream.base_url}/messages", json=asked) as response:
        text = await response.text()
    assert text.count("event: content_block_delta") == 5
    assert text.rstrip().endswith('{"type": "message_stop"}')
    assert upstream.meter.tokens == 16


async def test_it_sees_a_client_leave(upstream: Upstream, client: aiohttp.ClientSession) -> None:
    upstream.default = Script(stall="headers")
    call = asyncio.ensure_future(client.post(f"{upstream.base_url}/chat/completions", json=ASK))
    await upstream.until(lambda: upstream.meter.open_now == 1)
    async with within(1):
        call.cancel()
        await upstream.until(lambda: upstream.meter.client_left == 1)
    assert upstream.seen[0].client_left is not None
    assert upstream.meter.tokens == 0


async def test_the_gate_holds_until_released(upstream: Upstream, client: aiohttp.ClientSession) -> None:
    upstream.default = Script(gate=True)
    calls = [asyncio.ensure_future(client.post(f"{upstream.base_url}/chat/completions", json=ASK)) for _ in range(3)]
    await upstream.until(lambda: upstream.meter.waiting == 3)
    assert upstream.meter.tokens == 0
    upstream.release()
    assert [response.status for response in await asyncio.gather(*calls)] == [200] * 3


async def test_as_an_own_process_it_is_driven_over_http(client: aiohttp.ClientSession) -> None:
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "tests.doubles.upstream", stdout=asyncio.subprocess.PIPE)
    try:
        assert process.stdout is not None
        port = int((await asyncio.wait_for(process.stdout.readline(), 60)).split()[1])
        root = f"http://127.0.0.1:{port}"
        async with client.post(f"{root}/__script", json={"queue": [{"text": "hi there"}]}) as response:
            assert response.status == 200
        async with client.post(f"{root}/v1/chat/completions", json=ASK) as response:
            assert (await response.json())["choices"][0]["message"]["content"] == "hi there"
        async with client.get(f"{root}/__meter") as response:
            assert (await response.json())["tokens"] == 5
    finally:
        process.kill()
        await process.wait()
