"""Sends and edits messages, and says what a failure means.

| what happens | what it means |
| --- | --- |
| no connection, or none free | not sent: tried again |
| an answer 500, 502 or 503 | Telegram did not take it: tried again |
| time-out or reset after a send, or an answer 504 | it may have arrived: never repeated, marked uncertain |
| the same after an edit | an edit may be repeated: it is |
| 429 | the limiter waits |
| message is not modified | done |
| the text cannot be parsed | sent once more as plain text |
| the edited message is gone | the caller sends a new one |
| blocked, kicked, deleted, no such chat or topic | nobody is there: the answer is kept and not sent |
| the group became a supergroup | everything moves to the new id, and the message is sent there |
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import httpx
import structlog
from telegram import (
    Bot,
    InlineKeyboardButton,
    InlineKeyboardMarkup,
    LinkPreviewOptions,
    MessageEntity,
    ReactionTypeEmoji,
    ReplyParameters,
)
from telegram.error import BadRequest, ChatMigrated, Forbidden, NetworkError, TelegramError, TimedOut

from gateway.store.telegram import Inbox, Lane
from gateway.telegram_bot.limiter import Weight
from gateway.telegram_bot.markup import Part, plain_parts

log = structlog.get_logger()

TRIES_MAX = 40
"""How often a final message is tried while there is no connection: about ten minutes."""
WAIT_MAX_S = 15.0
WAITING_SIGNS = ("⏳", "😴")
"""The reaction that says "later"; the second where Telegram does not take the first."""

_GONE = (
    "chat not found",
    "user is deactivated",
    "thread not found",
    "topic_closed",
    "topic_deleted",
    "not enough rights",
    "have no rights",
)
_UNEDITABLE = ("message to edit not found", "message can't be edited", "message_id_invalid")

Keyboard = Sequence[Sequence[tuple[str, str]]]
"""Rows of buttons: what is read on each and its token."""


class Gone(Exception):
    """Nobody can be reached there: blocked, kicked, deleted, or the chat or topic is closed."""


class Uncertain(Exception):
    """A message was sent and no answer came: it may have arrived."""


class Uneditable(Exception):
    """The message to edit is gone."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a message goes: a conversation, and the message it answers (None: none)."""

    lane: Lane
    reply_to: int | None = None


