"""The whole program on a loopback port, in front of scripted upstreams: settings text in, HTTP out.

`Gateway` runs it in this process and may be stopped and started again on the same database. What a test asserts is
what a user sees (answers, `/api/budgets`, the rows of `/api/usage/export.csv`) and what the upstream's own meter says.
"""

from __future__ import annotations

import asyncio
import csv
import io
import json
import os
import re
import signal
import sqlite3
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import aiohttp

from gateway.app import App
from gateway.clock import Clock, SystemClock
from gateway.settings import Settings, load
from gateway.store.migrations import upgrade
from tests.doubles.upstream import Upstream

QUESTION = "say something"
WEB = frozenset({"web"})
UNTIL_S = 60.0
"""How long a test waits for what must come: long, since the machine may be busy with other things."""
READY = re.compile(r"listens on (http://\S+)")


def toml(value: Any) -> str:
    """A value as TOML writes it."""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{json.dumps(key)} = {toml(item)}" for key, item in value.items()) + " }"
    return json.dumps(value)


def section(head: str, fields: Mapping[str, Any]) -> str:
    """One section of a configuration."""
    return "\n".join([head, *(f"{name} = {toml(value)}" for name, value in fields.items()), ""])


def provider(name: str, upstream: Upstream | str, **fields: Any) -> str:
    """A provider section: its model is `<name>-model`, its price nothing unless it says otherwise."""
    base_url = upstream if isinstance(upstream, str) else upstream.base_url
    plain = {"api": "openai", "base_url": base_url, "model": f"{name}-model", "price": "free"}
    return section(f"[providers.{name}]", {key: value for key, value in (plain | fields).items() if value is not None})


def budget(name: str, **fields: Any) -> str:
    """A budget section; a rolling hour unless it says otherwise."""
    return section("[[budgets]]", {"name": name, "per": "rolling 1h"} | fields)


def config(*sections: str, chain: Iterable[str], more: Mapping[str, Any] | None = None, **gateway: Any) -> str:
    """A whole configuration with a default chain."""
    head = section("[gateway]", {"listen": "127.0.0.1:0"} | gateway)
    return "\n".join([head, *sections, section("[chains]", {"default": list(chain)} | dict(more or {}))])


@dataclass(frozen=True)
class Answer:
    """One HTTP answer, read to its end."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, Any]:
        return dict(self.json["error"])

    @property
    def events(self) -> list[Any]:
        """A stream's events; `[DONE]` as text."""
        blocks = [block.removeprefix("data: ") for block in self.body.decode().split("\n\n") if block]
        return [block if block == "[DONE]" else json.loads(block) for block in blocks]

    @property
    def text(self) -> str:
        """What a person would read of it."""
        if self.headers["content-type"].startswith("text/event-stream"):
            deltas = (choice["delta"] for event in self.events if event != "[DONE]" for choice in event["choices"])
            return "".join(delta.get("content") or "" for delta in deltas)
        return str(self.json["choices"][0]["message"]["content"])

    @property
    def cost_micro_usd(self) -> int:
        """What the answer says it cost: in a header, or in a stream's usage chunk."""
        if "x-sluicegate-cost-micro-usd" in self.headers:
            return int(self.headers["x-sluicegate-cost-micro-usd"])
        return int(next(event["sluicegate"]["cost_micro_usd"] for event in self.events if "sluicegate" in event))


