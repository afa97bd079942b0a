"""A strict Bot API server on loopback: lo-bot-api-emulator, made as strict as Telegram with Telegram's own parser.

It refuses what Telegram refuses: entities out of bounds or wrongly nested, an edit that changes nothing, an edit of what
is not there, reactions outside the fixed set. Tests play the person: `say`, `tap`; and look at the chat: `bubbles`.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Self

import lo_bot_api_emulator as lo
from aiohttp import web
from lo_bot_api_emulator import ApiRefusal, LoBotApiEmulator
from telegram.constants import ReactionEmoji

from tests.doubles.tdlib import problem

TOKEN = "123456:TEST"
UNTIL_S = 30.0
"""How long a test waits for what must come: long, since the machine may be busy with other things."""
SENDS = {"sendDocument": "document", "sendPhoto": "photo"}
"""The methods that send a file, and where it is in the request."""
REACTIONS = {str(emoji.value) for emoji in ReactionEmoji}

_EXTRA = {
    "sendMessage": ("message_thread_id", "link_preview_options", "entities", "protect_content", "disable_notification"),
    "editMessageText": ("link_preview_options", "entities"),
    "sendDocument": ("message_thread_id", "disable_content_type_detection"),
    "sendPhoto": ("message_thread_id",),
    "sendChatAction": ("message_thread_id",),
}


def _widen() -> None:
    """The emulator's contract is narrower than Telegram's in places that the product uses."""
    methods = lo.CONTRACT["methods"]
    for method, names in _EXTRA.items():
        methods[method]["parameters"] = sorted({*methods[method]["parameters"], *names})
    parameters = ["chat_id", "is_big", "message_id", "reaction"]
    methods["setMessageReaction"] = {"implemented": True, "parameters": parameters, "quota": "KindSend"}


_widen()


@dataclass
class Call:
    """One request of the bot, as the server saw it. `at` is `time.monotonic()` seconds."""

    method: str
    fields: dict[str, Any]
    at: float
    error: str | None = None
    result: Any = None

    @property
    def text(self) -> str:
        """The text that was sent."""
        return str(self.fields.get("text", ""))

    @property
    def chat(self) -> int:
        """The chat it was sent to."""
        return int(self.fields.get("chat_id", 0))

    @property
    def thread(self) -> int | None:
        """The topic it was sent to."""
        value = self.fields.get("message_thread_id")
        return None if value is None else int(value)

    @property
    def buttons(self) -> dict[str, str]:
        """What is written on each button, and its token."""
        markup = json.loads(self.fields.get("reply_markup") or "{}")
        return {button["text"]: button["callback_data"] for row in markup.get("inline_keyboard", ()) for button in row}


@dataclass
class Bubble:
    """A message of the bot as it stands now."""

    chat: int
    message_id: int
    thread: int | None
    text: str
    entities: list[dict[str, Any]]
    buttons: dict[str, str]
    reply_to: int | None
    edits: int = 0
    file: tuple[str, bytes] | None = None
    """The name and the bytes of a document or a picture; its caption is the text."""


@dataclass
class Fault:
    """Refuses (or with `cut`, accepts and then cuts the connection of) the next `times` calls of a method."""

    method: str
    description: str = ""
    status: int = 400
    parameters: dict[str, Any] | None = None
    times: int = 1
    match: Callable[[dict[str, Any]], bool] = field(default=lambda _: True)
    cut: bool = False


class BotApi(LoBotApiEmulator):  # type: ignore[misc]
    """The server. `async with BotApi() as api: api.url`."""

    def __init__(self, username: str = "test_bot") -> None:
        super().__init__(enable_control=True, allow_insecure_loopback_webhooks=True, max_assets=1000)
        self.username = username
        self.calls: list[Call] = []
        self.faults: list[Fault] = []
        self.chats: dict[tuple[int, int], Bubble] = {}
        self.confirms = asyncio.Event()
        """Cleared: a message is in the chat at once, and the bot's request for it is not answered until this is set."""
        self.confirms.set()
        self.port = 0
        self._message_id = 1000
        self._runner: web.AppRunner | None = None

    @property
    def url(self) -> str:
        """What goes into `api_root`."""
        return f"http://127.0.0.1:{self.port}"

    async def __aenter__(self) -> Self:
        self._runner = web.AppRunner(self.app(), access_log=None, shutdown_timeout=0.2)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port).start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._runner is not None
        await self._runner.cleanup()

    # --- the bot's side ---

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """One request of the bot; a cut comes after it took effect."""
        before = len(self.calls)
        response: web.StreamResponse = await super().handle(request)
        if request.path.endswith("/sendMessage"):
            await self.confirms.wait()
        if any(call.error == "cut" for call in self.calls[before:]) and request.transport is not None:
            request.transport.abort()
        return response

    def validate(self, method: str, fields: dict[str, Any], uploads: dict[str, Any]) -> Any:
        """Checks and applies one call. Raises ApiRefusal in Telegram's words."""
        call = Call(method, dict(fields), time.monotonic())
        if method != "getUpdates":
            self.calls.append(call)
        try:
            cut = self._fault(method, fields)
            call.result = self._apply(method, fields, uploads)
            call.error = "cut" if cut else None
            return call.result
        except ApiRefusal as refusal:
            call.error = refusal.description
            raise

    def _fault(self, method: str, fields: dict[str, Any]) -> bool:
        for fault in self.faults:
            if fault.method == method and fault.times > 0 and fault.match(fields):
                fault.times -= 1
                if fault.cut:
                    return True
                raise ApiRefusal(fault.description, fault.status, fault.parameters)
        return False

    def _apply(self, method: str, fields: dict[str, Any], uploads: dict[str, Any]) -> Any:
        if method == "setMessageReaction":
            return self._react(fields)
        text, kind = ("caption", "caption_entities") if method in SENDS else ("text", "entities")
        entities = json.loads(fields.get(kind) or "[]")
        if method in ("sendMessage", "editMessageText") or fields.get(text):
            found = problem(str(fields.get(text, "")), entities)
            if found is not None:
                raise ApiRefusal(
                    f"Bad Request: {'' if found.startswith('message') else 'can' + chr(39) + 't parse entities: '}{found}"
                )
        extra = ("entities", "link_preview_options", "message_thread_id", "disable_content_type_detection")
        result = super().validate(method, {key: value for key, value in fields.items() if key not in extra}, uploads)
        if method == "getMe":
            return {**result, "id": int(TOKEN.split(":")[0]), "username": self.username, "first_name": "Test bot"}
        if method == "sendMessage":
            return self._sent(fields, entities, result)
        if method in SENDS:
            sent = uploads[SENDS[method]]
            return self._sent(fields | {"text": fields.get("caption", "")}, entities, result, (sent["filename"], sent["data"]))
        if method == "editMessageText":
            return self._edited(fields, entities, result)
        if method == "deleteMessage" and self.chats.pop((int(fields["chat_id"]), int(fields["message_id"])), None) is None:
            raise ApiRefusal("Bad Request: message to delete not found")
        return result

    def _react(self, fields: dict[str, Any]) -> bool:
        for reaction in json.loads(fields["reaction"]):
            if reaction["emoji"] not in REACTIONS:
                raise ApiRefusal("Bad Request: REACTION_INVALID")
        return True

    def _sent(
        self,
        fields: dict[str, Any],
        entities: list[dict[str, Any]],
        result: dict[str, Any],
        file: tuple[str, bytes] | None = None,
    ) -> dict[str, Any]:
        self._message_id += 1
        reply = json.loads(fields.get("reply_parameters") or "{}").get("message_id")
        thread = fields.get("message_thread_id")
        chat = int(fields["chat_id"])
        topic = None if thread is None else int(thread)
        bubble = Bubble(chat, self._message_id, topic, fields["text"], entities, _buttons(fields), reply, file=file)
        self.chats[chat, self._message_id] = bubble
        return {**result, "message_id": self._message_id, "chat": _chat(chat)}

    def _edited(self, fields: dict[str, Any], entities: list[dict[str, Any]], result: dict[str, Any]) -> dict[str, Any]:
        bubble = self.chats.get((int(fields["chat_id"]), int(fields["message_id"])))
        if bubble is None:
            raise ApiRefusal("Bad Request: message to edit not found")
        if (bubble.text, bubble.entities, bubble.buttons) == (fields["text"], entities, _buttons(fields)):
            raise ApiRefusal(
                "Bad Request: message is not modified: specified new message content and reply markup are exactly the same "
                "as a current content and reply markup of the message"
            )
        bubble.text, bubble.entities, bubble.buttons = fields["text"], entities, _buttons(fields)
        bubble.edits += 1
        return {**result, "chat": _chat(bubble.chat)}

    # --- the person's side ---

    async def say(self, text: str | None, user: int = 42, chat: int | None = None, **fields: Any) -> int:
        """A person writes; returns the message id. `fields` go into the message."""
        self._message_id += 1
        await self.enqueue_update({"message": message(self._message_id, text, user, chat, **fields)}, token=TOKEN)
        return self._message_id

    async def tap(self, bubble: Bubble, label: str, user: int = 42) -> None:
        """A person presses the button whose text contains `label`."""
        token = next(token for text, token in bubble.buttons.items() if label in text)
        on = {"message_id": bubble.message_id, "date": 1, "chat": _chat(bubble.chat), "text": bubble.text}
        if bubble.thread:
            on |= {"message_thread_id": bubble.thread, "is_topic_message": True}
        query = {"id": str(self._message_id), "from": person(user), "chat_instance": "1", "data": token, "message": on}
        await self.enqueue_update({"callback_query": query}, token=TOKEN)

    @property
    def unread(self) -> int:
        """Updates that the bot has not acknowledged yet."""
        return len(self._update_queues._state(TOKEN).updates)

    def bubbles(self, chat: int = 42) -> list[Bubble]:
        """The bot's messages in a chat, as they stand, oldest first."""
        return [bubble for (where, _), bubble in sorted(self.chats.items()) if where == chat]

    def made(self, method: str, chat: int | None = None) -> list[Call]:
        """The calls of a method that were not refused."""
        return [c for c in self.calls if c.method == method and c.error in (None, "cut") and (chat is None or c.chat == chat)]

    async def until(self, condition: Callable[[], Any], timeout_s: float = UNTIL_S) -> Any:
        """Waits until the condition holds, and returns what it gave."""
        async with asyncio.timeout(timeout_s):
            while not (found := condition()):  # noqa: ASYNC110
                await asyncio.sleep(0.02)
            return found

    async def alerted(self, text: str) -> Call:
        """Waits until the newest tap was answered with words that contain the text."""
        found: list[Call] = await self.until(lambda: [c for c in self.made("answerCallbackQuery")[-1:] if text in c.text])
        return found[0]

    async def answered(self, text: str, chat: int = 42, timeout_s: float = UNTIL_S) -> Bubble:
        """Waits until some message in the chat contains the text; it may still be a preview of a longer one."""
        found: Bubble = await self.until(lambda: next((b for b in self.bubbles(chat) if text in b.text), None), timeout_s)
        return found


def message(message_id: int, text: str | None, user: int = 42, chat: int | None = None, **fields: Any) -> dict[str, Any]:
    """A message as Telegram sends it; a command gets its entity by itself."""
    found: dict[str, Any] = {"message_id": message_id, "date": 1767225600, "chat": _chat(chat or user), "from": person(user)}
    if text is not None:
        found["text"] = text
        if text.startswith("/") and "entities" not in fields:
            fields["entities"] = [{"type": "bot_command", "offset": 0, "length": len(text.split()[0])}]
    found.update(fields)
    return {key: value for key, value in found.items() if value is not None}


def person(user: int, language: str = "en") -> dict[str, Any]:
    """A person as Telegram describes one."""
    return {"id": user, "is_bot": False, "first_name": f"P{user}", "language_code": language}


def _chat(chat: int) -> dict[str, Any]:
    return (
        {"id": chat, "type": "private", "first_name": f"P{chat}"}
        if chat > 0
        else {"id": chat, "type": "supergroup", "title": "G"}
    )


def _buttons(fields: dict[str, Any]) -> dict[str, str]:
    return Call("", fields, 0).buttons
