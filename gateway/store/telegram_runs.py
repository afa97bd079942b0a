"""What the bot remembers of runs: the messages that show them, and the forms by which they are started.

A message is claimed before it is sent, so that no two processes send it and a crash in between leaves a trace: a claim that
nobody completes may have arrived, and is not sent again blindly.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from sqlalchemy import Connection, Row, Select, and_, delete, func, literal, or_, select, update

from gateway.runs import Decision
from gateway.store.alert_tables import alerts
from gateway.store.alerts import behind, kept
from gateway.store.database import Database
from gateway.store.rows import clean
from gateway.store.run_tables import approvals, runs
from gateway.store.tables import tg_forms, tg_posts
from gateway.store.telegram import TEXT_MAX, Lane, upsert

CLAIM_MS = 120_000
"""After this long a claim without an end is nobody's: its message may have arrived."""


ABOUT = func.substr(tg_posts.c.subject, 5)
"""The id of a message's run or approval: by this side of the comparison theirs is found by its key."""


class PostState(StrEnum):
    """What is known of a message of ours."""

    PENDING = "pending"
    """To be sent."""
    SENDING = "sending"
    SENT = "sent"
    UNCERTAIN = "uncertain"
    FAILED = "failed"
    """Nobody can be reached there, or there is nothing to be said any more."""


@dataclass(frozen=True, slots=True)
class Post:
    """A message that shows a run (`run:<id>`), asks for an approval (`ask:<id>`) or tells an alert (`alert:<id>`) in one chat."""

    subject: str
    lane: Lane
    state: PostState
    message_id: int | None
    claimed_ms: int
    shown: str = ""
    """What it shows for good: an approval's decision, or that a run ended; "" while that may change."""


@dataclass(frozen=True, slots=True)
class Form:
    """A workflow whose parameters a person is asked for, one by one.

    `update_id` is the update that began it and names its run; `step` counts its changes, so that of two answers to one
    question the first counts; `heard` is the newest update that answered.
    """

    id: str
    lane: Lane
    user_id: int
    workflow: str
    update_id: int
    begun_ms: int
    given: Mapping[str, str] = field(default_factory=dict)
    passed: tuple[str, ...] = ()
    """Parameters that keep their defaults."""
    step: int = 0
    heard: int = 0
    message_id: int | None = None
    """The message that asks."""


class Posts:
    """The messages about runs that one bot sends. A message that another bot on the same database took is that one's."""

    def __init__(self, database: Database, bot_id: int) -> None:
        self._database = database
        self.bot_id = bot_id

    async def of(self, subject: str) -> list[Post]:
        """Every message of this bot about it."""
        return await self._posts(select(tg_posts).where(tg_posts.c.bot_id == self.bot_id, tg_posts.c.subject == subject))

    async def want(self, subject: str, lanes: Iterable[Lane], state: PostState = PostState.PENDING) -> None:
        """Says where a message is to be sent; where it was or is, nothing changes."""
        rows = [
            {"subject": subject, "chat_id": lane.chat_id, "thread_id": lane.thread_id, "bot_id": self.bot_id}
            | {"state": state, "claimed_ms": 0, "shown": ""}
            for lane in lanes
        ]

        def work(connection: Connection) -> None:
            for row in rows:
                connection.execute(upsert(connection, tg_posts).values(row).on_conflict_do_nothing())

        await self._database.write(work)

    async def claim(self, post: Post, now_ms: int) -> bool:
        """Takes a message to be sent; False when somebody else took it since it was read as this."""
        mine = self._mine(post.subject, post.lane.chat_id), tg_posts.c.state == post.state
        statement = update(tg_posts).where(*mine).values(state=PostState.SENDING, claimed_ms=now_ms)
        return await self._database.write(lambda connection: connection.execute(statement).rowcount == 1)

    async def end(self, post: Post, state: PostState, message_id: int | None = None, shown: str = "") -> None:
        """Says what became of a message, which one it is and what it shows."""
        values = {"state": state, "message_id": message_id, "shown": shown}
        statement = update(tg_posts).where(self._mine(post.subject, post.lane.chat_id)).values(values)
        await self._database.write(lambda connection: connection.execute(statement))

    async def unasked(self, limit: int = 50) -> list[str]:
        """The open approvals of which nobody has said yet where they are asked, the oldest first."""
        known = select(tg_posts.c.subject).where(tg_posts.c.subject == literal("ask:") + approvals.c.id).exists()
        open_ = approvals.c.decision == Decision.OPEN.value, ~known
        statement = select(approvals.c.id).where(*open_).order_by(approvals.c.asked, approvals.c.id).limit(limit)
        return await self._database.read(lambda connection: list(connection.scalars(statement)))

    async def stale(self, limit: int = 50) -> list[Post]:
        """The messages of approvals that are still to be sent, or do not show yet what was decided."""
        behind = and_(tg_posts.c.state == PostState.SENT, approvals.c.decision != Decision.OPEN.value)
        late = tg_posts.c.shown == "", or_(tg_posts.c.state == PostState.PENDING, behind)
        wanted = select(tg_posts).join(approvals, approvals.c.id == ABOUT).where(tg_posts.c.bot_id == self.bot_id, *late)
        return await self._posts(wanted.limit(limit))

    async def behind_alerts(self, limit: int = 50) -> list[Post]:
        """The messages of alerts that are still to be sent, or do not show yet who has acknowledged them."""
        joins, *late = behind()
        wanted = select(tg_posts).join(alerts, joins).where(tg_posts.c.bot_id == self.bot_id, *late)
        return await self._posts(wanted.limit(limit))

    async def prune(self) -> None:
        """Forgets the messages of runs and alerts that are forgotten."""
        shows = select(runs.c.id).where(runs.c.id == ABOUT).exists()
        asks = select(approvals.c.id).where(approvals.c.id == ABOUT).exists()
        statement = delete(tg_posts).where(tg_posts.c.bot_id == self.bot_id, ~shows, ~asks, ~kept())
        await self._database.write(lambda connection: connection.execute(statement))

    async def _posts(self, statement: Select[Any]) -> list[Post]:
        rows = await self._database.read(lambda connection: connection.execute(statement).all())
        return [_post(row) for row in rows]

    def _mine(self, subject: str, chat_id: int) -> Any:
        return and_(tg_posts.c.bot_id == self.bot_id, tg_posts.c.subject == subject, tg_posts.c.chat_id == chat_id)


