"""What the bot remembers of chats and people: conversations, choices, what was said, who is let in, the pairing code."""

from __future__ import annotations

import hashlib
import hmac
from enum import StrEnum

from sqlalchemy import Connection, delete, select, update

from gateway.store.audit import record
from gateway.store.database import Database
from gateway.store.tables import tg_choices, tg_pairing, tg_people, tg_said, tg_turns
from gateway.store.telegram import Lane, Turn, upsert

PAIRING_TRIES_MAX = 20
"""Wrong tries after which a pairing code is void; a restart makes a new one."""


class Role(StrEnum):
    """What an admin made of a person or a group by command."""

    ADMIN = "admin"
    ALLOWED = "allowed"
    DENIED = "denied"


_ACTIONS = {Role.ADMIN: "make admin", Role.ALLOWED: "allow", Role.DENIED: "deny"}
"""What the audit calls it."""


class Talk:
    """The conversations of one bot."""

    def __init__(self, database: Database, bot_id: int) -> None:
        self._database = database
        self.bot_id = bot_id

    async def history(self, lane: Lane, tokens_max: int, without: str) -> tuple[list[Turn], int]:
        """The newest turns that take at most `tokens_max` together, oldest first, and how many were dropped for good.

        The turn of the request `without` is left out: a second attempt must not see its first.
        """
        mine = (tg_turns.c.bot_id == self.bot_id, tg_turns.c.chat_id == lane.chat_id, tg_turns.c.thread_id == lane.thread_id)
        wanted = select(tg_turns).where(*mine, tg_turns.c.request_id != without).order_by(tg_turns.c.id.desc())
        rows = await self._database.read(lambda connection: connection.execute(wanted).all())
        kept, room = [], tokens_max
        for row in rows:
            room -= row.tokens
            if room < 0:
                break
            kept.append(Turn(row.request_id, row.question, row.answer, row.tokens, row.created_ms))
        if dropped := [row.id for row in rows[len(kept) :]]:
            statement = delete(tg_turns).where(tg_turns.c.id.in_(dropped))
            await self._database.write(lambda connection: connection.execute(statement))
        return kept[::-1], len(dropped)

    async def last(self, lane: Lane) -> Turn | None:
        """The newest turn of a conversation."""
        mine = (tg_turns.c.bot_id == self.bot_id, tg_turns.c.chat_id == lane.chat_id, tg_turns.c.thread_id == lane.thread_id)
        statement = select(tg_turns).where(*mine).order_by(tg_turns.c.id.desc()).limit(1)
        row = await self._database.read(lambda connection: connection.execute(statement).first())
        return None if row is None else Turn(row.request_id, row.question, row.answer, row.tokens, row.created_ms)

    async def forget(self, lane: Lane) -> None:
        """Begins a new conversation: the old one is deleted."""

        def work(connection: Connection) -> None:
            mine = (tg_turns.c.bot_id == self.bot_id, tg_turns.c.chat_id == lane.chat_id, tg_turns.c.thread_id == lane.thread_id)
            connection.execute(delete(tg_turns).where(*mine))
            said = (tg_said.c.bot_id == self.bot_id, tg_said.c.chat_id == lane.chat_id, tg_said.c.key == trimmed_key(lane))
            connection.execute(delete(tg_said).where(*said))

        await self._database.write(work)

    async def say_once(self, chat_id: int, key: str, now_ms: int, until_ms: int) -> bool:
        """True when this was not said to the chat in the current span; then it counts as said until `until_ms`."""

        def work(connection: Connection) -> bool:
            mine = (tg_said.c.bot_id == self.bot_id, tg_said.c.chat_id == chat_id, tg_said.c.key == key)
            if connection.execute(select(tg_said).where(*mine, tg_said.c.until_ms > now_ms)).first() is not None:
                return False
            row = {"bot_id": self.bot_id, "chat_id": chat_id, "key": key, "until_ms": until_ms}
            statement = upsert(connection, tg_said).values(row)
            keys = ["bot_id", "chat_id", "key"]
            connection.execute(statement.on_conflict_do_update(index_elements=keys, set_={"until_ms": until_ms}))
            return True

        return await self._database.write(work)

    async def choice(self, lane: Lane) -> str | None:
        """The chain or model that this conversation chose; None: the configured one."""
        mine = (
            tg_choices.c.bot_id == self.bot_id,
            tg_choices.c.chat_id == lane.chat_id,
            tg_choices.c.thread_id == lane.thread_id,
        )
        statement = select(tg_choices.c.target).where(*mine)
        return await self._database.read(lambda connection: connection.execute(statement).scalar_one_or_none())

    async def choose(self, lane: Lane, target: str) -> None:
        """Keeps a conversation's chain or model."""

        def work(connection: Connection) -> None:
            row = {"bot_id": self.bot_id, "chat_id": lane.chat_id, "thread_id": lane.thread_id, "target": target}
            statement = upsert(connection, tg_choices).values(row)
            keys = ["bot_id", "chat_id", "thread_id"]
            connection.execute(statement.on_conflict_do_update(index_elements=keys, set_={"target": target}))

        await self._database.write(work)


