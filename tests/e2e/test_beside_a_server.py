"""Commands beside a running server, each an operating-system process of its own on the same SQLite file."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import aiohttp

from tests.doubles.upstream import Upstream
from tests.e2e.rig import Gateway, GatewayProcess, budget, chat_body, config, provider


async def sluicegate(folder: Path, *arguments: str) -> Any:
    """One command with `--json`: its document."""
    command = (sys.executable, "-m", "gateway", *arguments, "--json", "--config", str(folder / "sluicegate.toml"))
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    output, _ = await asyncio.wait_for(process.communicate(), 20)
    assert process.returncode == 0
    return json.loads(output)


async def test_a_raise_is_seen_by_another_process_within_a_second_and_ends_by_itself(tmp_path: Path, up: Upstream) -> None:
    text = config(provider("moonshot", up), budget("calls", provider="moonshot", requests=1, per="day"), chain=["moonshot"])
    async with Gateway(tmp_path, text) as books:
        key = books.keys["user"]
    async with GatewayProcess(tmp_path / "sluicegate.toml", {}) as server, aiohttp.ClientSession() as session:

        async def status() -> int:
            headers = {"Authorization": f"Bearer {key}"}
            async with session.post(f"{server.base}/v1/chat/completions", json=chat_body(), headers=headers) as response:
                return response.status

        assert [await status(), await status()] == [200, 429]
        raised = await sluicegate(tmp_path, "budgets", "raise", "calls", "+1", "--for", "8s")
        await asyncio.sleep(1)
        assert [await status(), await status()] == [200, 429]
        assert raised["budgets"][0]["limit"] == 2
        lowered = await sluicegate(tmp_path, "budgets", "raise", "calls", "=300k", "--for", "1s")
        assert lowered["budgets"][0]["limit"] == 300_000
        await asyncio.sleep(2)
        assert await status() == 429
        history = (await sluicegate(tmp_path, "budgets", "history", "calls"))["history"]
        assert [(entry["operation"], entry["amount"]) for entry in history] == [("=", 300_000), ("+", 1)]
        assert all(entry["actor"].startswith("cli:") and entry["ends_at"] for entry in history)

        made = await sluicegate(tmp_path, "keys", "create", "late")
        key = made["key"]
        assert await status() == 429
        await sluicegate(tmp_path, "keys", "revoke", "late")
        await asyncio.sleep(1)
        assert await status() == 401
        assert (await sluicegate(tmp_path, "ledger", "check"))["ok"]
    assert up.meter.requests == 2
