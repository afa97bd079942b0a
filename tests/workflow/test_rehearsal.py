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
from gateway.chat import Slot
from gateway.runs import Caps, Run, RunState, Starter
from gateway.workflow.budgets import BudgetFace
from gateway.workflow.context import Context
from gateway.workflow.definition import Definition, workflow
from gateway.workflow.params import Parameters
from gateway.workflow.parts import Parts
from gateway.workflow.rehearsal import ITEMS_MAX, STEPS_MAX, Plan, Rehearsal, RehearsedBudgets, rehearse
from gateway.workflow.unknown import Looks, Unknowable, Unknown
from tests.doubles.clock import SettableClock
from tests.e2e.rig import budget, config, prepared, section

CLI = Starter("cli", "root", admin=True)
SCHEMA = {"type": "object", "properties": {"risks": {"type": "array"}}, "required": ["risks"]}


class Stage:
    def __init__(self, app: App) -> None:
        self.app = app
        store, settings = app.store, app.settings
        self.parts = Parts(app.dispatcher, store, app.runs, settings, app.catalogue, app.clock, settings.runs_folder)

    async def rehearse(self, function: Callable[..., Awaitable[Any]], caps: Caps | None = None, **values: Any) -> Plan:
        mark = workflow(budget=Caps(tokens=9_000))(function)
        parameters = Parameters.of(mark)
        defaults = {each.name: each.default for each in parameters.fields}
        definition = Definition("tried", "", "", parameters, Caps(tokens=9_000), None, "v", mark, Path("tried.py"))
        return await rehearse(self.parts, definition, self.run_of("tried", defaults | values, caps))

    def run_of(self, name: str, params: dict[str, Any], caps: Caps | None = None) -> Run:
        return Run("rehearsal", name, RunState.QUEUED, params, CLI, self.app.clock.now(), caps=caps)


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    (tmp_path / "workflows").mkdir()
    head = "from gateway.workflow import Caps, Context, workflow\n\n@workflow(budget=Caps(tokens=9_000))\n"
    (tmp_path / "workflows" / "tried.py").write_text(f"{head}async def tried(ctx: Context) -> None: ...\n")
    ours = [section(f"[providers.{name}]", {"api": "demo", "model": name, "price": {"input": 1, "output": 2}}) for name in "ab"]
    limits = [budget("day", provider="a", tokens=2_000, per="day"), budget("two", provider="b", requests=2, per="day")]
    app = App(prepared(tmp_path, config(*ours, *limits, chain=["a", "b"]), {}), SettableClock())
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

    plan = await stage.rehearse(story)
    assert names(plan) == [
        ("clone", "shell"), ("read", "read"), ("hello", "ask"), ("ask", "ask"), ("approve", "approve"), ("write", "write"),
        ("notify", "notify"),
    ]  # fmt: skip
    assert (plan.reason, plan.assumed, plan.fits) == ("", (), True)
    clone, _, hello, risks, *_ = plan.steps
    assert (clone.detail, clone.fit, clone.known) == ("git clone https://example.com/x tree", None, True)
    assert hello.fit is not None
    assert (hello.known, hello.fit.slot, hello.fit.output_tokens) == (True, Slot("a", "a"), 100)
    assert 0 < hello.fit.prompt_tokens < 100
    assert hello.fit.cost_micro_usd == hello.fit.prompt_tokens + 200
    assert risks.fit is not None
    assert (risks.known, risks.fit.slot) == (False, Slot("b", "b")), "2,000 tokens a day on a have no room for it"


async def test_calls_fit_behind_one_another_and_within_the_caps_of_the_run(stage: Stage) -> None:
    async def story(ctx: Context) -> None:
        for _ in range(4):
            await ctx.ask("Say hello", max_tokens=1_000)

    def slots(plan: Plan) -> list[str]:
        return ["-" if fit.slot is None else fit.slot.provider for fit in plan.calls]

    plan = await stage.rehearse(story)
    assert (slots(plan), plan.fits) == (["a", "b", "b", "-"], False)
    assert plan.calls[3].budget == "day"
    assert plan.calls[3].reason == "a:a: budget day has no room; b:b: budget two has no room"
    assert plan.calls[3].output_tokens == 1_000, "what does not fit has its worst case too"
    capped = await stage.rehearse(story, Caps(tokens=1_500))
    assert slots(capped) == ["a", "-", "-", "-"]
    assert capped.calls[1].reason.endswith("b:b: budget run:tried:tokens has no room")


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
    assert [(balance.spent, balance.held) for balance in await stage.app.books.balances()] == [(0, 0)] * 2
    assert await stage.app.runs.newest() == []
    assert plan.reason == ""


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
    assert (plan.reason, plan.assumed) == ("", ("the result of count", "the result of count.files"))


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
    assert "a loop that ends with the signal n cannot be known" in plan.reason
    assert names(plan) == [("read", "read"), ("n", "wait_for")]


async def test_code_that_breaks_on_a_stand_in_ends_it_too(stage: Stage) -> None:
    async def story(ctx: Context) -> None:
        json.loads(await ctx.read("x.json"))

    plan = await stage.rehearse(story)
    assert (names(plan), "JSONDecodeError" in plan.reason) == ([("read", "read")], True)


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
    assert str(STEPS_MAX) in plan.reason


def test_the_stand_in_has_every_method_of_the_context_as_it_is() -> None:
    def face(kind: type) -> dict[str, list[tuple[str, Any, Any]]]:
        public = {name: value for name, value in vars(kind).items() if inspect.iscoroutinefunction(value) and name[0] != "_"}
        return {
            name: [(each.name, each.kind, each.default) for each in inspect.signature(method).parameters.values()]
            for name, method in public.items()
        }

    ours = face(Context)
    del ours["conclude"]
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
    run = stage.run_of(name, app.desk.parse(name, given, CLI))
    plan = await rehearse(stage.parts, app.catalogue.get(name), run)
    assert plan.reason == ""
    asks = [step for step in plan.steps if step.kind == "ask"]
    assert len(asks) == {"clone_petroserver": 3, "digest": 1, "budget_guard": 0}[name]
    assert not any(step.known for step in asks), "their prompts are made of what steps give"
    assert plan.steps[-1].kind == "notify"
