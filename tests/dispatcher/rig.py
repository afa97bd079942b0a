"""A dispatcher over a store in memory and scripted providers, in virtual time."""

import random
from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

from gateway.budget import Budget, Budgets, Calendar, Lifetime, Rolling, Unit
from gateway.chat import Asked, Chunk, EmbeddingRequest, Origin, Request, Slot, Usage
from gateway.dispatcher import Begun, Dispatcher, Priced, Reply
from gateway.errors import GatewayError, Refused, Unanswered
from gateway.ledger import State
from gateway.settings import Model, Price, ProviderSettings, Settings, TelegramSettings
from tests.doubles.memory_store import Disk, MemoryStore
from tests.doubles.provider import ScriptedProvider
from tests.doubles.virtual import LoopClock

UTC_ZONE = ZoneInfo("UTC")
HOUR = Calendar("hour", UTC_ZONE)


def tokens(name: str, limit: int, **scope: str) -> Budget:
    """A budget of tokens per hour."""
    return Budget(name, Unit.TOKENS, limit, HOUR, scope)


def requests(name: str, limit: int, **scope: str) -> Budget:
    """A budget of requests per hour."""
    return Budget(name, Unit.REQUESTS, limit, HOUR, scope)


def usd(name: str, micro_usd: int, **scope: str) -> Budget:
    """A budget of money per hour."""
    return Budget(name, Unit.MICRO_USD, micro_usd, HOUR, scope)


def rolling(name: str, limit: int, length_s: int = 3600, **scope: str) -> Budget:
    """A budget of tokens in a rolling window."""
    return Budget(name, Unit.TOKENS, limit, Rolling(length_s, f"rolling {length_s}s"), scope)


def lifetime(name: str, limit: int, **scope: str) -> Budget:
    """A budget of tokens for ever."""
    return Budget(name, Unit.TOKENS, limit, Lifetime(), scope)


def settings_of(
    names: tuple[str, ...], budgets: tuple[Budget, ...], models: Mapping[str, Mapping[str, Any]], chains: Mapping[str, Any]
) -> Settings:
    """Providers `names` with one model `m` each, a chain "default" of them all."""
    providers = {}
    for name in names:
        given: dict[str, Any] = {"max_output_tokens": 100, "free": True, **models.get(name, {})}
        providers[name] = ProviderSettings(name, "demo", "m", models={"m": Model("m", **given)})
    default = {"default": tuple(Slot(name, "m") for name in names)}
    return Settings(
        path=None,
        database_url="sqlite:////nowhere",
        zone=UTC_ZONE,
        host="127.0.0.1",
        port=0,
        max_output_tokens=100,
        min_reply_tokens=16,
        providers=providers,
        chains={**default, **chains},
        budgets=Budgets(budgets),
        telegram=TelegramSettings(),
    )


class TenTokens:
    """Every prompt is at most ten tokens, plus one for each word of it after the first ten."""

    def __init__(self) -> None:
        self.learnt: list[int] = []

    def prompt_bound(self, slot: Slot, model: Model, request: Asked) -> int:
        """Words, at least ten."""
        if isinstance(request, EmbeddingRequest):
            return max(10, sum(map(len, request.inputs)))
        return max(10, sum(len(str(message.get("content") or "").split()) for message in request.messages))

    def received_bound(self, slot: Slot, text: str) -> int:
        """Twice the words, so that a bound is told from the truth."""
        return 2 * len(text.split())

    def learn(self, slot: Slot, model: Model, request: Asked, usage: Usage) -> None:
        """Remembers it."""
        self.learnt.append(usage.prompt)


@dataclass
class Counted:
    """An observer that keeps everything."""

    settled_: list[Any] = field(default_factory=list)
    refused_: list[Any] = field(default_factory=list)
    breaker_: list[Any] = field(default_factory=list)

    def settled(self, reservation: Any, closing: Any) -> None:
        """Keeps it."""
        self.settled_.append((reservation, closing))

    def refused(self, slot: Slot, error: GatewayError) -> None:
        """Keeps it."""
        self.refused_.append((slot, error))

    def breaker(self, slot: Slot, is_open: bool) -> None:
        """Keeps it."""
        self.breaker_.append((slot, is_open))


