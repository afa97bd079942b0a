"""Each kind of step: what it gives, what its row says, and that a restart in it loses nothing."""

import json
from datetime import timedelta
from pathlib import Path

import pytest

from gateway.runs import Decision, RunState, StepState
from tests.doubles.upstream import Script, Upstream
from tests.workflow.house import House, house, lines


async def test_files_programs_and_log_lines(tmp_path: Path, up: Upstream) -> None:
    async with house(tmp_path, up) as here:
        run = await here.begin("every", kind="files")
        assert (await here.succeeds(run)).result == "héllohéllo"
        assert await here.steps(run) == dict.fromkeys(("write", "shell", "read"), (StepState.SUCCEEDED, 1))
        logged = [event.data["text"] for event in await here.runs.events(run) if event.kind == "log"]
        assert logged == ["a line"]


async def test_a_failed_step_can_be_caught_and_its_row_says_why(tmp_path: Path, up: Upstream) -> None:
    async with house(tmp_path, up) as here:
        run = await here.begin("every", kind="caught")
        assert (await here.succeeds(run)).result == "caught bad: false ended with code 1: it said nothing"
        assert await here.steps(run) == {"bad": (StepState.FAILED, 1)}


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("leaves in a step", "leave: SystemExit: I leave"),
        ("leaves", "SystemExit: I leave"),
        ("cancels itself in a step", "leave: CancelledError"),
        ("cancels itself", "CancelledError"),
        ("ends an iterator in a step", "leave: RuntimeError: StopIteration: an iterator had nothing more to give"),
        ("speaks in half letters in a step", "leave: ValueError: caf?"),
        ("speaks in half letters", "ValueError: caf?"),
    ],
)
async def test_whatever_a_workflows_code_does_ends_its_own_run_only(tmp_path: Path, up: Upstream, kind: str, why: str) -> None:
    async with house(tmp_path, up) as here:
        run = await here.begin("every", kind=kind)
        ended = await here.ends(run)
        assert (ended.state, ended.error) == (RunState.FAILED, why)
        await here.succeeds(await here.begin("every", kind="files"))


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("asks nobody", "who may have starter, admins, users and numeric ids, not 'admin'"),
        ("tells nobody", 'to must be "telegram:CHAT", "telegram:CHAT/TOPIC" or "file:FOLDER"'),
        ("tells with a file from outside", "leads out of the run's folder"),
    ],
)
async def test_what_nobody_could_answer_or_be_told_fails_at_once(tmp_path: Path, up: Upstream, kind: str, why: str) -> None:
    async with house(tmp_path, up) as here:
        ended = await here.ends(await here.begin("every", kind=kind))
        assert ended.state is RunState.FAILED
        assert why in ended.error


async def test_two_steps_at_once_are_refused_with_what_to_do_instead(tmp_path: Path, up: Upstream) -> None:
    async with house(tmp_path, up) as here:
        run = await here.begin("every", kind="gather")
        ended = await here.ends(run)
        assert ended.state is RunState.FAILED
        assert "use ctx.map" in ended.error
        assert all(state.ended for state, _ in (await here.steps(run)).values())


async def test_a_sleep_goes_by_the_clock_and_over_a_restart(tmp_path: Path, up: Upstream) -> None:
    async with house(tmp_path, up) as here:
        run = await here.begin("every", kind="sleep")
        slept = await here.reaches(run, RunState.SLEEPING)
        assert slept.waiting_until == here.clock.now() + timedelta(hours=1)
        here.clock.advance(minutes=30)
        await here.restart()
        here.clock.advance(minutes=29)
        assert (await here.runs.get(run)).waiting_until == slept.waiting_until
        here.clock.advance(minutes=1)
        await here.succeeds(run)
        assert await here.steps(run) == {"sleep": (StepState.SUCCEEDED, 1)}


async def test_a_signal_is_taken_once_also_one_that_came_early_or_over_a_restart(tmp_path: Path, up: Upstream) -> None:
    async with house(tmp_path, up) as here:
        run = await here.begin("every", kind="wait_for")
        await here.reaches(run, RunState.WAITING)
        await here.restart()
        await here.runs.signal(run, "other", 1)
        await here.runs.signal(run, "go", {"to": "Madrid"})
        assert (await here.succeeds(run)).result == "{'to': 'Madrid'}"
        late = await here.begin("every", kind="wait_for")
        await here.reaches(late, RunState.WAITING)
        here.clock.advance(601)
        ended = await here.ends(late)
        assert (ended.state, "no signal 'go' came" in ended.error) == (RunState.FAILED, True)


