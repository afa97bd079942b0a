"""A person's message to a question: joined text, photos as images, and plain words about what cannot be read."""

from __future__ import annotations

import base64

import structlog
from telegram import Bot, Message, PhotoSize
from telegram.error import TelegramError

from gateway.telegram_bot.addressing import joined, question
from gateway.telegram_bot.answering import Question, answer, target_of
from gateway.telegram_bot.desk import Desk, Work

log = structlog.get_logger()

FILE_BYTES_MAX = 20 * 1024 * 1024
"""The Bot API hands out no larger files."""
IMAGE_SIDE_MAX = 1600
"""Of a photo's sizes the largest within this is taken: more pixels only cost more."""
IMAGES_MAX = 10

UNREADABLE = (
    "document", "voice", "audio", "video", "video_note", "animation", "sticker", "location", "venue", "contact", "poll", "dice",
    "story", "paid_media", "game", "checklist",
)  # fmt: skip


async def ask(desk: Desk, bot: Bot, work: Work) -> None:
    """Answers the message, or says what of it cannot be read."""
    texts = [question(message, desk.bot_id, desk.username) for message in work.messages]
    text = joined([piece for piece in texts if piece])
    if key := _unreadable(work.messages):
        await desk.delivery.say(work.place, work.say(key))
        work.outcome = "unreadable"
        return
    photos = [message.photo for message in work.messages if message.photo][:IMAGES_MAX]
    if not text and not photos:
        if any(piece.text or piece.caption for piece in work.messages):
            await desk.delivery.say(work.place, work.say("ask_something"))
            work.outcome = "greeted"
        return
    images: list[str] = []
    if photos:
        if not await _sees(desk, work):
            await desk.delivery.say(work.place, work.say("no_images"))
            work.outcome = "unreadable"
            return
        for sizes in photos:
            image = await _image(bot, sizes)
            if image is None:
                await desk.delivery.say(work.place, work.say("file_not_read"))
                work.outcome = "unreadable"
                return
            images.append(image)
    await answer(desk, work, Question(text or work.say("about_image"), tuple(images)))


def _unreadable(messages: list[Message]) -> str | None:
    for message in messages:
        for kind in UNREADABLE:
            content = getattr(message, kind, None)
            if content:
                size = getattr(content, "file_size", None)
                if isinstance(size, int) and size > FILE_BYTES_MAX:
                    return "file_too_large"
                return "no_voice" if kind in ("voice", "audio", "video_note") else "no_files"
    return None


async def _sees(desk: Desk, work: Work) -> bool:
    """True when some provider that may answer takes images at a declared cost."""
    _name, slots = desk.settings.slots(await target_of(desk, work))
    return any(desk.settings.model(slot).image_tokens is not None for slot in slots)


async def _image(bot: Bot, sizes: tuple[PhotoSize, ...]) -> str | None:
    small = [size for size in sizes if max(size.width, size.height) <= IMAGE_SIDE_MAX]
    chosen = max(small or sizes[:1], key=lambda size: size.width * size.height)
    if chosen.file_size is not None and chosen.file_size > FILE_BYTES_MAX:
        return None
    try:
        file = await bot.get_file(chosen.file_id)
        data = await file.download_as_bytearray()
    except TelegramError as error:
        log.warning("telegram_file_not_read", reason=error.message)
        return None
    kind = "png" if data.startswith(b"\x89PNG") else "jpeg"
    return f"data:image/{kind};base64,{base64.b64encode(data).decode()}"
