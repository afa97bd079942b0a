"""What the console shows as it happens, without a reload."""

import asyncio
import re
from pathlib import Path
from typing import Any

from gateway.store.alerts import Sign
from tests.browser.rig import console
from tests.doubles.upstream import Script, Upstream
from tests.e2e.rig import Gateway, budget, config, provider

HOSTILE = '<script>window.hacked=1</script><img src=x onerror="window.hacked=1">'


async def test_the_overview_follows_spending_and_keeps_what_the_reader_does(browser: Any, up: Upstream, folder: Path) -> None:
    text = config(provider("main", up), budget("hour", tokens=5000), chain=["main"])
    async with Gateway(folder, text) as gateway, console(gateway, browser) as window:
        await window.log_in()
        await window.page.get_by_text("live", exact=True).wait_for()
        await window.mark()
        answer = await gateway.chat()
        await window.sees("answered", "#attempts")
        spent = (await gateway.budget("hour"))["spent"]
        await window.sees(f"{spent:,}", "#budgets")
        assert await window.is_marked()
        await window.page.get_by_role("link", name="Why the request").click()
        await window.sees(answer.headers["x-sluicegate-request-id"])
        await window.sees("Answered")
        await window.page.get_by_role("link", name="hour").click()
        # A limit that changes elsewhere is seen here while a form is being filled in.
        await window.mark()
        await window.page.get_by_label("Change", exact=True).fill("+7")
        await gateway.call("POST", "/api/budgets/hour/raise", key="admin", json={"change": "+1000", "for": "1h"})
        await window.sees("6,000", "#counters")
        assert await window.page.get_by_label("Change", exact=True).input_value() == "+7"
        await window.page.get_by_role("button", name="Change the limit").click()
        await window.sees("The limit is changed: +7")
        await window.page.get_by_role("button", name="End it now").click()
        await window.sees("The limit is again as the file says")
        await window.page.get_by_label("Amount").fill("-5")
        await window.page.get_by_label("Reason").fill(HOSTILE)
        await window.page.get_by_role("button", name="Correct").click()
        await window.sees(HOSTILE, "#history")
        assert await window.page.evaluate("window.hacked") is None


async def test_the_file_is_read_again_by_a_button_and_alerts_are_noted(browser: Any, up: Upstream, folder: Path) -> None:
    text = config(provider("main", up), budget("hour", tokens=5000), chain=["main"])
    file = folder / "sluicegate.toml"
    facts = {"provider": "main", "status": 401, "code": "none", "message": HOSTILE}
    async with Gateway(folder, text) as gateway, console(gateway, browser) as window:
        await gateway.app.alerts.note([Sign("key:main", "provider_key_refused", facts)])
        await window.log_in()
        await window.page.get_by_role("button", name="Noted").click()
        await window.sees("Noted.")
        assert await window.page.get_by_role("button", name="Noted").count() == 0
        told = (
            ("9000", "from the next call on"),
            ("9000", "It says what it said before"),
            ("-1", "Nothing was changed"),
        )
        for limit, said in told:
            file.write_text(text.replace("5000", limit))
            await window.open("/budgets")
            await window.page.get_by_role("button", name="Read the file again").click()
            await window.sees(said)
        assert (await gateway.budget("hour"))["limit"] == 9000
        assert await window.page.evaluate("window.hacked") is None


async def test_the_overview_says_what_is_held_what_runs_out_and_who_is_left_alone(
    browser: Any, up: Upstream, folder: Path
) -> None:
    text = config(
        provider("main", up), provider("spare", up), budget("pace", tokens=5000, per="rolling 5m"), chain=["main", "spare"]
    )
    async with Gateway(folder, text) as gateway, console(gateway, browser) as window:
        up.queue.append(Script(status=401, error={"message": "bad key"}))
        up.default = Script(output_tokens=2000, ignore_limit=True)
        await gateway.chat()
        await window.log_in()
        alone, ready = (window.page.locator("#providers tr", has_text=name) for name in ("main-model", "spare-model"))
        await alone.get_by_text("left alone").wait_for()
        assert "ready" in await ready.inner_text()
        assert re.search(r"\d m?s\b", await ready.inner_text()), "how long it took"
        # When it is used up at this pace, and how long that is, counted down by the second.
        ahead = window.page.locator("#budgets .ahead", has_text="Runs out")
        left = await ahead.locator(".left").inner_text()
        assert left.startswith("(in ")
        await ahead.locator(".left", has_text=left).wait_for(state="detached")

        up.default = Script(text="one two three", delay_s=1)
        asking = asyncio.create_task(gateway.chat())
        held = window.page.locator("#budgets td[data-label=Held]:not(.nothing)")
        await held.wait_for()
        await window.sees("1 call", "#glance")
        await asking
        await held.wait_for(state="detached")
        await window.open("/chat")
        await window.page.get_by_label("Your question").fill("Count.")
        await window.page.keyboard.press("Enter")
        await window.sees("spare spare-model · instead of main", "#talk")
