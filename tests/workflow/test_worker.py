"""Runs from the desk's row to their end, on a worker in this process."""

import asyncio
from pathlib import Path

from gateway.runs import Caps, StepState
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


async def test_what_ended_long_ago_is_forgotten_with_its_folder_its_checkpoints_and_its_counters(
    tmp_path: Path, up: Upstream
) -> None:
    async with house(tmp_path, up) as here:
        run = await here.begin("capped", times=2, caps=Caps(requests=5))
        await here.succeeds(run)
        folder = here.app.settings.runs_folder / run
        assert folder.is_dir()
        here.clock.advance(days=31)
        young = await here.begin("capped", times=1)
        await here.succeeds(young)
        # The next start looks at once; a worker that serves looks every hour.
        await here.restart()
        async with asyncio.timeout(30):
            while len(await here.runs.newest(limit=10)) > 1:  # noqa: ASYNC110 - the worker's own pace
                await asyncio.sleep(0.05)
        assert not folder.exists()
        left = [balance.key for balance in await here.app.store.balances() if balance.name == "run:capped:requests"]
        assert left == [f"run={young}"]
        assert await here.app.books.check() == []
        await here.restart()
        assert [balance.spent for balance in await here.app.store.balances() if balance.name == "run:capped:requests"] == [1]
