"""What an operator does at the console: ask until the budget is gone, make room, start work and let it through."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from tests.browser.rig import ROLES, Console, console
from tests.doubles.botapi import TOKEN, BotApi
from tests.doubles.upstream import Script, Upstream
from tests.e2e.rig import Gateway, budget, config, provider, section

GREET = '''
from gateway.workflow import Context, workflow

@workflow(title="Greet somebody")
async def greet(ctx: Context, name: str, times: int = 1, loudly: bool = False) -> str:
    """Greets, once somebody has agreed.

    Args:
        name: Whom.
    """
    said = await ctx.ask(f"Greet {name}.", name="think", max_tokens=20)
    if not await ctx.approve(f"Say it to {name}?", who=("admins",), name="agree"):
        return "nothing was said"
    return f"{said} to {name}"
'''


def with_workflow(folder: Path, token: str = "") -> None:
    (folder / "workflows").mkdir(parents=True)
    (folder / ".env").write_text(f"TELEGRAM_BOT_TOKEN={token}\n" if token else "")
    (folder / "workflows" / "greet.py").write_text(GREET)


async def asks(window: Console, question: str) -> None:
    await window.page.get_by_label("Your question").fill(question)
    await window.page.keyboard.press("Enter")


async def test_a_chat_until_the_budget_is_gone_ends_with_the_notice(browser: Any, up: Upstream, folder: Path) -> None:
    up.default = Script(text="a river is water that goes")
    text = config(provider("main", up), budget("two-calls", requests=2), chain=["main"])
    async with Gateway(folder, text) as gateway, console(gateway, browser) as window:
        await window.log_in()
        await window.page.get_by_role("link", name="Chat").click()
        for number in (1, 2):
            await asks(window, f"What is a river? {number}")
            await window.page.locator(".theirs .note", has_text="tokens").nth(number - 1).wait_for()
        await window.sees("main main-model", "#talk")
        assert await window.page.locator(".theirs .words").all_inner_texts() == ["a river is water that goes"] * 2
        # The second question knows of the first: it is one conversation.
        assert len(up.seen[1].body["messages"]) == len(up.seen[0].body["messages"]) + 2
        await asks(window, "And a lake?")
        notice = window.page.locator(".notice")
        await notice.get_by_text("is used up").wait_for()
        assert "two-calls" not in await notice.inner_text()
        assert up.meter.requests == 2
        await notice.get_by_role("link", name="why").click()
        await window.sees("two-calls")
        await window.sees("Passed over")


async def test_stop_closes_the_providers_connection_and_keeps_what_came(browser: Any, up: Upstream, folder: Path) -> None:
    up.default = Script(text="one two three four five six", stall=2)
    text = config(provider("main", up), budget("hour", tokens=50_000), chain=["main"])
    async with Gateway(folder, text) as gateway, console(gateway, browser) as window:
        await window.log_in()
        await window.open("/chat")
        await asks(window, "Count.")
        await window.page.get_by_text("one").wait_for()
        await window.page.get_by_role("button", name="Stop").click()
        await window.sees("stopped", "#talk")
        await up.until(lambda: up.meter.client_left == 1)
        await gateway.until_nothing_is_held()
        assert (await gateway.rows())[0]["outcome"] == "cancelled"


async def test_a_talk_keeps_what_was_said_when_an_answer_breaks_off_or_the_session_ends(
    browser: Any, up: Upstream, folder: Path
) -> None:
    up.default = Script(text="one two three", delay_s=0.5)
    text = config(provider("main", up), budget("hour", tokens=50_000), chain=["main"])
    async with Gateway(folder, text) as gateway, console(gateway, browser) as window:
        talk = window.page.locator("#talk")
        await window.log_in()
        await window.open("/chat")
        await asks(window, "Count.")
        await talk.get_by_text("one").wait_for()
        # What was let through goes on to its end; the next question is not taken, and stays to be asked again.
        (cookie,) = await window.page.context.cookies()
        await gateway.app.sessions.close(cookie["value"])
        await talk.get_by_text("tokens").wait_for()
        await asks(window, "Go on.")
        await talk.get_by_text("Your session has ended").wait_for()
        assert await window.page.get_by_label("Your question").input_value() == "Go on."
        assert "one two three" in await talk.inner_text()
        await talk.get_by_role("link", name="Log in again").click()
        await window.page.get_by_label("Admin key").fill(gateway.keys["admin"])
        await window.page.keyboard.press("Enter")
        await window.page.wait_for_url(gateway.base + "/chat")

        frame = 'event: text\ndata: {"text": "only half"}\n\n'
        await window.page.route("**/chat", lambda route: route.fulfill(body=frame, content_type="text/event-stream"))
        await asks(window, "Count.")
        await talk.get_by_text("broke off").wait_for()
        assert await talk.locator(".theirs .words").all_inner_texts() == ["only half"]
        await window.page.unroute("**/chat")
        # A new conversation knows nothing of the one before, also where an answer was still coming.
        up.default = Script(text="one two three", stall=1)
        await asks(window, "Secret.")
        await talk.get_by_text("one").wait_for()
        await window.page.get_by_role("button", name="New conversation").click()
        up.default = Script(text="fresh")
        await asks(window, "Hello.")
        await talk.get_by_text("fresh").wait_for()
        assert "Secret" not in str(up.seen[-1].body["messages"])


async def test_a_raise_answers_what_waits_in_a_chat_and_a_run_that_was_started_here_goes_on_and_ends_by_an_approval(
    browser: Any, up: Upstream, folder: Path
) -> None:
    with_workflow(folder, token=TOKEN)
    up.default = Script(text="water that goes")
    async with AsyncExitStack() as stack:
        api = await stack.enter_async_context(BotApi())
        telegram = section("[telegram]", {"api_root": api.url, "admins": [1], "allowed_users": [42]})
        text = config(provider("main", up), budget("calls", requests=1, per="day"), telegram, chain=["main"])
        gateway = await stack.enter_async_context(Gateway(folder, text, roles=ROLES | {"bot"}))
        window = await stack.enter_async_context(console(gateway, browser))
        phone = await stack.enter_async_context(console(gateway, browser, viewport={"width": 390, "height": 844}))
        assert (await gateway.chat()).status == 200
        await asyncio.gather(window.log_in(), phone.log_in())
        await window.open("/workflows")
        await window.page.get_by_role("link", name="Greet somebody").click()
        await window.page.get_by_label("times").fill("many")
        await window.page.get_by_label("name").fill("Ana")
        await window.page.get_by_role("button", name="Dry run").click()
        await window.sees("whole number")
        await window.page.get_by_label("times").fill("2")
        await window.page.get_by_role("button", name="Dry run").click()
        await window.sees("would wait", "#plan")
        assert await window.page.get_by_label("name").input_value() == "Ana"
        await window.page.get_by_role("button", name="Start").click()
        await window.sees("Greet somebody was started")
        await window.sees("waits for budget", "#standing")
        await window.mark()
        await api.say("What is a river?", 42)
        notice = await api.answered("used up", 42)
        await api.tap(notice, "Answer me", 42)
        await api.until(lambda: list(notice.buttons) == ["Cancel"])
        assert up.meter.requests == 1

        await phone.open("/budgets/calls")
        await phone.page.get_by_label("Change", exact=True).fill("+2")
        await phone.page.get_by_role("button", name="Change the limit").click()
        await phone.sees("The limit is changed")

        await api.answered("water that goes", 42)
        await window.sees("Say it to Ana?", "#standing")
        await phone.open("/")
        await phone.page.get_by_role("button", name="Approve").click()
        await phone.sees("Approved")
        await window.sees("succeeded", "#standing")
        await window.sees("to Ana", "#standing")
        assert await window.is_marked()
        assert up.meter.requests == 3


async def test_keys_are_shown_once_and_revoked_and_people_let_in_and_shut_out(browser: Any, up: Upstream, folder: Path) -> None:
    telegram = '[telegram]\nadmins = [1001]\nallowed_users = [1002]\napi_root = "http://127.0.0.1:9"\n'
    with_workflow(folder, token="123456:TEST")
    text = config(provider("main", up), budget("hour", tokens=50_000), telegram, chain=["main"])
    async with Gateway(folder, text) as gateway, console(gateway, browser) as window:
        window.page.on("dialog", lambda dialog: dialog.accept())
        await window.log_in()
        await window.open("/keys")
        await window.page.get_by_label("Name").fill("laptop")
        await window.page.get_by_role("button", name="Make a key").click()
        secret = await window.page.locator("#secret").inner_text()
        assert (await gateway.chat(key=secret)).status == 200
        await window.open("/keys")
        assert secret not in await window.page.content()
        await window.page.get_by_role("button", name="Revoke laptop").click()
        await window.sees("laptop is revoked")
        assert (await gateway.chat(key=secret)).status == 401

        await window.open("/people")
        await window.page.get_by_label("Telegram id").fill("1001")
        await window.page.get_by_role("button", name="Shut out", exact=True).click()
        await window.sees("an admin of the configuration stays one")
        await window.page.get_by_label("Telegram id").fill("-100300")
        await window.page.get_by_role("button", name="Let in", exact=True).click()
        await window.sees("-100300 is let in")
        await window.page.get_by_role("button", name="Shut out 1002").click()
        await window.sees("1002 is shut out")
        assert gateway.app._people() is not None
        roles = await gateway.app._people().roles()  # type: ignore[union-attr]
        assert {subject: str(role) for subject, role in roles.items()} == {-100300: "allowed", 1002: "denied"}
        await window.open("/audit")
        for said in ("create key", "revoke key", "allow", "deny", "console:test"):
            await window.sees(said)
