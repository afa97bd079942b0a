"""The Telegram inbox: updates, committed before they are acknowledged, and what becomes of them.

An update goes received → answering → done. A question that no budget had room for goes answering → offered (the notice
stands, nothing is promised) → parked (it will be answered by itself) → answering → done. Pieces of one message (an
album, a long paste) are joined to the first. A done update keeps its row for a while, so that a redelivery drops.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from sqlalchemy import Connection, Row, Select, Table, and_, delete, func, or_, select, update
from sqlalchemy.dialects import postgresql, sqlite

from gateway.store.database import Database
from gateway.store.rows import clean
from gateway.store.tables import tg_buttons, tg_choices, tg_forms, tg_people, tg_said, tg_turns, tg_updates

KEEP_DONE_MS = 3 * 86_400_000
"""How long a done update's id is kept: Telegram redelivers for a day."""


TEXT_MAX = 1_000_000
"""The most characters of a question or an answer that are kept."""


class State(StrEnum):
    """Where an update stands."""

    RECEIVED = "received"
    ANSWERING = "answering"
    OFFERED = "offered"
    PARKED = "parked"
    JOINED = "joined"
    DONE = "done"


@dataclass(frozen=True, slots=True)
class Lane:
    """One conversation: a chat, and a topic of it (0 for none, and for General)."""

    chat_id: int
    thread_id: int = 0


@dataclass(frozen=True, slots=True)
class Arrival:
    """An update as it came, with the conversation that it belongs to. `user_id` 0: nobody's."""

    update_id: int
    lane: Lane
    user_id: int
    raw: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Letter:
    """An update in the inbox. `pieces` are the raw updates that were joined to it."""

    update_id: int
    lane: Lane
    user_id: int
    state: State
    raw: Mapping[str, Any]
    bubbles: tuple[int, ...] = ()
    """The messages that show its answer so far: a new attempt edits them."""
    target: str | None = None
    """The chain or model that was picked for this one question."""
    notice_id: int | None = None
    due_ms: int | None = None
    parked_ms: int | None = None
    """When the person asked to be answered later; None: never."""
    received_ms: int = 0
    pieces: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class Turn:
    """A question and its answer as it was shown; `tokens` is about what both take in a prompt."""

    request_id: str
    question: str
    answer: str
    tokens: int
    created_ms: int


@dataclass(frozen=True, slots=True)
class Button:
    """What one button does. Only `user_id` (or an admin) may press it; `update_id` is the question it belongs to."""

    token: str
    action: str
    argument: str
    update_id: int | None
    chat_id: int
    user_id: int
    used: bool = False


def upsert(connection: Connection, table: Table) -> sqlite.Insert | postgresql.Insert:
    """An insert that may say what happens on conflict, in the connection's dialect."""
    return postgresql.insert(table) if connection.dialect.name == "postgresql" else sqlite.insert(table)