class Rig:
    """One process over one disk. `models` are keyword arguments of `Model` by provider."""

    def __init__(
        self,
        *names: str,
        budgets: tuple[Budget, ...] = (),
        models: Mapping[str, Mapping[str, Any]] | None = None,
        chains: Mapping[str, tuple[Slot, ...]] | None = None,
        disk: Disk | None = None,
        owner: str = "owner-1",
        chain_timeout_s: float = 300.0,
        store: type[MemoryStore] = MemoryStore,
    ) -> None:
        names = names or ("a",)
        self.settings = replace(settings_of(names, budgets, models or {}, chains or {}), chain_timeout_s=chain_timeout_s)
        self.clock = LoopClock()
        self.disk = disk or Disk()
        self.store = store(self.settings.budgets, self.clock, disk=self.disk, owner=owner)
        self.providers = {name: ScriptedProvider(name, self.pending) for name in names}
        self.alerts: list[tuple[str, Mapping[str, object]]] = []
        self.observer = Counted()
        self.estimator = TenTokens()
        self.dispatcher = Dispatcher(
            self.store,
            self.providers,
            self.settings,
            self.clock,
            estimator=self.estimator,
            alert=lambda event, fields: self.alerts.append((event, fields)),
            observer=self.observer,
            chance=random.Random(1),
        )
        self._ids = 0

    def pending(self, attempt_id: str) -> bool:
        """True when the ledger holds a pending reservation of this id."""
        return self.disk.rows[attempt_id]["state"] == State.PENDING

    def __getitem__(self, name: str) -> ScriptedProvider:
        return self.providers[name]

    def origin(self, **parts: Any) -> Origin:
        """A new request's origin."""
        self._ids += 1
        return Origin(**{"request_id": f"r{self._ids}", "surface": "http", **parts})

    async def ask(self, text: str = "hi", *, target: str = "default", limit: int | None = None, **parts: Any) -> Reply:
        """A whole answer."""
        request_parts = {key: parts.pop(key) for key in ("n", "extra", "clampable", "messages") if key in parts}
        return await self.dispatcher.complete(question(text, limit, **request_parts), target, self.origin(**parts))

    async def read(self, text: str = "hi", *, target: str = "default", limit: int | None = None, **parts: Any) -> "Heard":
        """A streamed answer, read to its end; errors are kept in `error`."""
        request_parts = {key: parts.pop(key) for key in ("n", "extra", "clampable", "messages") if key in parts}
        heard = Heard()
        stream = self.dispatcher.stream(question(text, limit, **request_parts), target, self.origin(**parts))
        try:
            async with aclosing(stream) as events:
                async for event in events:
                    heard.take(event)
        except GatewayError as error:
            heard.error = error
        return heard

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The usage rows."""
        return self.store.rows

    @property
    def outcomes(self) -> list[str]:
        """The outcome of each attempt, in order."""
        return [str(row["outcome"]) for row in self.rows]

    def spent(self, budget: str, key: str = "") -> int:
        """What a budget has spent."""
        return self.store.balance(budget, key)[0]

    def held(self, budget: str, key: str = "") -> int:
        """What a budget holds."""
        return self.store.balance(budget, key)[1]


@dataclass
class Heard:
    """What a reader of a stream got."""

    begun: Begun | None = None
    chunks: list[Chunk] = field(default_factory=list)
    priced: list[Priced] = field(default_factory=list)
    reply: Reply | None = None
    error: GatewayError | None = None
    order: list[str] = field(default_factory=list)

    def take(self, event: Begun | Chunk | Priced | Reply) -> None:
        """Keeps one event."""
        self.order.append(type(event).__name__)
        if isinstance(event, Begun):
            self.begun = event
        elif isinstance(event, Priced):
            self.priced.append(event)
        elif isinstance(event, Reply):
            self.reply = event
        else:
            self.chunks.append(event)

    @property
    def text(self) -> str:
        """The visible text."""
        return "".join(chunk.text for chunk in self.chunks)


def question(text: str = "hi", limit: int | None = None, **parts: Any) -> Request:
    """A request with one message."""
    return Request(**{"messages": ({"role": "user", "content": text},), "max_output_tokens": limit, **parts})


def said(count: int) -> tuple[str, ...]:
    """A text of this many words."""
    return tuple(f" w{number}" for number in range(count))


def refused(status: int | None = 503, **parts: Any) -> Refused:
    """A provider's own error answer; status None: no connection."""
    return Refused("a", "m", "not now", status, **{"sent": status is not None, **parts})


def unanswered(**parts: Any) -> Unanswered:
    """A time-out after send."""
    return Unanswered("a", "m", "timed out", **parts)


def priced(given: int, said_: int, cached: int | None = None) -> dict[str, Any]:
    """A model's price in micro-USD per token of prompt, output and cached prompt."""
    return {
        "free": False,
        "price": Price(Decimal(given), Decimal(said_), Decimal(given if cached is None else cached), Decimal(given)),
    }


PRICED = priced(1, 2)
"""One micro-USD per prompt token, two per output token."""
