"""Who is let in: default deny by numeric id, one polite sentence for strangers, and the code that makes the first admin."""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter

import structlog

from gateway.telegram_bot.addressing import addressed, from_person, is_command, to_other_bot
from gateway.telegram_bot.desk import Desk, Work
from gateway.telegram_bot.runs.forms import heard_by

log = structlog.get_logger()

STRANGER_S = 600
"""A stranger is told again only after this many seconds."""
STRANGERS_MAX = 30
"""Strangers told in the same ten minutes; the others meet silence, so that a flood costs nothing."""
TRIES_MAX = 5
"""Wrong pairing codes by one person."""


class Door:
    """Lets a message in, or answers the stranger. Nothing that is turned away ever reaches a model."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._told: set[int] = set()
        self._tries: Counter[int] = Counter()

    async def admits(self, work: Work) -> bool:
        """True when the message is for the bot and its sender may use it here."""
        if not work.messages:
            return False
        message = work.message
        if message.migrate_to_chat_id is not None:
            await self._desk.delivery.migrate(work.lane.chat_id, message.migrate_to_chat_id)
            return False
        if not from_person(message) or not await self._for_us(work):
            return False
        command = _command(message.text)
        if work.standing.may or command == "/id":
            return True
        if work.private and command == "/start":
            return True
        if work.standing.admin and command:
            return True
        await self.turn_away(work)
        return False

    async def _for_us(self, work: Work) -> bool:
        message, desk = work.message, self._desk
        if is_command(message):
            return not to_other_bot(message, desk.username)
        if work.private:
            return True
        if any(addressed(piece, desk.bot_id, desk.username, desk.settings.telegram.groups) for piece in work.messages):
            return True
        # A form that was begun by a command is answered by replies, whatever else a group is answered on.
        return message.reply_to_message is not None and await heard_by(desk, work) is not None

    async def turn_away(self, work: Work) -> None:
        """One polite sentence with the id that an admin needs, seldom."""
        work.outcome = "turned_away"
        personal = work.private or work.standing.denied
        subject = work.letter.user_id if personal else work.lane.chat_id
        if subject in self._told or len(self._told) >= STRANGERS_MAX:
            return
        self._told.add(subject)
        asyncio.get_running_loop().call_later(STRANGER_S, self._told.discard, subject)
        key = "stranger" if personal else "stranger_group"
        if work.private and not await self._desk.admins():
            key = "no_admin_yet"
        await self._desk.delivery.say(work.place, work.say(key, id=subject))

    async def pair(self, work: Work, code: str) -> bool | None:
        """True when the code was right and made this person the first admin; None when nobody can be made one by a code."""
        user = work.letter.user_id
        if self._tries[user] >= TRIES_MAX or await self._desk.admins():
            return None
        if len(self._tries) > 1000:
            self._tries.clear()
        self._tries[user] += 1
        made = await self._desk.people.pair(code.lower(), user, self._desk.now_ms())
        log.warning("telegram_pairing", user=user, accepted=made)
        return made


def new_code() -> str:
    """A pairing code that nobody guesses: 72 bits, in characters that are easily typed."""
    return secrets.token_hex(9)


def _command(text: str | None) -> str | None:
    """The first word of a command without the bot's name, None for anything else."""
    return text.split()[0].split("@")[0].lower() if text and text.startswith("/") else None
