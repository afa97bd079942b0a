"""Runs from the desk's row to their end, on a worker in this process."""

from pathlib import Path

from gateway.runs import StepState
from tests.doubles.upstream import Script, Upstream
from tests.workflow.house import house


async def test_a_run_asks_twice_and_its_answer_is_kept(tmp_path: Path, up: Upstream) -> None:
    up.queue.extend([Script(text="yes"), Script(text="no")])
    async with house(tmp_path, up) as here:
        run = await here.begin("asks", first="a", second="b")
        ended = await here.succeeds(run)
        assert ended.result == "yes | no"
        assert await here.steps(run) == {"first": (StepState.SUCCEEDED, 1), "second": (StepState.SUCCEEDED, 1)}
        assert up.meter.requests == 2
        assert ended.tokens == up.meter.tokens
