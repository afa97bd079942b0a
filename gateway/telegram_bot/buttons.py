"""Taps on buttons: the token is looked up, the tapper is checked, and each button works once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import structlog
from telegram import CallbackQuery

from gateway.errors import UnknownTarget
from gateway.notice import Action
from gateway.store.telegram import Button, Lane, Letter, State
from gateway.telegram_bot.addressing import ANONYMOUS_ADMIN
from gateway.telegram_bot.delivery import Keyboard, Place
from gateway.telegram_bot.desk import Desk, Work
from gateway.telegram_bot.exhausted import make_button
from gateway.telegram_bot.lanes import Item

log = structlog.get_logger()

USE_MODEL = "use_model"
CHOOSE_MODEL = "choose_model"
LABEL_MAX = 60
WAITING = (State.OFFERED, State.PARKED)

Handler = Callable[[Desk, Work, CallbackQuery, Button], Awaitable[None]]


async def tapped(desk: Desk, work: Work, query: CallbackQuery) -> None:
    """Does what a button says, for the one whom it belongs to, or an admin."""
    work.outcome = "tapped"
    button = await desk.inbox.button(query.data or "")
    if button is None or button.action not in HANDLERS:
        await desk.delivery.answer_tap(query.id, work.say("button_gone"))
        return
    standing = await desk.standing(query.from_user.id, button.chat_id)
    theirs = button.user_id in (query.from_user.id, ANONYMOUS_ADMIN) and standing.may
    if not theirs and not standing.admin:
        log.info("telegram_tap_refused", user=query.from_user.id, owner=button.user_id)
        await desk.delivery.answer_tap(query.id, work.say("button_not_yours", name=query.from_user.first_name), alert=True)
        return
    if not await desk.inbox.use(button.token, desk.now_ms()):
        await desk.delivery.answer_tap(query.id, work.say("button_used"))
        return
    await HANDLERS[button.action](desk, work, query, button)


async def _answer_later(desk: Desk, work: Work, query: CallbackQuery, button: Button) -> None:
    letter = await _waiting(desk, work, query, button)
    if letter is None:
        return
    due_ms = letter.due_ms if letter.due_ms is not None else desk.now_ms()
    await desk.inbox.park(letter.update_id, due_ms, desk.now_ms())
    await desk.delivery.answer_tap(query.id)
    said = work.say("parked") if letter.due_ms is None else work.say("parked_until", time=desk.when_ms(work.reader, due_ms))
    await _rewrite(desk, query, letter, said, [await _cancel_row(desk, work, letter)])


async def _other_model(desk: Desk, work: Work, query: CallbackQuery, button: Button) -> None:
    letter = await _waiting(desk, work, query, button)
    if letter is None:
        return
    await desk.delivery.answer_tap(query.id)
    names = button.argument.splitlines()
    made = [make_button(letter, USE_MODEL, name) for name in names]
    await desk.inbox.add_buttons(made, desk.now_ms())
    rows = [[(name[:LABEL_MAX], one.token)] for name, one in zip(names, made, strict=True)]
    await _rewrite(desk, query, letter, work.say("pick_model"), [*rows, await _cancel_row(desk, work, letter)])


async def _use_model(desk: Desk, work: Work, query: CallbackQuery, button: Button) -> None:
    letter = await _waiting(desk, work, query, button)
    if letter is None or not await desk.inbox.take(letter.update_id, WAITING, button.argument):
        return
    await desk.delivery.answer_tap(query.id)
    await _rewrite(desk, query, letter, work.say("asking_model", model=button.argument))
    desk.lanes.put(letter.lane, Item(letter.update_id))


async def _ask_admin(desk: Desk, work: Work, query: CallbackQuery, button: Button) -> None:
    sender = query.from_user
    admins = await desk.admins()
    for admin in admins:
        said = work.say("admin_asked", name=sender.full_name, id=sender.id, chat=button.chat_id, budgets=button.argument or "-")
        await desk.delivery.say(Place(Lane(admin)), said)
    await desk.delivery.answer_tap(query.id, work.say("admins_told" if admins else "no_admins"), alert=True)


async def _cancel(desk: Desk, work: Work, query: CallbackQuery, button: Button) -> None:
    letter = await _waiting(desk, work, query, button)
    if letter is None:
        return
    await desk.inbox.finish(letter.update_id, "cancelled")
    await desk.delivery.answer_tap(query.id)
    await _rewrite(desk, query, letter, work.say("cancelled"))


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
}


async def _waiting(desk: Desk, work: Work, query: CallbackQuery, button: Button) -> Letter | None:
    """The question that a button belongs to, if it still waits; else the tapper is told."""
    letter = None if button.update_id is None else await desk.inbox.load(button.update_id)
    if letter is None or letter.state not in WAITING:
        await desk.delivery.answer_tap(query.id, work.say("question_gone"))
        return None
    return letter


async def _cancel_row(desk: Desk, work: Work, letter: Letter) -> list[tuple[str, str]]:
    button = make_button(letter, str(Action.CANCEL))
    await desk.inbox.add_buttons([button], desk.now_ms())
    return [(work.say("button_cancel"), button.token)]


async def _rewrite(desk: Desk, query: CallbackQuery, letter: Letter, said: str, keyboard: Keyboard = ()) -> None:
    if query.message is not None:
        await desk.delivery.change(Place(letter.lane), query.message.message_id, said, keyboard)
