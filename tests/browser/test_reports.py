"""The reports page: the figures with their drawing, files of them, and what became of what was sent."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from gateway.runs import NoticeState
from gateway.store.outbox import Outbox
from tests.browser.rig import Console, console
from tests.doubles.clock import SettableClock
from tests.doubles.upstream import Upstream
from tests.e2e.rig import Gateway, budget, config, provider, section

CHAT = {"name": "daily", "cron": "0 9 * * *", "to": "telegram:-100200/7"}
FOLDER = {"name": "weekly", "cron": "0 8 * * 1", "to": "file:told", "period": "week", "csv": True}
PICTURE = "main figure svg"


def text(up: Upstream, *reports: dict[str, Any]) -> str:
    sections = (section("[[reports]]", one) for one in reports)
    return config(provider("main", up), budget("hour", tokens=5000), *sections, chain=["main"])


@pytest.fixture
def clock() -> SettableClock:
    return SettableClock(datetime(2026, 3, 2, 22, tzinfo=UTC))


async def paper(window: Console) -> str:
    """The colour that the drawing's paper has in the browser."""
    return str(await window.page.locator(PICTURE).evaluate("one => getComputedStyle(one.querySelector('rect')).fill"))


async def test_a_report_is_sent_by_a_button_and_its_true_state_is_seen(
    browser: Any, up: Upstream, folder: Path, clock: SettableClock
) -> None:
    async with Gateway(folder, text(up, CHAT, FOLDER), clock) as gateway, console(gateway, browser) as window:
        await window.log_in()
        await window.open("/reports")
        cards = {name: f"#configured article:has(h3:text('{name}'))" for name in ("daily", "weekly")}
        for card in cards.values():
            await window.sees("Nothing was sent yet", card)
        await window.sees("Next 3 Mar 09:00", cards["daily"])
        await window.page.get_by_role("button", name="Send now the report weekly").click()
        await window.sees("The report weekly is written.")
        await window.sees("weekly-2026-02-23.txt", cards["weekly"])
        assert (folder / "told" / "weekly-2026-02-23.csv").read_text().startswith("period")
        await window.page.get_by_role("button", name="Send now the report daily").click()
        await window.sees("The report daily is on its way to telegram:-100200/7.")
        # A second press of the same button is the same form.
        form = {"csrf": await window.page.locator("body").get_attribute("data-csrf"), "sent": "0"}
        send = f"{gateway.base}/reports/daily/send"
        clock.advance(seconds=1)
        await window.page.context.request.post(send, headers={"Origin": gateway.base}, form=form)
        # A bot of any process sends it, and the page that is open says so.
        await window.sees("for a running bot to send it", cards["daily"])
        await window.mark()
        outbox = Outbox(gateway.app.database, clock)
        for state, detail, said in (
            (NoticeState.UNCERTAIN, "no answer came", "may have arrived"),
            (NoticeState.FAILED, "<b>chat not found</b>", "failed"),
            (NoticeState.SENT, "", "sent"),
        ):
            (notice,) = await outbox.newest("report:daily:")
            await outbox.end(notice.id, state, detail)
            await window.page.locator(f"{cards['daily']} .badge:text-is('{said}')").wait_for()
            await window.sees(detail or "made", cards["daily"])
        assert await window.is_marked()
        entries = [entry for entry in await gateway.app.books.audit() if entry.action == "send report"]
        assert [(one.actor, one.subject, one.detail["to"]) for one in entries] == [
            ("console:test", "daily", "telegram:-100200/7"),
            ("console:test", "weekly", f"file:{folder / 'told'}"),
        ]


async def test_the_figures_are_those_of_the_report_and_the_drawing_has_the_pages_colours(
    browser: Any, up: Upstream, folder: Path, clock: SettableClock
) -> None:
    async with Gateway(folder, text(up), clock) as gateway, console(gateway, browser, color_scheme="light") as window:
        await gateway.chat()
        clock.advance(hours=3)
        await window.log_in()
        await window.page.get_by_role("link", name="Reports").click()
        told = (await gateway.app.reports.make("day")).sections()
        for section_ in told:
            await window.sees(section_.title)
        await window.sees(told[0].lines[0])
        await window.sees("the configuration has no [[reports]]")
        assert await window.page.locator(f"{PICTURE} > title").text_content() == "Tokens by hour"
        light = await paper(window)
        await window.page.emulate_media(color_scheme="dark")
        assert await paper(window) != light
        await window.page.get_by_role("link", name="Month").click()
        await window.page.locator("main h2", has_text="Monthly report").wait_for()
        # The drawing of the usage page is the same one.
        await window.open("/usage?from=2026-02-01")
        assert await window.page.locator(f"{PICTURE} > title").text_content() == "Tokens by day"
        mine = window.page.context.request
        for kind, begins in (("csv", b"period,provider"), ("json", b'{"period": "week"'), ("png", b"\x89PNG")):
            answer = await mine.get(f"{gateway.base}/reports.{kind}?period=week")
            assert (answer.status, (await answer.body())[: len(begins)]) == (200, begins)
            assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert (await mine.get(f"{gateway.base}/reports?period=year")).status == 400
        origin = {"Origin": gateway.base}
        assert (await mine.post(f"{gateway.base}/reports/none/send", headers=origin, form={})).status == 403
        token = await window.page.locator("body").get_attribute("data-csrf")
        assert (await mine.post(f"{gateway.base}/reports/none/send", headers=origin, form={"csrf": token})).status == 404
