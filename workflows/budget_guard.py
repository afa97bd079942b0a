"""Looks where the budgets are heading, and asks the admins by a button before one of them runs out: made for a schedule.

[[schedules]]
name = "guard"
cron = "0 * * * *"
workflow = "budget_guard"
to = "telegram:1001"
"""

from datetime import timedelta
from typing import Literal

from gateway.workflow import Context, Standing, workflow

EARLY = 0.1
"""Of a window that has hardly begun nothing is foretold."""
NEARLY = 0.9
"""A rolling window is asked about when so much of it is spent."""


@workflow(title="Watch the budgets")
async def budget_guard(ctx: Context, propose: Literal["raise", "pause"] = "raise", margin: int = 10, patience_h: int = 6) -> str:
    """Projects every budget's spending to the end of its window, and asks an admin before it runs out.

    Args:
        propose: What to ask for: raise the limit until the window ends, or pause every call until then.
        margin: How much more than the projection a raised limit allows, in percent.
        patience_h: How many hours the question stays open.
    """
    done: dict[str, str] = {}
    for tight in heading_over(await ctx.budgets.standing()):
        expected = projected(tight)
        wanted = max(expected, tight.limit) * (100 + margin) // 100
        patience = timedelta(hours=patience_h)
        until = tight.asked_at + patience if tight.opened_at is None else tight.resets_at or tight.asked_at + patience
        question = (
            f"{tight.name}: {tight.spent:,} of {tight.limit:,} {tight.unit} are spent, {expected:,} are to be expected by "
            f"{until:%Y-%m-%d %H:%M} UTC. "
            + (f"Raise it to {wanted:,} until then?" if propose == "raise" else "Pause every call?")
        )
        if not await ctx.approve(question, who=("admins",), expires=min(until - tight.asked_at, patience)):
            done[tight.name] = "left as it is"
        elif propose == "raise":
            await ctx.budgets.raise_to(tight.name, wanted, until)
            done[tight.name] = f"raised to {wanted:,} until {until:%Y-%m-%d %H:%M} UTC"
        else:
            await ctx.budgets.pause(until)
            done[tight.name] = f"every call is paused until {until:%Y-%m-%d %H:%M} UTC"
            break
    if not done:
        return "every budget lasts"
    said = "\n".join(f"{name}: {what}" for name, what in done.items())
    await ctx.notify(said)
    return said


def heading_over(standings: list[Standing]) -> list[Standing]:
    """The budgets that will not last, each once: of a budget with many counters the one that is worst off."""
    worst: dict[str, Standing] = {}
    for one in sorted(standings, key=lambda each: projected(each) / max(each.limit, 1)):
        allowed = one.limit if one.opened_at else one.limit * NEARLY
        if one.limit and one.resets_at and projected(one) > allowed:
            worst[one.name] = one
    return list(worst.values())


def projected(standing: Standing) -> int:
    """What will be spent by the end of the window, if it goes on as it went.

    A rolling window has no beginning: it is always full, and what is spent in it is what is to be expected.
    """
    spent = standing.spent + standing.held
    if standing.opened_at is None or standing.resets_at is None:
        return spent
    passed = (standing.asked_at - standing.opened_at) / (standing.resets_at - standing.opened_at)
    return spent if passed < EARLY else round(spent / passed)