class ParkedPeople:
    """The parked questions of people, of whatever bot: runs of workflows stand back for them."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def due(self, now_ms: int) -> int:
        """How many could be answered now."""
        due = tg_updates.c.state == State.PARKED, tg_updates.c.due_ms <= now_ms
        query = select(func.count()).select_from(tg_updates).where(*due)
        return await self._database.read(lambda connection: int(connection.execute(query).scalar_one()))

    async def wake(self, now_ms: int) -> None:
        """Makes every one due, since limits changed."""
        late = or_(tg_updates.c.due_ms.is_(None), tg_updates.c.due_ms > now_ms)
        statement = update(tg_updates).where(tg_updates.c.state == State.PARKED, late).values(due_ms=now_ms)
        await self._database.write(lambda connection: connection.execute(statement))


class Inbox:
    """The updates of one bot."""

    def __init__(self, database: Database, bot_id: int) -> None:
        self._database = database
        self.bot_id = bot_id

    async def add(self, arrivals: Sequence[Arrival], now_ms: int) -> list[int]:
        """Commits the updates that are new and returns their ids; those seen before are dropped."""

        def work(connection: Connection) -> list[int]:
            new = []
            for arrival in arrivals:
                values = {
                    "bot_id": self.bot_id,
                    "update_id": arrival.update_id,
                    "chat_id": arrival.lane.chat_id,
                    "thread_id": arrival.lane.thread_id,
                    "user_id": arrival.user_id,
                    "state": State.RECEIVED,
                    "outcome": "",
                    "raw": json.dumps(arrival.raw),
                    "bubbles": "[]",
                    "received_ms": now_ms,
                }
                statement = upsert(connection, tg_updates).values(values).on_conflict_do_nothing()
                if connection.execute(statement.returning(tg_updates.c.update_id)).first() is not None:
                    new.append(arrival.update_id)
            return new

        return await self._database.write(work)

    async def unfinished(self) -> list[Letter]:
        """The updates that were received and not answered, in the order in which they came: for a start."""
        untold = and_(tg_updates.c.state == State.OFFERED, tg_updates.c.notice_id.is_(None))
        wanted = self._select().where(or_(tg_updates.c.state.in_([State.RECEIVED, State.ANSWERING]), untold))
        return await self._letters(wanted.order_by(tg_updates.c.update_id))

    async def load(self, update_id: int) -> Letter | None:
        """One update with the pieces that were joined to it."""

        def work(connection: Connection) -> Letter | None:
            row = connection.execute(self._select().where(tg_updates.c.update_id == update_id)).first()
            if row is None:
                return None
            pieces = connection.execute(self._select().where(tg_updates.c.lead_id == update_id).order_by(tg_updates.c.update_id))
            return _letter(row, tuple(json.loads(piece.raw) for piece in pieces))

        return await self._database.read(work)

    async def begin(self, update_id: int, pieces: Iterable[int] = ()) -> None:
        """Says that the update is being answered, together with its pieces."""
        joined = list(pieces)

        def work(connection: Connection) -> None:
            open_ = tg_updates.c.state.in_([State.RECEIVED, State.ANSWERING, State.OFFERED])
            connection.execute(self._update().where(tg_updates.c.update_id == update_id, open_).values(state=State.ANSWERING))
            if joined:
                values = {"state": State.JOINED, "lead_id": update_id}
                connection.execute(self._update().where(tg_updates.c.update_id.in_(joined)).values(values))

        await self._database.write(work)

    async def shown(self, update_id: int, bubbles: Sequence[int]) -> None:
        """Keeps the ids of the messages that show the answer."""
        statement = self._update().where(tg_updates.c.update_id == update_id).values(bubbles=json.dumps(list(bubbles)))
        await self._database.write(lambda connection: connection.execute(statement))

    async def finish(
        self, update_id: int, outcome: str, lane: Lane | None = None, turn: Turn | None = None, *, instead_of: str | None = None
    ) -> None:
        """Ends an update and, in the same transaction, adds its turn to the conversation (in the place of another one)."""

        def work(connection: Connection) -> None:
            values = {"state": State.DONE, "outcome": outcome, "raw": "{}", "due_ms": None}
            mine = or_(tg_updates.c.update_id == update_id, tg_updates.c.lead_id == update_id)
            connection.execute(self._update().where(mine).values(values))
            if turn is None or lane is None:
                return
            gone = [turn.request_id] if instead_of is None else [turn.request_id, instead_of]
            mine = and_(tg_turns.c.bot_id == self.bot_id, tg_turns.c.request_id.in_(gone))
            connection.execute(delete(tg_turns).where(mine))
            row = {"bot_id": self.bot_id, "chat_id": lane.chat_id, "thread_id": lane.thread_id, "request_id": turn.request_id}
            question, answer = clean(turn.question, TEXT_MAX), clean(turn.answer, TEXT_MAX)
            row |= {"question": question, "answer": answer, "tokens": turn.tokens, "created_ms": turn.created_ms}
            connection.execute(tg_turns.insert().values(row))

        await self._database.write(work)

    async def offer(self, update_id: int, due_ms: int | None, buttons: Sequence[Button], now_ms: int) -> None:
        """Keeps a question that could not be answered, with the buttons of its notice. Its answer gets a new bubble."""

        def work(connection: Connection) -> None:
            values = {"state": State.OFFERED, "due_ms": due_ms, "bubbles": "[]"}
            connection.execute(self._update().where(tg_updates.c.update_id == update_id).values(values))
            self._add_buttons(connection, buttons, now_ms)

        await self._database.write(work)

    async def noticed(self, update_id: int, notice_id: int | None) -> None:
        """Keeps the id of the message that carries the notice."""
        statement = self._update().where(tg_updates.c.update_id == update_id).values(notice_id=notice_id)
        await self._database.write(lambda connection: connection.execute(statement))

    async def park(self, update_id: int, due_ms: int | None, now_ms: int) -> bool:
        """Lets a question wait for its time, `due_ms` (None: until limits change). False when it no longer waits."""

        def work(connection: Connection) -> bool:
            waiting = tg_updates.c.state.in_([State.OFFERED, State.ANSWERING, State.PARKED])
            since = func.coalesce(tg_updates.c.parked_ms, now_ms)
            statement = self._update().where(tg_updates.c.update_id == update_id, waiting)
            return connection.execute(statement.values(state=State.PARKED, due_ms=due_ms, parked_ms=since)).rowcount == 1

        return await self._database.write(work)

    async def take(self, update_id: int, from_states: Sequence[State], target: str | None = None) -> bool:
        """Takes a waiting question to be answered (by `target`, if given); False when somebody else did or it ended."""
        values: dict[str, Any] = {"state": State.ANSWERING}
        if target is not None:
            values |= {"target": target, "parked_ms": None}
        statement = self._update().where(tg_updates.c.update_id == update_id, tg_updates.c.state.in_(from_states))
        return await self._database.write(lambda connection: connection.execute(statement.values(values)).rowcount == 1)

    async def due(self, now_ms: int, limit: int = 200) -> list[Letter]:
        """The parked questions whose time has come, the oldest first."""
        wanted = self._select().where(tg_updates.c.state == State.PARKED, tg_updates.c.due_ms <= now_ms)
        return await self._letters(wanted.order_by(tg_updates.c.received_ms, tg_updates.c.update_id).limit(limit))

    async def wake(self, now_ms: int) -> int:
        """Makes every parked question due, since limits changed; returns how many."""
        late = or_(tg_updates.c.due_ms.is_(None), tg_updates.c.due_ms > now_ms)
        statement = self._update().where(tg_updates.c.state == State.PARKED, late).values(due_ms=now_ms)
        return await self._database.write(lambda connection: connection.execute(statement).rowcount)

    async def overdue(self, parked_before_ms: int) -> list[Letter]:
        """The parked questions that have waited since before then."""
        wanted = self._select().where(tg_updates.c.state == State.PARKED, tg_updates.c.parked_ms < parked_before_ms)
        return await self._letters(wanted.limit(100))

    async def waiting(self, chat_id: int, user_id: int) -> list[Letter]:
        """A person's parked and offered questions in a chat."""
        mine = and_(tg_updates.c.chat_id == chat_id, tg_updates.c.user_id == user_id)
        return await self._letters(self._select().where(mine, tg_updates.c.state.in_([State.PARKED, State.OFFERED])))

    async def parked(self) -> int:
        """How many questions are parked."""
        statement = select(func.count()).where(tg_updates.c.bot_id == self.bot_id, tg_updates.c.state == State.PARKED)
        return await self._database.read(lambda connection: int(connection.execute(statement).scalar_one()))

    async def prune(self, now_ms: int, offered_before_ms: int) -> None:
        """Forgets done updates and used buttons after three days, and offers that nobody took up."""

        def work(connection: Connection) -> None:
            old = or_(
                and_(tg_updates.c.state == State.OFFERED, tg_updates.c.received_ms < offered_before_ms),
                # Pieces of a question that still waits are as old as it is.
                and_(
                    tg_updates.c.state == State.JOINED, tg_updates.c.received_ms < 2 * offered_before_ms - now_ms - KEEP_DONE_MS
                ),
                and_(tg_updates.c.state == State.DONE, tg_updates.c.received_ms < now_ms - KEEP_DONE_MS),
            )
            connection.execute(delete(tg_updates).where(tg_updates.c.bot_id == self.bot_id, old))
            connection.execute(delete(tg_said).where(tg_said.c.bot_id == self.bot_id, tg_said.c.until_ms < now_ms))
            stale = tg_buttons.c.created_ms < min(now_ms - KEEP_DONE_MS, offered_before_ms)
            connection.execute(delete(tg_buttons).where(tg_buttons.c.bot_id == self.bot_id, stale))

        await self._database.write(work)

    async def migrate(self, old_chat_id: int, new_chat_id: int) -> None:
        """A group became a supergroup: everything kept for it moves to its new id."""

        def work(connection: Connection) -> None:
            for table in (tg_updates, tg_turns, tg_buttons, tg_forms):
                mine = and_(table.c.bot_id == self.bot_id, table.c.chat_id == old_chat_id)
                connection.execute(update(table).where(mine).values(chat_id=new_chat_id))
            for table, column in (
                (tg_choices, tg_choices.c.chat_id),
                (tg_said, tg_said.c.chat_id),
                (tg_people, tg_people.c.subject_id),
            ):
                of_bot = table.c.bot_id == self.bot_id
                if (
                    connection.execute(select(func.count()).select_from(table).where(of_bot, column == new_chat_id)).scalar_one()
                    == 0
                ):
                    connection.execute(update(table).where(of_bot, column == old_chat_id).values({column.name: new_chat_id}))

        await self._database.write(work)

    async def add_buttons(self, buttons: Sequence[Button], now_ms: int) -> None:
        """Keeps what these buttons do."""
        await self._database.write(lambda connection: self._add_buttons(connection, buttons, now_ms))

    async def button(self, token: str) -> Button | None:
        """The button of this token, None when there is none."""
        statement = select(tg_buttons).where(tg_buttons.c.bot_id == self.bot_id, tg_buttons.c.token == token)
        row = await self._database.read(lambda connection: connection.execute(statement).first())
        return None if row is None else _button(row)

    async def buttons(self, update_id: int) -> list[Button]:
        """A question's buttons that were not pressed yet, the oldest first."""
        mine = tg_buttons.c.bot_id == self.bot_id, tg_buttons.c.update_id == update_id, tg_buttons.c.used_ms.is_(None)
        statement = select(tg_buttons).where(*mine).order_by(tg_buttons.c.created_ms)
        rows = await self._database.read(lambda connection: connection.execute(statement).all())
        return [_button(row) for row in rows]

    async def use(self, token: str, now_ms: int) -> bool:
        """Presses a button; False when it was pressed before."""
        statement = update(tg_buttons).where(tg_buttons.c.token == token, tg_buttons.c.used_ms.is_(None)).values(used_ms=now_ms)
        return await self._database.write(lambda connection: connection.execute(statement).rowcount == 1)

    def _add_buttons(self, connection: Connection, buttons: Sequence[Button], now_ms: int) -> None:
        for button in buttons:
            row = {"token": button.token, "bot_id": self.bot_id, "action": button.action, "argument": button.argument}
            row |= {"update_id": button.update_id, "chat_id": button.chat_id, "user_id": button.user_id, "created_ms": now_ms}
            connection.execute(tg_buttons.insert().values(row))

    def _select(self) -> Select[Any]:
        return select(tg_updates).where(tg_updates.c.bot_id == self.bot_id)

    def _update(self) -> Any:
        return update(tg_updates).where(tg_updates.c.bot_id == self.bot_id)

    async def _letters(self, statement: Select[Any]) -> list[Letter]:
        rows = await self._database.read(lambda connection: connection.execute(statement).all())
        return [_letter(row) for row in rows]


def _button(row: Row[Any]) -> Button:
    return Button(row.token, row.action, row.argument, row.update_id, row.chat_id, row.user_id, row.used_ms is not None)


def _letter(row: Row[Any], pieces: tuple[Mapping[str, Any], ...] = ()) -> Letter:
    return Letter(
        update_id=row.update_id,
        lane=Lane(row.chat_id, row.thread_id),
        user_id=row.user_id,
        state=State(row.state),
        raw=json.loads(row.raw),
        bubbles=tuple(json.loads(row.bubbles)),
        target=row.target,
        notice_id=row.notice_id,
        due_ms=row.due_ms,
        parked_ms=row.parked_ms,
        received_ms=row.received_ms,
        pieces=pieces,
    )
