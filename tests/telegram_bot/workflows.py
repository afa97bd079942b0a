"""Workflows as an operator writes them, for the bot's tests, and a worker's part played by hand."""

from __future__ import annotations

from gateway.runs import Run, RunState, StepState
from gateway.store.runs import Runs
from tests.telegram_bot.rig import Rig

NEWS = '''
from enum import Enum
from gateway.workflow import workflow

class Depth(Enum):
    SHORT = "short"
    LONG = "long"

@workflow(title="News")
async def news(ctx, topic: str, depth: Depth = Depth.SHORT, quiet: bool = False, limit: int = 5):
    """Sums up the news.

    Args:
        topic: What it is about.
    """
'''
TIDY = '''
from gateway.workflow import workflow

@workflow
async def tidy(ctx):
    """Tidies up."""
'''
SECRET = TIDY.replace("def tidy", "def secret").replace("Tidies up", "For admins")
FILES = {"news": NEWS, "tidy": TIDY, "secret": SECRET}
RULES = '[workflows.secret]\nwho = ["admins"]\n'


async def started(run: Rig) -> Run:
    """The run that this chat's bot started last, once there is one; the clock goes on, so that there is a last one."""
    newest = await run.eventually(run.runs.newest, lambda found: found and found[0].starter.bot == 123456)
    run.clock.advance(seconds=1)
    return newest[0]


async def worked(runs: Runs, run_id: str, *steps: str) -> None:
    """A worker takes the run and does these steps."""
    await runs.take(run_id, "worker")
    for step in steps:
        await runs.step_began(run_id, step, "ask")
        await runs.step_ended(run_id, step, StepState.SUCCEEDED)


async def ended(runs: Runs, run_id: str, state: RunState = RunState.SUCCEEDED, error: str = "") -> None:
    """The run ends."""
    await runs.set_state(run_id, state, error=error)
