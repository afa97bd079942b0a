"""A workflow that is started by questions: one per parameter, answered by buttons or by a message, kept over restarts.

Only the one who is asked can answer, and of two answers to one question the first counts. The form's own update names
the run, so that however often its last step is repeated there is one run.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import replace

import structlog
from telegram import CallbackQuery

from gateway.errors import BadParameters, WorkflowError
from gateway.store.telegram import Button
from gateway.store.telegram_runs import Form
from gateway.telegram_bot.addressing import question as text_of
from gateway.telegram_bot.delivery import Keyboard, Place
from gateway.telegram_bot.desk import Desk, Work
from gateway.telegram_bot.markup import plain_parts
from gateway.telegram_bot.runs.questions import complete, default_text, next_field, question
from gateway.telegram_bot.runs.starting import refused, starter_of
from gateway.telegram_bot.runs.words import one_line
from gateway.workflow.definition import Definition

log = structlog.get_logger()

PICK, PASS, GO, DROP = "form_pick", "form_pass", "form_go", "form_drop"
"""What a form's buttons do: give a value, keep the default, start with all defaults, give up."""
RECENT_MS = 3_600_000
"""In private a message without a reply answers a form for so long after it was begun; later it is a question to the model."""
KEPT_MS = 86_400_000
"""After this long a form is forgotten."""
PER_ROW = 3
TITLE_MAX = 60
SHORT = 12
"""Labels up to this length stand side by side."""


async def begin(desk: Desk, work: Work, definition: Definition, given: Mapping[str, str]) -> None:
    """Asks for what is missing; the person's earlier form here ends."""
    now_ms, update_id = desk.now_ms(), work.letter.update_id
    form = Form(secrets.token_urlsafe(9), work.lane, work.letter.user_id, definition.name, update_id, now_ms, dict(given))
    form = replace(form, heard=update_id)
    earlier = await desk.forms.begin(form)
    kept = await desk.forms.open(work.lane, work.letter.user_id)
    if kept is None:
        return
    if earlier is not None and earlier.message_id is not None:
        await desk.delivery.retouch(Place(work.lane), earlier.message_id, work.say("form_replaced"))
    work.outcome = "asked"
    await _go_on(desk, work, kept)


async def begun(desk: Desk, work: Work, query: CallbackQuery, button: Button) -> None:
    """The button of a workflow in a list: asks for its parameters, or only whether to start it."""
    try:
        definition = desk.flows.startable_one(starter_of(desk, work), button.argument)
    except WorkflowError as error:
        await desk.delivery.answer_tap(query.id, refused(work, error), alert=True)
        return
    if not definition.parameters.fields and not await desk.inbox.use(button.token, desk.now_ms()):
        # There is nothing to ask, so the tap itself starts a run: one.
        await desk.delivery.answer_tap(query.id, work.say("button_used"))
        return
    await desk.delivery.answer_tap(query.id)
    await begin(desk, work, definition, {})


async def heard_by(desk: Desk, work: Work) -> Form | None:
    """The form that a message answers: in private the person's open one, elsewhere only by a reply to its question."""
    if not work.messages or not work.message.text or work.message.text.startswith("/"):
        return None
    form = await desk.forms.open(work.lane, work.letter.user_id)
    if form is None:
        return None
    replied = work.message.reply_to_message
    if replied is not None:
        return form if replied.message_id == form.message_id else None
    return form if work.private and desk.now_ms() - form.begun_ms < RECENT_MS else None


async def answer(desk: Desk, work: Work, form: Form) -> None:
    """Takes a message as the answer to the open question."""
    work.outcome = "answered_form"
    if form.heard == work.letter.update_id:
        # It was taken before a crash; what it led to is done again.
        await _go_on(desk, work, form)
        return
    definition = await _definition(desk, work, form)
    field = None if definition is None else next_field(definition, form)
    if definition is None or field is None:
        return
    pieces = [text_of(message, desk.bot_id, desk.username) for message in work.messages]
    value = "\n".join(piece for piece in pieces if piece)
    if problem := _problem(desk, work, definition, form, field.name, value):
        await desk.delivery.say(work.place, f"⚠️ {field.name}: {problem}")
        return
    await _next(desk, work, replace(form, given={**form.given, field.name: value}), form, f"☑️ {field.name}")


async def tapped(desk: Desk, work: Work, query: CallbackQuery, button: Button) -> None:
    """A button of a form: `argument` is the form's id, the step it belongs to, and for PICK the value."""
    form_id, step, value = button.argument.split(" ", 2)
    form = await desk.forms.get(form_id)
    if form is None or str(form.step) != step:
        await desk.delivery.answer_tap(query.id, work.say("form_gone"))
        return
    if query.message is not None and form.message_id is None:
        form = replace(form, message_id=query.message.message_id)
    await desk.delivery.answer_tap(query.id)
    work = replace(work, letter=replace(work.letter, lane=form.lane, user_id=form.user_id))
    if button.action == DROP:
        await drop(desk, work, form)
        return
    definition = await _definition(desk, work, form)
    field = None if definition is None else next_field(definition, form)
    if definition is None or field is None:
        return
    if button.action == PICK:
        await _next(desk, work, replace(form, given={**form.given, field.name: value}), form, "")
    elif button.action == PASS:
        await _next(desk, work, replace(form, passed=(*form.passed, field.name)), form, "")
    else:
        left = [one.name for one in definition.parameters.fields if one.name not in form.given]
        await _next(desk, work, replace(form, passed=tuple(left)), form, "")


