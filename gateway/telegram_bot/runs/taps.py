"""Taps on the buttons of runs and approvals. The tapper is checked against the run; what is done twice is done once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import structlog
from telegram import CallbackQuery

from gateway.errors import NotAllowed, UnknownRun, UnknownWorkflow, WrongState
from gateway.runs import Approval, Decision, Run
from gateway.telegram_bot.delivery import Keyboard, Place
from gateway.telegram_bot.desk import Desk, Work
from gateway.telegram_bot.runs.card import NAME_MAX
from gateway.telegram_bot.runs.mine import listed
from gateway.telegram_bot.runs.starting import name_of, starter_of
from gateway.telegram_bot.runs.views import (
    APPROVE,
    CANCEL,
    LIST,
    REJECT,
    RETRY,
    SHOW,
    details,
    listing,
)
from gateway.telegram_bot.runs.words import one_line

log = structlog.get_logger()


class _Refused(Exception):
    """The tapper may not do this; says so to them by name."""


async def tapped(desk: Desk, work: Work, query: CallbackQuery, verb: str, subject: str) -> None:
    """Does what a run's button says, if the tapper may."""
    try:
        if not work.standing.may and not work.standing.admin:
            raise _Refused(work.say("run_not_yours", name=name_of(work)))
        await HANDLERS[verb](desk, work, query, subject)
    except (_Refused, NotAllowed) as error:
        log.info("telegram_tap_refused", user=work.letter.user_id, verb=verb)
        said = f"{name_of(work)}: {error.reason}" if isinstance(error, NotAllowed) else str(error)
        await desk.delivery.answer_tap(query.id, said, alert=True)
    except UnknownRun:
        await desk.delivery.answer_tap(query.id, work.say("button_gone"), alert=True)
    except (WrongState, UnknownWorkflow):
        await desk.delivery.answer_tap(query.id, work.say("run_past_that"), alert=True)


async def _show(desk: Desk, work: Work, query: CallbackQuery, subject: str) -> None:
    found = await desk.runs.detail(subject)
    _require_own(desk, work, found.run)
    await desk.delivery.answer_tap(query.id)
    said, keyboard = details(found, work.reader, desk.clock.now(), work.letter.user_id)
    await _turn(desk, work, query, said, keyboard)


async def _list(desk: Desk, work: Work, query: CallbackQuery, subject: str) -> None:
    if subject != str(work.letter.user_id):
        raise _Refused(work.say("button_not_yours", name=name_of(work)))
    await desk.delivery.answer_tap(query.id)
    said, keyboard = listing(await listed(desk, work), work.reader, desk.clock.now())
    await _turn(desk, work, query, said, keyboard)


async def _cancel(desk: Desk, work: Work, query: CallbackQuery, subject: str) -> None:
    _require_own(desk, work, await desk.runs.get(subject))
    run = await desk.flows.cancel(subject, starter_of(desk, work))
    desk.poke.set()
    await desk.delivery.answer_tap(query.id, work.say("run_cancel_wanted", workflow=one_line(run.workflow, NAME_MAX)))


async def _retry(desk: Desk, work: Work, query: CallbackQuery, subject: str) -> None:
    _require_own(desk, work, await desk.runs.get(subject))
    run = await desk.flows.retry(subject, starter_of(desk, work))
    desk.poke.set()
    await desk.delivery.answer_tap(query.id, work.say("run_retry_wanted", workflow=one_line(run.workflow, NAME_MAX)))


async def _approve(desk: Desk, work: Work, query: CallbackQuery, subject: str) -> None:
    await _decide(desk, work, query, subject, approve=True)


async def _reject(desk: Desk, work: Work, query: CallbackQuery, subject: str) -> None:
    await _decide(desk, work, query, subject, approve=False)


async def _decide(desk: Desk, work: Work, query: CallbackQuery, subject: str, *, approve: bool) -> None:
    before, actor = await desk.runs.approval(subject), starter_of(desk, work)
    desk.remember(actor.name, name_of(work))
    try:
        decided = await desk.flows.decide(subject, approve, actor)
    except (NotAllowed, UnknownRun):
        raise _Refused(work.say("approval_not_yours", name=name_of(work))) from None
    except WrongState:
        decided = await desk.runs.approval(subject)
    desk.poke.set()
    ours = before.decision is Decision.OPEN and decided.by == actor.name
    await desk.delivery.answer_tap(query.id, _said(work, decided, ours), alert=not ours)


def _said(work: Work, decided: Approval, ours: bool) -> str:
    if decided.decision is Decision.EXPIRED:
        return work.say("approval_expired")
    return work.say(f"approval_{decided.decision}_{'now' if ours else 'before'}")


def _require_own(desk: Desk, work: Work, run: Run) -> None:
    """Raises _Refused unless the tapper started the run or is an admin."""
    if not work.standing.admin and run.starter.name != starter_of(desk, work).name:
        raise _Refused(work.say("run_not_yours", name=name_of(work)))


async def _turn(desk: Desk, work: Work, query: CallbackQuery, said: str, keyboard: Keyboard) -> None:
    """Turns the message with the button into another view."""
    if query.message is not None:
        await desk.delivery.change(Place(work.lane), query.message.message_id, said, keyboard)


HANDLERS: dict[str, Callable[[Desk, Work, CallbackQuery, str], Awaitable[None]]] = {
    SHOW: _show,
    LIST: _list,
    CANCEL: _cancel,
    RETRY: _retry,
    APPROVE: _approve,
    REJECT: _reject,
}
