"""The desk: who may start, see, stop and answer what, and that nothing is there before it was allowed."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from gateway.errors import BadParameters, InvalidRequest, NotAllowed, RequestConflict, UnknownRun, UnknownWorkflow, WrongState
from gateway.runs import Caps, Decision, RunState, Starter
from gateway.settings import load
from gateway.store.database import Database
from gateway.store.runs import Runs
from gateway.workflow.catalogue import Catalogue
from gateway.workflow.desk import Desk
from tests.doubles.clock import SettableClock

SOURCES = {
    "hello": "async def hello(ctx: object, name: str, times: int = 1, repo: Repository = 'petroserver') -> str: return name",
    "danger": "async def danger(ctx: object) -> str: return ''",
}
CONFIG = """
[gateway]
database_url = "sqlite:///x.db"
[providers.it]
api = "demo"
model = "demo"
[chains]
default = ["it"]
[workflows.hello]
allow_repos = ["https://github.com/acme/*"]
[workflows.danger]
who = ["admins", "1002"]
"""

ADMIN = Starter("telegram", "1", admin=True)
ADA = Starter("telegram", "1001")
BOB = Starter("telegram", "1002")
GUEST = Starter("telegram", "1003", listed=False)
KEY = Starter("http", "ops", key="ops")
OTHER_KEY = Starter("http", "1001", key="1001")
CLI = Starter("cli", "root")


class Rig:
    def __init__(self, folder: Path, database: Database) -> None:
        (folder / "workflows").mkdir()
        for name, source in SOURCES.items():
            head = "from gateway.workflow import Caps, Repository, workflow\n\n@workflow(budget=Caps(tokens=9, requests=9))"
            text = f"{head}\n{source}\n"
            (folder / "workflows" / f"{name}.py").write_text(text)
        (folder / "sluicegate.toml").write_text(CONFIG)
        settings = load(folder / "sluicegate.toml", {})
        self.clock = SettableClock()
        self.runs = Runs(database, self.clock)
        self.desk = Desk(self.runs, Catalogue.load(settings), settings, self.clock)

    async def count(self) -> int:
        return len(await self.runs.newest())


@pytest.fixture
def rig(tmp_path: Path, database: Database) -> Rig:
    return Rig(tmp_path, database)


async def test_a_started_run_is_queued_with_its_checked_parameters(rig: Rig) -> None:
    run = await rig.desk.start("hello", {"name": "you & me; rm -rf '/'", "times": "3"}, ADA)
    assert (run.state, run.starter, run.caps) == (RunState.QUEUED, ADA, None)
    assert run.params == {"name": "you & me; rm -rf '/'", "times": 3, "repo": "petroserver"}
    assert len(run.version) > 8
    assert rig.desk.poke.is_set(), "a worker in this process looks at once"


async def test_case_56_wrong_parameters_are_refused_by_name_before_a_run_exists(rig: Rig) -> None:
    wrong = {"nmae": "x", "times": "many", "repo": "--upload-pack=touch /tmp/x"}
    with pytest.raises(BadParameters) as refused:
        await rig.desk.start("hello", wrong, ADA)
    assert {name for name, _ in refused.value.problems} == {"nmae", "name", "times", "repo"}
    for repo in ("../../etc", "/etc", "file:///etc", "ext::sh -c id", "https://github.com/acme/../evil/x", "https://evil.test/x"):
        with pytest.raises(BadParameters) as refused:
            await rig.desk.start("hello", {"name": "x", "repo": repo}, KEY)
        assert [name for name, _ in refused.value.problems] == ["repo"], repo
    assert await rig.count() == 0


async def test_who_may_not_start_a_workflow_is_refused_and_is_not_told_of_it(rig: Rig) -> None:
    with pytest.raises(NotAllowed, match="danger"):
        await rig.desk.start("danger", {}, ADA)
    with pytest.raises(NotAllowed):
        await rig.desk.start("hello", {"name": "x"}, GUEST)
    with pytest.raises(UnknownWorkflow) as unknown:
        await rig.desk.start("nothing", {}, ADA)
    assert "danger" not in unknown.value.known
    assert await rig.count() == 0
    for starter in (ADMIN, BOB, CLI, Starter("schedule", "daily")):
        await rig.desk.start("danger", {}, starter)
    assert "danger" in {each.name for each in rig.desk.startable(BOB)} - {each.name for each in rig.desk.startable(ADA)}


async def test_caps_of_a_run_are_for_operators_and_go_before_those_of_the_workflow(rig: Rig) -> None:
    with pytest.raises(NotAllowed):
        await rig.desk.start("hello", {"name": "x"}, ADA, caps=Caps(tokens=1_000_000))
    run = await rig.desk.start("hello", {"name": "x"}, CLI, caps=Caps(requests=5))
    assert run.caps == Caps(tokens=9, requests=5)
    with pytest.raises(InvalidRequest, match=r"hello has no cap on usd: its file must say so, with budget=Caps\(usd=…\)"):
        await rig.desk.start("hello", {"name": "x"}, CLI, caps=Caps(usd=5))
    assert await rig.count() == 1


async def test_case_53_a_key_is_one_run_for_its_owner_and_nobody_elses(rig: Rig) -> None:
    first = await rig.desk.start("hello", {"name": "x"}, KEY, key="k")
    assert (await rig.desk.start("hello", {"name": "x", "times": "1"}, KEY, key="k")).id == first.id, "the same when checked"
    with pytest.raises(RequestConflict):
        await rig.desk.start("hello", {"name": "y"}, KEY, key="k")
    others = [Starter("http", "a:b", key="a:b"), Starter("http", "a", key="a"), OTHER_KEY, CLI, ADA]
    keys = ["c", "b:c", "k", "k", "http:ops:k"]
    made = [await rig.desk.start("hello", {"name": "x"}, who, key=key) for who, key in zip(others, keys, strict=True)]
    assert len({run.id for run in [first, *made]}) == 6
    for key in ("", "x" * 256, "a\nb"):
        with pytest.raises(InvalidRequest):
            await rig.desk.start("hello", {"name": "x"}, KEY, key=key)


async def test_people_see_and_touch_their_own_runs_and_operators_all(rig: Rig) -> None:
    run = await rig.desk.start("hello", {"name": "x"}, ADA)
    theirs = await rig.desk.start("hello", {"name": "x"}, OTHER_KEY)
    for stranger in (BOB, KEY, OTHER_KEY, Starter("telegram", None)):
        for asked in (rig.desk.get, rig.desk.cancel, rig.desk.retry):
            with pytest.raises(UnknownRun):
                await asked(run.id, stranger)
        with pytest.raises(UnknownRun):
            await rig.desk.signal(run.id, "go", None, stranger)
    assert [each.id for each in await rig.desk.newest(ADA)] == [run.id]
    assert [each.id for each in await rig.desk.newest(OTHER_KEY)] == [theirs.id]
    for operator in (ADMIN, CLI):
        assert {each.id for each in await rig.desk.newest(operator)} == {run.id, theirs.id}
        assert (await rig.desk.get(run.id, operator)).run == run
    assert (await rig.desk.cancel(run.id, ADA)).state is RunState.CANCELLED


async def test_a_failed_run_is_retried_with_larger_caps_by_operators_only(rig: Rig) -> None:
    run = await rig.desk.start("hello", {"name": "x"}, ADA)
    with pytest.raises(WrongState):
        await rig.desk.retry(run.id, ADA)
    await rig.runs.set_state(run.id, RunState.FAILED, error="cap reached")
    with pytest.raises(NotAllowed):
        await rig.desk.retry(run.id, ADA, Caps(tokens=99))
    assert (await rig.desk.retry(run.id, ADMIN, Caps(tokens=99))).caps == Caps(tokens=99, requests=9)
    await rig.runs.set_state(run.id, RunState.FAILED)
    assert (await rig.desk.retry(run.id, ADA)).generation == 2


async def test_a_permission_that_was_taken_away_is_not_kept_by_an_old_run(rig: Rig) -> None:
    gone = Starter("telegram", "1001", listed=False)
    run = await rig.desk.start("hello", {"name": "x"}, ADA)
    await rig.runs.set_state(run.id, RunState.FAILED)
    with pytest.raises(NotAllowed):
        await rig.desk.retry(run.id, gone)


async def test_a_signal_cannot_pass_for_an_answer(rig: Rig) -> None:
    run = await rig.desk.start("hello", {"name": "x"}, ADA)
    for name in ("approval:x", "", "a b", "x" * 65):
        with pytest.raises(InvalidRequest):
            await rig.desk.signal(run.id, name, None, ADA)
    await rig.desk.signal(run.id, "go", {"n": 1}, ADA)
    assert [(each.name, each.data) for each in await rig.runs.signals()] == [("go", {"n": 1})]


async def test_case_57_only_those_who_are_asked_may_answer_and_only_once(rig: Rig) -> None:
    run = await rig.desk.start("hello", {"name": "x"}, ADA)
    asked = await rig.runs.ask_approval(run.id, "approve", "Sure?", ["starter", "1002"])
    with pytest.raises(UnknownRun):
        await rig.desk.decide(asked.id, True, GUEST)
    with pytest.raises(UnknownRun):
        await rig.desk.decide(run.id, True, OTHER_KEY)
    with pytest.raises(NotAllowed):
        await rig.desk.decide(asked.id, True, ADMIN)
    assert (await rig.desk.decide(asked.id, False, BOB)).by == "telegram:1002"
    assert (await rig.desk.decide(asked.id, False, ADA)).by == "telegram:1002", "the same answer again changes nothing"
    with pytest.raises(WrongState, match="rejected: it cannot be approved"):
        await rig.desk.decide(asked.id, True, ADA)
    with pytest.raises(WrongState):
        await rig.desk.decide(run.id, True, ADA)
    with pytest.raises(UnknownRun):
        await rig.desk.decide("nothing", True, ADMIN)


async def test_case_57_an_answer_that_comes_too_late_is_refused(rig: Rig) -> None:
    run = await rig.desk.start("hello", {"name": "x"}, ADA)
    await rig.runs.ask_approval(run.id, "approve", "Sure?", ["starter"], rig.clock.now() + timedelta(days=1))
    rig.clock.advance(days=1)
    with pytest.raises(WrongState, match="expired"):
        await rig.desk.decide(run.id, True, ADA)


async def test_a_run_is_answered_by_its_own_id_while_it_asks_one_question(rig: Rig) -> None:
    run = await rig.desk.start("hello", {"name": "x"}, ADA)
    with pytest.raises(WrongState):
        await rig.desk.decide(run.id, True, ADA)
    first = await rig.runs.ask_approval(run.id, "one", "Sure?", ["starter"])
    second = await rig.runs.ask_approval(run.id, "two", "Sure?", ["starter"])
    with pytest.raises(InvalidRequest, match=second.id):
        await rig.desk.decide(run.id, True, ADA)
    await rig.desk.decide(first.id, True, ADA)
    assert (await rig.desk.decide(run.id, True, ADA)).id == second.id
    assert (await rig.runs.approval(second.id)).decision is Decision.APPROVED
