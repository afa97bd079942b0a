"""A workflow's file that is edited while one of its runs waits."""

from pathlib import Path

from gateway.runs import RunState
from tests.doubles.upstream import Upstream
from tests.workflow.house import OPERATOR, house

FIRST = '''
from gateway.workflow import Context, workflow


@workflow
async def waits(ctx: Context) -> str:
    """Waits for a signal."""
    before = await ctx.step(lambda: "old", name="before")
    await ctx.wait_for("go")
    return before + " first"
'''
SAME = "    # The same work, said differently.\n    before  = "
COMMENTED = FIRST.replace("    before = ", SAME).replace("Waits for", "Still waits for")
SECOND = FIRST.replace('"old"', '"new"').replace(" first", " second")


async def test_case_58_a_changed_file_ends_the_run_clearly_and_one_that_reads_the_same_goes_on(
    tmp_path: Path, up: Upstream
) -> None:
    flows = tmp_path / "flows"
    flows.mkdir()
    file = flows / "waits.py"
    file.write_text(FIRST)
    async with house(tmp_path, up, flows=flows) as here:
        untouched, changed = await here.begin("waits"), await here.begin("waits")
        for run in (untouched, changed):
            await here.reaches(run, RunState.WAITING)
        file.write_text(COMMENTED)
        await here.restart()
        await here.runs.signal(untouched, "go", None)
        assert (await here.succeeds(untouched)).result == "old first"
        file.write_text(SECOND)
        await here.restart()
        ended = await here.ends(changed)
        assert (ended.state, ended.error) == (RunState.FAILED, "its file changed while it waited; start it again")
        # A retry would mix as well.
        await here.desk.retry(changed, OPERATOR)
        assert (await here.ends(changed)).error == ended.error
        again = await here.begin("waits")
        await here.runs.signal(again, "go", None)
        assert (await here.succeeds(again)).result == "new second"
        file.unlink()
        waiting = await here.begin("waits")
        await here.reaches(waiting, RunState.WAITING)
        await here.restart()
        assert (await here.ends(waiting)).error == "its file is gone, so it cannot go on"


async def test_a_run_that_takes_another_way_after_a_restart_is_ended_with_the_reason(tmp_path: Path, up: Upstream) -> None:
    flows = tmp_path / "flows"
    flows.mkdir()
    (flows / "strays.py").write_text('''
from pathlib import Path

from gateway.workflow import Context, workflow


@workflow
async def strays(ctx: Context) -> str:
    """Looks at the world outside a step."""
    name = "left" if not (ctx.folder / "seen").exists() else "right"
    (ctx.folder / "seen").touch()
    await ctx.step(lambda: name, name=name)
    await ctx.wait_for("go")
    return name
''')
    async with house(tmp_path, up, flows=flows) as here:
        run = await here.begin("strays")
        await here.reaches(run, RunState.WAITING)
        await here.restart()
        ended = await here.ends(run)
        assert ended.state is RunState.FAILED
        assert "took another way than before" in ended.error
