"""The whole bot on loopback: a strict Bot API server, two scripted upstreams, a real SQLite file and a clock that is set."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import TypeVar

from sqlalchemy import Connection, and_, func, or_, select

from gateway.clock import to_ms
from gateway.dispatcher import Dispatcher
from gateway.providers import build
from gateway.reports import Reports
from gateway.settings import Settings, load
from gateway.store.books import Books
from gateway.store.database import Database
from gateway.store.ledger_store import LedgerStore
from gateway.store.outbox import Outbox
from gateway.store.runs import Runs
from gateway.store.tables import refusals, tg_updates, usage
from gateway.store.telegram import State
from gateway.telegram_bot import TelegramBot
from gateway.workflow.catalogue import Catalogue
from gateway.workflow.desk import Desk
from tests.doubles.botapi import TOKEN, UNTIL_S, BotApi
from tests.doubles.clock import SettableClock
from tests.doubles.upstream import Script, Upstream

T = TypeVar("T")

PERSON, OTHER, ADMIN, STRANGER, GROUP = 42, 43, 1, 99, -100200

CONFIG = """
[gateway]
database_url = "{database}"
[telegram]
api_root = "{api}"
admins = {admins}
{lists}
allowed_chats = [-100200]
{telegram}
[providers.moonshot]
api = "openai"
base_url = "{first}"
model = "kimi"
price = "free"
{provider}
max_attempts = 1
[providers.groq]
api = "openai"
base_url = "{second}"
model = "llama"
price = "free"
max_attempts = 1
[chains]
default = ["moonshot", "groq"]
{budgets}
{workflows}
"""

HOURLY = """
[[budgets]]
name = "moonshot-hour"
provider = "moonshot"
requests = 1
per = "hour"
[[budgets]]
name = "groq-hour"
provider = "groq"
requests = 1
per = "hour"
"""


class Rig:
    """Everything a test drives. `restart` ends the bot (gracefully, or as a crash does) and starts another on the same file."""

    def __init__(self, folder: Path, url: str, api: BotApi, first: Upstream, second: Upstream) -> None:
        self.folder, self.url, self.api, self.first, self.second = folder, url, api, first, second
        self.clock = SettableClock()
        self.budgets, self.telegram, self.provider, self.workflows = "", "", "", ""
        self.lists = "allowed_users = [42, 43]"
        self.admins: tuple[int, ...] = (ADMIN,)
        self.files: Mapping[str, str] = {}
        """The operator's own workflows: what stands in each file."""
        self.bot: TelegramBot
        self.store: LedgerStore
        self.settings: Settings
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self, **environment: str) -> None:
        """Builds the product's parts as the composition root does."""
        fields = {"database": self.url, "api": self.api.url, "first": self.first.base_url, "second": self.second.base_url}
        fields |= {"budgets": self.budgets, "telegram": self.telegram, "provider": self.provider, "lists": self.lists}
        fields |= {"workflows": self.workflows}
        file = self.folder / "sluicegate.toml"
        file.write_text(CONFIG.format(admins=list(self.admins), **fields))
        self.settings = load(file, {"TELEGRAM_BOT_TOKEN": TOKEN, **environment})
        self.database = Database(self.url)
        self.store = LedgerStore(self.database, self.settings.budgets, self.clock)
        await self.store.start()
        self.providers = build(self.settings, self.clock)
        self.dispatcher = Dispatcher(self.store, self.providers, self.settings, self.clock)
        for name, source in self.files.items():
            path = self.settings.workflows.path / f"{name}.py"
            path.parent.mkdir(exist_ok=True)
            path.write_text(source)
        self.runs = Runs(self.database, self.clock)
        flows = Desk(self.runs, Catalogue.load(self.settings), self.settings, self.clock)
        books = Books(self.database, self.settings.budgets, self.clock)
        self.reports = Reports(books, Outbox(self.database, self.clock), self.settings, self.clock)
        self.bot = TelegramBot(self.settings, self.database, self.store, self.dispatcher, self.clock, flows, self.reports)
        await self.bot.start()
        self._tasks = [asyncio.create_task(self.bot.run())]

    async def stop(self, settle_s: float = 0.0) -> None:
        """Stops everything; without `settle_s` an answer that a provider is still writing is left as a crash leaves it."""
        await self.bot.stop(settle_s)
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.dispatcher.drain()
        for provider in self.providers.values():
            await provider.close()
        await self.store.stop()
        await self.database.close()

    async def idle(self) -> None:
        """Waits until all that was said is done with, or waits for its window: what stands in a chat may be a preview."""
        async with asyncio.timeout(UNTIL_S):
            while self.api.unread or await self.database.read(self._open) or self.bot.queue_depth:  # noqa: ASYNC110 - the state of another program
                await asyncio.sleep(0.02)

    def _open(self, connection: Connection) -> int:
        due = and_(tg_updates.c.state == State.PARKED, tg_updates.c.due_ms <= to_ms(self.clock.now()))
        wanted = or_(tg_updates.c.state.in_([State.RECEIVED, State.ANSWERING]), due)
        return int(connection.execute(select(func.count()).select_from(tg_updates).where(wanted)).scalar_one())

    async def settled(self) -> None:
        """Waits until no call to a provider is under way in the books."""
        pending = select(func.count()).select_from(usage).where(usage.c.state == "pending")
        async with asyncio.timeout(UNTIL_S):
            while await self.database.read(lambda connection: connection.execute(pending).scalar_one()):  # noqa: ASYNC110
                await asyncio.sleep(0.02)

    async def refusals(self) -> int:
        """How often the gate has passed a provider over."""
        refused = select(func.count()).select_from(refusals)
        return int(await self.database.read(lambda connection: connection.execute(refused).scalar_one()))

    async def spend(self, run_id: str, tokens: int, micro_usd: int) -> None:
        """Books a call of a run, as the gate would."""
        row = {"id": run_id, "request_id": run_id, "attempt": 1, "surface": "telegram", "run": run_id, "chain": "default"}
        row |= {"provider": "moonshot", "model_asked": "kimi", "outcome": "ok", "started": 0, "state": "settled", "owner": ""}
        row |= {"deadline": 0, "spent_tokens": tokens, "cost_micro_usd": micro_usd}
        await self.database.write(lambda connection: connection.execute(usage.insert().values(row)))

    async def eventually(self, look: Callable[[], Awaitable[T]], wanted: Callable[[T], object]) -> T:
        """Looks until what is found is as wanted."""
        async with asyncio.timeout(UNTIL_S):
            while not wanted(found := await look()):  # noqa: ASYNC110 - the state of another program
                await asyncio.sleep(0.02)
            return found

    async def restart(self) -> None:
        """Another start on the same database."""
        await self.stop()
        await self.start()


@contextlib.asynccontextmanager
async def rig(
    folder: Path,
    url: str,
    *,
    admins: tuple[int, ...] = (ADMIN,),
    start: bool = True,
    files: Mapping[str, str] | None = None,
    **sections: str,
) -> AsyncIterator[Rig]:
    """A running bot. `sections` are lines for the configuration: budgets, telegram, provider, lists, workflows."""
    first, second = Upstream(Script(text="Answer from the first.")), Upstream(Script(text="Answer from the second."))
    async with BotApi() as api, first, second:
        made = Rig(folder, url, api, first, second)
        made.admins, made.files = admins, files or {}
        for name, lines in sections.items():
            assert hasattr(made, name)
            setattr(made, name, lines)
        if start:
            await made.start()
            await api.until(lambda: made.bot.ready)
        try:
            yield made
        finally:
            if hasattr(made, "bot"):
                await made.stop()
