"""Pictures of every page of the console, on a phone and on a desk, light and dark: to be looked at.

    python -m tests.browser.pictures FOLDER [--page NAME]

It starts the whole program with a small team's month in it and prints the files that it makes, `<page>-<width>-<scheme>.png`;
`--page` makes those alone whose name begins so. With `--readme` it makes the pictures of the README instead.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import html
import logging
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import structlog

from tests.browser.conftest import OPTIONS
from tests.browser.day import Day
from tests.browser.rig import Console, console
from tests.browser.team import NOW, TEXT, Team, TeamClock, folder_of
from tests.doubles.upstream import Script, Upstream
from tests.e2e.rig import Gateway, budget, config, provider

SIZES = {"phone": (390, 844), "desk": (1280, 800)}
SCHEMES = ("light", "dark")
ANSWER = (
    "A sluice gate holds water back and lets through only as much as the channel below can carry. It is raised and lowered by "
    "hand or by a motor, and what it lets through is measured before it flows, not after."
)

BUBBLE = """<style>body { margin: 8px; background: #7a9a86; font: 15px/1.3 sans-serif }
div { width: 350px; border-radius: 12px; overflow: hidden; background: #fff } img { width: 100% }
p { margin: 0; padding: 6px 10px 10px; white-space: pre-wrap; overflow-wrap: anywhere }
@media (prefers-color-scheme: dark) { body { background: #0e1621 } div { background: #182533; color: #f5f5f5 } }</style>"""
"""About as wide as a message is in Telegram on a phone."""


class Album:
    """The pictures of one window, made as its pages come by."""

    def __init__(self, window: Console, folder: Path, wanted: str) -> None:
        self.window, self._folder, self._wanted = window, folder, wanted

    def wants(self, *names: str) -> bool:
        """True where one of the pages was asked for."""
        return any(name.startswith(self._wanted) for name in names)

    async def take(self, name: str) -> None:
        """The page as it stands, in both sizes and both schemes."""
        if not self.wants(name):
            return
        page = self.window.page
        for size, (width, height) in SIZES.items():
            await page.set_viewport_size({"width": width, "height": height})
            for scheme in SCHEMES:
                await page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
                path = self._folder / f"{name}-{size}-{scheme}.png"
                await page.screenshot(path=path, full_page=True, animations="disabled")
                print(path)

    async def page(self, name: str, path: str, sees: str = "") -> None:
        """A page by its address."""
        if not self.wants(name):
            return
        await self.window.open(path)
        if sees:
            await self.window.sees(sees)
        await self.take(name)


@asynccontextmanager
async def chromium() -> AsyncIterator[Any]:
    """The system's browser. Raises FileNotFoundError."""
    from playwright.async_api import async_playwright

    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        raise FileNotFoundError("Chromium is not installed (Debian and Ubuntu: apt-get install chromium fonts-dejavu-core)")
    async with async_playwright() as running:
        browser = await running.chromium.launch(executable_path=found, args=list(OPTIONS))
        yield browser
        await browser.close()


@asynccontextmanager
async def team(browser: Any, up: Upstream, folder: Path) -> AsyncIterator[tuple[Day, Console]]:
    """The team's gateway, and somebody who is logged in to it at NOW."""
    clock = TeamClock(NOW)
    text = TEXT.format(url=up.base_url)
    async with Gateway(folder_of(folder), text, clock) as gateway:
        month = Team(gateway, up, clock)
        await month.fill()
        found = Day(month)
        await found.live()
        async with console(gateway, browser, locale="en-GB", timezone_id="Europe/Madrid") as window:
            await window.page.clock.set_fixed_time(NOW)
            await window.open("/login")
            yield found, window


async def of_the_team(album: Album, of: Day) -> None:
    """Every page with much in it."""
    window, runs = album.window, of.runs
    await album.take("login")
    await window.page.get_by_label("Admin key").fill("sk-sluicegate-wrong")
    async with window.page.expect_navigation(wait_until="domcontentloaded"):
        await window.page.get_by_role("button", name="Log in").click()
    await album.take("login-wrong")
    await window.log_in()
    await window.page.get_by_text("live", exact=True).wait_for()
    await album.take("overview")
    await album.page("budgets", "/budgets")
    await album.page("budget-money", "/budgets/money-month")
    await album.page("budget-raised", "/budgets/repositories-week")
    await album.page("budget-people", "/budgets/person-day")
    await album.page("workflows", "/workflows")
    await album.page("runs", "/runs")
    for name in ("running", "approval", "budget", "failed", "succeeded", "cancelled", "queued"):
        await album.page(f"run-{name}", f"/runs/{runs[name]}")
    await album.page("usage", "/usage?from=2026-04-20")
    await album.page("usage-groups", "/usage?from=2026-05-12&by=provider&by=user&by=workflow")
    await album.page("usage-narrowed", "/usage?from=2026-04-20&by=provider&by=model&key=ci-nightly")
    await album.page("usage-day", "/usage?from=2026-05-19&by=hour")
    await album.page("reports", "/reports")
    await album.page("people", "/people")
    await album.page("audit", "/audit")
    await album.page("why-fallback", f"/why/{of.fallback}")
    await album.page("why-refusal", f"/why/{of.refusal}")
    await album.page("problem", "/runs/none")
    await of_forms(album)
    await of_the_chat(album, of)
    await of_reloads(album, of)
    await of_a_pause(album, of)


async def of_forms(album: Album) -> None:
    """A form, its errors, its plan, and a key that was just made."""
    page = album.window.page
    if album.wants("workflow-form", "workflow-errors", "workflow-plan"):
        await album.page("workflow-form", "/workflows/answer_tender")
        await album.window.open("/workflows/answer_tender")
        await page.get_by_label("customer").fill("Northwind Traders")
        await page.get_by_label("pages").fill("a few")
        await page.get_by_role("button", name="Dry run").click()
        await album.window.sees("whole number")
        await album.take("workflow-errors")
        await page.get_by_label("pages").fill("4")
        await page.get_by_role("button", name="Dry run").click()
        await album.window.sees("Nothing was started")
        await album.take("workflow-plan")
    await album.page("keys", "/keys")
    if album.wants("key-made"):
        await album.window.open("/keys")
        await page.get_by_label("Name").fill("notebook-chloe")
        await page.get_by_role("button", name="Make a key").click()
        await page.locator("#secret").wait_for()
        await album.take("key-made")


async def of_the_chat(album: Album, of: Day) -> None:
    """Nothing said yet, an answer on its way, and the notice."""
    if not album.wants("chat", "chat-answer", "chat-notice"):
        return
    window, page, models = album.window, album.window.page, of.team.upstream.models
    await album.page("chat", "/chat")
    await window.open("/chat")
    models["kimi-k2.6"] = Script(text=ANSWER)
    await ask(page, "What does a sluice gate do?")
    await page.locator(".theirs .note", has_text="tokens").wait_for()
    models["kimi-k2.6"] = Script(text=ANSWER, stall=24)
    await ask(page, "And in one sentence, for a child?")
    await page.get_by_text("only as much as the channel below", exact=False).nth(1).wait_for()
    await album.take("chat-answer")
    await page.get_by_role("button", name="Stop").click()
    await page.get_by_text("stopped").wait_for()
    await page.locator("#target").select_option("openai")
    await ask(page, "Thank you. How many are there in the Netherlands?")
    await page.locator(".notice").wait_for()
    await album.take("chat-notice")


async def ask(page: Any, question: str) -> None:
    """One question."""
    await page.get_by_label("Your question").fill(question)
    await page.keyboard.press("Enter")


async def of_reloads(album: Album, of: Day) -> None:
    """What the button says that reads the file again."""
    file, text = of.team.gateway.folder / "sluicegate.toml", of.team.gateway.text
    new = text.replace("tokens = 200_000", "tokens = 240_000").replace("usd = 5.00", "usd = 6.50")
    new = new.replace('resets = "06:00"', 'resets = "05:00"').replace("127.0.0.1:0", "127.0.0.1:8080")
    wrong = text.replace("tokens = 200_000", "tokens = -5").replace('["groq", "moonshot", "home"]', '["groq", "mooshot"]')
    for name, said in (("reload-wrong", wrong), ("reload-changed", new), ("reload-same", new)):
        if album.wants("reload"):
            await asyncio.to_thread(file.write_text, said)
            await album.window.open("/budgets")
            await album.window.page.get_by_role("button", name="Read the file again").click()
            await album.window.page.wait_for_url("**/reload")
            await album.take(name)


async def of_a_pause(album: Album, of: Day) -> None:
    """While nothing goes through."""
    if album.wants("overview-paused"):
        await of.team.app.store.pause(None, "telegram:1001")
        await album.page("overview-paused", "/", "is paused")
        await of.team.app.store.resume("telegram:1001")


async def of_a_chat(album: Album, of: Day) -> None:
    """The reports as a chat of Telegram shows them: a narrow bubble with the chart above the text."""
    page = album.window.page
    for period in ("day", "week", "month"):
        if not album.wants(f"chat-report-{period}"):
            continue
        made = await of.team.app.reports.make(period)
        chart, text = base64.b64encode(made.png()).decode(), html.escape(made.text())
        await page.goto("about:blank")
        await page.set_content(f'{BUBBLE}<div><img src="data:image/png;base64,{chart}"><p>{text}</p></div>')
        await album.take(f"chat-report-{period}")


async def of_a_fresh_start(browser: Any, up: Upstream, folder: Path, pictures: Path, wanted: str) -> None:
    """Every page with nothing in it."""
    paths = ("", "budgets", "workflows", "runs", "usage", "reports", "keys", "people", "audit")
    names = {f"empty-{path or 'overview'}": f"/{path}" for path in paths}
    if not any(name.startswith(wanted) for name in names):
        return
    text = config(provider("main", up), budget("each-day", user="*", tokens=50_000, per="day"), chain=["main"])
    async with Gateway(folder, text, TeamClock(NOW)) as gateway, console(gateway, browser) as window:
        await window.page.clock.set_fixed_time(NOW)
        await window.log_in()
        for name, path in names.items():
            await Album(window, pictures, wanted).page(name, path)


async def for_the_readme(window: Console, folder: Path) -> None:
    """The overview with one alert noted, and the budgets on a phone, as much of them as a window shows."""
    page = window.page
    await window.log_in()
    await page.get_by_role("button", name="Noted").last.click()
    await window.sees("Noted.")
    for name, path, width, height in (("console", "/", 1280, 780), ("console-phone", "/budgets", 390, 844)):
        await window.open(path)
        await page.set_viewport_size({"width": width, "height": height})
        await page.get_by_text("live", exact=True).wait_for()
        for scheme in SCHEMES:
            await page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
            file = folder / f"{name}-{scheme}.png"
            await page.screenshot(path=file, animations="disabled")
            print(file)


async def made(folder: Path, wanted: str, *, readme: bool) -> None:
    """Makes the pictures."""
    await asyncio.to_thread(folder.mkdir, parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place:
        async with chromium() as browser, Upstream() as up:
            async with team(browser, up, Path(place) / "team") as (of, window):
                if readme:
                    await for_the_readme(window, folder)
                    return
                await of_the_team(Album(window, folder, wanted), of)
                await of_a_chat(Album(window, folder, wanted), of)
            await of_a_fresh_start(browser, up, Path(place) / "fresh", folder, wanted)


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.browser.pictures", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--page", default="", help="the beginning of the names of the pages that are wanted")
    parser.add_argument("--readme", action="store_true", help="the pictures of the README instead")
    given = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    asyncio.run(made(given.folder, given.page, readme=given.readme))
    return 0


if __name__ == "__main__":
    sys.exit(main())
