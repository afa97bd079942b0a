"""What every handler has at hand, and one message's way through them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol, TypeVar

import structlog
from telegram import Message, Update

from gateway.clock import Clock, from_ms, to_ms
from gateway.dispatcher import Dispatcher
from gateway.effects import Folder
from gateway.errors import LedgerUnavailable
from gateway.notice import Reader, text, until, when
from gateway.runs import Run
from gateway.settings import Settings
from gateway.store.alerts import Alerts
from gateway.store.books import Books
from gateway.store.ledger_store import LedgerStore
from gateway.store.outbox import Outbox
from gateway.store.runs import Runs
from gateway.store.telegram import Inbox, Lane, Letter
from gateway.store.telegram_runs import Forms, Posts
from gateway.store.telegram_talk import People, Role, Talk
from gateway.telegram_bot.delivery import Delivery, Place
from gateway.telegram_bot.lanes import Lanes
from gateway.workflow.desk import Desk as Flows

log = structlog.get_logger()

T = TypeVar("T")

PERSIST_TRIES = 240
PERSIST_WAIT_S = 0.5
NAMES_MAX = 1000


@dataclass(frozen=True, slots=True)
class Standing:
    """What somebody may do here. `listed`: named in a list (others in an allowed group are guests)."""

    admin: bool
    listed: bool
    may: bool
    denied: bool = False
    """Shut out by an admin, everywhere."""


@dataclass(slots=True)
class Running:
    """An answer that is being made, so that /stop can end it."""

    task: asyncio.Task[None]
    user_id: int
    stopped: bool = False


@dataclass(slots=True)
class Work:
    """One message on its way: the letter, its pieces as messages, who reads the answer, and what became of it."""

    letter: Letter
    update: Update
    messages: list[Message]
    standing: Standing
    reader: Reader
    decided: asyncio.Event
    """Set once the gate let it through or refused it, or it ended otherwise."""
    outcome: str = "ignored"
    ended: bool = False
    """True when the inbox knows already what became of it."""

    @property
    def lane(self) -> Lane:
        """Its conversation."""
        return self.letter.lane

    @property
    def message(self) -> Message:
        """The first, mostly the only, message."""
        return self.messages[0]

    @property
    def private(self) -> bool:
        """True in a chat with one person."""
        return self.lane.chat_id > 0

    @property
    def place(self) -> Place:
        """Where its answer goes: in groups, and when it comes late, as a reply to it."""
        reply = not self.private or self.letter.parked_ms is not None
        return Place(self.lane, self.message.message_id if reply and self.messages else None)

    def say(self, key: str, **fields: object) -> str:
        """A sentence in the reader's language."""
        return text(self.reader.language, key, **fields)


class Reporter(Protocol):
    """Makes reports and puts them into the outbox. Raises LedgerUnavailable."""

    async def ask(self, key: str, period: str, to: str, language: str, by: str, *, table: bool, bot: int | None) -> None:
        """Sends a report of this moment to a chat, once per key; `by` is who asked for it, for the audit."""
        ...


@dataclass
class Desk:
    """The bot's parts, handed to every handler."""

    settings: Settings
    clock: Clock
    dispatcher: Dispatcher
    store: LedgerStore
    books: Books
    inbox: Inbox
    talk: Talk
    people: People
    delivery: Delivery
    lanes: Lanes
    bot_id: int
    flows: Flows
    """What may be asked of workflows; `runs` are their rows."""
    runs: Runs
    posts: Posts
    forms: Forms
    outbox: Outbox
    """What the program itself tells, with its pictures and files."""
    alerts: Alerts
    reporter: Reporter
    poke: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when there is something to be told of runs."""
    username: str = ""
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the bot stops and no longer waits: no provider is listened to any more."""
    running: dict[Lane, Running] = field(default_factory=dict)
    works: dict[int, Work] = field(default_factory=dict)
    decisions: dict[int, asyncio.Event] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    """What people who tapped are called, by the names that records have for them."""
    languages: dict[int, str] = field(default_factory=dict)
    """In which language each admin last wrote, of those who have since the start."""

    def now_ms(self) -> int:
        """The current instant in milliseconds since 1970 UTC."""
        return to_ms(self.clock.now())

    def reader(self, update: Update, standing: Standing | None = None) -> Reader:
        """Who reads the answer to an update."""
        sender, chat = update.effective_user, update.effective_chat
        language = (sender.language_code if sender is not None else None) or "en"
        group = chat is not None and chat.id < 0
        if sender is not None and standing is not None and standing.admin:
            self.languages[sender.id] = language
        return Reader(language, self.settings.zone, standing is not None and standing.admin and not group, group)

    def folder(self, run_id: str) -> Folder:
        """The files of a run."""
        return Folder(self.settings.runs_folder / run_id)

    async def reader_of(self, run: Run, lane: Lane) -> Reader:
        """Who reads of a run in a chat; money and details are for an admin's own chat."""
        admin = lane.chat_id > 0 and lane.chat_id in await self.admins()
        return Reader(run.starter.language, self.settings.zone, admin, lane.chat_id < 0)

    def remember(self, actor: str, name: str) -> None:
        """Remembers what somebody is called."""
        if len(self.names) >= NAMES_MAX:
            self.names.clear()
        self.names[actor] = name

    def called(self, actor: str) -> str:
        """What somebody is called, as far as that is known since the start."""
        return self.names.get(actor) or actor.removeprefix("telegram:")

    def when(self, reader: Reader, instant: datetime) -> str:
        """ "at 14:20", in the reader's language."""
        return when(instant, reader, self.clock.now())

    def when_ms(self, reader: Reader, instant_ms: int) -> str:
        """The same from milliseconds."""
        return self.when(reader, from_ms(instant_ms))

    def until(self, reader: Reader, instant: datetime) -> str:
        """ "until 14:20", in the reader's language."""
        return until(instant, reader, self.clock.now())

    async def persist(self, write: Callable[[], Awaitable[T]]) -> T:
        """Writes what must not be lost: a database that is gone for a while is waited for, up to two minutes."""
        for remaining in reversed(range(PERSIST_TRIES)):
            try:
                return await write()
            except LedgerUnavailable:
                if not remaining:
                    raise
                await asyncio.sleep(PERSIST_WAIT_S)
        raise AssertionError("the last failure is raised")

    def request_id(self, update_id: int) -> str:
        """The name under which an update's question is made, once."""
        return f"tg:{self.bot_id}:{update_id}"

    async def standing(self, user_id: int, chat_id: int) -> Standing:
        """What a person may do in a chat. Default deny; a denial by command takes back all but a configured admin."""
        telegram, roles = self.settings.telegram, await self.people.roles()
        role = roles.get(user_id)
        admin = user_id in telegram.admins or role is Role.ADMIN
        denied = role is Role.DENIED and not admin
        listed = admin or (not denied and (user_id in telegram.allowed_users or role is Role.ALLOWED))
        if chat_id > 0:
            return Standing(admin, listed, listed, denied)
        open_chat = chat_id in telegram.allowed_chats or roles.get(chat_id) is Role.ALLOWED
        return Standing(admin, listed, open_chat and roles.get(chat_id) is not Role.DENIED and not denied, denied)

    async def admins(self) -> list[int]:
        """Everybody who is an admin now."""
        made = [subject for subject, role in (await self.people.roles()).items() if role is Role.ADMIN]
        return list(dict.fromkeys([*self.settings.telegram.admins, *made]))
