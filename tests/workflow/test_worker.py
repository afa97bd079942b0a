"""Runs from the desk's row to their end, on a worker in this process."""

import asyncio
from pathlib import Path

from sqlalchemy import text

from gateway.runs import Caps, RunState, StepState
from tests.conftest import empty_postgres
from tests.doubles.upstream import Script, Upstream
from tests.workflow.house import OPERATOR, alive, house


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


async def test_a_worker_that_lost_its_lock_stops_everything_and_goes_on_once_it_has_it_again(
    tmp_path: Path, up: Upstream, postgres_folder: Path
) -> None:
    with empty_postgres(postgres_folder) as url:
        async with house(tmp_path, up, url=url.replace("postgresql+psycopg", "postgresql")) as here:
            run = await here.begin("every", kind="shell")
            await here.until(lambda: len(alive(f"{run}/long")) >= 2)
            before = set(alive(f"{run}/long"))
            ours = "datname = current_database() AND pid IN (SELECT pid FROM pg_locks WHERE locktype = 'advisory')"
            end = text(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {ours}")
            await here.app.database.write(lambda connection: connection.execute(end).all())
            await here.until(lambda: not before & set(alive(f"{run}/long")), timeout_s=60)
            await here.until(lambda: len(alive(f"{run}/long")) >= 2, timeout_s=60)
            assert await here.steps(run) == {"long": (StepState.RUNNING, 2)}
            assert len(await here.runs.owners()) == 1
            await here.desk.cancel(run, OPERATOR)
            await here.reaches(run, RunState.CANCELLED)
