"""/run, /runs, and what /cancel does to runs."""

from __future__ import annotations

from gateway.errors import UnknownRun, WorkflowError, WrongState
from gateway.telegram_bot.commands import cancel as cancel_questions
from gateway.telegram_bot.desk import Desk, Work
from gateway.telegram_bot.runs import forms
from gateway.telegram_bot.runs.card import NAME_MAX
from gateway.telegram_bot.runs.mine import LISTED_MAX, going_on, listed
from gateway.telegram_bot.runs.starting import refused, start, starter_of, unreadable, workflows
from gateway.telegram_bot.runs.views import choosing, listing
from gateway.telegram_bot.runs.words import one_line, read_asked

ID_MAX = 64


async def run(desk: Desk, work: Work) -> None:
    """`/run NAME key=value …`: starts it, asks for what is missing, or says what is wrong."""
    work.outcome = "told"
    words = (work.message.text or "").split(maxsplit=1)
    asked = read_asked(words[1] if len(words) > 1 else "")
    if not asked.name:
        await workflows(desk, work)
        return
    try:
        definition = desk.flows.startable_one(starter_of(desk, work), asked.name)
    except WorkflowError as error:
        await desk.delivery.say(work.place, refused(work, error))
        return
    if wrong := unreadable(work, asked):
        await desk.delivery.say(work.place, wrong)
    elif not await start(desk, work, definition, asked):
        await forms.begin(desk, work, definition, dict(asked.given))


async def runs(desk: Desk, work: Work) -> None:
    """The person's newest runs; admins see everybody's, in private."""
    work.outcome = "told"
    said, keyboard = listing(await listed(desk, work), work.reader, desk.clock.now())
    await desk.delivery.say(work.place, said, keyboard)


async def cancel(desk: Desk, work: Work, words: list[str]) -> None:
    """`/cancel [ID]`: a run by its id; else what waits here, questions and forms; else the run that goes on, or one."""
    work.outcome = "told"
    if words:
        await _cancel_one(desk, work, words[0])
        return
    dropped = await cancel_questions(desk, work)
    form = await desk.forms.open(work.lane, work.letter.user_id)
    if form is not None:
        await forms.drop(desk, work, form)
        await desk.delivery.say(work.place, work.say("cancelled"))
    live = await going_on(desk, work)
    if live and (dropped or form is not None or len(live) > 1):
        # Somebody who has let go of something else may not have meant the run.
        await desk.delivery.say(work.place, work.say("cancel_which"), choosing(live[:LISTED_MAX]))
    elif live:
        await _cancel_one(desk, work, live[0].id)
    elif not dropped and form is None:
        await desk.delivery.say(work.place, work.say("nothing_to_cancel"))


async def _cancel_one(desk: Desk, work: Work, run_id: str) -> None:
    """`/cancel ID`."""
    try:
        found = await desk.flows.cancel(run_id[:ID_MAX].lower(), starter_of(desk, work))
    except UnknownRun:
        said = work.say("run_unknown", id=one_line(run_id, ID_MAX))
    except WrongState:
        said = work.say("run_past_that")
    else:
        desk.poke.set()
        said = work.say("run_cancel_wanted", workflow=one_line(found.workflow, NAME_MAX))
    await desk.delivery.say(work.place, said)
