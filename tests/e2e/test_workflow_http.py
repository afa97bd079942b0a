"""A workflow from HTTP to its end: a model, a question, a restart, a signal; followed all the way, and stopped."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from tests.doubles.upstream import Upstream
from tests.e2e.rig import Gateway, config, provider

ROLES = frozenset({"web", "worker"})
PATIENCE_S = 60
WORKFLOWS = {
    "story": '''
    said = await ctx.ask(f"Something about {topic}", name="draft", max_tokens=20)
    if not await ctx.approve("Publish it?", name="publish"):
        return "kept"
    word = await ctx.wait_for("go")
    await ctx.write("out.txt", said)
    return f"published, {word['word']}"
''',
    "stuck": '''
    await ctx.shell(["sleep", "600"], name="wait")
    return topic
''',
}  # fmt: skip


def write_workflows(folder: Path) -> None:
    """Beside the configuration."""
    (folder / "workflows").mkdir(parents=True)
    for name, body in WORKFLOWS.items():
        head = "from gateway.workflow import Caps, Context, workflow\n\n\n@workflow(budget=Caps(tokens=10_000))\n"
        (folder / "workflows" / f"{name}.py").write_text(f"{head}async def {name}(ctx: Context, topic: str) -> str:\n{body}")


class Follower:
    """The events of one run, over as many connections as it takes."""

    def __init__(self, gateway: Gateway, run: str) -> None:
        self._gateway, self._run = gateway, run
        self.seen: list[dict[str, Any]] = []

    @property
    def last(self) -> int:
        return self.seen[-1]["seq"] if self.seen else 0

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[aiohttp.ClientResponse]:
        headers = {"Authorization": f"Bearer {self._gateway.keys['user']}", "Last-Event-ID": str(self.last)}
        url = f"{self._gateway.base}/api/runs/{self._run}/events"
        async with aiohttp.ClientSession() as session, session.get(url, headers=headers) as response:
            yield response

    async def until(self, **wanted: Any) -> None:
        """Reads on, on a new connection, until an event has these fields."""
        async with asyncio.timeout(PATIENCE_S), self.connected() as response:
            assert response.status == 200
            while True:
                block = (await response.content.readuntil(b"\n\n")).decode()
                if block.startswith(":"):
                    continue
                self.seen.append(json.loads(block.split("data: ", 1)[1]))
                if wanted.items() <= self.seen[-1].items():
                    return


async def start(gateway: Gateway, workflow: str) -> str:
    answer = await gateway.call("POST", f"/api/workflows/{workflow}/runs", json={"topic": "tides"})
    assert answer.status == 202, answer.body
    return str(answer.json["id"])


async def test_case_57_a_run_is_followed_answered_after_a_restart_and_told_to_go_on(
    tmp_path: Path, up: Upstream, empty_database: str
) -> None:
    write_workflows(tmp_path)
    text = config(provider("moonshot", up, price={"input": 100, "output": 100}), chain=["moonshot"])
    async with Gateway(tmp_path, text, database_url=empty_database, roles=ROLES) as gateway:
        async with asyncio.timeout(PATIENCE_S):
            while (ready := await gateway.call("GET", "/readyz", key=None)).status != 200:
                assert ready.json["engine"] is False
        assert ready.json == {"status": "ready", "database": True, "engine": True}
        run = await start(gateway, "story")
        follower = Follower(gateway, run)
        await follower.until(event="state", state="waiting_approval")
        shown = (await gateway.call("GET", f"/api/runs/{run}")).json
        (row,) = await gateway.rows()
        assert (row["workflow"], row["run"], row["step"], row["user"], row["surface"]) == (
            "story",
            run,
            "draft",
            "user",
            "http",
        )
        assert (shown["state"], shown["cost_micro_usd"]) == ("waiting_approval", int(row["cost_micro_usd"]))
        assert [(step["name"], step["state"]) for step in shown["steps"]] == [("draft", "succeeded"), ("publish", "waiting")]
        assert shown["steps"][0]["cost_micro_usd"] == shown["cost_micro_usd"] > 0
        (question,) = shown["approvals"]
        assert (question["question"], question["who"]) == ("Publish it?", ["starter", "admins"])

        await gateway.restart()
        approved = await gateway.call("POST", f"/api/runs/{run}/approve")
        assert (approved.status, approved.json["approval"]["by"]) == (200, "http:user")
        assert (await gateway.call("POST", f"/api/runs/{run}/reject", json={"approval": question["id"]})).status == 409
        await follower.until(event="state", state="waiting")
        assert (await gateway.call("POST", f"/api/runs/{run}/signals/go", json={"word": "hooray"})).status == 202
        await follower.until(event="state", state="succeeded")
        assert [event["seq"] for event in follower.seen] == list(range(1, follower.last + 1)), "nothing missed, nothing twice"
        async with follower.connected() as response:
            assert response.status == 204
        assert (await gateway.call("GET", f"/api/runs/{run}")).json["result"] == "published, hooray"
        assert up.meter.requests == 1


async def test_a_run_in_a_program_that_hangs_is_cancelled_over_http(tmp_path: Path, up: Upstream) -> None:
    write_workflows(tmp_path)
    text = config(provider("moonshot", up), chain=["moonshot"])
    async with Gateway(tmp_path, text, roles=ROLES) as gateway:
        run = await start(gateway, "stuck")
        follower = Follower(gateway, run)
        await follower.until(event="step", name="wait", state="running")
        answer = await gateway.call("POST", f"/api/runs/{run}/cancel")
        assert (answer.status, answer.json["wanted"]) == (202, "cancel")
        await follower.until(event="state", state="cancelled")
        shown = (await gateway.call("GET", f"/api/runs/{run}")).json
        assert [(step["name"], step["state"]) for step in shown["steps"]] == [("wait", "cancelled")]
        assert (await gateway.call("POST", f"/api/runs/{run}/cancel")).status == 202, "twice is once"
