"""kill -9 of the real program in the middle of a stream, on SQLite and PostgreSQL, and another start on the same database.

Afterwards no hold is stuck, the counters equal the rows, the dead call is charged at its worst case, and the question
that was being answered is answered once.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from gateway.clock import SystemClock
from gateway.settings import load
from gateway.store.database import Database
from gateway.store.keys import Keys
from gateway.store.migrations import upgrade
from tests.cli.program import COMMAND, environment
from tests.doubles.botapi import TOKEN, BotApi
from tests.doubles.upstream import Script, Upstream

PERSON = 42
WORST = 300
"""Output tokens that a call holds."""

CONFIG = """
[gateway]
database_url = "{database}"
listen = "127.0.0.1:0"
[telegram]
api_root = "{api}"
admins = [42]
max_reply_tokens = 300
[providers.main]
api = "openai"
base_url = "{upstream}"
model = "m"
price = "free"
max_output_tokens = 300
max_attempts = 1
[chains]
default = ["main"]
[[budgets]]
name = "tokens"
provider = "main"
tokens = 100_000
per = "lifetime"
[[budgets]]
name = "calls"
user = "*"
requests = 100
per = "rolling 1h"
"""


class Program:
    """The gateway as an operating-system process, killed and started at will."""

    def __init__(self, folder: Path, config: str, token: str = "") -> None:
        self.folder = folder
        (folder / "sluicegate.toml").write_text(config)
        self._env = environment(**({"TELEGRAM_BOT_TOKEN": token} if token else {}))
        self._process: asyncio.subprocess.Process | None = None
        self._log = ""
        self._reader: asyncio.Task[None] | None = None
        self.url = ""

    def upgrade(self) -> None:
        """Makes the database, as `db upgrade` does."""
        upgrade(load(self.folder / "sluicegate.toml", self._env).database_url)

    async def key(self) -> str:
        """A new key to ask with."""
        database = Database(load(self.folder / "sluicegate.toml", self._env).database_url)
        try:
            return await Keys(database, SystemClock()).create("kim", admin=False, actor="test")
        finally:
            await database.close()

    async def command(self, *arguments: str) -> tuple[int, str]:
        """Runs a command to its end: exit code and standard output."""
        process = await asyncio.create_subprocess_exec(
            *COMMAND, *arguments, cwd=self.folder, env=self._env, stdout=asyncio.subprocess.PIPE
        )
        out, _ = await process.communicate()
        assert process.returncode is not None
        return process.returncode, out.decode()

    async def document(self, *arguments: str) -> Any:
        """The JSON document of a command that succeeds."""
        code, out = await self.command(*arguments, "--json")
        assert code == 0, out
        return json.loads(out)

    async def start(self) -> None:
        """Returns when it listens."""
        self._process = await asyncio.create_subprocess_exec(
            *COMMAND, "serve", cwd=self.folder, env=self._env, stderr=asyncio.subprocess.PIPE
        )
        assert self._process.stderr is not None
        self._log = ""
        while not (found := re.search(r"listens on (\S+)", self._log)):
            line = await asyncio.wait_for(self._process.stderr.readline(), 60)
            assert line, f"the program ended: {self._log}"
            self._log += line.decode()
        self.url = found[1]
        self._reader = asyncio.create_task(self._read(self._process.stderr))

    async def _read(self, stream: asyncio.StreamReader) -> None:
        while line := await stream.readline():
            self._log += line.decode()

    def send(self, number: signal.Signals) -> None:
        """Sends a signal."""
        assert self._process is not None
        self._process.send_signal(number)

    async def logged(self, text: str) -> None:
        """Waits until it has said this."""
        async with asyncio.timeout(60):
            while text not in self._log:  # noqa: ASYNC110 - another program's words
                await asyncio.sleep(0.02)

    async def end(self, number: signal.Signals) -> int:
        """Sends a signal and waits for the end; returns the exit code."""
        self.send(number)
        return await self.ended()

    async def ended(self) -> int:
        """Waits for the end; returns the exit code."""
        assert self._process is not None
        code = await asyncio.wait_for(self._process.wait(), 60)
        if self._reader is not None:
            await self._reader
        return code

    async def close(self) -> None:
        """Ends what still runs."""
        if self._process is not None and self._process.returncode is None:
            await self.end(signal.SIGKILL)


@contextlib.asynccontextmanager
async def program(folder: Path, url: str, api_url: str, upstream: Upstream, token: str = "") -> AsyncIterator[Program]:
    made = Program(folder, CONFIG.format(database=url, api=api_url, upstream=upstream.base_url), token)
    await asyncio.to_thread(made.upgrade)
    try:
        yield made
    finally:
        await made.close()


@pytest.fixture
def url(empty_url: str) -> str:
    """Both databases, in the form of the configuration."""
    return empty_url.replace("postgresql+psycopg", "postgresql")


async def takes_questions(client: aiohttp.ClientSession, url: str) -> bool:
    """True as long as a new connection is taken."""
    try:
        async with client.get(f"{url}/healthz", headers={"Connection": "close"}):
            return True
    except aiohttp.ClientConnectorError:
        return False
    except aiohttp.ClientError:
        return True


async def held(running: Program) -> dict[str, int]:
    return {one["name"]: one["held"] for one in (await running.document("budgets"))["budgets"]}


async def test_a_stream_over_http_that_is_killed_is_charged_at_its_worst_case(tmp_path: Path, url: str) -> None:
    slow = Script(pieces=400, delay_s=0.2)
    async with Upstream(slow) as upstream, program(tmp_path, url, "http://127.0.0.1:9", upstream) as running:
        key = await running.key()
        await running.start()
        body = {"model": "default", "stream": True, "messages": [{"role": "user", "content": "Go on"}]}
        headers = {"Authorization": f"Bearer {key}"}
        async with (
            aiohttp.ClientSession() as client,
            client.post(f"{running.url}/v1/chat/completions", json=body, headers=headers) as response,
        ):
            request_id = response.headers["x-sluicegate-request-id"]
            assert await response.content.readany()
            # The hold is there for everybody to see while the answer streams.
            assert (await held(running))["tokens"] >= WORST
            assert await running.end(signal.SIGKILL) == -signal.SIGKILL
            with pytest.raises(aiohttp.ClientError):
                await response.read()
        await running.start()
        assert await held(running) == {"tokens": 0, "calls": 0}
        code, out = await running.command("ledger", "check")
        assert code == 0, out
        (slot,) = (await running.document("why", request_id))["slots"]
        assert (slot["outcome"], slot["uncertain"]) == ("expired", True)
        assert slot["spent"]["tokens"] == slot["worst_case"]["tokens"] >= WORST
        # The provider's own bill is covered by what was charged.
        spent = {one["name"]: one["spent"] for one in (await running.document("budgets"))["budgets"]}
        assert spent["tokens"] >= upstream.meter.tokens > 0
        assert spent["calls"] == 1
        assert await running.end(signal.SIGTERM) == 0


async def test_a_question_on_telegram_that_was_being_answered_is_answered_once(tmp_path: Path, url: str) -> None:
    slow, quick = Script(pieces=400, delay_s=0.2), Script(text="Here is the whole answer.")
    async with (
        Upstream(quick) as upstream,
        BotApi() as api,
        program(tmp_path, url, api.url, upstream, TOKEN) as running,
    ):
        upstream.queue.append(slow)
        await running.start()
        await api.say("Tell me everything", PERSON)
        # Some of the answer stands in the chat when the program dies, and it knows where: it has edited that message.
        await api.until(lambda: [bubble for bubble in api.bubbles(PERSON) if bubble.edits], 60)
        assert await running.end(signal.SIGKILL) == -signal.SIGKILL
        await api.say("And a second question", PERSON)
        await running.start()
        await api.until(lambda: [b.text for b in api.bubbles(PERSON)].count("Here is the whole answer.") == 2, 60)
        async with asyncio.timeout(60):
            while await held(running) != {"tokens": 0, "calls": 0}:  # noqa: ASYNC110 - another program's state
                await asyncio.sleep(0.02)
        # Time for a second answer to come, if it were to.
        await asyncio.sleep(1.5)
        assert [bubble.text for bubble in api.bubbles(PERSON)] == ["Here is the whole answer."] * 2
        assert [seen.body["messages"][-1]["content"] for seen in upstream.seen] == [
            "Tell me everything",
            "Tell me everything",
            "And a second question",
        ]
        code, out = await running.command("ledger", "check")
        assert code == 0, out
        # Both attempts count: the one that died may have been billed.
        usage = (await running.document("usage", "--by", "provider"))["usage"]
        assert [(row["attempts"], row["uncertain"]) for row in usage] == [(3, 1)]
        assert await running.end(signal.SIGTERM) == 0


async def test_a_graceful_stop_settles_what_it_stops(tmp_path: Path, url: str) -> None:
    held_back = Script(pieces=40, gate=True)
    async with Upstream(held_back) as upstream, program(tmp_path, url, "http://127.0.0.1:9", upstream) as running:
        key = await running.key()
        await running.start()
        body = {"model": "default", "messages": [{"role": "user", "content": "Go on"}]}
        async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {key}"}) as client:
            asked = asyncio.create_task(client.post(f"{running.url}/v1/chat/completions", json=body))
            await upstream.until(lambda: upstream.meter.waiting)
            running.send(signal.SIGTERM)
            # It waits for the answer under way, and takes no new questions meanwhile.
            await running.logged("stopping")
            async with asyncio.timeout(60):
                while await takes_questions(client, running.url):
                    pass
            upstream.release()
            response = await asked
            assert await running.ended() == 0
            assert response.status == 200
            answer = await response.json()
        assert answer["usage"]["completion_tokens"] == 40
        assert await held(running) == {"tokens": 0, "calls": 0}
        (row,) = (await running.document("usage", "--by", "provider"))["usage"]
        assert (row["output_tokens"], row["estimated"]) == (40, 0)
        assert (await running.command("ledger", "check"))[0] == 0


DEAF = '''
import asyncio, sys
from gateway.workflow import Context, workflow

@workflow()
async def deaf(ctx: Context) -> None:
    """Never ends."""
    while True:
        try:
            print("it goes on", file=sys.stderr, flush=True)
            await asyncio.sleep(3600)
        except BaseException:
            pass
'''


async def test_a_workflow_that_swallows_its_cancellation_does_not_hold_up_the_stop(tmp_path: Path) -> None:
    (tmp_path / "workflows").mkdir()
    (tmp_path / "workflows" / "deaf.py").write_text(DEAF)
    database = f"sqlite:///{tmp_path}/sluicegate.db"
    async with Upstream() as upstream, program(tmp_path, database, "http://127.0.0.1:9", upstream) as running:
        await running.start()
        run = await running.document("run", "deaf")
        await running.logged("it goes on")
        assert await running.end(signal.SIGTERM) == 0
        # It is left as after a crash: the next start goes on with it.
        await running.start()
        await running.logged("it goes on")
        assert (await running.document("runs", "show", run["id"]))["state"] == "running"


async def test_a_second_signal_ends_it_at_once_and_the_next_start_settles(tmp_path: Path) -> None:
    never = Script(gate=True)
    database = f"sqlite:///{tmp_path}/sluicegate.db"
    async with Upstream(never) as upstream, program(tmp_path, database, "http://127.0.0.1:9", upstream) as running:
        key = await running.key()
        await running.start()
        body = {"model": "default", "messages": [{"role": "user", "content": "Go on"}]}
        async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {key}"}) as client:
            asked = asyncio.create_task(client.post(f"{running.url}/v1/chat/completions", json=body))
            await upstream.until(lambda: upstream.meter.waiting)
            running.send(signal.SIGTERM)
            await running.logged("stopping")
            assert not asked.done()
            # It did not end by itself after all: then it would have ended well.
            assert await running.end(signal.SIGTERM) == -signal.SIGTERM
            with pytest.raises(aiohttp.ClientError):
                await asked
        await running.start()
        assert await held(running) == {"tokens": 0, "calls": 0}
        assert (await running.command("ledger", "check"))[0] == 0
