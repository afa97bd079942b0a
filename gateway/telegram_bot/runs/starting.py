"""/workflows and /run: what a person may start, and starting it once per message."""

from __future__ import annotations

import secrets
from collections.abc import Sequence

import structlog

from gateway.errors import BadParameters, NotAllowed, RequestConflict, UnknownWorkflow, WorkflowError
from gateway.runs import Starter
from gateway.store.telegram import Button
from gateway.telegram_bot.desk import Desk, Work
from gateway.telegram_bot.runs.words import Asked, one_line
from gateway.workflow.definition import Definition

log = structlog.get_logger()

START = "start_workflow"
LISTED_MAX = 30
HELP_MAX = 160
GIVEN_MAX = 40
"""How much of what somebody wrote is said back to them."""


def starter_of(desk: Desk, work: Work) -> Starter:
    """The person who wrote (or tapped), as permissions and budgets know them, and where they are told."""
    standing, lane = work.standing, work.lane
    return Starter(
        surface="telegram",
        user=str(work.letter.user_id),
        admin=standing.admin,
        listed=standing.listed,
        chat=str(lane.chat_id),
        thread=lane.thread_id or None,
        language=work.reader.language,
        bot=desk.bot_id,
    )


async def workflows(desk: Desk, work: Work) -> None:
    """What the person may start, with a button for each."""
    work.outcome = "told"
    known = desk.flows.startable(starter_of(desk, work))[:LISTED_MAX]
    if not known:
        await desk.delivery.say(work.place, work.say("workflows_none"))
        return
    lines = [f"{one.name}: {one_line(one.help or one.title, HELP_MAX)}" for one in known]
    said = "\n".join([work.say("workflows_intro"), "", *lines])
    buttons = [_button(work, one.name) for one in known]
    await desk.inbox.add_buttons(buttons, desk.now_ms())
    keyboard = [[(f"▶️ {one.name}", button.token)] for one, button in zip(known, buttons, strict=True)]
    await desk.delivery.say(work.place, said, keyboard)


def _button(work: Work, name: str) -> Button:
    return Button(secrets.token_urlsafe(12), START, name, None, work.lane.chat_id, work.letter.user_id)


async def start(desk: Desk, work: Work, definition: Definition, asked: Asked) -> bool:
    """Starts a run with what was given; False when only something is missing. What is wrong is said, each by its name."""
    given = dict(asked.given)
    try:
        await desk.flows.start(definition.name, given, starter_of(desk, work), key=desk.request_id(work.letter.update_id))
    except BadParameters as error:
        missing = {field.name for field in definition.parameters.fields if field.required and field.name not in given}
        if all(name in missing for name, _ in error.problems):
            return False
        await desk.delivery.say(work.place, refused(work, error))
    except RequestConflict:
        # The same message again, read with other defaults: its run is there.
        log.info("telegram_run_there_already", update_id=work.letter.update_id)
    else:
        desk.poke.set()
    return True


def unreadable(work: Work, asked: Asked) -> str:
    """What of a command is no `key=value`; "" when all is."""
    if asked.unclosed:
        return work.say("run_unclosed")
    lines = [work.say("run_stray", given=one_line(word, GIVEN_MAX)) for word in asked.stray]
    lines += [work.say("run_twice", name=one_line(name, GIVEN_MAX)) for name in asked.twice]
    return "\n".join(lines)


def refused(work: Work, error: WorkflowError) -> str:
    """Why something was not done, in the person's language."""
    if isinstance(error, BadParameters):
        return problems(work, error.problems)
    if isinstance(error, UnknownWorkflow):
        return work.say("workflow_unknown", name=one_line(error.name, GIVEN_MAX), known=", ".join(error.known) or "-")
    if isinstance(error, NotAllowed):
        return f"{name_of(work)}: {error.reason}"
    return work.say("run_past_that")


def problems(work: Work, found: Sequence[tuple[str, str]]) -> str:
    """Every wrong parameter by its name."""
    return "\n".join([work.say("run_wrong"), *(f"• {one_line(name, GIVEN_MAX)}: {message}" for name, message in found)])


def name_of(work: Work) -> str:
    """What the person is called, for a sentence to them."""
    sender = work.update.effective_user
    return one_line(sender.first_name, GIVEN_MAX) if sender is not None else ""
