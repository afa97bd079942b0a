"""When no provider can answer: one notice with buttons, and a question that waits if the person wishes.

Private chats are always answered. A group gets one notice until the time that it names (for a person's own allowance:
one per person); whoever asks later meets a reaction instead of silence.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from datetime import timedelta

import structlog
from telegram.error import TelegramError

from gateway.chat import Origin, Request
from gateway.clock import to_ms
from gateway.errors import ChainExhausted, Exhausted, GatewayError
from gateway.notice import Action, notice
from gateway.store.telegram import Button, Letter
from gateway.telegram_bot.delivery import Gone, Keyboard, Place, Uncertain, Uneditable
from gateway.telegram_bot.desk import Desk, Work
from gateway.telegram_bot.markup import plain_parts
from gateway.telegram_bot.waiting import label, promise, waits

log = structlog.get_logger()

UNKNOWN_S = 3600
"""How long a notice stands for a group when nobody knows when it opens."""
AGAIN_S = 30
"""When a parked question is looked at again if holds or an outage are in its way; a changed limit wakes it sooner."""
OTHERS_MAX = 6
ARGUMENT_MAX = 250
"""What a button can be about, in characters."""


async def exhausted(
    desk: Desk, work: Work, request: Request, target: str, origin: Origin, error: ChainExhausted, bubbles: Sequence[int]
) -> None:
    """Says that nothing can answer now, and when; a question that was parked waits on without a word."""
    now = desk.clock.now()
    if work.letter.parked_ms is not None:
        await _wait_on(desk, work, error)
        return
    others = await open_targets(desk, request, target, origin)
    said = notice(error, work.reader, now, saved=True, other_models=bool(others))
    if not work.private and not await desk.talk.say_once(
        work.lane.chat_id, _key(work, error), to_ms(now), to_ms(said.opens_at or now + timedelta(seconds=UNKNOWN_S))
    ):
        await desk.delivery.wait_sign(work.place, work.message.message_id)
        work.outcome = "refused"
        return
    arguments = {Action.OTHER_MODEL: "\n".join(others), Action.ASK_ADMIN: _budgets(error)}
    buttons = [make_button(work.letter, str(action), arguments.get(action, "")) for action in said.actions]
    keyboard = [
        [(label(desk, work, action, said.opens_at), button.token)] for action, button in zip(said.actions, buttons, strict=True)
    ]
    due_ms = None if error.available_at is None else to_ms(error.available_at)
    await desk.persist(lambda: desk.inbox.offer(work.letter.update_id, due_ms, buttons, desk.now_ms()))
    work.ended = True
    notice_id = await _tell(desk, work.place, said.text, keyboard, bubbles)
    await desk.persist(lambda: desk.inbox.noticed(work.letter.update_id, notice_id))


async def _wait_on(desk: Desk, work: Work, error: ChainExhausted) -> None:
    """Parks a question again, without a new message; its notice names the new time."""
    due_ms, known = _due_ms(desk, error), error.available_at is not None
    before = promise(desk, work, work.letter.due_ms)
    await desk.persist(lambda: desk.inbox.park(work.letter.update_id, due_ms, desk.now_ms()))
    work.ended = True
    said = promise(desk, work, due_ms if known else None)
    if said != before:
        await waits(desk, work, said)


def _due_ms(desk: Desk, error: ChainExhausted) -> int | None:
    """When a parked question is looked at again; None: not before some limit changes."""
    if error.available_at is not None:
        # At least a moment away, or a question that never fits would be asked again at every tick.
        return max(to_ms(error.available_at), desk.now_ms() + 1000)
    holds = any(isinstance(cause.error, Exhausted) and cause.error.held_only for cause in error.causes)
    return desk.now_ms() + AGAIN_S * 1000 if holds or not error.budgets_only else None


async def open_targets(desk: Desk, request: Request, target: str, origin: Origin) -> list[str]:
    """The other chains and providers that would serve this request now."""
    names = [name for name in (*desk.settings.chains, *desk.settings.providers) if name != target]
    found: list[str] = []
    for name in names[:OTHERS_MAX]:
        if len("\n".join([*found, name])) > ARGUMENT_MAX:
            break
        try:
            verdicts = await desk.dispatcher.explain(request, name, origin)
        except GatewayError as error:
            log.info("telegram_target_not_explained", target=name, reason=type(error).__name__)
            continue
        if any(verdict.error is None for verdict in verdicts):
            found.append(name)
    return found


def make_button(letter: Letter, action: str, argument: str = "") -> Button:
    """A button for the one who asks: its token says nothing and fits into 64 bytes."""
    return Button(secrets.token_urlsafe(12), action, argument, letter.update_id, letter.lane.chat_id, letter.user_id)


def _key(work: Work, error: ChainExhausted) -> str:
    """One notice per chat and window; a person's own allowance is told to each person."""
    blocks = [block for cause in error.causes if isinstance(cause.error, Exhausted) for block in cause.error.blocks]
    own = any("user" in block.scope_kinds for block in blocks)
    return f"notice:{work.letter.user_id}" if own else "notice"


def _budgets(error: ChainExhausted) -> str:
    """The names of the budgets in the way, for admins."""
    blocks = [block for cause in error.causes if isinstance(cause.error, Exhausted) for block in cause.error.blocks]
    return ", ".join(dict.fromkeys(block.budget for block in blocks))[:ARGUMENT_MAX]


async def _tell(desk: Desk, place: Place, text: str, keyboard: Keyboard, bubbles: Sequence[int]) -> int | None:
    """Puts a notice into the bubble that a crash left behind, or into a new one."""
    if bubbles:
        try:
            await desk.delivery.edit(place, bubbles[0], plain_parts(text)[0], keyboard=keyboard)
            return bubbles[0]
        except (Uneditable, Gone, Uncertain, TelegramError) as error:
            log.info("telegram_bubble_gone", chat=place.lane.chat_id, reason=type(error).__name__)
    return await desk.delivery.say(place, text, keyboard)
