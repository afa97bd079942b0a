"""The dry run: what is shown of a run that does not exist, what is assumed, and that nothing is done."""

from __future__ import annotations

import inspect
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from gateway.app import App
from gateway.runs import Caps, Starter
from gateway.workflow.context import Context
from gateway.workflow.definition import Definition, workflow
from gateway.workflow.params import Parameters
from gateway.workflow.rehearsal import ITEMS_MAX, STEPS_MAX, Plan, Rehearsal, rehearse
from gateway.workflow.unknown import Unknowable, Unknown
from tests.doubles.clock import SettableClock
from tests.e2e.rig import budget, config, prepared, section

CLI = Starter("cli", "root", admin=True)
SCHEMA = {"type": "object", "properties": {"risks": {"type": "array"}}, "required": ["risks"]}


class Stage:
    def __init__(self, app: App) -> None:
        self.app = app

    async def rehearse(self, function: Callable[..., Awaitable[Any]], caps: Caps | None = None, **values: Any) -> Plan:
        mark = workflow(budget=Caps(tokens=9_000))(function)
        parameters = Parameters.of(mark)
        defaults = {each.name: each.default for each in parameters.fields}
        definition = Definition("tried", "", "", parameters, Caps(tokens=9_000), None, "v", mark, Path("tried.py"))
        return await rehearse(definition, defaults | values, CLI, self.app.dispatcher, self.app.settings, caps)


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    ours = section("[providers.it]", {"api": "demo", "model": "demo", "price": {"input": 1, "output": 2}})
    text = config(ours, budget("day", tokens=2_000, per="day"), chain=["it"])
    app = App(prepared(tmp_path, text, {}), SettableClock())
    await app.open()
    yield Stage(app)
    await app.stop()


def names(plan: Plan) -> list[tuple[str, str]]:
    return [(step.name, step.kind) for step in plan.steps]


async def test_the_steps_of_a_run_are_shown_with_the_worst_case_of_each_ask(stage: Stage) -> None:
    async def story(ctx: Context, repo: str = "https://example.com/x") -> str:
        await ctx.shell(["git", "clone", repo, "tree"], name="clone")
        readme = await ctx.read("tree/README.md")
        summary = await ctx.ask("Say hello", name="hello", max_tokens=100)
        risks = await ctx.ask(f"Name the risks of {readme[:500]}", max_tokens=2_000, schema=SCHEMA)
        if await ctx.approve("Write it down?", expires=timedelta(days=2)):
            await ctx.write("REPORT.md", "\n".join([summary, *risks["risks"]]))
            await ctx.notify("Done", file="REPORT.md")
        return summary.strip().splitlines()[0]

    plan = await stage.rehearse(story, Caps(requests=4))
    assert names(plan) == [
        ("clone", "shell"), ("read", "read"), ("hello", "ask"), ("ask", "ask"), ("approve", "approve"), ("write", "write"),
        ("notify", "notify"),
    ]  # fmt: skip
    assert (plan.rest, plan.caps) == ("", Caps(tokens=9_000, requests=4))
    clone, _, hello, risks, *_ = plan.steps
    assert (clone.detail, clone.fits, clone.verdicts) == ("git clone https://example.com/x tree", None, ())
    (verdict,) = hello.verdicts
    assert (hello.fits, hello.at_least, verdict.output_tokens, verdict.error) == (True, False, 100, None)
    assert 0 < verdict.prompt_tokens < 100
    assert verdict.cost_micro_usd == verdict.prompt_tokens + 200
    assert (risks.fits, risks.at_least) == (False, True), "2,000 a day have no room for it"
    assert "of 2000" in str(risks.verdicts[0].error)
    tokens = sum(step.verdicts[0].prompt_tokens + step.verdicts[0].output_tokens for step in (hello, risks))
    assert (plan.worst_case.tokens, plan.worst_case.requests, plan.beyond) == (tokens, 2, ())
    assert (await stage.rehearse(story, Caps(tokens=2_000, requests=1, usd=0.001))).beyond == ("tokens", "usd", "requests")


async def test_nothing_is_called_or_held_or_kept(stage: Stage) -> None:
    called = []

    async def story(ctx: Context) -> None:
        await ctx.ask("hello", max_tokens=10)
        await ctx.step(called.append, 1)
        await ctx.write("x", "y")
        await ctx.log("z")
        await ctx.sleep(3600)
        await ctx.http("GET", "http://127.0.0.1:9/x")
        await ctx.shell(["touch", "/tmp/should-not-be"])

    plan = await stage.rehearse(story)
    assert [kind for _, kind in names(plan)] == ["ask", "step", "write", "sleep", "http", "shell"]
    assert called == []
    assert [(balance.spent, balance.held) for balance in await stage.app.books.balances()] == [(0, 0)]
    assert await stage.app.runs.newest() == []
    assert plan.rest == ""


