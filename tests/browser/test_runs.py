"""A failed run's page: it is retried as it was, or with other caps."""

from pathlib import Path

from gateway.runs import Caps, RunState, Starter
from tests.browser.test_forms import Visitor
from tests.doubles.upstream import Upstream
from tests.e2e.rig import Gateway, config, provider

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
