"""Cancelling in each kind of step: the run is cancelled, and nothing of the step goes on."""

import asyncio
from pathlib import Path

import pytest

from gateway.errors import WrongState
from gateway.runs import RunState, StepState
from gateway.workflow import dbos_engine
from tests.doubles.upstream import Script, Upstream
from tests.workflow.house import OPERATOR, House, alive, house


async def under_way(here: House, up: Upstream, kind: str, run: str) -> None:
    """Waits until the step of this kind is in its middle."""
    if kind == "shell":
        await here.until(lambda: len(alive(f"{run}/long")) >= 2)
    elif kind in ("ask", "http"):
        await here.until(lambda: up.meter.waiting == 1)
    else:
        await here.reaches(run, RunState.SLEEPING, RunState.WAITING, RunState.WAITING_APPROVAL)


@pytest.mark.parametrize("kind", ["shell", "http", "ask", "sleep", "wait_for", "approve", "map"])
async def test_cancelling_in_a_step(kind: str, tmp_path: Path, up: Upstream) -> None:
    up.default = Script(gate=True)
    async with house(tmp_path, up) as here:
        (tmp_path / "url").write_text(f"{up.root}/v1/chat/completions")
        run = await here.begin("every", kind=kind)
        await under_way(here, up, kind, run)
        await here.desk.cancel(run, OPERATOR)
        cancelled = await here.reaches(run, RunState.CANCELLED)
        assert cancelled.waiting_until is None
        assert all(state is StepState.CANCELLED for state, _ in (await here.steps(run)).values())
        # What was killed may still be on its way out.
        await here.until(lambda: alive(f"{run}/long") == [])
        await here.until(lambda: up.meter.waiting == 0)
        assert here.app.worker is not None
        assert here.app.worker.running == 0
        with pytest.raises(WrongState):
            await here.desk.retry(run, OPERATOR)
        await here.restart()
        await asyncio.sleep(1)
        assert (await here.runs.get(run)).state is RunState.CANCELLED


async def test_code_that_will_not_hear_of_its_end_is_not_waited_for_and_makes_no_further_step(
    tmp_path: Path, up: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dbos_engine, "STOP_S", 0.5)
    async with house(tmp_path, up) as here:
        run = await here.begin("every", kind="will not hear of its end")
        await here.reaches(run, RunState.SLEEPING)
        await here.desk.cancel(run, OPERATOR)
        await here.reaches(run, RunState.CANCELLED)
        assert here.app.worker is not None
        assert here.app.worker.running == 1, "it still tries"
        assert await here.steps(run) == {"sleep": (StepState.CANCELLED, 1)}
        await here.until(lambda: here.app.worker is not None and here.app.worker.running == 0)
        assert (await here.runs.get(run)).state is RunState.CANCELLED


async def test_a_stop_ends_programs_and_the_next_start_goes_on(tmp_path: Path, up: Upstream) -> None:
    async with house(tmp_path, up) as here:
        run = await here.begin("every", kind="shell")
        await here.until(lambda: len(alive(f"{run}/long")) >= 2)
        await here.stop()
        await here.until(lambda: alive(f"{run}/long") == [])
        await here.start()
        await here.until(lambda: len(alive(f"{run}/long")) >= 2)
        assert await here.steps(run) == {"long": (StepState.RUNNING, 2)}
        await here.desk.cancel(run, OPERATOR)
        await here.reaches(run, RunState.CANCELLED)
