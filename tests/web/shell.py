"""The web room by itself: the real application over real HTTP, in front of a dispatcher that plays what it is told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from zoneinfo import ZoneInfo

import aiohttp

from gateway.budget import Budget, Budgets, Calendar, Unit
from gateway.chat import Chunk, Completion, Origin, Request, Slot, Usage
from gateway.dispatcher import Begun, Priced, Reply
from gateway.settings import Model, ProviderSettings, Settings, TelegramSettings
from gateway.store.keys import May
from gateway.web.app import Receiver, Services
from gateway.web.metrics import Metrics
from gateway.web.server import Server
from tests.doubles.clock import SettableClock

UTC = ZoneInfo("UTC")
SLOT = Slot("moonshot", "kimi")


def settings() -> Settings:
    provider = ProviderSettings("moonshot", "openai", "kimi", aliases=("kimi-alias",), models={"kimi": Model("kimi")})
    budgets = Budgets([Budget("hour", Unit.TOKENS, 100, Calendar("hour", UTC), {"provider": "moonshot"})])
    return Settings(
        path=None,
        database_url="sqlite:///unused",
        zone=UTC,
        host="127.0.0.1",
        port=0,
        max_output_tokens=64,
        min_reply_tokens=8,
        providers={"moonshot": provider},
        chains={"default": (SLOT,)},
        budgets=budgets,
        telegram=TelegramSettings(),
    )


@dataclass(frozen=True)
class PlainKey:
    name: str
    admin: bool = False
    may: frozenset[May] = frozenset({May.ASK, May.RUN})
    chains: tuple[str, ...] = ()


class PlainKeys:
    """Two keys by their secret."""

    def __init__(self) -> None:
        self.known = {"sk-user": PlainKey("app"), "sk-admin": PlainKey("boss", admin=True)}
        self.error: Exception | None = None

    async def find(self, secret: str) -> PlainKey | None:
        if self.error is not None:
            raise self.error
        return self.known.get(secret)


def reply(completion: Completion, request_id: str, **changed: Any) -> Reply:
    plain = {"usage": Usage(3, 2), "cost_micro_usd": 41, "clamped": False, "estimated": False, "skipped": ()}
    return Reply(completion=completion, slot=SLOT, chain="default", request_id=request_id, **(plain | changed))


@dataclass
class Played:
    """A dispatcher that answers with what `plays` says: a Completion, or the events of a stream; an error is raised."""

    plays: list[Any] = field(default_factory=list)
    asked: list[tuple[Request, str, Origin]] = field(default_factory=list)
    closed: int = 0
    waiting: asyncio.Event = field(default_factory=asyncio.Event)
    settle: asyncio.Event = field(default_factory=asyncio.Event)
    """What the play "settle" waits for."""

    async def complete(self, request: Request, target: str, origin: Origin, *, settle_first: bool) -> Reply:
        self.asked.append((request, target, origin))
        play = self.plays.pop(0)
        if isinstance(play, BaseException):
            raise play
        if play == "settle":
            await self.settle.wait()
            play = self.plays.pop(0)
        if play == "wait":
            try:
                self.waiting.set()
                await asyncio.sleep(60)
            finally:
                self.closed += 1
        return reply(play, origin.request_id)

    async def stream(self, request: Request, target: str, origin: Origin) -> AsyncIterator[Begun | Chunk | Priced | Reply]:
        self.asked.append((request, target, origin))
        try:
            for play in self.plays:
                if isinstance(play, BaseException):
                    raise play
                if play == "wait":
                    self.waiting.set()
                    await asyncio.sleep(60)
                if play == "settle":
                    await self.settle.wait()
                    continue
                yield play
        finally:
            self.closed += 1


@dataclass
class Shell:
    """What a test holds: the address, the parts, and calls with a key."""

    base: str
    played: Played
    keys: PlainKeys
    metrics: Metrics
    session: aiohttp.ClientSession
    server: Server

    async def call(
        self, method: str, path: str, *, key: str | None = "sk-user", headers: Mapping[str, str] | None = None, **rest: Any
    ) -> Answer:
        own = {"Authorization": f"Bearer {key}"} if key else {}
        async with self.session.request(method, self.base + path, headers={**own, **(headers or {})}, **rest) as response:
            return Answer(response.status, dict(response.headers), await response.read())

    async def chat(self, body: Mapping[str, Any] | None = None, **rest: Any) -> Answer:
        plain = {"model": "default", "messages": [{"role": "user", "content": "hello"}]}
        return await self.call("POST", "/v1/chat/completions", json=plain | dict(body or {}), **rest)


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    def header(self, name: str) -> str | None:
        return {key.lower(): value for key, value in self.headers.items()}.get(name.lower())


@asynccontextmanager
async def shell(
    *plays: Any, receiver: Receiver | None = None, ready: Mapping[str, Any] | None = None, desk: Any = None
) -> AsyncIterator[Shell]:
    played, keys, conf = Played(list(plays)), PlainKeys(), settings()
    metrics = Metrics(conf)
    services = Services(
        dispatcher=played,  # type: ignore[arg-type]
        keys=keys,  # type: ignore[arg-type]
        store=None,  # type: ignore[arg-type]
        books=None,  # type: ignore[arg-type]
        settings=conf,
        clock=SettableClock(),
        metrics=metrics,
        desk=desk,  # type: ignore[arg-type]
        sessions=None,  # type: ignore[arg-type]
        ready=ready or {},
        receiver=receiver,
    )
    server = Server(services)
    port = await server.start("127.0.0.1", 0)
    # One connection, so that a test sees when it is free again.
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=1)) as session:
        yield Shell(f"http://127.0.0.1:{port}", played, keys, metrics, session, server)
    await server.stop()
