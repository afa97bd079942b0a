"""Budgets as people see them, and what admins do by command: let in, shut out, raise, pause, resume."""

from __future__ import annotations

from datetime import timedelta

import structlog

from gateway.amounts import parse_change, parse_span
from gateway.clock import to_ms
from gateway.store.telegram_talk import Role
from gateway.telegram_bot.desk import Desk, Work

log = structlog.get_logger()

SPAN_S = 3600
"""How long a raise lasts when nobody says."""


async def allow(desk: Desk, work: Work, words: list[str]) -> None:
    """Lets a person or a group in: by id, by a reply to them, or the group in which it is said."""
    await _set_role(desk, work, words, Role.ALLOWED, "allowed")


async def deny(desk: Desk, work: Work, words: list[str]) -> None:
    """Shuts a person or a group out; a configured admin stays one."""
    await _set_role(desk, work, words, Role.DENIED, "denied")


async def _set_role(desk: Desk, work: Work, words: list[str], role: Role, said: str) -> None:
    if not await _admin(desk, work):
        return
    subject = _subject(work, words)
    if subject is None:
        await tell(desk, work, work.say("which_id"))
        return
    if subject in desk.settings.telegram.admins and role is Role.DENIED:
        await tell(desk, work, work.say("admin_stays", id=subject))
        return
    await desk.people.set_role(subject, role, work.letter.user_id, desk.now_ms())
    log.warning("telegram_access_changed", actor=work.letter.user_id, subject=subject, role=str(role))
    await tell(desk, work, work.say(said, id=subject))


def _subject(work: Work, words: list[str]) -> int | None:
    if words:
        try:
            return int(words[0])
        except ValueError:
            return None
    replied = work.message.reply_to_message
    if replied is not None and replied.from_user is not None and not replied.from_user.is_bot:
        return replied.from_user.id
    return None if work.private else work.lane.chat_id


async def raise_(desk: Desk, work: Work, words: list[str]) -> None:
    """`/raise NAME +50k 2h`: a temporary raise, in the words of the command line."""
    if not await _admin(desk, work):
        return
    budget = desk.settings.budgets.by_name.get(words[0]) if words else None
    if budget is None or len(words) < 2:
        await tell(desk, work, work.say("raise_usage", budgets=", ".join(desk.settings.budgets.by_name) or "-"))
        return
    spans = [word for word in words[2:] if word != "for"]
    try:
        operation, amount = parse_change(words[1], budget.unit)
        seconds = parse_span(spans[0]) if spans else SPAN_S
    except ValueError as error:
        await tell(desk, work, str(error))
        return
    until = desk.clock.now() + timedelta(seconds=seconds)
    # Said to be done before it is: after a crash a raise is missing rather than made twice.
    await _once(desk, work)
    await desk.store.raise_limit(budget.name, operation, amount, to_ms(until), _actor(work))
    await tell(desk, work, work.say("raised", budget=budget.name, change=words[1], until=desk.until(work.reader, until)))


async def pause(desk: Desk, work: Work, words: list[str]) -> None:
    """`/pause [2h]`: no call is made until then, or until /resume."""
    if not await _admin(desk, work):
        return
    try:
        until = desk.clock.now() + timedelta(seconds=parse_span(words[0])) if words else None
    except ValueError as error:
        await tell(desk, work, str(error))
        return
    await _once(desk, work)
    await desk.store.pause(None if until is None else to_ms(until), _actor(work))
    said = work.say("pause_now") if until is None else work.say("pause_until", until=desk.until(work.reader, until))
    await tell(desk, work, said)


async def resume(desk: Desk, work: Work) -> None:
    """Ends a pause."""
    if await _admin(desk, work):
        ended = await desk.store.resume(_actor(work))
        await tell(desk, work, work.say("resumed" if ended else "not_paused"))


async def tell(desk: Desk, work: Work, said: str) -> None:
    """Says something of ours as the answer to a command."""
    if not work.ended:
        work.outcome = "told"
    await desk.delivery.say(work.place, said)


async def _once(desk: Desk, work: Work) -> None:
    await desk.inbox.finish(work.letter.update_id, "told")
    work.ended = True


async def _admin(desk: Desk, work: Work) -> bool:
    """True for an admin; anybody else is refused by name."""
    if work.standing.admin:
        return True
    sender = work.message.from_user
    log.warning("telegram_command_refused", user=work.letter.user_id)
    await tell(desk, work, work.say("admins_only", name=sender.first_name if sender else ""))
    return False


def _actor(work: Work) -> str:
    return f"telegram:{work.letter.user_id}"
