"""Runs from their pages: started and retried with caps of their own, told what they wait for, shown with what they may."""

import asyncio
from pathlib import Path

from gateway.runs import Caps, RunState, Starter
from tests.browser.rig import ROLES
from tests.browser.test_forms import Visitor
from tests.doubles.upstream import Upstream
from tests.e2e.rig import UNTIL_S, Gateway, config, provider

CAPPED = """
from gateway.workflow import Caps, Context, workflow

@workflow(budget=Caps(tokens=5000, usd=0.5))
async def capped(ctx: Context) -> str:
    return await ctx.ask("hello", name="ask", max_tokens=20)
"""


async def failed(gateway: Gateway, workflow: str) -> str:
    run = await gateway.app.desk.start(workflow, {}, Starter("http", "user", key="user"))
    assert await gateway.app.runs.take(run.id, "test") is not None
    await gateway.app.runs.set_state(run.id, RunState.FAILED, error="its cap is used up")
    return run.id


async def test_a_failed_run_is_retried_with_other_caps_from_its_page(up: Upstream, folder: Path) -> None:
    (folder / "workflows").mkdir(parents=True)
    (folder / "workflows" / "capped.py").write_text(CAPPED)
    (folder / "workflows" / "free.py").write_text(
        CAPPED.replace("budget=Caps(tokens=5000, usd=0.5)", "").replace("capped", "free")
    )
    async with Gateway(folder, config(provider("main", up), chain=["main"])) as gateway:
        mine = await Visitor.logged_in(gateway)
        run, plain, free = await failed(gateway, "capped"), await failed(gateway, "capped"), await failed(gateway, "free")
        page = (await mine.get(f"/runs/{run}")).body.decode()
        assert 'name="cap:tokens" maxlength="30" autocomplete="off" placeholder="5,000"' in page
        assert 'placeholder="$0.50"' in page
        assert "cap:requests" not in page
        assert "cap:" not in (await mine.get(f"/runs/{free}")).body.decode()

        signed = {"csrf": mine.token, "cap:tokens": "", "cap:usd": ""}
        for wrong in ({"cap:tokens": "many"}, {"cap:usd": "-1"}, {"cap:requests": "5"}, {"cap:tokens": "9" * 30}):
            assert 400 <= (await mine.post(f"/runs/{run}/retry", signed | wrong)).status < 500, wrong
        assert (await gateway.app.runs.get(run)).state is RunState.FAILED

        assert (await mine.post(f"/runs/{run}/retry", signed | {"cap:tokens": " 20k "})).status == 303
        again = await gateway.app.runs.get(run)
        assert (again.state, again.caps) == (RunState.QUEUED, Caps(tokens=20_000, usd=0.5))
        assert "cap:" not in (await mine.get(f"/runs/{run}")).body.decode()
        assert (await mine.post(f"/runs/{plain}/retry", signed)).status == 303
        assert (await gateway.app.runs.get(plain)).caps is None


WAITING = """
from gateway.workflow import Caps, Context, workflow

@workflow(budget=Caps(tokens=5000))
async def waiting(ctx: Context) -> object:
    return await ctx.wait_for("go")
"""


async def test_a_run_is_started_with_caps_of_its_own_and_a_dry_run_keeps_what_was_typed(up: Upstream, folder: Path) -> None:
    (folder / "workflows").mkdir(parents=True)
    (folder / "workflows" / "capped.py").write_text(CAPPED)
    async with Gateway(folder, config(provider("main", up), chain=["main"])) as gateway:
        mine = await Visitor.logged_in(gateway)
        assert 'placeholder="5,000" value=""' in (await mine.get("/workflows/capped")).body.decode()
        form = {"csrf": mine.token, "once": "1", "cap:tokens": "2k", "cap:usd": ""}
        planned = await mine.post("/workflows/capped", form | {"act": "rehearse", "cap:tokens": "1"})
        assert 'placeholder="5,000" value="1"' in planned.body.decode()
        assert "would wait" in planned.body.decode(), "its only step has no room in a cap of 1"
        assert (await mine.post("/workflows/capped", form | {"act": "start", "cap:tokens": "some"})).status >= 400
        assert (await mine.post("/workflows/capped", form | {"act": "start"})).status == 303
        (run,) = await gateway.app.desk.newest(Starter("cli"))
        assert run.caps == Caps(tokens=2000, usd=0.5)


async def test_a_run_is_told_from_its_page_what_it_waits_for(up: Upstream, folder: Path) -> None:
    (folder / "workflows").mkdir(parents=True)
    (folder / "workflows" / "waiting.py").write_text(WAITING)
    async with Gateway(folder, config(provider("main", up), chain=["main"]), roles=ROLES) as gateway:
        mine = await Visitor.logged_in(gateway)
        run = await gateway.app.desk.start("waiting", {}, Starter("http", "user", key="user", may_use=("main", "<i>")))
        await standing(gateway, run.id, RunState.WAITING)
        page = (await mine.get(f"/runs/{run.id}")).body.decode()
        assert '<input type="hidden" name="name" value="go">' in page
        assert "may ask main, &lt;i&gt; only" in page
        form = {"csrf": mine.token, "name": "go", "data": "{not json"}
        for wrong in (
            {},
            {"data": "1", "name": ""},
            {"data": "1", "name": "a b"},
            {"data": "[" * 5000},
            {"data": '"x"' * 30_000},
        ):
            assert 400 <= (await mine.post(f"/runs/{run.id}/signal", form | wrong)).status < 500, wrong
        assert (await mine.post(f"/runs/{run.id}/signal", form | {"data": '{"word": "on"}'})).status == 303
        await standing(gateway, run.id, RunState.SUCCEEDED)
        assert (await gateway.app.runs.get(run.id)).result == {"word": "on"}
        assert 'name="data"' not in (await mine.get(f"/runs/{run.id}")).body.decode()
        assert (await mine.post(f"/runs/{run.id}/signal", form | {"data": ""})).status == 409


async def standing(gateway: Gateway, run: str, state: RunState) -> None:
    async with asyncio.timeout(UNTIL_S):
        while (await gateway.app.runs.get(run)).state is not state:  # noqa: ASYNC110 - it is a worker's state
            await asyncio.sleep(0.05)


async def test_the_audit_says_in_words_what_a_key_may_and_a_browser_finds_the_icon(up: Upstream, folder: Path) -> None:
    async with Gateway(folder, config(provider("main", up), chain=["main"])) as gateway:
        mine = await Visitor.logged_in(gateway)
        await gateway.app.keys.create("sheet", False, "test", may=["read", "ask"], chains=["main", "default"])
        run = await failed(gateway, "digest")
        await gateway.app.desk.retry(run, Starter("cli", "root"), Caps(tokens=20_000))
        assert "caps tokens 20000" in (await mine.get("/audit")).body.decode()
        assert "may ask, read; chains main, default" in (await mine.get("/audit")).body.decode()
        icon = await gateway.call("GET", "/favicon.ico", key=None)
        assert (icon.status, icon.headers["content-type"]) == (200, "image/svg+xml")
        assert icon.body == (await gateway.call("GET", "/static/icon.svg", key=None)).body
