"""The story that this product exists for: a provider's hour, used up beyond a limit that was lowered, a restart, and a burst."""

import asyncio
import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.doubles.clock import SettableClock
from tests.doubles.upstream import Script, Upstream
from tests.e2e.rig import Gateway, budget, config, provider

NOON = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
REPLY = 16_924


def text(up: Upstream, tokens: int) -> str:
    hour = budget("moonshot-hour", provider="moonshot", tokens=tokens, per="rolling 1h")
    return config(provider("moonshot", up, max_attempts=3, max_output_tokens=32_000), hour, chain=["moonshot"])


async def test_production_story_a_lowered_hour_a_restart_a_burst_and_a_stream(tmp_path: Path, up: Upstream) -> None:
    """An hour of 250,000 tokens standing at 300,000; three attempts each; zero calls, zero tokens, each refusal explained."""
    up.queue.append(Script(prompt_tokens=2, output_tokens=299_998, ignore_limit=True))
    up.default = Script(pieces=REPLY)
    async with Gateway(tmp_path, text(up, 400_000), SettableClock(NOON)) as gateway:
        assert (await gateway.chat()).status == 200
        assert (await gateway.budget("moonshot-hour"))["spent"] == 300_000
        calls, tokens = up.meter.requests, up.meter.tokens

        await gateway.restart(text(up, 250_000))
        standing = await gateway.budget("moonshot-hour")
        assert (standing["limit"], standing["spent"], standing["held"], standing["left"]) == (250_000, 300_000, 0, 0)

        burst = await asyncio.gather(
            *(gateway.chat(stream=bool(number % 2), key="admin" if number % 3 else "user") for number in range(30)),
            gateway.chat(stream=True, max_tokens=REPLY),
            gateway.chat(stream=True, max_tokens=REPLY, content="word " * 5_000),
        )
        for answer in burst:
            assert (answer.status, answer.error["code"]) == (429, "budget_exhausted")
            assert answer.error["resets_at"] == "2026-03-02T13:01:00Z"
            assert answer.headers["x-should-retry"] == "false"
            assert "retry-after" not in answer.headers
        assert (up.meter.requests - calls, up.meter.tokens - tokens) == (0, 0)
        assert (await gateway.budget("moonshot-hour")) == standing

        # The official client makes one request and raises once: nobody hammers by itself.
        before = await gateway.answers()
        async with openai.AsyncOpenAI(base_url=f"{gateway.base}/v1", api_key=gateway.keys["user"]) as client:
            question: Any = [{"role": "user", "content": "hello"}]
            with pytest.raises(openai.RateLimitError) as caught:
                await client.chat.completions.create(model="moonshot", messages=question, stream=True, max_tokens=REPLY)
        assert caught.value.code == "budget_exhausted"
        assert await gateway.answers() - before == 1
        assert (up.meter.requests - calls, up.meter.tokens - tokens) == (0, 0)

        for answer in (burst[0], burst[1], burst[-1]):
            told = await why(gateway, answer.error["request_id"])
            assert told["slots"]
            for slot in told["slots"]:
                assert (slot["provider"], slot["verdict"], slot["outcome"]) == ("moonshot", "refused", "not called")
                (line,) = slot["budgets"]
                assert (line["name"], line["limit"], line["spent"], line["held"]) == ("moonshot-hour", 250_000, 300_000, 0)
                assert line["asked"] > 0


async def why(gateway: Gateway, request_id: str) -> dict[str, Any]:
    """`sluicegate why`, as an operator runs it beside the server."""
    command = (sys.executable, "-m", "gateway", "why", request_id, "--json", "--config", str(gateway.folder / "sluicegate.toml"))
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    output, _ = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 0
    told: dict[str, Any] = json.loads(output)
    return told