async def test_it_ends_where_the_code_looks_into_a_result_and_says_so(stage: Stage) -> None:
    async def story(ctx: Context) -> None:
        await ctx.sleep(1)
        found = await ctx.step(len, [1], name="count")
        try:
            if found > 3:
                await ctx.sleep(2)
        except Exception:
            await ctx.sleep(3)

    plan = await stage.rehearse(story)
    assert (names(plan), plan.rest) == ([("sleep", "sleep"), ("count", "step")], "what comes next depends on the result of count")


async def test_code_that_breaks_on_a_stand_in_ends_it_too(stage: Stage) -> None:
    async def story(ctx: Context) -> None:
        json.loads(await ctx.read("x.json"))

    plan = await stage.rehearse(story)
    assert (names(plan), "JSONDecodeError" in plan.rest) == ([("read", "read")], True)


async def test_a_map_shows_each_items_steps_and_one_for_what_is_not_known(stage: Stage) -> None:
    async def one(ctx: Context, item: Any) -> str:
        await ctx.shell(["wc", str(item)], name="count")
        text = await ctx.read(str(item))
        if len(text) > 5:
            await ctx.sleep(1)
        return text

    async def story(ctx: Context) -> None:
        files = await ctx.step(list, name="files")
        outcomes = await ctx.map(one, files, name="each")
        assert [outcome.error for outcome in outcomes] == [None]
        await ctx.map(one, range(30), limit=2, name="many")
        await ctx.sleep(1)

    plan = await stage.rehearse(story)
    shown = [step for step in plan.steps if step.name.startswith("each")]
    assert [(step.name, step.kind) for step in shown] == [
        ("each", "map"), ("each/0/count", "shell"), ("each/0/read", "read"), ("each/0/…", "…"),
    ]  # fmt: skip
    assert shown[0].detail == "as many as there are in ⟨the result of files⟩, 4 at once"
    assert shown[3].detail == "more, depending on what each/0/read reads"
    many = next(step for step in plan.steps if step.name == "many")
    assert many.detail == f"30 items, 2 at once, the first {ITEMS_MAX} are shown"
    assert len([step for step in plan.steps if step.name.endswith("/count")]) == 1 + ITEMS_MAX
    assert plan.steps[-1].kind == "sleep"


async def test_a_story_without_an_end_is_bounded(stage: Stage) -> None:
    async def story(ctx: Context) -> None:
        while True:
            await ctx.sleep(1)

    plan = await stage.rehearse(story)
    assert (len(plan.steps), plan.steps[-1].name) == (STEPS_MAX, f"sleep#{STEPS_MAX}")
    assert str(STEPS_MAX) in plan.rest


def test_the_stand_in_has_every_method_of_the_context_as_it_is() -> None:
    def face(kind: type) -> dict[str, list[tuple[str, Any, Any]]]:
        public = {name: value for name, value in vars(kind).items() if inspect.iscoroutinefunction(value) and name[0] != "_"}
        return {
            name: [(each.name, each.kind, each.default) for each in inspect.signature(method).parameters.values()]
            for name, method in public.items()
        }

    ours = face(Context)
    del ours["clear"]
    assert face(Rehearsal) == ours
    for name in ("run", "folder", "starter", "budget", "params"):
        assert f"self.{name}" in inspect.getsource(Rehearsal.__init__), name


def test_a_stand_in_can_be_passed_on_but_not_looked_into() -> None:
    said = Unknown("the result of it", code=0)
    assert (said.code, str(said.files.newest), f"<{said['a']}>") == (
        0,
        "⟨the result of it.files.newest⟩",
        "<⟨the result of it.a⟩>",
    )
    assert "".join(["a", said]) == "a⟨the result of it⟩"
    assert [str(each) for each in said] == ["⟨an item of the result of it⟩"]
    looks: list[Callable[[], object]] = [
        lambda: bool(said), lambda: len(said), lambda: said == "x", lambda: said in ["x"], lambda: said != "x",
        lambda: said < "x", lambda: "x" in said, lambda: {said: 1}, lambda: int(said), lambda: range(said),
        lambda: said.get("x") or 1, lambda: not said,
    ]  # fmt: skip
    for look in looks:
        with pytest.raises(Unknowable):
            look()
