"""Every page with hostile names in every field: shown as text, reachable for everybody, fitting a phone."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from gateway.chat import Origin, Request
from gateway.runs import Run, RunState, Starter, StepState
from gateway.store.alerts import Sign
from gateway.store.usage import GROUPS
from gateway.web.dashboard import ROUTES
from tests.browser.rig import Console, console
from tests.doubles.clock import SettableClock
from tests.doubles.upstream import Script, Upstream
from tests.e2e.rig import Gateway, budget, config, provider, section

EVIL = "<script>window.hacked=1</script>\"'><img src=x onerror=window.hacked=1>"
GREET = '''
from gateway.workflow import Context, workflow

@workflow(title="""%s""")
async def greet(ctx: Context, name: str = """%s""") -> str:
    """%s"""
    return name
'''
REPORT = section("[[reports]]", {"name": "daily", "cron": "0 9 * * *", "to": "file:told"})
SERIOUS = ("serious", "critical")
LOOKS = [(width, scheme) for width in (1280, 390) for scheme in ("light", "dark")]
NO_PAGES = {"/login/{link}", "/usage.csv", "/reports.csv", "/reports.json", "/reports.png"}
"""What is got by GET and is no page that stays: a link goes on by itself, a file is kept."""


async def filled(gateway: Gateway, up: Upstream) -> Run:
    """Something hostile wherever somebody outside can write something."""
    app = gateway.app
    up.default = Script(text=EVIL, model=EVIL)
    for user in (EVIL, "ana"):
        origin = Origin(f"req_{user[:1]}<b>", "http", user=user, key=user, chat=user, workflow=user, run=user, step=user)
        await app.dispatcher.complete(Request([{"role": "user", "content": EVIL}]), "default", origin)
    await app.keys.create(EVIL, True, EVIL)
    await app.books.adjust(EVIL, 1, EVIL, EVIL)
    await app.store.raise_limit(EVIL, "+", 5, None, EVIL)
    await app.store.pause(None, EVIL)
    facts = {"provider": EVIL, "status": 401, "code": EVIL, "message": EVIL}
    await app.alerts.note([Sign(f"key:{EVIL}", "provider_key_refused", facts)])
    starter = Starter("http", EVIL, key=EVIL)
    run = await app.desk.start("greet", {"name": EVIL}, starter)
    assert await app.runs.take(run.id, "test") is not None
    await app.runs.step_began(run.id, EVIL, "step", EVIL)
    await app.runs.step_ended(run.id, EVIL, StepState.FAILED, EVIL)
    await app.runs.ask_approval(run.id, "agree", EVIL, ("admins",))
    await app.runs.set_state(run.id, RunState.WAITING_APPROVAL, waiting_for=EVIL)
    failed = await app.desk.start("greet", {"name": EVIL}, starter)
    await app.runs.take(failed.id, "test")
    await app.runs.step_began(failed.id, EVIL, "step", EVIL)
    await app.runs.step_ended(failed.id, EVIL, StepState.FAILED, EVIL)
    await app.runs.set_state(failed.id, RunState.FAILED, error=EVIL)
    return failed


async def good(window: Console, where: str) -> None:
    """Nothing ran; on a desk and on a phone, by day and by night, nothing is wider than the window or serious to axe."""
    from axe_playwright_python.async_playwright import Axe

    page = window.page
    assert await page.evaluate("window.hacked") is None, where
    assert await page.locator("main script, main img").count() == 0, where
    assert await page.locator("h1").count() == 1, where
    for width, scheme in LOOKS:
        await page.set_viewport_size({"width": width, "height": 844})
        await page.emulate_media(color_scheme=scheme)
        wide = await page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert wide == 0, f"{where} is {wide} wider than {width}"
        # Its script is put in once; what is not violated need not be listed.
        options = {"resultTypes": ["violations"], "elementRef": False, "preload": False}
        if (width, scheme) == LOOKS[0]:
            found = (await Axe().run(page, options=options)).response["violations"]
        else:
            found = (await page.evaluate("(options) => axe.run(document, options)", options))["violations"]
        serious = [(one["id"], one["nodes"][0]["html"]) for one in found if one["impact"] in SERIOUS]
        assert serious == [], f"{where}, {width} wide, {scheme}"


async def test_hostile_names_are_text_and_every_page_is_for_everybody(browser: Any, up: Upstream, folder: Path) -> None:
    pytest.importorskip("axe_playwright_python", reason="axe-playwright-python is not installed")
    (folder / "workflows").mkdir(parents=True)
    (folder / "workflows" / "greet.py").write_text(GREET % ((EVIL.replace('"', '\\"'),) * 3))
    evil = budget(EVIL, tokens=100_000, label=EVIL)
    each = budget("each", user="*", tokens=100_000)
    text = config(provider("main", up, model=EVIL), evil, each, REPORT, chain=["main"])
    clock = SettableClock(datetime(2026, 3, 2, 23, 50, tzinfo=UTC))
    async with Gateway(folder, text, clock) as gateway, console(gateway, browser) as window:
        run = await filled(gateway, up)
        # What was asked is in the report of the day before.
        clock.advance(minutes=20)
        await window.open("/login")
        await good(window, "/login")
        await window.log_in()
        # A link with the name in it, as the page itself has it.
        why = await window.page.get_by_role("link", name="Why the request").first.get_attribute("href")
        budget_page = await window.page.get_by_role("link", name=EVIL).first.get_attribute("href")
        pages = {
            "/": ["/"],
            "/login": [],
            "/budgets": ["/budgets"],
            "/budgets/{name}": [budget_page, "/budgets/each"],
            "/why/{request_id:.+}": [why],
            "/chat": ["/chat"],
            "/workflows": ["/workflows"],
            "/workflows/{name}": ["/workflows/greet"],
            "/runs": ["/runs"],
            "/runs/{id}": [f"/runs/{run.id}", "/runs/none"],
            "/usage": ["/usage?" + "&".join(f"by={name}" for name in GROUPS)],
            "/reports": ["/reports", "/reports?period=month"],
            "/keys": ["/keys"],
            "/people": ["/people"],
            "/audit": ["/audit"],
        }
        assert {path for method, path, _ in ROUTES if method == "GET"} - NO_PAGES == set(pages)
        for path in [str(path) for paths in pages.values() for path in paths]:
            await window.open(path)
            if path == "/reports":
                # Long names are shortened there.
                await window.sees(EVIL[:39], "main h2:text('Who') ~ div")
            if path not in ("/people", "/chat", "/runs/none"):
                await window.sees(EVIL)
            await good(window, path)
        await gateway.app.store.resume(EVIL)
        await window.open("/chat")
        await window.page.get_by_label("Your question").fill(EVIL)
        await window.page.keyboard.press("Enter")
        await window.page.locator(".theirs .note", has_text="tokens").wait_for()
        assert await window.page.locator(".words").all_inner_texts() == [EVIL, EVIL]
        await good(window, "a talk")


async def test_the_description_of_the_interface_needs_no_network_and_is_for_everybody(
    browser: Any, up: Upstream, folder: Path
) -> None:
    text = config(provider("main", up), chain=["main"])
    async with Gateway(folder, text) as gateway, console(gateway, browser) as window:
        asked: list[str] = []
        window.page.on("request", lambda request: asked.append(request.url))
        await window.open("/docs")
        await window.page.get_by_text("/v1/messages/count_tokens", exact=True).wait_for()
        # Its style is in force under its content policy: the browser's own letters have serifs.
        assert "sans-serif" in await window.page.evaluate("getComputedStyle(document.body).fontFamily")
        await window.page.locator("summary").first.click()
        await good(window, "/docs")
        await window.page.get_by_role("link", name="openapi.json").click()
        await window.page.get_by_text('"3.1.0"').wait_for()
        assert asked == [f"{gateway.base}{path}" for path in ("/docs", "/openapi.json")]
