"""Every kind of alert from its cause in the whole program to an admin's chat, where a button takes note of it."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from gateway.app import App
from gateway.chat import Origin, Request
from gateway.errors import GatewayError
from gateway.store.outbox import Outbox
from tests.doubles.botapi import TOKEN, BotApi
from tests.doubles.clock import SettableClock
from tests.doubles.upstream import Script, Upstream
from tests.e2e.rig import UNTIL_S, budget, config, prepared, provider, section

ADMIN, SECOND, OTHER_BOT = 1, 2, 999


class House:
    """The program with its bot, one scripted upstream, and the chats of its admins."""

    def __init__(self, app: App, api: BotApi, up: Upstream, clock: SettableClock) -> None:
        self.app, self.api, self.up, self.clock = app, api, up, clock
        self._calls = 0

    async def ask(self, slot: str, times: int = 1) -> None:
        """Calls that may fail."""
        for _ in range(times):
            self._calls += 1
            request = Request(messages=[{"role": "user", "content": "hello"}], max_output_tokens=100)
            try:
                await self.app.dispatcher.complete(request, slot, Origin(f"r{self._calls}", "http"))
            except GatewayError:
                continue

    async def told(self, words: str, chat: int = ADMIN) -> None:
        """Waits until an admin has read it, takes note, and sees that signed."""
        bubble = await self.api.answered(words, chat, UNTIL_S)
        await self.api.tap(bubble, "Acknowledge", chat)
        await self.api.until(lambda: f"Acknowledged by P{chat}" in bubble.text and not bubble.buttons, UNTIL_S)


@asynccontextmanager
async def house(folder: Path, *sections: str, admins: tuple[int, ...] = (ADMIN,)) -> AsyncIterator[House]:
    async with BotApi() as api, Upstream() as up:
        telegram = section("[telegram]", {"api_root": api.url, "admins": list(admins)})
        priced = {"input": 1.0, "output": 1.0}
        providers = [
            provider("p", up, price=priced, max_attempts=1),
            provider("free", up, max_attempts=1),
            provider("unpriced", up, price=None, max_attempts=1),
        ]
        text = config(telegram, *providers, *sections, chain=["p"])
        clock = SettableClock()
        async with App(prepared(folder, text, {"TELEGRAM_BOT_TOKEN": TOKEN}), clock).running() as app:
            await api.until(lambda: app.bot is not None and app.bot.ready, UNTIL_S)
            # The first look only remembers where refusals begin.
            await app.alert_watch.watch()
            yield House(app, api, up, clock)


async def test_what_providers_do_reaches_an_admin(tmp_path: Path) -> None:
    async with house(tmp_path, budget("money", usd=5, per="day")) as here:
        here.up.queue += [Script(output_tokens=5_000, ignore_limit=True)]
        await here.ask("p")
        await here.told("p:p-model billed more than was held")
        await here.ask("unpriced")
        await here.told("No price is known for unpriced:unpriced-model")
        here.up.default = Script(status=401, body={"error": {"message": "bad key", "code": "invalid_api_key"}})
        await here.ask("p")
        await here.told("p refuses its key (401)")
        here.up.default = Script(status=500, body={"error": {"message": "on fire"}})
        await here.ask("free", 10)
        await here.told("free:free-model has failed again and again")


async def test_what_budgets_do_reaches_an_admin(tmp_path: Path) -> None:
    async with house(tmp_path, budget("team", tokens=1_000, per="day", warn_at=[0.5])) as here:
        here.up.default = Script(prompt_tokens=300, output_tokens=300, ignore_limit=True)
        await here.ask("free")
        await here.told("Budget team is at 60%")
        await here.ask("free")
        await here.told("Budget team is used up")


async def test_what_is_stuck_reaches_an_admin(tmp_path: Path) -> None:
    async with house(tmp_path) as here:
        await Outbox(here.app.database, here.clock).put("k", "telegram:7", "never fetched", bot=OTHER_BOT)
        here.clock.advance(minutes=11)
        await here.told("to be delivered")


async def test_a_ledger_that_is_gone_reaches_an_admin_while_it_is(tmp_path: Path) -> None:
    async with house(tmp_path, budget("team", tokens=1_000, per="day")) as here:
        lock = sqlite3.connect(tmp_path / "var" / "sluicegate.db", isolation_level=None)
        lock.execute("BEGIN IMMEDIATE")
        asking = asyncio.create_task(here.ask("free", 3))
        await _advancing(here.clock, lambda: _said(here.api, "The ledger cannot be used"))
        lock.execute("ROLLBACK")
        lock.close()
        await asking
        await here.told("The ledger can be used again")


async def _advancing(clock: SettableClock, done: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(UNTIL_S):
        while not await done():
            clock.advance(1)
            await asyncio.sleep(0.2)


async def _said(api: BotApi, words: str) -> bool:
    return any(words in bubble.text for bubble in api.bubbles(ADMIN))
