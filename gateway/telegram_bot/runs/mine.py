"""The runs that a person sees in a chat."""

from __future__ import annotations

from gateway.runs import Run
from gateway.telegram_bot.desk import Desk, Work
from gateway.telegram_bot.runs.starting import starter_of

LISTED_MAX = 8
LOOKED_AT_MAX = 200
"""How many of a person's newest runs are looked at for those of this chat."""


async def listed(desk: Desk, work: Work) -> list[Run]:
    """The newest runs: everybody's for an admin in private; else the person's own, in a group those started in it."""
    if work.reader.admin:
        return await desk.flows.newest(starter_of(desk, work), limit=LISTED_MAX)
    return (await _mine(desk, work))[:LISTED_MAX]


async def going_on(desk: Desk, work: Work) -> list[Run]:
    """The person's own runs that go on or wait, the newest first."""
    return [run for run in await _mine(desk, work) if not run.state.ended and not run.wanted]


async def _mine(desk: Desk, work: Work) -> list[Run]:
    mine = await desk.runs.newest(of=starter_of(desk, work), limit=LOOKED_AT_MAX)
    return [run for run in mine if work.private or run.starter.chat == str(work.lane.chat_id)]