class Forms:
    """The open forms of one bot: at most one per person and conversation."""

    def __init__(self, database: Database, bot_id: int) -> None:
        self._database = database
        self.bot_id = bot_id

    async def begin(self, form: Form) -> Form | None:
        """Opens a form in the place of the person's earlier one here, which is returned. The same update opens one form."""

        def work(connection: Connection) -> Form | None:
            here = self._of(form.lane, form.user_id)
            row = connection.execute(select(tg_forms).where(here)).first()
            if row is not None and row.update_id == form.update_id:
                return None
            connection.execute(delete(tg_forms).where(here))
            place = {"bot_id": self.bot_id, "chat_id": form.lane.chat_id, "thread_id": form.lane.thread_id}
            about = {"id": form.id, "user_id": form.user_id, "workflow": form.workflow, "update_id": form.update_id}
            state = {"step": form.step, "heard": form.heard, "message_id": form.message_id, "begun_ms": form.begun_ms}
            connection.execute(tg_forms.insert().values(place | about | state | _answers(form)))
            return None if row is None else _form(row)

        return await self._database.write(work)

    async def get(self, form_id: str) -> Form | None:
        """The open form of this id."""
        return await self._one(and_(tg_forms.c.bot_id == self.bot_id, tg_forms.c.id == form_id))

    async def open(self, lane: Lane, user_id: int) -> Form | None:
        """The person's open form in a conversation."""
        return await self._one(self._of(lane, user_id))

    async def save(self, form: Form) -> bool:
        """Keeps the next step of a form; False when another answer came first, or it ended."""
        values = _answers(form) | {"step": form.step, "heard": form.heard}
        before = and_(tg_forms.c.bot_id == self.bot_id, tg_forms.c.id == form.id, tg_forms.c.step == form.step - 1)
        statement = update(tg_forms).where(before).values(values)
        return await self._database.write(lambda connection: connection.execute(statement).rowcount == 1)

    async def asked(self, form_id: str, message_id: int | None) -> None:
        """Keeps which message asks."""
        statement = update(tg_forms).where(tg_forms.c.bot_id == self.bot_id, tg_forms.c.id == form_id)
        await self._database.write(lambda connection: connection.execute(statement.values(message_id=message_id)))

    async def end(self, form_id: str) -> bool:
        """Ends a form; False when it had ended before."""
        statement = delete(tg_forms).where(tg_forms.c.bot_id == self.bot_id, tg_forms.c.id == form_id)
        return await self._database.write(lambda connection: connection.execute(statement).rowcount == 1)

    async def prune(self, before_ms: int) -> None:
        """Forgets forms that were begun before then."""
        statement = delete(tg_forms).where(tg_forms.c.bot_id == self.bot_id, tg_forms.c.begun_ms < before_ms)
        await self._database.write(lambda connection: connection.execute(statement))

    def _of(self, lane: Lane, user_id: int) -> Any:
        here = and_(tg_forms.c.chat_id == lane.chat_id, tg_forms.c.thread_id == lane.thread_id)
        return and_(tg_forms.c.bot_id == self.bot_id, here, tg_forms.c.user_id == user_id)

    async def _one(self, which: Any) -> Form | None:
        row = await self._database.read(lambda connection: connection.execute(select(tg_forms).where(which)).first())
        return None if row is None else _form(row)


def _answers(form: Form) -> dict[str, str]:
    given = {name: clean(value, TEXT_MAX) for name, value in form.given.items()}
    return {"given": json.dumps(given), "passed": json.dumps(form.passed)}


def _post(row: Row[Any]) -> Post:
    lane = Lane(row.chat_id, row.thread_id)
    return Post(row.subject, lane, PostState(row.state), row.message_id, row.claimed_ms, row.shown)


def _form(row: Row[Any]) -> Form:
    return Form(
        id=row.id,
        lane=Lane(row.chat_id, row.thread_id),
        user_id=row.user_id,
        workflow=row.workflow,
        update_id=row.update_id,
        begun_ms=row.begun_ms,
        given=json.loads(row.given),
        passed=tuple(json.loads(row.passed)),
        step=row.step,
        heard=row.heard,
        message_id=row.message_id,
    )
