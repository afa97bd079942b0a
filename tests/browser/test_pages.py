"""Every page with hostile names in every field: shown as text, reachable for everybody, fitting a phone."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from gateway.chat import Origin, Request
from gateway.runs import Run, RunState, Starter, StepState
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


async def filled(gateway: Gateway, up: Upstream) -> Run:
    """Something hostile wherever somebody outside can write something."""
    app = gateway.app
    up.default = Script(text=EVIL)
    for user in (EVIL, "ana"):
        origin = Origin(f"req_{user[:1]}<b>", "http", user=user, key=user)
        await app.dispatcher.complete(Request([{"role": "user", "content": EVIL}]), "default", origin)
    await app.keys.create(EVIL, True, EVIL)
    await app.books.adjust(EVIL, 1, EVIL, EVIL)
    await app.store.raise_limit(EVIL, "+", 5, None, EVIL)
    await app.store.pause(None, EVIL)
    starter = Starter("http", EVIL, key=EVIL)
    run = await app.desk.start("greet", {"name": EVIL}, starter)
    assert await app.runs.take(run.id, "test") is not None
    await app.runs.step_began(run.id, EVIL, "step", EVIL)
    await app.runs.step_ended(run.id, EVIL, StepState.FAILED, EVIL)
    await app.runs.ask_approval(run.id, "agree", EVIL, ("admins",))
    await app.runs.set_state(run.id, RunState.WAITING_APPROVAL, waiting_for=EVIL)
    failed = await app.desk.start("greet", {"name": EVIL}, starter)
    await app.runs.take(failed.id, "test")
    await app.runs.set_state(failed.id, RunState.FAILED, error=EVIL)
    return failed


async def good(window: Console, where: str) -> None:
    """Nothing ran, nothing is wider than the window, and axe finds nothing serious."""
    from axe_playwright_python.async_playwright import Axe

    page = window.page
    assert await page.evaluate("window.hacked") is None, where
    assert await page.locator("main script, main img").count() == 0, where
    wide = await page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert wide == 0, f"{where} is {wide} wider than the window"
    found = (await Axe().run(page)).response["violations"]
    assert [(one["id"], one["nodes"][0]["html"]) for one in found if one["impact"] in SERIOUS] == [], where


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
async def test_hostile_names_are_text_and_every_page_is_for_everybody(
    browser: Any, up: Upstream, folder: Path, width: int, scheme: str
) -> None:
    pytest.importorskip("axe_playwright_python", reason="axe-playwright-python is not installed")
    (folder / "workflows").mkdir(parents=True)
    (folder / "workflows" / "greet.py").write_text(GREET % ((EVIL.replace('"', '\\"'),) * 3))
    evil = budget(EVIL, tokens=100_000, label=EVIL)
    text = config(provider("main", up), evil, budget("each", user="*", tokens=100_000), REPORT, chain=["main"])
    options = {"viewport": {"width": width, "height": 844}, "color_scheme": scheme}
    clock = SettableClock(datetime(2026, 3, 2, 23, 50, tzinfo=UTC))
    async with Gateway(folder, text, clock) as gateway, console(gateway, browser, **options) as window:
        run = await filled(gateway, up)
        # What was asked is in the report of the day before.
        clock.advance(minutes=20)
        await window.open("/login")
        await good(window, "/login")
        await window.log_in()
        # A link with the name in it, as the page itself has it.
        why = await window.page.get_by_role("link", name="Why the request").first.get_attribute("href")
        budget_page = await window.page.get_by_role("link", name=EVIL).first.get_attribute("href")
        named = ("/", "/budgets", budget_page, f"/runs/{run.id}", "/reports", "/keys", "/audit")
        for path in (
            *("/", "/budgets", budget_page, "/budgets/each", why, "/chat", "/workflows", "/workflows/greet", "/runs"),
            *(f"/runs/{run.id}", "/usage?by=user&by=key&by=hour", "/reports", "/reports?period=month", "/keys", "/people"),
            *("/audit", "/runs/none"),
        ):
            await window.open(str(path))
            assert await window.page.locator("h1").count() == 1, path
            await good(window, str(path))
            if path in named:
                await window.sees(EVIL)
        await window.open("/reports")
        await window.sees(EVIL[:39], "main h2:text('Who') ~ div")
