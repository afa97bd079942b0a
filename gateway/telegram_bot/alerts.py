"""Alerts in admins' chats: told once each, with a button by which an admin takes note, and signed when one has."""

from __future__ import annotations

from collections.abc import Mapping

import structlog
from telegram import CallbackQuery
from telegram.error import TelegramError

from gateway.notice import Reader, acknowledged_text, alert_text, text
from gateway.store.alerts import POST, Alert
from gateway.store.telegram import Lane
from gateway.store.telegram_runs import Post, PostState
from gateway.telegram_bot.delivery import Gone, Keyboard, Place, Uneditable
from gateway.telegram_bot.desk import Desk, Work
from gateway.telegram_bot.limiter import Weight
from gateway.telegram_bot.markup import Part, plain_parts
from gateway.telegram_bot.runs.sending import Later, attempt
from gateway.telegram_bot.runs.starting import name_of
from gateway.telegram_bot.runs.words import one_line

log = structlog.get_logger()

NOTED = "noted:"
"""How the data of the button begins; the alert's number follows."""
NAME_MAX = 60
ACKNOWLEDGED = "noted"


class Alerts:
    """Brings alerts to the admins."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def place(self, alert: Alert) -> None:
        """Decides where an alert is told, once. While this bot has no admin it is left to another one, or until it has."""
        lanes = [Lane(admin) for admin in await self._desk.admins()]
        await self._desk.posts.want(f"{POST}{alert.id}", lanes)

    async def bring(self, post: Post) -> None:
        """Tells an alert, or signs the message with who has acknowledged it. Raises Later."""
        desk = self._desk
        alert = await desk.alerts.get(int(post.subject.removeprefix(POST)))
        if alert is None:
            return
        part = _part(desk, alert, reader(desk, post.lane.chat_id))
        if post.state is PostState.SENT and post.message_id is not None:
            await self._sign(post, post.message_id, part)
        elif alert.by:
            # Another admin was faster than this message.
            await desk.posts.end(post, PostState.FAILED, shown=ACKNOWLEDGED)
        elif await desk.posts.claim(post, desk.now_ms()):
            keyboard = _keyboard(alert, reader(desk, post.lane.chat_id))
            sending = desk.delivery.send(Place(post.lane), part, Weight.NORMAL, keyboard, tries=1)
            state, message_id, _ = await attempt(sending)
            await desk.posts.end(post, state, message_id)
            if state is PostState.PENDING:
                raise Later

    async def _sign(self, post: Post, message_id: int, part: Part) -> None:
        try:
            await self._desk.delivery.edit(Place(post.lane), message_id, part)
        except (Gone, Uneditable):
            log.info("telegram_alert_gone", chat=post.lane.chat_id)
        except TelegramError as error:
            log.warning("telegram_acknowledgement_not_shown", chat=post.lane.chat_id, reason=type(error).__name__)
            raise Later from error
        await self._desk.posts.end(post, PostState.SENT, message_id, ACKNOWLEDGED)


async def tapped(desk: Desk, work: Work, query: CallbackQuery) -> None:
    """Takes note of an alert for an admin; nobody else may."""
    if not work.standing.admin:
        log.info("telegram_tap_refused", user=work.letter.user_id, verb=NOTED)
        await desk.delivery.answer_tap(query.id, work.say("button_not_yours", name=name_of(work)), alert=True)
        return
    number = (query.data or "").removeprefix(NOTED)
    actor = f"telegram:{work.letter.user_id}"
    desk.remember(actor, name_of(work))
    alert = await desk.alerts.acknowledge(int(number), actor) if number.isdecimal() and len(number) < 16 else None
    if alert is None:
        await desk.delivery.answer_tap(query.id, work.say("button_gone"), alert=True)
        return
    desk.poke.set()
    ours = alert.by == actor
    said = None if ours else work.say("alert_acknowledged_before", name=one_line(desk.called(alert.by), NAME_MAX))
    await desk.delivery.answer_tap(query.id, said, alert=not ours)


async def tell_directly(desk: Desk, kind: str, facts: Mapping[str, object]) -> None:
    """Tells the admins that are known without the database: what is wrong is that there is none."""
    for admin in dict.fromkeys([*desk.settings.telegram.admins, *desk.languages]):
        await desk.delivery.say(Place(Lane(admin)), alert_text(kind, facts, reader(desk, admin), desk.clock.now()))


def reader(desk: Desk, admin: int) -> Reader:
    """An admin in private, in the language in which they last wrote since the start; before that in that of their reports."""
    return Reader(desk.languages.get(admin) or _configured(desk, admin), desk.settings.zone, admin=True)


def _configured(desk: Desk, admin: int) -> str:
    """The language of the reports that an admin gets, or else of all of them, where they have one language in common."""
    reports = desk.settings.reports
    own = {one.language for one in reports if one.to == f"telegram:{admin}"}
    spoken = own or {one.language for one in reports}
    return spoken.pop() if len(spoken) == 1 else "en"


def _part(desk: Desk, alert: Alert, reader: Reader) -> Part:
    said = alert_text(alert.kind, alert.facts, reader, desk.clock.now())
    if alert.by and alert.acknowledged_at is not None:
        said += "\n" + acknowledged_text(one_line(desk.called(alert.by), NAME_MAX), alert.acknowledged_at, reader)
    return plain_parts(said)[0]


def _keyboard(alert: Alert, reader: Reader) -> Keyboard:
    return [[(text(reader.language, "button_acknowledge"), f"{NOTED}{alert.id}")]]
