"""Somebody at the console: a page that is logged in, and every complaint of the browser kept."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.e2e.rig import Gateway

PATIENCE_MS = 60_000
ROLES = frozenset({"web", "worker"})


class Console:
    """One browser window. `faults` are errors of scripts and what the content policy has stopped."""

    def __init__(self, gateway: Gateway, page: Any) -> None:
        self.gateway, self.page = gateway, page
        self.faults: list[str] = []
        page.set_default_timeout(PATIENCE_MS)
        page.on("pageerror", lambda error: self.faults.append(str(error)))
        page.on("console", self._heard)

    async def open(self, path: str) -> None:
        """Goes to a page. A live one never stops loading, so only its content is waited for."""
        await self.page.goto(self.gateway.base + path, wait_until="domcontentloaded")

    async def log_in(self) -> None:
        """By a one-time link, as the start prints it."""
        link, _ = await self.gateway.app.sessions.make_link("test")
        await self.open(f"/login/{link}")
        await self.page.wait_for_url(self.gateway.base + "/")

    async def sees(self, text: str, within: str = "main") -> None:
        """Waits until the text is to be seen."""
        await self.page.locator(within).get_by_text(text).first.wait_for()

    async def mark(self) -> None:
        """Marks the document: a reload would lose it."""
        await self.page.evaluate("window.unbroken = true")

    async def is_marked(self) -> bool:
        """True while the page was not loaded again."""
        return bool(await self.page.evaluate("window.unbroken === true"))

    def _heard(self, message: Any) -> None:
        if message.type == "error" and "Failed to load resource" not in message.text:
            self.faults.append(message.text)


@asynccontextmanager
async def console(gateway: Gateway, browser: Any, **options: Any) -> AsyncIterator[Console]:
    """A window of its own, with nobody logged in; afterwards the browser must have had no complaint."""
    context = await browser.new_context(**options)
    window = Console(gateway, await context.new_page())
    yield window
    await context.close()
    assert window.faults == []
