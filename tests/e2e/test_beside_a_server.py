"""Commands beside a running server, each an operating-system process of its own on the same SQLite file."""

import asyncio
import json
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import aiohttp

from gateway.clock import SystemClock
from tests.doubles.own_time import within
from tests.doubles.upstream import Upstream
from tests.e2e.rig import Gateway, GatewayProcess, budget, chat_body, config, provider


async def sluicegate(folder: Path, *arguments: str) -> Any:
    """One command with `--json`: its document."""
    command = (sys.executable, "-m", "gateway", *arguments, "--json", "--config", str(folder / "sluicegate.toml"))
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    output, _ = await asyncio.wait_for(process.communicate(), 60)
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
        raised = await sluicegate(tmp_path, "budgets", "raise", "calls", "+1", "--for", "1h")
        async with within(1):
            while await status() == 429:  # noqa: ASYNC110 - another program's state
                await asyncio.sleep(0.05)
        assert await status() == 429
        assert raised["budgets"][0]["limit"] == 2
        short = await sluicegate(tmp_path, "budgets", "raise", "calls", "=300k", "--for", "3s")
        assert short["budgets"][0]["limit"] == 300_000
        ends = datetime.fromisoformat(short["ends_at"])
        await asyncio.sleep(max(0, (ends - SystemClock().now()).total_seconds()) + 0.1)
        assert await status() == 429
        history = (await sluicegate(tmp_path, "budgets", "history", "calls"))["history"]
        assert [(entry["operation"], entry["amount"]) for entry in history] == [("=", 300_000), ("+", 1)]
        assert all(entry["actor"].startswith("cli:") and entry["ends_at"] for entry in history)

        made = await sluicegate(tmp_path, "keys", "create", "late")
        key = made["key"]
        assert await status() == 429
        await sluicegate(tmp_path, "keys", "revoke", "late")
        async with within(1):
            while await status() != 401:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        assert (await sluicegate(tmp_path, "ledger", "check"))["ok"]
    assert up.meter.requests == 2
