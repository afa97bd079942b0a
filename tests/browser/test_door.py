"""Who comes into the console, and what forms it takes."""

import asyncio
from pathlib import Path
from typing import Any

import aiohttp

from gateway.store.sessions import SESSION_LASTS
from tests.browser.rig import console
from tests.doubles.clock import SettableClock
from tests.doubles.upstream import Upstream
from tests.e2e.rig import Gateway, budget, config, provider


def small(up: Upstream) -> str:
    return config(provider("main", up), budget("hour", tokens=5000), chain=["main"])


async def test_a_link_lets_in_once_and_a_session_ends_in_time(
    browser: Any, up: Upstream, folder: Path, clock: SettableClock
) -> None:
    async with Gateway(folder, small(up), clock) as gateway, console(gateway, browser) as window:
        await window.open("/budgets/hour")
        assert window.page.url.endswith("/login?next=%2Fbudgets%2Fhour")
        link, _ = await gateway.app.sessions.make_link("test")
        await window.open(f"/login/{link}")
        await window.page.wait_for_url(gateway.base + "/")
        await window.sees("Last calls")
        (cookie,) = await window.page.context.cookies()
        assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
        assert cookie["value"] not in await window.page.content()

        async with console(gateway, browser) as other:
            await other.open(f"/login/{link}")
            await other.sees("This link was used")
            await other.open("/")
            assert other.page.url.endswith("/login")

        # The page that is open finds out by itself, and leads to the login.
        clock.advance(seconds=SESSION_LASTS.total_seconds())
        await window.page.wait_for_url("**/login")


async def test_an_admin_key_lets_in_and_logging_out_ends_it(browser: Any, up: Upstream, folder: Path) -> None:
    async with Gateway(folder, small(up)) as gateway, console(gateway, browser) as window:
        await window.open("/login?next=//evil.example")
        for key in ("sk-sluicegate-none", gateway.keys["user"]):
            await window.page.get_by_label("Admin key").fill(key)
            # The page of the try before says the same.
            async with window.page.expect_navigation(wait_until="domcontentloaded"):
                await window.page.get_by_role("button", name="Log in").click()
            await window.sees("That is no admin key")
        await window.page.get_by_label("Admin key").fill(gateway.keys["admin"])
        await window.page.keyboard.press("Enter")
        await window.page.wait_for_url(gateway.base + "/")
        await window.page.get_by_text("key:admin").wait_for()
        await window.page.get_by_role("button", name="Log out").click()
        await window.page.wait_for_url("**/login")
        await window.page.go_back(wait_until="domcontentloaded")
        assert "/login" in window.page.url


async def test_everybody_is_logged_out_at_once_and_no_link_is_left(browser: Any, up: Upstream, folder: Path) -> None:
    async with Gateway(folder, small(up)) as gateway, console(gateway, browser) as window, console(gateway, browser) as other:
        window.page.on("dialog", lambda dialog: dialog.accept())
        link, _ = await gateway.app.sessions.make_link("test")
        await asyncio.gather(window.log_in(), other.log_in())
        await window.open("/keys")
        await window.page.get_by_role("button", name="Log everybody out").click()
        await window.page.wait_for_url("**/login")
        await other.page.wait_for_url("**/login")
        assert (await gateway.call("GET", f"/login/{link}", key=None)).status == 403
        assert (await gateway.app.books.audit())[0].action == "log out everybody"


async def test_of_many_who_open_one_link_at_once_one_gets_in(up: Upstream, folder: Path) -> None:
    async with Gateway(folder, small(up)) as gateway:
        link, _ = await gateway.app.sessions.make_link("test")
        calls = (gateway.call("GET", f"/login/{link}", key=None, allow_redirects=False) for _ in range(8))
        assert sorted(answer.status for answer in await asyncio.gather(*calls)) == [200] + [403] * 7
        for proxied, secure in (("https", True), ("https, http", True), ("http", False), (None, False)):
            link, _ = await gateway.app.sessions.make_link("test")
            headers = {"Cookie": "sluicegate_session=chosen"} | ({"X-Forwarded-Proto": proxied} if proxied else {})
            given = (await gateway.call("GET", f"/login/{link}", key=None, headers=headers)).headers["set-cookie"]
            assert ("Secure" in given, "HttpOnly" in given, "SameSite=Strict" in given) == (secure, True, True)
            # A session that a visitor brings along is never the one that a login opens.
            assert "chosen" not in given


async def test_a_form_that_no_page_of_ours_has_sent_is_refused(browser: Any, up: Upstream, folder: Path) -> None:
    async with Gateway(folder, small(up)) as gateway, console(gateway, browser) as window:
        await window.log_in()
        token = await window.page.locator("body").get_attribute("data-csrf")
        (cookie,) = await window.page.context.cookies()
        good = {"change": "+100", "for": "1h", "csrf": token or ""}
        origin = {"Origin": gateway.base}
        for fields, headers in (
            (good, {}),
            (good, {"Origin": "http://evil.example"}),
            (good, {"Origin": "null"}),
            (good | {"csrf": "0" * 64}, origin),
            (good | {"csrf": ""}, origin),
            (good | {"csrf": "é"}, origin),
        ):
            assert await posted(gateway, cookie["value"], fields, headers) == 403
        assert await posted(gateway, "nobody", good, origin) == 401
        assert (await gateway.budget("hour"))["limit"] == 5000
        assert await posted(gateway, cookie["value"], good, origin) == 303
        assert (await gateway.budget("hour"))["limit"] == 5100


async def test_every_page_says_what_may_run_in_it(up: Upstream, folder: Path) -> None:
    async with Gateway(folder, small(up)) as gateway:
        for path in ("/login", "/", "/static/console.js", "/login/none"):
            answer = await gateway.call("GET", path, key=None, allow_redirects=False)
            policy = answer.headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            assert "frame-ancestors 'none'" in policy
            assert answer.headers["x-content-type-options"] == "nosniff"
        link, _ = await gateway.app.sessions.make_link("test")
        # Neither a look ahead nor a look at the head alone uses a link up.
        assert (await gateway.call("GET", f"/login/{link}", key=None, headers={"Sec-Purpose": "prefetch"})).status == 503
        assert (await gateway.call("HEAD", f"/login/{link}", key=None)).status == 405
        assert (await gateway.call("GET", f"/login/{link}", key=None)).status == 200


async def posted(gateway: Gateway, secret: str, fields: dict[str, str], headers: dict[str, str]) -> int:
    """The status of a form that some program sends with a browser's cookie."""
    cookies = {"sluicegate_session": secret}
    async with aiohttp.ClientSession(cookies=cookies) as session:
        url = f"{gateway.base}/budgets/hour/raise"
        async with session.post(url, data=fields, headers=headers, allow_redirects=False) as response:
            return response.status
