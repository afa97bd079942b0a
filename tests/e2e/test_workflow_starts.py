"""Starting workflows in three operating-system processes at once: a key is one run, whoever is asked and however often."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import aiohttp

from tests.doubles.upstream import Upstream
from tests.e2e.rig import Gateway, GatewayProcess, config, provider

KEYS = 50
WORKFLOW = '''
"""What a test starts."""
from gateway.workflow import workflow


@workflow
async def hello(ctx: object, number: int) -> str:
    """Says a number."""
    return str(number)
'''


async def test_case_53_the_same_50_keys_in_three_processes_are_50_runs(tmp_path: Path, up: Upstream, empty_database: str) -> None:
    (tmp_path / "workflows").mkdir()
    (tmp_path / "workflows" / "hello.py").write_text(WORKFLOW)
    text, environ = config(provider("moonshot", up), chain=["moonshot"]), {"DATABASE_URL": empty_database}
    async with Gateway(tmp_path, text, database_url=empty_database) as first, AsyncExitStack() as stack:
        others = [GatewayProcess(tmp_path / "sluicegate.toml", environ) for _ in range(2)]
        await asyncio.gather(*(stack.enter_async_context(other) for other in others))
        session = await stack.enter_async_context(aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)))
        secret = first.keys["user"]

        async def start(base: str, number: int, key: int) -> tuple[int, int, str]:
            headers = {"Authorization": f"Bearer {secret}", "Idempotency-Key": f"order {key}"}
            path = f"{base}/api/workflows/hello/runs"
            async with session.post(path, json={"number": number}, headers=headers) as response:
                body = await response.json()
                return response.status, key, body.get("id", "")

        bases = [first.base, *(other.base for other in others)]
        calls = [start(base, key, key) for key in range(KEYS) for base in bases]
        answers = await asyncio.gather(*calls)
        assert {status for status, _, _ in answers} == {202}
        assert len({(key, run) for _, key, run in answers}) == KEYS, "each process gave the same run for a key"
        listed = (await first.call("GET", "/api/runs?limit=200")).json["runs"]
        assert {run["id"] for run in listed} == {run for _, _, run in answers}
        assert sorted(run["params"]["number"] for run in listed) == list(range(KEYS))
        conflicts = await asyncio.gather(*(start(base, 99, key) for key, base in enumerate(bases)))
        assert [status for status, _, _ in conflicts] == [409] * len(bases)
        assert len((await first.call("GET", "/api/runs?limit=200")).json["runs"]) == KEYS
    assert up.meter.requests == 0
