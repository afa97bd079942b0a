"""The console's page of keys: made with what each may, shown with where it stands, and what it spent."""

from pathlib import Path
from typing import Any

from gateway.chat import Origin, Request
from gateway.store.keys import May
from tests.browser.rig import console
from tests.browser.test_forms import Visitor, small
from tests.doubles.upstream import Upstream
from tests.e2e.rig import Gateway, budget, config, provider


async def test_a_key_is_made_with_what_it_may_and_shows_what_is_left_and_what_it_spent(
    browser: Any, up: Upstream, folder: Path
) -> None:
    each = (budget("each-key", key="*", tokens=4000), budget("each-person", user="*", requests=9))
    text = config(provider("main", up), budget("hour", tokens=50_000), *each, chain=["main"], more={"cheap": ["main"]})
    async with Gateway(folder, text) as gateway, console(gateway, browser, viewport={"width": 1100, "height": 800}) as window:
        page = window.page
        await window.log_in()
        await window.open("/keys")
        await page.get_by_label("Name").fill("laptop")
        await page.get_by_label("run workflows").uncheck()
        await page.get_by_label("read budgets and usage").check()
        await page.get_by_label("cheap").check()
        await page.get_by_role("button", name="Make a key").click()
        secret = await page.locator("#secret").inner_text()
        assert (await gateway.chat(key=secret, model="cheap")).status == 200
        assert (await gateway.chat(key=secret, model="default")).status == 403
        assert (await gateway.call("GET", "/api/runs", key=secret)).status == 403
        assert (await gateway.call("GET", "/api/usage", key=secret)).status == 200
        assert (await gateway.chat(key="user", model="default")).status == 200
        await gateway.until_nothing_is_held()

        await window.open("/keys")
        row = page.get_by_role("row", name="laptop")
        shown = await row.inner_text()
        assert "ask models, read budgets and usage with cheap only" in shown
        assert "each-key" in shown
        assert "each-person 8 of 9 requests left" in shown
        assert "ask models, run workflows\t" in await page.get_by_role("row", name="user").inner_text()
        assert "everything\tnone yet" in await page.get_by_role("row", name="admin").inner_text()

        await row.get_by_role("link", name="What it spent").click()
        await window.sees("Only key laptop")
        cells = page.locator("tbody tr")
        assert await cells.count() == 1
        assert "main\tmain-model\t1\t" in await cells.inner_text()
        rows = (await page.request.get(gateway.base + str(await page.get_by_text("Rows as CSV").get_attribute("href")))).text()
        assert [line.split(",")[9] for line in (await rows).splitlines()] == ["key", "laptop"]
        await page.get_by_role("link", name="Today").click()
        await window.sees("Only key laptop")
        await page.get_by_role("link", name="Show all of every key").click()
        await page.get_by_label("key", exact=True).check()
        await page.get_by_role("button", name="Show").click()
        await page.locator("tbody").get_by_role("link", name="user").click()
        await window.sees("Only key user")


async def test_a_scope_that_is_none_is_said_and_makes_no_key(up: Upstream, folder: Path) -> None:
    async with Gateway(folder, small(up)) as gateway:
        mine = await Visitor.logged_in(gateway)

        async def said(*fields: tuple[str, str]) -> str:
            signed = [("csrf", mine.token), ("name", "made"), *fields]
            form = "&".join(f"{name}={value}" for name, value in signed)
            headers = {"Referer": f"{gateway.base}/keys", "Content_Type": "application/x-www-form-urlencoded"}
            answer = await mine.post("/keys", form, **headers)
            assert answer.status in (200, 303), answer.body
            return answer.body.decode() or answer.headers["set-cookie"].replace("%20", " ")

        assert "a key must be allowed something" in await said()
        assert "there is no 'rule'" in (await said(("may", "rule"))).replace("%27", "'")
        assert "unknown model 'none'" in (await said(("may", "ask"), ("chain", "none"))).replace("%27", "'")
        assert "an admin key may use every chain" in await said(("admin", "yes"), ("chain", "default"))
        assert "an admin key may use every chain" in await said(("admin", "yes"), ("may", "ask"), ("chain", "default"))
        assert {key.name for key in await gateway.app.keys.list()} == {"user", "admin"}
        assert 'id="secret"' in await said(("may", "ask"), ("may", "read"), ("chain", "default"))
        (made,) = [key for key in await gateway.app.keys.list() if key.name == "made"]
        assert (made.admin, made.may, made.chains) == (False, {May.ASK, May.READ}, ("default",))


async def test_usage_of_nobody_is_a_page(up: Upstream, folder: Path) -> None:
    async with Gateway(folder, small(up)) as gateway:
        origin = Origin("req_1", "http", user="a&b=é/ñ", key="a&b=é/ñ")
        await gateway.app.dispatcher.complete(Request([{"role": "user", "content": "hi"}]), "default", origin)
        mine = await Visitor.logged_in(gateway)
        listed = (await mine.get("/usage?by=key&by=user")).body.decode()
        link = listed.split("<tbody>")[1].split('href="')[1].split('"')[0].replace("&amp;", "&")
        assert "<strong>a&amp;b=é/ñ</strong>" in (await mine.get(link)).body.decode()
        for nobody in ("none", "%FF", "%F0%9F%98%80", "x" * 2000):
            answer = await mine.get(f"/usage?key={nobody}")
            assert (answer.status, "Nothing was spent then" in answer.body.decode()) == (200, True), nobody
        assert (await mine.get("/usage?key=%00")).status == 400
        assert (await mine.get("/usage.csv?key=%00")).status == 400