class Delivery:
    """The only way to a chat."""

    def __init__(self, bot: Bot, inbox: Inbox) -> None:
        self._bot = bot
        self._inbox = inbox
        self._moved: dict[int, int] = {}
        self._sign = 0

    async def send(
        self, place: Place, part: Part, weight: Weight = Weight.NORMAL, keyboard: Keyboard = (), *, tries: int = TRIES_MAX
    ) -> int:
        """Sends one message and returns its id. Raises Gone, Uncertain, Shed, or TelegramError for what is our fault.

        `tries` is how often it is tried while it certainly was not sent.
        """

        async def call(chat_id: int, part: Part) -> int:
            message = await self._bot.send_message(
                chat_id,
                part.text,
                entities=_entities(part),
                message_thread_id=place.lane.thread_id or None,
                reply_parameters=ReplyParameters(place.reply_to, allow_sending_without_reply=True) if place.reply_to else None,
                link_preview_options=LinkPreviewOptions(is_disabled=True),
                reply_markup=_markup(keyboard),
                rate_limit_args=weight,  # type: ignore[call-arg]
            )
            return message.message_id

        return await self._persist(place, part, weight, call, repeatable=False, tries=tries)

    async def document(self, place: Place, content: bytes, name: str, caption: Part, *, tries: int = TRIES_MAX) -> int:
        """Sends a file with a text under it and returns the message's id. Raises as `send` does."""

        async def call(chat_id: int, caption: Part) -> int:
            message = await self._bot.send_document(
                chat_id,
                content,
                caption=caption.text or None,
                filename=name,
                caption_entities=_entities(caption),
                message_thread_id=place.lane.thread_id or None,
                disable_content_type_detection=True,
                rate_limit_args=Weight.NORMAL,  # type: ignore[call-arg]
            )
            return message.message_id

        return await self._persist(place, caption, Weight.NORMAL, call, repeatable=False, tries=tries)

    async def photo(self, place: Place, content: bytes, name: str, caption: Part, *, tries: int = TRIES_MAX) -> int:
        """Shows a picture with a text under it and returns the message's id. Raises as `send` does."""

        async def call(chat_id: int, caption: Part) -> int:
            message = await self._bot.send_photo(
                chat_id,
                content,
                caption=caption.text or None,
                filename=name,
                caption_entities=_entities(caption),
                message_thread_id=place.lane.thread_id or None,
                rate_limit_args=Weight.NORMAL,  # type: ignore[call-arg]
            )
            return message.message_id

        return await self._persist(place, caption, Weight.NORMAL, call, repeatable=False, tries=tries)

    async def edit(
        self, place: Place, message_id: int, part: Part, weight: Weight = Weight.NORMAL, keyboard: Keyboard = ()
    ) -> None:
        """Replaces a message's text; done also when it has that text already. Raises Uneditable and as `send` does."""

        async def call(chat_id: int, part: Part) -> int:
            await self._bot.edit_message_text(
                part.text,
                chat_id,
                message_id,
                entities=_entities(part),
                link_preview_options=LinkPreviewOptions(is_disabled=True),
                reply_markup=_markup(keyboard),
                rate_limit_args=weight,  # type: ignore[call-arg]
            )
            return message_id

        try:
            await self._persist(place, part, weight, call, repeatable=True)
        except BadRequest as error:
            reason = error.message.lower()
            if "not modified" in reason:
                return
            if any(words in reason for words in _UNEDITABLE):
                raise Uneditable from error
            raise

    async def _persist(
        self,
        place: Place,
        part: Part,
        weight: Weight,
        call: Callable[[int, Part], Awaitable[int]],
        *,
        repeatable: bool,
        tries: int = TRIES_MAX,
    ) -> int:
        tries = 1 if weight >= Weight.PREVIEW else tries
        wait_s = 0.5
        while True:
            try:
                return await call(self._chat(place), part)
            except ChatMigrated as error:
                await self.migrate(self._chat(place), error.new_chat_id)
            except Forbidden as error:
                raise Gone(error.message) from error
            except BadRequest as error:
                if _unparsed(error) and part.entities:
                    log.warning("telegram_text_refused", chat=place.lane.chat_id, reason=error.message)
                    part = Part(part.text)
                elif any(words in error.message.lower() for words in _GONE):
                    raise Gone(error.message) from error
                else:
                    raise
            except NetworkError as error:
                if not repeatable and not _not_sent(error):
                    log.warning("telegram_send_uncertain", chat=place.lane.chat_id)
                    raise Uncertain from error
                tries -= 1
                if tries <= 0:
                    raise
                await asyncio.sleep(wait_s)
                wait_s = min(wait_s * 2, WAIT_MAX_S)

    async def say(self, place: Place, text: str, keyboard: Keyboard = ()) -> int | None:
        """Sends a sentence of ours; None when it did not or may not have arrived. Raises nothing of Telegram's."""
        last = None
        pieces = plain_parts(text)
        for number, part in enumerate(pieces, 1):
            try:
                last = await self.send(place, part, Weight.NORMAL, keyboard if number == len(pieces) else ())
            except (Gone, Uncertain, TelegramError) as error:
                log.warning("telegram_not_said", chat=place.lane.chat_id, reason=type(error).__name__)
                return None
        return last

    async def change(self, place: Place, message_id: int, text: str, keyboard: Keyboard = ()) -> None:
        """Replaces the text of a sentence of ours, or sends it anew where that message is gone."""
        if not await self.revise(place, message_id, plain_parts(text)[0], keyboard):
            await self.say(place, text, keyboard)

    async def revise(self, place: Place, message_id: int, part: Part, keyboard: Keyboard = ()) -> bool:
        """Replaces a message of ours; False where it is gone. Raises nothing of Telegram's."""
        try:
            await self.edit(place, message_id, part, Weight.NORMAL, keyboard)
        except Uneditable:
            return False
        except (Gone, TelegramError) as error:
            log.warning("telegram_not_changed", chat=place.lane.chat_id, reason=type(error).__name__)
        return True

    async def retouch(self, place: Place, message_id: int, text: str, keyboard: Keyboard = ()) -> None:
        """Brings an old sentence of ours up to date where it still stands; where it does not, nobody misses it."""
        try:
            await self.edit(place, message_id, plain_parts(text)[0], Weight.NORMAL, keyboard)
        except (Gone, Uneditable, TelegramError) as error:
            log.info("telegram_not_retouched", chat=place.lane.chat_id, reason=type(error).__name__)

    async def remove(self, place: Place, message_id: int) -> None:
        """Deletes a message of ours that is no longer needed; it may be gone already."""
        try:
            await self._bot.delete_message(self._chat(place), message_id)
        except TelegramError as error:
            log.info("telegram_not_removed", chat=place.lane.chat_id, reason=type(error).__name__)

    async def typing(self, place: Place) -> None:
        """Shows that an answer is being written, if the chat has room for that."""
        try:
            await self._bot.send_chat_action(
                self._chat(place),
                "typing",
                message_thread_id=place.lane.thread_id or None,
                rate_limit_args=Weight.TYPING,  # type: ignore[call-arg]
            )
        except TelegramError as error:
            log.debug("telegram_typing_not_shown", reason=type(error).__name__)

    async def wait_sign(self, place: Place, message_id: int) -> None:
        """Marks a message as waiting by a reaction."""
        while self._sign < len(WAITING_SIGNS):
            sign = [ReactionTypeEmoji(WAITING_SIGNS[self._sign])]
            try:
                await self._bot.set_message_reaction(self._chat(place), message_id, sign)
                return
            except BadRequest as error:
                if "reaction_invalid" not in error.message.lower():
                    return
                self._sign += 1
            except TelegramError as error:
                log.info("telegram_no_reaction", reason=type(error).__name__)
                return

    async def answer_tap(self, query_id: str, text: str | None = None, *, alert: bool = False) -> None:
        """Ends the little clock on a pressed button, with a word to the one who pressed it."""
        try:
            await self._bot.answer_callback_query(query_id, text[:200] if text else None, show_alert=alert)
        except TelegramError as error:
            log.info("telegram_tap_not_answered", reason=type(error).__name__)

    async def migrate(self, old_chat_id: int, new_chat_id: int) -> None:
        """A group became a supergroup: from now on its messages go to the new id."""
        log.info("telegram_chat_migrated", chat=old_chat_id, to=new_chat_id)
        self._moved[old_chat_id] = new_chat_id
        await self._inbox.migrate(old_chat_id, new_chat_id)

    def _chat(self, place: Place) -> int:
        return self._moved.get(place.lane.chat_id, place.lane.chat_id)


def _entities(part: Part) -> list[MessageEntity] | None:
    return [MessageEntity(e.type, e.offset, e.length, url=e.url, language=e.language) for e in part.entities] or None


def _markup(keyboard: Keyboard) -> InlineKeyboardMarkup | None:
    rows = [[InlineKeyboardButton(label, callback_data=token) for label, token in row] for row in keyboard if row]
    return InlineKeyboardMarkup(rows) if rows else None


def _not_sent(error: NetworkError) -> bool:
    """True when the request certainly never reached Telegram."""
    cause = error.__cause__
    if isinstance(cause, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout):
        return True
    answered = cause is None or isinstance(cause, TelegramError)
    return answered and not isinstance(error, TimedOut) and "gateway time" not in error.message.lower()


def _unparsed(error: TelegramError) -> bool:
    return isinstance(error, BadRequest) and ("parse" in error.message.lower() or "entit" in error.message.lower())
