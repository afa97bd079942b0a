"""Taps on buttons: the token is looked up, the tapper is checked, and each button works once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

import structlog
from telegram import CallbackQuery

from gateway.errors import UnknownTarget
from gateway.notice import Action
from gateway.store.telegram import Button, Lane, State
from gateway.telegram_bot import alerts
from gateway.telegram_bot.addressing import ANONYMOUS_ADMIN
from gateway.telegram_bot.delivery import Place
from gateway.telegram_bot.desk import Desk, Work
from gateway.telegram_bot.exhausted import make_button
from gateway.telegram_bot.lanes import Item
from gateway.telegram_bot.runs import forms, taps
from gateway.telegram_bot.runs.starting import START
from gateway.telegram_bot.runs.views import read_data
from gateway.telegram_bot.waiting import of_asker, promise, retouch, rows, waits

log = structlog.get_logger()

USE_MODEL = "use_model"
CHOOSE_MODEL = "choose_model"
LABEL_MAX = 60
ASK_AGAIN_MS = 600_000
"""An admin hears of the same person again only after this long."""
WAITING = (State.OFFERED, State.PARKED)

Handler = Callable[[Desk, Work, CallbackQuery, Button], Awaitable[None]]


async def tapped(desk: Desk, work: Work, query: CallbackQuery) -> None:
    """Does what a button says, for the one whom it belongs to, or an admin."""
    work.outcome = "tapped"
    if (query.data or "").startswith(alerts.NOTED):
        await alerts.tapped(desk, work, query)
        return
    if (of_run := read_data(query.data or "")) is not None:
        await taps.tapped(desk, work, query, *of_run)
        return
    button = await desk.inbox.button(query.data or "")
    if button is None or button.action not in HANDLERS:
        await desk.delivery.answer_tap(query.id, work.say("button_gone"))
        return
    standing = await desk.standing(query.from_user.id, button.chat_id)
    theirs = button.user_id in (query.from_user.id, ANONYMOUS_ADMIN) and standing.may
    if not theirs and not (standing.admin and button.action not in ASKERS):
        log.info("telegram_tap_refused", user=query.from_user.id, owner=button.user_id)
        await desk.delivery.answer_tap(query.id, work.say("button_not_yours", name=query.from_user.first_name), alert=True)
        return
    if button.action not in REPEATABLE and not await desk.inbox.use(button.token, desk.now_ms()):
        await desk.delivery.answer_tap(query.id, work.say("button_used"))
        return
    await HANDLERS[button.action](desk, work, query, button)


async def _answer_later(desk: Desk, work: Work, query: CallbackQuery, button: Button) -> None:
    asker = await _waiting(desk, work, query, button)
    if asker is not None and await _park(desk, asker):
        await desk.delivery.answer_tap(query.id)
        await waits(desk, asker, promise(desk, asker, asker.letter.due_ms))


async def _other_model(desk: Desk, work: Work, query: CallbackQuery, button: Button) -> None:
    asker = await _waiting(desk, work, query, button)
    if asker is None:
        return
    await desk.delivery.answer_tap(query.id)
    names = button.argument.splitlines()
    made = [make_button(asker.letter, USE_MODEL, name) for name in names]
    await desk.inbox.add_buttons(made, desk.now_ms())
    models = [[(name[:LABEL_MAX], one.token)] for name, one in zip(names, made, strict=True)]
    others = await rows(desk, asker, Action.ANSWER_LATER, Action.CANCEL)
    await retouch(desk, asker.letter, asker.say("pick_model"), [*models, *others])


async def _use_model(desk: Desk, work: Work, query: CallbackQuery, button: Button) -> None:
    asker = await _waiting(desk, work, query, button)
    if asker is None or not await desk.inbox.take(asker.letter.update_id, WAITING, button.argument):
        return
    await desk.delivery.answer_tap(query.id)
    await retouch(desk, asker.letter, asker.say("asking_model", model=button.argument))
    desk.lanes.put(asker.lane, Item(asker.letter.update_id))


async def _ask_admin(desk: Desk, work: Work, query: CallbackQuery, button: Button) -> None:
    asker = await _waiting(desk, work, query, button)
    if asker is None:
        return
    admins, now_ms = await desk.admins(), desk.now_ms()
    await desk.delivery.answer_tap(query.id, work.say("admins_told" if admins else "no_admins"), alert=True)
    # What an admin then does answers the question, whether or not it was to be answered later already.
    if admins and await _park(desk, asker):
        await waits(desk, asker, asker.say("parked_asked"))
    sender, names = query.from_user, button.argument.split(", ")
    said = work.say("admin_asked", name=sender.full_name, id=sender.id, chat=button.chat_id)
    said += "".join(f"\n/raise {name} +20% for 2h" for name in names if name)
    for admin in admins:
        if await desk.talk.say_once(admin, f"asked:{sender.id}", now_ms, now_ms + ASK_AGAIN_MS):
            await desk.delivery.say(Place(Lane(admin)), said)


async def _cancel(desk: Desk, work: Work, query: CallbackQuery, button: Button) -> None:
    asker = await _waiting(desk, work, query, button)
    if asker is None:
        return
    await desk.inbox.finish(asker.letter.update_id, "cancelled")
    await desk.delivery.answer_tap(query.id)
    await retouch(desk, asker.letter, asker.say("cancelled"))


async def _choose_model(desk: Desk, work: Work, query: CallbackQuery, button: Button) -> None:
    try:
        desk.settings.slots(button.argument)
    except UnknownTarget:
        await desk.delivery.answer_tap(query.id, work.say("button_gone"))
        return
    lane = work.lane
    await desk.talk.choose(lane, button.argument)
    await desk.delivery.answer_tap(query.id)
    if query.message is not None:
        said = work.say("model_chosen", model=button.argument)
        await desk.delivery.change(Place(lane), query.message.message_id, said)


HANDLERS: dict[str, Handler] = {
    Action.ANSWER_LATER: _answer_later,
    Action.OTHER_MODEL: _other_model,
    Action.ASK_ADMIN: _ask_admin,
    Action.CANCEL: _cancel,
    USE_MODEL: _use_model,
    CHOOSE_MODEL: _choose_model,
    START: forms.begun,
    forms.PICK: forms.tapped,
    forms.PASS: forms.tapped,
    forms.GO: forms.tapped,
    forms.DROP: forms.tapped,
}
REPEATABLE = (START, forms.PICK, forms.PASS, forms.GO, forms.DROP)
"""What may be pressed again: it leads to a form, and a form counts each of its steps once."""
ASKERS = REPEATABLE
"""What only the one who was asked may press, not even an admin."""


async def _waiting(desk: Desk, work: Work, query: CallbackQuery, button: Button) -> Work | None:
    """The question that a button belongs to, as its asker sees it, if it still waits; else the tapper is told."""
    letter = None if button.update_id is None else await desk.inbox.load(button.update_id)
    if letter is None or letter.state not in WAITING:
        await desk.delivery.answer_tap(query.id, work.say("question_gone"))
        return None
    if query.message is not None:
        # The notice may not have been known to have arrived; here it is.
        letter = replace(letter, notice_id=query.message.message_id)
    return of_asker(desk, work, letter)


async def _park(desk: Desk, asker: Work) -> bool:
    """Lets a question wait for its time; where that is not known, it is tried at once and then waits for a limit to change."""
    letter, now_ms = asker.letter, desk.now_ms()
    return await desk.inbox.park(letter.update_id, now_ms if letter.due_ms is None else letter.due_ms, now_ms)