def trimmed_key(lane: Lane) -> str:
    """Under which it is kept that a conversation was told of dropped turns."""
    return f"trimmed:{lane.thread_id}"


class People:
    """Whom an admin of one bot let in or shut out by command, and how the first admin came to be."""

    def __init__(self, database: Database, bot_id: int) -> None:
        self._database = database
        self.bot_id = bot_id

    async def roles(self) -> dict[int, Role]:
        """Everybody's role; negative ids are groups."""
        statement = select(tg_people.c.subject_id, tg_people.c.role).where(tg_people.c.bot_id == self.bot_id)
        rows = await self._database.read(lambda connection: connection.execute(statement).all())
        return {row.subject_id: Role(row.role) for row in rows}

    async def set_role(self, subject_id: int, role: Role, actor_id: int, now_ms: int, actor: str = "") -> None:
        """Lets a person or a group in, or shuts it out. `actor` is for the audit; "": the person `actor_id` in a chat."""
        await self._database.write(lambda connection: self._set_role(connection, subject_id, role, actor_id, now_ms, actor))

    async def new_code(self, code: str, now_ms: int) -> None:
        """Keeps a pairing code, hashed, in the place of an earlier one."""

        def work(connection: Connection) -> None:
            connection.execute(delete(tg_pairing).where(tg_pairing.c.bot_id == self.bot_id))
            row = {"bot_id": self.bot_id, "code_hash": _hash(code), "tries": 0, "made_ms": now_ms}
            connection.execute(tg_pairing.insert().values(row))

        await self._database.write(work)

    async def pair(self, code: str, user_id: int, now_ms: int) -> bool:
        """Makes this person the first admin if the code is right, once, and nobody is an admin yet."""

        def work(connection: Connection) -> bool:
            mine = tg_pairing.c.bot_id == self.bot_id
            row = connection.execute(select(tg_pairing).where(mine)).first()
            if row is None or row.tries >= PAIRING_TRIES_MAX:
                return False
            if not hmac.compare_digest(row.code_hash, _hash(code)):
                connection.execute(update(tg_pairing).where(mine).values(tries=tg_pairing.c.tries + 1))
                return False
            connection.execute(delete(tg_pairing).where(mine))
            admins = select(tg_people).where(tg_people.c.bot_id == self.bot_id, tg_people.c.role == Role.ADMIN)
            if connection.execute(admins).first() is not None:
                return False
            self._set_role(connection, user_id, Role.ADMIN, user_id, now_ms)
            return True

        return await self._database.write(work)

    def _set_role(self, connection: Connection, subject_id: int, role: Role, actor_id: int, now_ms: int, actor: str = "") -> None:
        changed = {"role": role, "actor_id": actor_id, "changed_ms": now_ms}
        statement = upsert(connection, tg_people).values({"bot_id": self.bot_id, "subject_id": subject_id} | changed)
        connection.execute(statement.on_conflict_do_update(index_elements=["bot_id", "subject_id"], set_=changed))
        record(connection, now_ms, actor or f"telegram:{actor_id}", _ACTIONS[role], f"telegram:{subject_id}")


def _hash(code: str) -> str:
    return hashlib.sha256(code.encode()).hexdigest()