async def test_case_57_an_approval_counts_once_waits_over_a_restart_and_expires(tmp_path: Path, up: Upstream) -> None:
    async with house(tmp_path, up) as here:
        run = await here.begin("every", kind="approve")
        await here.reaches(run, RunState.WAITING_APPROVAL)
        (asked,) = (await here.detail(run)).approvals
        await here.restart()
        (again,) = (await here.detail(run)).approvals
        assert again == asked
        first = await here.runs.decide(asked.id, True, "telegram:1")
        second = await here.runs.decide(asked.id, False, "telegram:2")
        assert (first.decision, second) == (Decision.APPROVED, first)
        assert (await here.succeeds(run)).result == "True"
        for kind, state, result in (("approve", RunState.SUCCEEDED, "False"), ("approve or fail", RunState.FAILED, None)):
            late = await here.begin("every", kind=kind)
            await here.reaches(late, RunState.WAITING_APPROVAL)
            here.clock.advance(601)
            ended = await here.ends(late)
            assert (ended.state, ended.result) == (state, result)


async def test_an_answer_that_does_not_fit_its_schema_is_asked_for_once_more(tmp_path: Path, up: Upstream) -> None:
    good = json.dumps({"city": "Madrid", "people": 3_000_000})
    async with house(tmp_path, up) as here:
        up.queue.extend([Script(text='{"city": "Madrid"}'), Script(text=good)])
        run = await here.begin("shapes")
        assert (await here.succeeds(run)).result == "Madrid 3000000"
        first, second = up.seen
        assert first.body["response_format"]["type"] == "json_schema"
        assert "people" in second.body["messages"][-1]["content"]
        up.queue.extend([Script(text="no idea"), Script(text="none at all")])
        run = await here.begin("shapes")
        ended = await here.ends(run)
        assert (ended.state, "asked twice" in ended.error) == (RunState.FAILED, True)
        up.queue.append(Script(text=f"```json\n{good}\n```"))
        await here.desk.retry(run, ended.starter)
        assert (await here.succeeds(run)).result == "Madrid 3000000"


async def test_case_54_of_twenty_items_one_fails_and_a_retry_makes_only_that_one_again(tmp_path: Path, up: Upstream) -> None:
    async with house(tmp_path, up) as here:
        bad = here.app.settings.runs_folder / "bad"
        bad.parent.mkdir(parents=True, exist_ok=True)
        bad.touch()
        lenient = await here.begin("fans")
        ended = await here.succeeds(lenient)
        assert [number for number, text in enumerate(ended.result) if text.startswith("failed")] == [7]
        assert "the seventh is bad" in ended.result[7]
        row = next(step for step in (await here.detail(lenient)).steps if step.name == "each")
        assert row.detail.startswith("19 of 20; failed: 7 (")
        strict = await here.begin("fans", strict=True)
        failed = await here.ends(strict)
        assert (failed.state, failed.error) == (RunState.FAILED, "each/7: each/7/check: ValueError: the seventh is bad")
        calls = up.meter.requests
        bad.unlink()
        await here.desk.retry(strict, failed.starter)
        assert len((await here.succeeds(strict)).result) == 20
        assert up.meter.requests == calls + 1
        made = lines(here.app.settings.runs_folder / strict / "checked")
        assert sorted(map(int, made)) == sorted([*range(20), 7])


async def test_a_map_goes_on_after_a_restart_without_repeating_what_is_done(tmp_path: Path, up: Upstream) -> None:
    up.default = Script(pieces=3, gate=True)
    made: House
    async with house(tmp_path, up) as made:
        run = await made.begin("fans", items=6, limit=2)
        await made.until(lambda: up.meter.waiting == 2)
        up.default = Script(pieces=3)
        await made.restart()
        ended = await made.succeeds(run)
        assert len(ended.result) == 6
        assert sorted(lines(made.app.settings.runs_folder / run / "checked")) == [str(number) for number in range(6)]
