"""Who wrote, where, and whether it is meant for the bot. Pure: reads messages, sends nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from telegram import Message

from gateway.store.telegram import Lane
from gateway.telegram_bot.lanes import Item
from gateway.telegram_bot.markup import units

ANONYMOUS_ADMIN = 1087968824
"""The `from.id` of a group's admins who write in the group's name; a button tap carries the real id."""

CUT_UNITS = 4000
"""A text of at least this many UTF-16 units may be the first piece of a longer paste (apps cut at 4096)."""

URGENT = ("/stop", "/cancel")


def lane_of(raw: Mapping[str, Any]) -> tuple[Lane, int]:
    """The conversation of a raw update and its sender (0: nobody's); chat 0 where the update belongs to none."""
    query = raw.get("callback_query")
    message = _dict(query.get("message") if isinstance(query, dict) else _message(raw))
    sender = _dict(query.get("from") if isinstance(query, dict) else message.get("from"))
    chat = _dict(message.get("chat"))
    thread = message.get("message_thread_id") if message.get("is_topic_message") else 0
    return Lane(_int(chat.get("id")), _int(thread)), _int(sender.get("id"))


def item_of(update_id: int, raw: Mapping[str, Any]) -> Item:
    """What a lane must know of a raw update."""
    message, sender = _dict(_message(raw)), lane_of(raw)[1]
    text = message.get("text")
    plain = isinstance(text, str) and not text.startswith("/")
    cut = isinstance(text, str) and units(text) >= CUT_UNITS
    return Item(update_id, sender, message.get("media_group_id"), cut, plain)


def urgent(raw: Mapping[str, Any]) -> bool:
    """True for what overtakes its lane: button taps, /stop and /cancel."""
    if "callback_query" in raw:
        return True
    text = _dict(_message(raw)).get("text")
    return isinstance(text, str) and text.split(maxsplit=1)[:1] != [] and text.split()[0].split("@")[0].lower() in URGENT


def _message(raw: Mapping[str, Any]) -> object:
    return next((raw[kind] for kind in ("message", "edited_message", "channel_post") if kind in raw), {})


def _dict(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _int(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def from_person(message: Message) -> bool:
    """False for what no person wrote: other bots, channels, forwarded channel posts, service messages without a sender."""
    sender = message.from_user
    if sender is None or message.is_automatic_forward:
        return False
    return not sender.is_bot or anonymous_admin(message)


def anonymous_admin(message: Message) -> bool:
    """True for a group's admin who writes in the group's name."""
    sender, behind = message.from_user, message.sender_chat
    return sender is not None and sender.id == ANONYMOUS_ADMIN and behind is not None and behind.id == message.chat.id


def to_other_bot(message: Message, username: str) -> bool:
    """True for a command that names another bot, such as /start@other_bot."""
    for entity, text in message.parse_entities(["bot_command"]).items() if message.text else ():
        if entity.offset == 0 and "@" in text:
            return text.split("@", 1)[1].lower() != username.lower()
    return False


def is_command(message: Message) -> bool:
    """True when the text begins with a command."""
    return any(entity.type == "bot_command" and entity.offset == 0 for entity in message.entities or ())


def addressed(message: Message, bot_id: int, username: str, groups: str) -> bool:
    """True when a group's message is meant for the bot: a mention entity of it, a reply to it, or any line in mode "all"."""
    if groups == "commands":
        return False
    if groups == "all" or _mentions(message, bot_id, username):
        return True
    replied = message.reply_to_message
    # In a topic every line "replies" to the service message that opened it.
    if replied is None or replied.forum_topic_created is not None or replied.from_user is None:
        return False
    return replied.from_user.id == bot_id


def _mentions(message: Message, bot_id: int, username: str) -> list[str]:
    found = []
    wanted: list[str | None] = ["mention", "text_mention"]
    entities = message.parse_entities(wanted) if message.text else message.parse_caption_entities(wanted)
    for entity, text in entities.items():
        if (entity.type == "mention" and text.lower() == f"@{username.lower()}") or (entity.user and entity.user.id == bot_id):
            found.append(text)
    return found


def question(message: Message, bot_id: int, username: str) -> str:
    """The text or caption of a message without the mentions of the bot, and without what no database or provider takes."""
    text = (message.text or message.caption or "").replace("\0", "").encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    for mention in _mentions(message, bot_id, username):
        text = text.replace(mention, "", 1)
    return text.strip()


def joined(texts: list[str]) -> str:
    """The text of a message that came in pieces: an app cuts at 4096 without a mark where there is no space to cut at."""
    result = ""
    for piece in texts:
        glue = "" if not result or units(result.rsplit("\n", 1)[-1]) % 4096 == 0 else "\n"
        result += glue + piece if piece else ""
    return result
