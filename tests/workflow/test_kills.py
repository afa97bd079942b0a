"""The real program killed in the middle of runs, and what the next one, or another replica, makes of them."""

import asyncio
import random
import signal
from pathlib import Path

from gateway.runs import RunState
from tests.conftest import empty_postgres
from tests.doubles.upstream import Script, Upstream
from tests.workflow.kills import END_S, OPERATOR, Beside, Serving, killed, written


async def test_case_51_killed_at_random_moments_the_sample_completes_and_repeats_nothing(tmp_path: Path, empty_url: str) -> None:
    seen = await killed(tmp_path, empty_url, "clone_petroserver", 3, random.Random(7))
    assert seen.kills >= 1


async def test_of_two_replicas_one_is_killed_and_the_other_ends_its_runs(tmp_path: Path, postgres_folder: Path) -> None:
    slow = Script(text="some words", start_delay_s=0.4)
    with empty_postgres(postgres_folder) as url:
        async with Upstream(slow) as upstream:
            await _one_of_two(tmp_path, upstream, url)


async def _one_of_two(tmp_path: Path, upstream: Upstream, url: str) -> None:
    beside = Beside(await asyncio.to_thread(written, tmp_path, upstream, url))
    async with Serving(tmp_path, 1) as first, Serving(tmp_path, 2):
        ids: list[str] = []
        # Whoever looks first takes a run, so there are more until both have some.
        async with asyncio.timeout(END_S):
            while len(await beside.runs.owners()) < 2:
                ids.append((await beside.desk.start("journey", {}, OPERATOR)).id)
                await asyncio.sleep(0.4)
        await first.end(signal.SIGKILL)
        left = {run.id for run in await beside.runs.unfinished()}
        done = {run: await beside.finished(run) for run in ids}
        for run in ids:
            ended = await beside.ends(run)
            assert (ended.state, ended.error) == (RunState.SUCCEEDED, "")
            assert done[run].items() <= (await beside.finished(run)).items()
        # Whoever was killed may have ended some before.
        assert len({(await beside.runs.get(run)).owner for run in left}) == 1, "the others ended with the worker that lives"
    assert await beside.books.check() == []
    await beside.database.close()
