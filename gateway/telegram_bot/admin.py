"""Budgets as people see them, and what admins do by command: let in, shut out, raise, pause, resume."""

from __future__ import annotations

from datetime import datetime, timedelta

import structlog

from gateway.amounts import parse_change, parse_span
from gateway.budget import Budget
from gateway.clock import to_ms
from gateway.notice import amount
from gateway.store.telegram_talk import Role
from gateway.telegram_bot.desk import Desk, Work

log = structlog.get_logger()

SPAN = "1h"
"""How long a raise lasts when nobody says."""
PERIODS = ("day", "week", "month")
"""What a report can be of; the first where nobody says."""
TABLE = "csv"
ID_MAX = 2**52
"""Telegram's ids are smaller."""
GIVEN_MAX = 40
"""How much of what somebody wrote is said back to them."""


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
    # An admin made by pairing can be shut out by another one; neither command makes less of an admin by accident.
    fixed = role is Role.ALLOWED or subject in (*desk.settings.telegram.admins, work.letter.user_id)
    if fixed and subject in await desk.admins():
        await tell(desk, work, work.say("admin_stays", id=subject))
        return
    await desk.people.set_role(subject, role, work.letter.user_id, desk.now_ms())
    log.warning("telegram_access_changed", actor=work.letter.user_id, subject=subject, role=str(role))
    await tell(desk, work, work.say(said, id=subject))


def _subject(work: Work, words: list[str]) -> int | None:
    if words:
        try:
            subject = int(words[0])
        except ValueError:
            return None
        return subject if 0 < abs(subject) < ID_MAX else None
    replied = work.message.reply_to_message
    if replied is not None and replied.from_user is not None and not replied.from_user.is_bot:
        return replied.from_user.id
    return None if work.private else work.lane.chat_id


async def raise_(desk: Desk, work: Work, words: list[str]) -> None:
    """`/raise NAME +50k 2h`: a temporary raise, in the words of the command line."""
    if not await _admin(desk, work):
        return
    budget, rest = _budget(desk, words)
    if budget is None or not rest:
        known = ", ".join(desk.settings.budgets.by_name) or "-"
        unknown = words and budget is None
        said = (
            work.say("raise_unknown", name=words[0][:GIVEN_MAX], budgets=known)
            if unknown
            else work.say("raise_usage", budgets=known)
        )
        await tell(desk, work, said)
        return
    change, span = _change(rest)
    try:
        operation, size = parse_change(change, budget.unit)
    except ValueError:
        await tell(desk, work, work.say("bad_change", given=change[:GIVEN_MAX]))
        return
    until = await _until(desk, work, span or SPAN)
    if until is None:
        return
    # Said to be done before it is: after a crash a raise is missing rather than made twice.
    await _once(desk, work)
    await desk.store.raise_limit(budget.name, operation, size, to_ms(until), _actor(work))
    shown = f"+{size}%" if operation == "%" else f"{operation}{amount(work.reader.language, budget.unit, size)}"
    await tell(desk, work, work.say("raised", budget=budget.name, change=shown, until=desk.until(work.reader, until)))


def _budget(desk: Desk, words: list[str]) -> tuple[Budget | None, list[str]]:
    """The budget that the first words name, whatever their case and however many they are, and the other words."""
    known = {name.casefold(): budget for name, budget in desk.settings.budgets.by_name.items()}
    for number in range(len(words), 0, -1):
        if budget := known.get(" ".join(words[:number]).casefold()):
            return budget, words[number:]
    return None, words


def _change(words: list[str]) -> tuple[str, str]:
    """The change and the span of `+50k for 2h`, `+50k 2h` or `+ 50 000 for 2 h`."""
    if "for" in words:
        place = words.index("for")
        return "".join(words[:place]), "".join(words[place + 1 :])
    first = 2 if words[0] in ("+", "=") else 1
    return "".join(words[:first]), "".join(words[first:])


async def _until(desk: Desk, work: Work, span: str) -> datetime | None:
    """The end of a span from now; None when it is none, which is said."""
    try:
        return desk.clock.now() + timedelta(seconds=parse_span(span))
    except ValueError:
        await tell(desk, work, work.say("bad_span", given=span[:GIVEN_MAX]))
        return None


async def pause(desk: Desk, work: Work, words: list[str]) -> None:
    """`/pause [2h]`: no call is made until then, or until /resume."""
    if not await _admin(desk, work):
        return
    span = "".join(word for word in words if word != "for")
    until = await _until(desk, work, span) if span else None
    if span and until is None:
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


async def report(desk: Desk, work: Work, words: list[str]) -> None:
    """`/report [day|week|month] [csv]`: the report of this moment, in private."""
    if not await _admin(desk, work):
        return
    if not work.private:
        await tell(desk, work, work.say("report_private"))
        return
    wanted = {word.casefold() for word in words}
    periods, table = wanted & set(PERIODS), TABLE in wanted
    if len(periods) > 1 or wanted - {*PERIODS, TABLE}:
        await tell(desk, work, work.say("report_usage"))
        return
    # Named by the update: one that is answered again after a crash finds its report sent.
    key, to = f"report asked {desk.request_id(work.letter.update_id)}", f"telegram:{work.lane.chat_id}"
    to += f"/{work.lane.thread_id}" if work.lane.thread_id else ""
    period = periods.pop() if periods else PERIODS[0]
    await desk.reporter.ask(key, period, to, work.reader.language, _actor(work), table=table, bot=desk.bot_id)
    desk.poke.set()
    work.outcome = "told"


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
