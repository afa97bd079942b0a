"""A notice after it was first said: it tells what its question waits for, keeps the buttons that work, and in the end lets go."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from telegram import Update

from gateway.clock import from_ms
from gateway.notice import Action
from gateway.store.telegram import Letter
from gateway.telegram_bot.delivery import Keyboard, Place
from gateway.telegram_bot.desk import Desk, Work


def of_asker(desk: Desk, work: Work, letter: Letter) -> Work:
    """The same work seen from the question: whoever pressed a button, its notice stays in the asker's language."""
    return replace(work, letter=letter, reader=desk.reader(Update.de_json(dict(letter.raw), None)))


def label(desk: Desk, work: Work, action: Action, opens_at: datetime | None) -> str:
    """What is written on a button."""
    if action is Action.ANSWER_LATER and opens_at is not None and opens_at > desk.clock.now():
        return work.say("button_answer_at", time=desk.when(work.reader, opens_at))
    return work.say(f"button_{action}")


async def rows(desk: Desk, work: Work, *actions: Action) -> Keyboard:
    """The question's own buttons of these kinds, as far as they were not pressed."""
    letter = work.letter
    kept = {button.action: button for button in await desk.inbox.buttons(letter.update_id)}
    opens_at = None if letter.due_ms is None else from_ms(letter.due_ms)
    return [[(label(desk, work, action, opens_at), kept[action].token)] for action in actions if action in kept]


def promise(desk: Desk, work: Work, due_ms: int | None) -> str:
    """That the question is kept, and when its answer comes as far as that is known."""
    if due_ms is None or due_ms <= desk.now_ms():
        return work.say("parked")
    return work.say("parked_until", time=desk.when_ms(work.reader, due_ms))


async def waits(desk: Desk, work: Work, said: str) -> None:
    """Rewrites the notice of a question that waits."""
    await retouch(desk, work.letter, said, await rows(desk, work, Action.OTHER_MODEL, Action.CANCEL))


async def retouch(desk: Desk, letter: Letter, said: str, keyboard: Keyboard = ()) -> None:
    """Rewrites a question's notice, if it has one; without a keyboard its buttons go."""
    if letter.notice_id is not None:
        await desk.delivery.retouch(Place(letter.lane), letter.notice_id, said, keyboard)
