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
from gateway.workflow.budgets import BudgetFace
from gateway.workflow.context import Context
from gateway.workflow.definition import Definition, workflow
from gateway.workflow.params import Parameters
from gateway.workflow.rehearsal import ITEMS_MAX, STEPS_MAX, Plan, Rehearsal, RehearsedBudgets, rehearse
from gateway.workflow.unknown import Looks, Unknowable, Unknown
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


async def test_conditions_on_what_steps_give_are_taken_as_usual_and_told(stage: Stage) -> None:
    async def story(ctx: Context) -> str:
        found = await ctx.step(len, [1], name="count")
        if not found or found["files"] > 5 * found["limit"] or found["kind"] != "git":
            return f"{found['bytes']:,} bytes"
        try:
            return str(await ctx.read("x"))
        finally:
            await ctx.sleep(2)

    plan = await stage.rehearse(story)
    assert names(plan) == [("count", "step")], "more than its limit is taken as met"
    assert (plan.rest, plan.assumed) == ("", ("the result of count", "the result of count.files"))


async def test_a_loop_until_something_is_otherwise_is_given_up(stage: Stage) -> None:
    async def story(ctx: Context) -> None:
        try:
            while (await ctx.read("x") if not ctx.params else "") or await ctx.step(len, name="n") > 5:
                await ctx.log("again")
                number = await ctx.wait_for("n")
                while number >= 1024:
                    number /= 1024
        except Exception:
            await ctx.sleep(1)

    plan = await stage.rehearse(story)
    assert "loop that ends with the signal n" in plan.rest
    assert names(plan) == [("read", "read"), ("n", "wait_for")]


async def test_code_that_breaks_on_a_stand_in_ends_it_too(stage: Stage) -> None:
    async def story(ctx: Context) -> None:
        json.loads(await ctx.read("x.json"))

    plan = await stage.rehearse(story)
    assert (names(plan), "JSONDecodeError" in plan.rest) == ([("read", "read")], True)


async def test_a_map_shows_each_items_steps_and_one_for_what_is_not_known(stage: Stage) -> None:
    async def one(ctx: Context, item: Any) -> str:
        await ctx.shell(["wc", str(item)], name="count")
        text = await ctx.read(str(item))
        if text:
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
        ("each", "map"), ("each/0/count", "shell"), ("each/0/read", "read"), ("each/0/sleep", "sleep"),
    ]  # fmt: skip
    assert shown[0].detail == "as many as there are in ⟨the result of files⟩, 4 at once"
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
    assert face(RehearsedBudgets) == face(BudgetFace)
    for name in ("run", "folder", "starter", "budget", "params", "budgets"):
        assert f"self.{name}" in inspect.getsource(Rehearsal.__init__), name


def test_a_stand_in_is_what_is_usual_and_notes_what_was_asked_of_it() -> None:
    looks = Looks()
    said: Any = Unknown("the result of it", looks, code=0)
    assert (said.code, str(said.files.newest), f"<{said['a']:,}>") == (
        0,
        "⟨the result of it.files.newest⟩",
        "<⟨the result of it.a⟩>",
    )
    assert "".join(["a", said]) == "a⟨the result of it⟩"
    assert [str(each) for each in said] == ["⟨an item of the result of it⟩"]
    assert (len(said), [len(pair) for pair in said["d"].items()]) == (1, [2])
    assert isinstance(-(said + 1) * 2 // 3 - said, Unknown)
    assert ("x" + said, said + "x") == ("x⟨the result of it⟩", "⟨the result of it⟩x")
    assert looks.assumed == {}, "passing it on assumes nothing"
    usual: list[Callable[[], object]] = [
        lambda: bool(said), lambda: said == "x", lambda: said in ["x"], lambda: (said != "x") is False, lambda: said < 5,
        lambda: "x" in said, lambda: int(said) == 1, lambda: said >= 5, lambda: said.get("x") or 0,
        lambda: max(said, 1) is not None,
    ]  # fmt: skip
    for number, look in enumerate(usual):
        assert look(), number
    assert list(looks.assumed) == ["the result of it", "the result of it.get"]
    with pytest.raises(Unknowable):
        sum(1 for _ in iter(said.__bool__, False))


@pytest.mark.parametrize("name", ["clone_petroserver", "digest", "budget_guard"])
async def test_the_samples_are_rehearsed_to_their_end(stage: Stage, name: str) -> None:
    app = stage.app
    given = {"digest": {"feeds": "https://feeds.example.com/a"}}.get(name, {})
    plan = await rehearse(app.catalogue.get(name), app.desk.parse(name, given, CLI), CLI, app.dispatcher, app.settings)
    assert plan.rest == ""
    asks = [step for step in plan.steps if step.kind == "ask"]
    assert len(asks) == {"clone_petroserver": 3, "digest": 1, "budget_guard": 0}[name]
    assert all(step.at_least and step.verdicts for step in asks), "their prompts are made of what steps give"
    assert plan.steps[-1].kind == "notify"
