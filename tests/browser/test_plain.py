"""The console for those who have a keyboard alone, and for browsers that run no script."""

from pathlib import Path
from typing import Any

from gateway.store.alerts import Sign
from tests.browser.rig import ROLES, Console, console
from tests.doubles.upstream import Script, Upstream
from tests.e2e.rig import Gateway, budget, config, provider

ASKING = '''
from gateway.workflow import Context, workflow

@workflow
async def asking(ctx: Context, name: str, times: int = 1) -> str:
    """Asks before it ends."""
    if name == "fails":
        raise ValueError("as it was told to")
    return "yes" if await ctx.approve(f"Greet {name}?", who=("admins",), name="agree") else "no"
'''
FOCUSED = """() => {
  const one = document.activeElement, style = getComputedStyle(one), box = one.getBoundingClientRect();
  return {
    name: (one.getAttribute("aria-label") ?? (one.labels?.[0] ?? one).textContent).trim(),
    seen: style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2 && box.bottom > 0 && box.top < innerHeight,
  };
}"""
TABS_MAX = 80


class Keyboard:
    """Somebody who has a keyboard and no mouse: what is meant is gone to by Tab, and must be seen to be there."""

    def __init__(self, window: Console) -> None:
        self.window, self.page = window, window.page

    async def to(self, name: str) -> None:
        """Goes on to what has this name."""
        passed = []
        for _ in range(TABS_MAX):
            await self.page.keyboard.press("Tab")
            found = await self.page.evaluate(FOCUSED)
            if found["name"].startswith(name):
                assert found["seen"], f"{name} has the focus, and it is not seen"
                return
            passed.append(found["name"])
        raise AssertionError(f"no {name!r} is reached: {passed}")

    async def fill(self, name: str, value: str) -> None:
        """Goes on to a field, and writes over what it has."""
        await self.to(name)
        await self.page.keyboard.press("Control+A")
        await self.page.keyboard.type(value)

    async def press(self, name: str, key: str = "Enter") -> None:
        """Goes on to a button or a link, and presses it; waits for the page that comes."""
        await self.to(name)
        async with self.page.expect_navigation(wait_until="domcontentloaded"):
            await self.page.keyboard.press(key)
        await self.past_navigation()

    async def past_navigation(self) -> None:
        """To where the way past the navigation leads."""
        await self.page.locator("#main").focus()


async def test_every_form_works_by_keyboard_and_without_a_script(browser: Any, up: Upstream, folder: Path) -> None:
    (folder / "workflows").mkdir(parents=True)
    (folder / "workflows" / "asking.py").write_text(ASKING)
    (folder / ".env").write_text("TELEGRAM_BOT_TOKEN=123456:TEST\n")
    up.default = Script(text="a river is water that goes")
    telegram = '[telegram]\nadmins = [1001]\nallowed_users = [1002]\napi_root = "http://127.0.0.1:9"\n'
    text = config(provider("main", up), budget("calls", requests=3), telegram, chain=["main"])
    options = {"java_script_enabled": False}
    async with Gateway(folder, text, roles=ROLES) as gateway, console(gateway, browser, **options) as window:
        hand, sees = Keyboard(window), window.sees
        facts = {"provider": "main", "status": 401, "code": "x", "message": "x"}
        await gateway.app.alerts.note([Sign("key:main", "provider_key_refused", facts)])
        await window.open("/budgets/calls")
        await hand.fill("Admin key", gateway.keys["admin"])
        await hand.press("Log in")
        await window.page.get_by_role("link", name="Go on").or_(window.page.get_by_role("heading", name="calls")).first.wait_for()
        await window.open("/budgets/calls")

        async def open_at(path: str) -> None:
            await window.open(path)
            await hand.past_navigation()

        # The first thing is a way past the navigation.
        await hand.to("Skip to the content")
        await window.page.keyboard.press("Enter")
        await window.page.keyboard.press("Tab")
        assert (await window.page.evaluate(FOCUSED))["name"] == "Budgets"
        await hand.fill("Change", "+3")
        await hand.press("Change the limit")
        await sees("The limit is changed: +3")
        await hand.press("End it now")
        await sees("The limit is again as the file says")
        for amount, said in (("0", "corrects nothing"), ("+1", "Corrected by 1")):
            await hand.fill("Amount", amount)
            await hand.fill("Reason", "by hand")
            await hand.press("Correct")
            await sees(said)
        await sees("by hand", "#history")

        await open_at("/chat")
        for question in ("What is a river?", "And where does it go?"):
            await hand.fill("Your question", question)
            await hand.press("Send")
        await sees("main main-model · ")
        assert len(up.seen[1].body["messages"]) == len(up.seen[0].body["messages"]) + 2
        await hand.fill("Your question", "And a lake?")
        await hand.press("Send")
        await sees("is used up", ".notice")
        assert await window.page.locator(".words").count() == 6

        await open_at("/")
        await hand.press("Noted")
        await sees("Noted.")
        await open_at("/budgets")
        await hand.fill("For how long", "2h")
        await hand.press("Pause")
        await sees("Every call is paused")
        await hand.press("Let calls through")
        await sees("Calls go through again")
        await hand.press("Read the file again")
        await sees("It says what it said before")

        for name, done in (("Ana", "Reject"), ("Eva", "Cancel the run"), ("fails", "Retry from the failed step")):
            await open_at("/workflows/asking")
            await hand.fill("name", name)
            await hand.press("Dry run")
            await sees("It would make these steps" if name != "fails" else "as it was told to")
            await hand.press("Start")
            await sees("asking was started")
            await shown(window, done)
            await hand.press(done)
            await window.page.locator(".said.good").wait_for()
        await open_at("/runs")
        await hand.to("Workflow")
        await window.page.keyboard.type("asking")
        await hand.press("Show")
        assert await window.page.locator("#runs tbody tr").count() == 3
        await open_at("/usage")
        await hand.to("user")
        await window.page.keyboard.press("Space")
        await hand.press("Show")
        await sees("User", "thead")

        await open_at("/keys")
        await hand.fill("Name", "laptop")
        await hand.press("Make a key")
        await sees("The key laptop is made")
        await hand.press("Revoke laptop")
        await sees("laptop is revoked")
        await open_at("/people")
        await hand.fill("Telegram id", "77")
        await hand.press("Let in")
        await sees("77 is let in")
        await hand.press("Shut out 77")
        await sees("77 is shut out")
        await hand.press("Log out")
        assert window.page.url.endswith("/login")


async def shown(window: Console, button: str) -> None:
    """Loads the page again until it has this button: without a script it does not follow what happens."""
    while not await window.page.get_by_role("button", name=button).count():
        await window.page.reload(wait_until="domcontentloaded")