class Gateway:
    """One running gateway. Keys: "user" and "admin", made with the first start; `key` in a call names one of them."""

    def __init__(
        self,
        folder: Path,
        text: str,
        clock: Clock | None = None,
        *,
        database_url: str | None = None,
        roles: frozenset[str] = WEB,
    ) -> None:
        self.folder, self.text, self.roles = folder, text, roles
        self.clock = clock or SystemClock()
        self.keys: dict[str, str] = {}
        self.base = ""
        self._looks = 0
        self._environ = {} if database_url is None else {"DATABASE_URL": database_url}

    async def __aenter__(self) -> Self:
        self.session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))
        try:
            await self.start()
        except BaseException:
            await self.session.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.session.close()
        await self.stop()

    async def start(self) -> None:
        """Loads the configuration, upgrades the database and listens. Raises ConfigError."""
        self.app = App(await asyncio.to_thread(prepared, self.folder, self.text, self._environ), self.clock, roles=self.roles)
        await self.app.start()
        self.base = self.app.address
        if not self.keys:
            keys = self.app.keys
            self.keys = {name: await keys.create(name, admin=name == "admin", actor="test") for name in ("user", "admin")}

    async def stop(self) -> None:
        """Graceful; then the books must be right: what the counters say is what the usage rows say."""
        differences = await self.app.books.check()
        await self.app.stop()
        assert differences == []

    async def restart(self, text: str | None = None) -> None:
        """Stops gracefully and starts on the same database, with another configuration if one is given."""
        await self.stop()
        self.text = text or self.text
        await self.start()

    # calls

    async def call(self, method: str, path: str, *, key: str | None = "user", headers: Any = None, **rest: Any) -> Answer:
        """One request, read to its end."""
        async with self.session.request(method, self.base + path, headers=self._headers(key, headers), **rest) as response:
            names = {name.lower(): value for name, value in response.headers.items()}
            return Answer(response.status, names, await response.read())

    async def chat(self, *, key: str = "user", headers: Any = None, **fields: Any) -> Answer:
        """One chat completion. `content` is the question, `usage` asks a stream for its usage chunk."""
        return await self.call("POST", "/v1/chat/completions", key=key, headers=headers, json=chat_body(**fields))

    @asynccontextmanager
    async def open_stream(self, *, key: str = "user", **fields: Any) -> AsyncIterator[aiohttp.ClientResponse]:
        """A stream whose events the test reads by itself, on a connection of its own."""
        async with aiohttp.ClientSession() as session:
            body, headers = chat_body(stream=True, **fields), self._headers(key, None)
            async with session.post(f"{self.base}/v1/chat/completions", json=body, headers=headers) as response:
                yield response

    def _headers(self, key: str | None, more: Any) -> dict[str, str]:
        return ({} if key is None else {"Authorization": f"Bearer {self.keys.get(key, key)}"}) | dict(more or {})

    @asynccontextmanager
    async def database_gone(self) -> AsyncIterator[None]:
        """Nothing can be written to the SQLite database meanwhile: another program has locked it."""
        lock = sqlite3.connect(self.folder / "var" / "sluicegate.db", isolation_level=None)
        lock.execute("BEGIN IMMEDIATE")
        try:
            yield
        finally:
            lock.execute("ROLLBACK")
            lock.close()

    # what an admin reads

    async def budgets(self) -> list[dict[str, Any]]:
        return list((await self.call("GET", "/api/budgets", key="admin")).json["budgets"])

    async def budget(self, name: str) -> dict[str, Any]:
        """The one counter of a budget."""
        found = [entry for entry in await self.budgets() if entry["name"] == name]
        assert len(found) == 1, f"{name} has {len(found)} counters"
        return found[0]

    async def rows(self) -> list[dict[str, str]]:
        """The usage rows, oldest first, as the CSV has them."""
        answer = await self.call("GET", "/api/usage/export.csv", params={"from": "2020-01-01", "to": "2099-12-31"}, key="admin")
        assert answer.status == 200, answer.body
        return list(csv.DictReader(io.StringIO(answer.body.decode())))

    async def answers(self) -> int:
        """How many HTTP answers the gateway has made, those of the rig's own look-ups left out."""
        self._looks += 1
        lines = (await self.call("GET", "/metrics", key="admin")).body.decode().splitlines()
        made = sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith("sluicegate_http_answers_total{"))
        return int(made) - self._looks + 1

    async def until(self, true: Callable[[], bool], timeout_s: float = UNTIL_S) -> None:
        """Waits until a condition holds."""
        async with asyncio.timeout(timeout_s):
            while not true():  # noqa: ASYNC110 - any condition, of any object
                await asyncio.sleep(0.01)

    async def until_nothing_is_held(self, timeout_s: float = UNTIL_S) -> None:
        """Waits until every hold is closed."""
        async with asyncio.timeout(timeout_s):
            while await self._pending():  # noqa: ASYNC110 - it is another program's state
                await asyncio.sleep(0.02)

    async def _pending(self) -> bool:
        held = any(entry["held"] for entry in await self.budgets())
        return held or any(row["outcome"] == "pending" for row in await self.rows())


class GatewayProcess:
    """The program as an operating-system process of its own: `python -m gateway serve`."""

    def __init__(self, config: Path, environ: Mapping[str, str]) -> None:
        self._config, self._environ = config, {**os.environ, **environ}
        self.base = ""
        self.said: list[str] = []

    async def __aenter__(self) -> Self:
        self.process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "gateway", "serve", "--config", str(self._config), "--only", "web"),
            env=self._environ,
            stderr=asyncio.subprocess.PIPE,
        )
        self._reader = asyncio.create_task(self._read())
        async with asyncio.timeout(UNTIL_S):
            while not self.base:
                assert self.process.returncode is None, "".join(self.said)
                await asyncio.sleep(0.02)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self.process.returncode is None:
            self.process.terminate()
        await asyncio.wait_for(self.process.wait(), UNTIL_S)
        await self._reader

    async def kill(self) -> None:
        """SIGKILL: nothing is put in order."""
        self.process.send_signal(signal.SIGKILL)
        await self.process.wait()

    async def _read(self) -> None:
        assert self.process.stderr is not None
        async for line in self.process.stderr:
            self.said.append(line.decode())
            if found := READY.search(self.said[-1]):
                self.base = found[1]


def prepared(folder: Path, text: str, environ: Mapping[str, str]) -> Settings:
    """The settings of a configuration that is written into a folder, with its database upgraded. Raises ConfigError."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "sluicegate.toml").write_text(text)
    settings = load(folder / "sluicegate.toml", environ)
    upgrade(settings.database_url)
    return settings


def chat_body(*, content: str = QUESTION, usage: bool = False, **fields: Any) -> dict[str, Any]:
    """A body of POST /v1/chat/completions."""
    plain: dict[str, Any] = {"model": "default", "messages": [{"role": "user", "content": content}]}
    if usage:
        plain["stream_options"] = {"include_usage": True}
    return plain | fields
