"""Runs and budgets: parked with a time and no call, woken by the clock or a raise, ended only by what no wait mends."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sqlalchemy import func, select

from gateway.app import App
from gateway.clock import to_ms
from gateway.runs import Caps, RunState, StepState
from gateway.store import tables
from gateway.workflow.asking import HELD_S
from tests.doubles.clock import SettableClock
from tests.doubles.own_time import within
from tests.doubles.upstream import Script, Upstream
from tests.e2e.rig import budget, prepared, provider
from tests.workflow.house import OPERATOR, House, house

NOON = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)


def hour(**limit: Any) -> str:
    return budget("main-hour", provider="main", per="hour", **limit)


async def refusals(here: House) -> int:
    """How often the gate has passed a provider over."""
    counted = select(func.count()).select_from(tables.refusals)
    return int(await here.app.database.read(lambda connection: connection.execute(counted).scalar_one()))


async def spend(here: House, requests: int) -> None:
    """Uses up calls of the hour, by a run."""
    for number in range(requests):
        await here.succeeds(await here.begin("every", kind="ask", key=f"spend-{number}"))


async def test_story_2_accepted_with_the_budget_gone_parks_without_a_call_and_goes_on_when_the_window_opens(
    tmp_path: Path, up: Upstream
) -> None:
    async with house(tmp_path, up, hour(requests=1), clock=SettableClock(NOON)) as here:
        await spend(here, 1)
        calls = up.meter.requests
        run = await here.begin("every", kind="ask")
        parked = await here.reaches(run, RunState.WAITING_BUDGET)
        opens = datetime(2026, 3, 2, 13, 0, tzinfo=UTC)
        assert (parked.waiting_until, parked.waiting_for) == (opens, "main-hour")
        (step,) = (await here.detail(run)).steps
        assert (step.state, step.waiting_until, step.attempts) == (StepState.WAITING, opens, 1)
        await here.restart()
        here.clock.set(datetime(2026, 3, 2, 12, 59, tzinfo=UTC))
        await asyncio.sleep(1)
        assert (await here.runs.get(run)).state is RunState.WAITING_BUDGET
        assert up.meter.requests == calls
        here.clock.set(opens)
        await here.succeeds(run)
        assert up.meter.requests == calls + 1
        assert await here.steps(run) == {"ask": (StepState.SUCCEEDED, 1)}


async def test_case_12_a_raise_lets_a_parked_run_go_on_within_two_seconds(tmp_path: Path, up: Upstream) -> None:
    async with house(tmp_path, up, hour(requests=1)) as here:
        await spend(here, 1)
        run = await here.begin("every", kind="ask")
        await here.reaches(run, RunState.WAITING_BUDGET)
        # Let the look that woke everything at the start be over, so that only the raise can wake it.
        await asyncio.sleep(1)
        # Two seconds are promised, on a machine that is not loaded.
        async with within(6):
            await here.app.store.raise_limit("main-hour", "+", 1, to_ms(here.clock.now().replace(hour=23)), "test")
            await here.succeeds(run)


async def test_case_12_a_limit_that_the_file_raises_lets_a_parked_run_go_on_at_the_reload(tmp_path: Path, up: Upstream) -> None:
    async with house(tmp_path, up, hour(requests=1)) as here:
        await spend(here, 1)
        run = await here.begin("every", kind="ask")
        await here.reaches(run, RunState.WAITING_BUDGET)
        # Let the look that woke everything at the start be over, so that only the reload can wake it.
        await asyncio.sleep(1)
        (tmp_path / "sluicegate.toml").write_text(here.text.replace("requests = 1", "requests = 2"))
        await here.app.reload("test")
        await here.succeeds(run)


async def test_case_12_a_raise_that_came_while_no_worker_ran_counts_at_the_next_start(tmp_path: Path, up: Upstream) -> None:
    async with house(tmp_path, up, hour(requests=1)) as here:
        await spend(here, 1)
        run = await here.begin("every", kind="ask")
        await here.reaches(run, RunState.WAITING_BUDGET)
        await here.stop()
        beside = App(prepared(here.folder, here.text, {}), here.clock)
        await beside.open()
        await beside.store.raise_limit("main-hour", "+", 1, to_ms(here.clock.now().replace(hour=23)), "test")
        await beside.stop()
        await here.start()
        await here.succeeds(run)


async def test_case_52_parked_in_its_second_step_then_cancelled_or_resumed(tmp_path: Path, up: Upstream) -> None:
    async with house(tmp_path, up, hour(requests=3), clock=SettableClock(NOON)) as here:
        first = await here.begin("asks")
        await here.succeeds(first)
        second, third = await here.begin("asks"), await here.begin("asks")
        await here.reaches(second, RunState.WAITING_BUDGET)
        await here.reaches(third, RunState.WAITING_BUDGET)
        assert await here.steps(second) == {"first": (StepState.SUCCEEDED, 1), "second": (StepState.WAITING, 1)}
        await here.desk.cancel(third, OPERATOR)
        await here.reaches(third, RunState.CANCELLED)
        calls = up.meter.requests
        here.clock.set(NOON.replace(hour=13))
        await here.succeeds(second)
        assert up.meter.requests == calls + 1
        assert (await here.runs.get(third)).state is RunState.CANCELLED


async def test_what_can_never_fit_names_budget_asked_and_limit_and_goes_on_after_a_raise(tmp_path: Path, up: Upstream) -> None:
    async with house(tmp_path, up, hour(tokens=200)) as here:
        run = await here.begin("asks", second="word " * 400)
        failed = await here.ends(run)
        assert failed.state is RunState.FAILED
        assert "it can never fit" in failed.error
        assert "the whole limit of budget main-hour is 200" in failed.error
        assert up.meter.requests == 1
        await here.app.store.raise_limit("main-hour", "=", 100_000, None, "test")
        await here.desk.retry(run, OPERATOR)
        await here.succeeds(run)
        assert up.meter.requests == 2
        assert await here.steps(run) == {"first": (StepState.SUCCEEDED, 1), "second": (StepState.SUCCEEDED, 2)}


async def test_case_59_a_runs_own_cap_stops_its_asking_and_a_larger_one_goes_on(tmp_path: Path, up: Upstream) -> None:
    async with house(tmp_path, up) as here:
        run = await here.begin("capped", times=4)
        other = await here.begin("capped", times=2)
        failed = await here.ends(run)
        assert failed.state is RunState.FAILED
        assert "the run's own cap run:capped:requests is reached" in failed.error
        assert "2 of 2 are spent" in failed.error
        # Each run has a counter of its own.
        await here.succeeds(other)
        done = {name: state for name, (state, _) in (await here.steps(run)).items()}
        assert done == {"ask": StepState.SUCCEEDED, "ask#2": StepState.SUCCEEDED, "ask#3": StepState.FAILED}
        calls = up.meter.requests
        await here.desk.retry(run, OPERATOR, Caps(requests=4))
        await here.succeeds(run)
        assert up.meter.requests == calls + 2
        balances = {balance.key: balance for balance in await here.app.store.balances() if balance.name == "run:capped:requests"}
        assert {key: (found.limit, found.spent) for key, found in balances.items()} == {
            f"run={run}": (4, 4),
            f"run={other}": (2, 2),
        }


async def test_a_cap_of_its_own_holds_from_the_first_call_and_over_a_restart(tmp_path: Path, up: Upstream) -> None:
    async with house(tmp_path, up) as here:
        run = await here.begin("capped", caps=Caps(requests=1))
        assert "1 of 1 are spent" in (await here.ends(run)).error
        await here.restart()
        await here.desk.retry(run, OPERATOR)
        assert "1 of 1 are spent" in (await here.ends(run)).error
        assert up.meter.requests == 1


async def test_failures_are_tried_again_a_bounded_number_of_times_and_want_of_budget_never_counts(
    tmp_path: Path, up: Upstream
) -> None:
    async with house(tmp_path, up) as here:
        broken = Script(status=500, body={"error": {"message": "broken"}})
        up.queue.extend([broken, broken])
        run = await here.begin("every", kind="ask")
        await here.succeeds(run)
        assert await here.steps(run) == {"ask": (StepState.SUCCEEDED, 3)}
        assert up.meter.requests == 3
        up.queue.append(Script(status=400, body={"error": {"message": "what is that?"}}))
        fault = await here.ends(await here.begin("every", kind="ask"))
        assert (fault.state, "what is that?" in fault.error) == (RunState.FAILED, True)


async def test_when_only_holds_are_in_the_way_a_close_wakes_the_run(tmp_path: Path, up: Upstream) -> None:
    up.default = Script(pieces=5, gate=True)
    async with house(tmp_path, up, hour(tokens=150)) as here:
        first = await here.begin("every", kind="ask")
        await here.until(lambda: up.meter.waiting == 1)
        second = await here.begin("every", kind="ask")
        await here.reaches(second, RunState.WAITING_BUDGET)
        up.release()
        await here.succeeds(first)
        # The clock stands still: only the close can have woken it.
        await here.succeeds(second)


async def test_a_run_without_checkpoints_begins_again_and_finds_the_answers_it_paid_for(tmp_path: Path, up: Upstream) -> None:
    async with house(tmp_path, up) as here:
        up.queue.extend([Script(text="first"), Script(gate=True)])
        run = await here.begin("asks")
        await here.until(lambda: up.meter.waiting == 1)
        await here.stop()
        for file in (tmp_path / "var").glob("sluicegate-engine.db*"):
            file.unlink()
        up.queue.append(Script(text="second"))
        await here.start()
        assert (await here.succeeds(run)).result == "first | second"
        assert [seen.body["messages"][0]["content"] for seen in up.seen] == ["one", "two", "two"]


async def test_a_step_that_calls_under_way_keep_out_is_shown_once_without_a_time(tmp_path: Path, up: Upstream) -> None:
    here = House(tmp_path, up, hour(requests=1), clock=SettableClock(NOON))
    spare = budget("spare-hour", provider="spare", per="hour", requests=1)
    here.text = here.text.replace("[workflows]", f"{provider('spare', up)}\n{spare}\n[workflows]").replace(
        '["main"]', '["main", "spare"]'
    )
    await here.start()
    try:
        await spend(here, 1)
        up.queue.append(Script(pieces=5, gate=True))
        calls = up.meter.requests
        slow = await here.begin("every", kind="ask")
        await here.until(lambda: up.meter.requests > calls)
        kept_out = await here.begin("every", kind="ask")
        waiting = await here.reaches(kept_out, RunState.WAITING_BUDGET)
        assert waiting.waiting_until is None
        for _ in range(3):
            before = await refusals(here)
            here.clock.advance(HELD_S)
            async with asyncio.timeout(30):
                while await refusals(here) == before:  # noqa: ASYNC110 - the worker's own pace
                    await asyncio.sleep(0.02)
        up.release()
        await here.succeeds(slow)
        async with asyncio.timeout(30):
            while (shown := await here.runs.get(kept_out)).waiting_until is None:  # noqa: ASYNC110 - a row, read again
                await asyncio.sleep(0.05)
        assert shown.waiting_until == datetime(2026, 3, 2, 13, 0, tzinfo=UTC)
        waits = [event for event in await here.runs.events(kept_out, 0, 100) if event.data.get("state") == StepState.WAITING]
        assert len(waits) == 2, "once for the call under way, once for the window"
    finally:
        await here.stop()
