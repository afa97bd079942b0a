"""Pages that stay open: what they show when what is behind them changes, goes away or stops."""

from pathlib import Path
from typing import Any

from tests.browser.rig import Console, console
from tests.doubles.upstream import Upstream
from tests.e2e.rig import Gateway, budget, config, provider

HIDE = """(hidden) => {
  Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
  document.dispatchEvent(new Event("visibilitychange"));
}"""
CONNECTIONS = 6
"""What Chromium has for one server."""


async def is_live(window: Console) -> None:
    await window.page.get_by_text("live", exact=True).wait_for()


async def test_an_open_page_says_when_it_is_not_live_and_comes_again_by_itself(
    browser: Any, up: Upstream, folder: Path, unused_tcp_port: int
) -> None:
    text = config(provider("main", up), budget("hour", tokens=5000), chain=["main"], listen=f"127.0.0.1:{unused_tcp_port}")
    async with Gateway(folder, text) as gateway, console(gateway, browser) as window:
        await window.log_in()
        await is_live(window)
        await window.mark()
        await gateway.stop()
        await window.sees("not live")
        await gateway.start()
        await is_live(window)
        # A proxy that says no in the server's place ends a stream for good, as browsers see it.
        await window.page.clock.install()
        refused: list[Any] = []

        async def refuse(route: Any) -> None:
            refused.append(route)
            await (route.fulfill(status=503) if len(refused) == 1 else route.continue_())

        await window.page.route(f"{gateway.base}/", refuse)
        for hidden in (True, False):
            await window.page.evaluate(HIDE, hidden)
        await window.sees("not live")
        assert len(refused) == 1
        await window.page.clock.run_for(5000)
        await is_live(window)
        assert len(refused) == 2
        await gateway.chat()
        await window.sees("answered", "#attempts")
        assert await window.is_marked()


async def test_an_open_page_of_what_is_gone_or_of_a_key_that_is_revoked_says_so(browser: Any, up: Upstream, folder: Path) -> None:
    text = config(provider("main", up), budget("hour", tokens=5000), budget("gone", tokens=5000), chain=["main"])
    async with Gateway(folder, text) as gateway, console(gateway, browser) as window:
        await window.log_in()
        await window.open("/budgets/gone")
        await is_live(window)
        (folder / "sluicegate.toml").write_text(text.replace('"gone"', '"new"'))
        await gateway.app.reload("test")
        await window.sees("There is nothing here")
        await window.open("/")
        await window.sees("new", "#budgets")
        assert await window.page.get_by_text("gone").count() == 0
        async with console(gateway, browser) as boss:
            await boss.open("/login")
            await boss.page.get_by_label("Admin key").fill(await gateway.app.keys.create("boss", admin=True, actor="test"))
            await boss.page.keyboard.press("Enter")
            await is_live(boss)
            await gateway.app.keys.revoke("boss", "test")
            await boss.page.wait_for_url("**/login")
            await boss.page.go_back(wait_until="domcontentloaded")
            assert boss.page.url.endswith("/login")
        await is_live(window)


async def test_pages_that_nobody_sees_leave_their_connection_to_the_one_that_is_looked_at(
    browser: Any, up: Upstream, folder: Path
) -> None:
    text = config(provider("main", up), budget("hour", tokens=5000), chain=["main"])
    async with Gateway(folder, text) as gateway, console(gateway, browser) as window:
        await window.log_in()
        await is_live(window)
        await window.page.evaluate(HIDE, True)
        for _ in range(CONNECTIONS):
            other = Console(gateway, await window.page.context.new_page())
            await other.open("/budgets")
            await is_live(other)
            await other.page.evaluate(HIDE, True)
        await gateway.chat()
        assert await window.page.locator("#attempts").get_by_text("answered").count() == 0
        await window.page.evaluate(HIDE, False)
        await window.sees("answered", "#attempts")
        # What the reader stands on is found again where newer lines push it down, and not the line that takes its place.
        link = window.page.locator("#attempts a").first
        await link.focus()
        mine = await link.get_attribute("href")
        await gateway.chat()
        await window.page.locator("#attempts tbody tr").nth(1).wait_for()
        assert await window.page.evaluate("document.activeElement.getAttribute('href')") == mine
        assert await window.page.locator("#attempts a").first.get_attribute("href") != mine