async def drop(desk: Desk, work: Work, form: Form) -> None:
    """Gives a form up."""
    await desk.forms.end(form.id)
    if form.message_id is not None:
        await desk.delivery.retouch(Place(form.lane), form.message_id, work.say("cancelled"))


async def _next(desk: Desk, work: Work, form: Form, before: Form, done: str) -> None:
    """Keeps an answer and asks on. `done` is what the old question becomes; "": the next one takes its place."""
    form = replace(form, step=before.step + 1, heard=work.letter.update_id)
    if not await desk.forms.save(form):
        return
    if done and form.message_id is not None:
        await desk.delivery.retouch(Place(form.lane), form.message_id, done)
        form = replace(form, message_id=None)
    await _go_on(desk, work, form)


async def _go_on(desk: Desk, work: Work, form: Form) -> None:
    """Asks the next question, or starts the run when there is none."""
    definition = await _definition(desk, work, form)
    if definition is None:
        return
    field = next_field(definition, form)
    if field is None:
        await _start(desk, work, form, definition)
        return
    asked = question(definition, field, form, work.say, private=work.private)
    buttons: list[Button] = []

    def button(action: str, value: str = "") -> str:
        argument = f"{form.id} {form.step} {value}"
        made = Button(secrets.token_urlsafe(12), action, argument, None, form.lane.chat_id, form.user_id)
        buttons.append(made)
        return made.token

    keyboard = _rows([(label, button(PICK, value)) for label, value in asked.choices])
    if not field.required:
        label = work.say("form_keep", default=default_text(field, work.say))
        keyboard.append([(label, button(PASS))])
        if complete(definition, form.given):
            keyboard.append([(work.say("form_start"), button(GO))])
    keyboard.append([(work.say("button_cancel"), button(DROP))])
    await desk.inbox.add_buttons(buttons, desk.now_ms())
    await _show(desk, work, form, asked.text, keyboard)


async def _show(desk: Desk, work: Work, form: Form, said: str, keyboard: Keyboard) -> None:
    if form.message_id is not None and await desk.delivery.revise(
        Place(form.lane), form.message_id, plain_parts(said)[0], keyboard
    ):
        return
    reply = work.message.message_id if work.messages and not work.private else None
    message_id = await desk.delivery.say(Place(form.lane, reply), said, keyboard)
    await desk.forms.asked(form.id, message_id)


async def _start(desk: Desk, work: Work, form: Form, definition: Definition) -> None:
    try:
        await desk.flows.start(definition.name, dict(form.given), starter_of(desk, work), key=desk.request_id(form.update_id))
    except WorkflowError as error:
        await desk.delivery.say(work.place, refused(work, error))
        wrong = {name.partition("[")[0] for name, _ in error.problems} if isinstance(error, BadParameters) else set()
        given = {name: value for name, value in form.given.items() if name not in wrong}
        if given == dict(form.given):
            await drop(desk, work, form)
            return
        # A value that was right when it was given may be wrong since the configuration changed: it is asked for again.
        await _next(desk, work, replace(form, given=given), form, "")
        return
    await desk.forms.end(form.id)
    desk.poke.set()
    if form.message_id is not None:
        said = work.say("form_started", workflow=one_line(definition.title, TITLE_MAX))
        await desk.delivery.retouch(Place(form.lane), form.message_id, said)


async def _definition(desk: Desk, work: Work, form: Form) -> Definition | None:
    """The form's workflow; one that is gone, or may no longer be started, ends the form with a word."""
    try:
        return desk.flows.startable_one(starter_of(desk, work), form.workflow)
    except WorkflowError as error:
        await drop(desk, work, form)
        await desk.delivery.say(work.place, refused(work, error))
        return None


def _problem(desk: Desk, work: Work, definition: Definition, form: Form, name: str, value: str) -> str:
    """What is wrong with an answer, in the person's language; "" when it is right."""
    try:
        desk.flows.parse(definition.name, {**form.given, name: value}, starter_of(desk, work))
    except BadParameters as error:
        return next((said for wrong, said in error.problems if wrong.partition("[")[0] == name), "")
    return ""


def _rows(buttons: list[tuple[str, str]]) -> list[list[tuple[str, str]]]:
    """Short labels side by side, long ones in rows of their own."""
    per_row = PER_ROW if all(len(label) <= SHORT for label, _ in buttons) else 1
    return [buttons[at : at + per_row] for at in range(0, len(buttons), per_row)]
