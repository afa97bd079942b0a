"""The values of workflows: a run, its steps, what happened, who is asked, what is to be told. Pure.

Instants are aware and UTC, money is micro-USD. A run goes queued → running → (waiting …, sleeping → running)* → succeeded,
failed or cancelled; only a retry leads out of failed, and it makes the next generation of the same run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from enum import StrEnum
from typing import Any, Self

JSON = Any
"""What `json.loads` gives."""


def stamp(instant: datetime | None) -> str | None:
    """RFC 3339 in UTC; None stays None."""
    return None if instant is None else instant.astimezone(UTC).isoformat().replace("+00:00", "Z")


class RunState(StrEnum):
    """Where a run stands."""

    QUEUED = "queued"
    RUNNING = "running"
    WAITING_BUDGET = "waiting_budget"
    WAITING_APPROVAL = "waiting_approval"
    WAITING = "waiting"
    """For a signal."""
    SLEEPING = "sleeping"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def ended(self) -> bool:
        """True for a state in which nothing more happens by itself."""
        return self in (RunState.SUCCEEDED, RunState.FAILED, RunState.CANCELLED)


class StepState(StrEnum):
    """Where a step stands."""

    RUNNING = "running"
    WAITING = "waiting"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def ended(self) -> bool:
        """True once the step neither runs nor waits."""
        return self not in (StepState.RUNNING, StepState.WAITING)


class Decision(StrEnum):
    """What became of an approval."""

    OPEN = ""
    APPROVED = "approved"
    REJECTED = "rejected"
    EXPIRED = "expired"


class NoticeState(StrEnum):
    """Where something to be told stands."""

    PENDING = "pending"
    SENT = "sent"
    FAILED = "failed"
    UNCERTAIN = "uncertain"
    """It was begun and its end is not known: it may have arrived, so it is not sent again."""


@dataclass(frozen=True, slots=True)
class Caps:
    """The most that one run may spend, per unit; None: no cap of its own. Raises ValueError for a negative number."""

    tokens: int | None = None
    usd: Decimal | float | None = None
    """US dollars."""
    requests: int | None = None

    def __post_init__(self) -> None:
        for name in ("tokens", "usd", "requests"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < 10**12:
                raise ValueError(f"{name} must be at least 0 and less than 10^12, not {value}")

    @property
    def micro_usd(self) -> int | None:
        """The cap on money in micro-USD, rounded down."""
        return None if self.usd is None else int(Decimal(str(self.usd)) * 1_000_000)

    @classmethod
    def of_amounts(cls, amounts: Mapping[str, int]) -> Self | None:
        """Caps from amounts as the ledger counts them: `usd` in micro-USD. None where there is none. Raises ValueError."""
        money = amounts.get("usd")
        if not amounts:
            return None
        return cls(amounts.get("tokens"), None if money is None else Decimal(money) / 1_000_000, amounts.get("requests"))

    def over(self, other: Caps | None) -> Caps:
        """These caps where they say something, and the other's where they do not."""
        if other is None:
            return self
        return Caps(
            other.tokens if self.tokens is None else self.tokens,
            other.usd if self.usd is None else self.usd,
            other.requests if self.requests is None else self.requests,
        )

    def as_json(self) -> dict[str, JSON]:
        """What `of_json` reads; money as text, so that it stays exact."""
        money = None if self.usd is None else str(self.usd)
        return {
            name: value
            for name, value in (("tokens", self.tokens), ("usd", money), ("requests", self.requests))
            if value is not None
        }

    @classmethod
    def of_json(cls, value: Mapping[str, JSON]) -> Self:
        """Caps from what `as_json` made."""
        money = value.get("usd")
        return cls(value.get("tokens"), None if money is None else Decimal(money), value.get("requests"))


@dataclass(frozen=True, slots=True)
class Starter:
    """Who starts a run or acts on one: for permissions, for scopes of budgets, and for telling them.

    `user` is the Telegram id, the HTTP key's name, or the account on the machine. `listed` is false for people who are
    on no list (guests).
    """

    surface: str
    """telegram | http | cli | schedule"""
    user: str | None = None
    admin: bool = False
    listed: bool = True
    chat: str | None = None
    """The Telegram chat in which its progress is told."""
    thread: int | None = None
    """The topic of that chat."""
    key: str | None = None
    """The HTTP key's name."""
    language: str = "en"
    bot: int | None = None
    """The Telegram bot through which it was started; None: any."""
    to: str = ""
    """Where notices go that name no place, "file:<folder>"; "": into its chat."""
    may_use: tuple[str, ...] = ()
    """The only chains, providers and models that a run of theirs may ask; empty: every one."""
    acts_as: str = field(default="", compare=False)
    """How records name them where that says more than `name`: `console:cli:root`."""

    @property
    def name(self) -> str:
        """Who it is: `telegram:1001`, `http:ops`, `cli:root`."""
        return f"{self.surface}:{self.user or ''}"

    @property
    def actor(self) -> str:
        """How records name them: the surface first."""
        return self.acts_as or self.name


@dataclass(frozen=True, slots=True)
class Run:
    """One execution of a workflow."""

    id: str
    workflow: str
    state: RunState
    params: Mapping[str, JSON]
    starter: Starter
    created: datetime
    key: str | None = None
    """The same key means the same run."""
    version: str = ""
    """What the workflow's file was when the run was started."""
    caps: Caps | None = None
    """The run's own caps, where they are others than its workflow's."""
    started: datetime | None = None
    ended: datetime | None = None
    waiting_until: datetime | None = None
    waiting_for: str = ""
    """What it waits for: the name of the budget, of the approval's step, of the signal."""
    error: str = ""
    result: JSON = None
    generation: int = 0
    """How often it was retried."""
    wanted: str = ""
    """`cancel` once somebody wants that and no worker has seen to it."""
    owner: str = ""
    """The worker that has it."""
    change: int = 0
    """The number of its newest event."""
    cost_micro_usd: int = 0
    """What its calls have cost so far, by the usage rows."""
    tokens: int = 0

    def brief(self) -> dict[str, JSON]:
        """Which run it is and where it stands."""
        return {"id": self.id, "workflow": self.workflow, "state": self.state.value}

    def as_json(self) -> dict[str, JSON]:
        """What is shown of it over HTTP and on the command line."""
        return self.brief() | {
            "params": dict(self.params),
            "starter": {"surface": self.starter.surface, "user": self.starter.user},
            "created": stamp(self.created),
            "started": stamp(self.started),
            "ended": stamp(self.ended),
            "waiting_until": stamp(self.waiting_until),
            "waiting_for": self.waiting_for,
            "wanted": self.wanted,
            "generation": self.generation,
            "caps": None if self.caps is None else self.caps.as_json(),
            "tokens": self.tokens,
            "cost_micro_usd": self.cost_micro_usd,
            "error": self.error,
            "result": self.result,
        }


@dataclass(frozen=True, slots=True)
class Step:
    """One checkpoint of a run.

    `name` is unique in its run: the author's name or the kind, with `#2` … when it comes again; the steps of a map's
    children are `<map>/<i>/<step>`. `detail` says what a person should know (an exit code, a file, a reason).
    """

    run: str
    name: str
    number: int
    """Its place, from 1, in the order in which steps began."""
    kind: str
    """ask shell http read write sleep wait_for approve notify map step log"""
    state: StepState
    attempts: int
    started: datetime
    ended: datetime | None = None
    waiting_until: datetime | None = None
    tokens: int = 0
    cost_micro_usd: int = 0
    detail: str = ""

    def as_json(self) -> dict[str, JSON]:
        """What is shown of it over HTTP and on the command line."""
        return {
            "name": self.name,
            "number": self.number,
            "kind": self.kind,
            "state": self.state.value,
            "attempts": self.attempts,
            "started": stamp(self.started),
            "ended": stamp(self.ended),
            "waiting_until": stamp(self.waiting_until),
            "tokens": self.tokens,
            "cost_micro_usd": self.cost_micro_usd,
            "detail": self.detail,
        }


@dataclass(frozen=True, slots=True)
class RunEvent:
    """One change of a run. `seq` counts from 1 without gaps.

    `kind` is "state" (`data`: state, waiting_until, waiting_for, error), "step" (name, kind, state, attempts,
    waiting_until, detail), "approval" (id, step, question, expires, decision, by) or "log" (text, step). What is empty is
    left out; instants in `data` are RFC 3339.
    """

    run: str
    seq: int
    at: datetime
    kind: str
    data: Mapping[str, JSON]

    def as_json(self) -> dict[str, JSON]:
        """What is shown of it over HTTP and on the command line."""
        return {"run": self.run, "seq": self.seq, "at": stamp(self.at), "event": self.kind, **self.data}


@dataclass(frozen=True, slots=True)
class Approval:
    """A question that people answer. `id` is an unguessable token, short enough for a button."""

    id: str
    run: str
    step: str
    question: str
    who: tuple[str, ...]
    """Who may answer: "admins", "starter", "users", numeric ids."""
    asked: datetime
    expires: datetime | None = None
    otherwise: str = "reject"
    """What an expiry means: "reject" or "fail"."""
    decision: Decision = Decision.OPEN
    by: str = ""
    """Who decided, as `Starter.name`."""
    at: datetime | None = None

    def as_json(self) -> dict[str, JSON]:
        """What is shown of it over HTTP and on the command line."""
        return {
            "id": self.id,
            "run": self.run,
            "step": self.step,
            "question": self.question,
            "who": list(self.who),
            "asked": stamp(self.asked),
            "expires": stamp(self.expires),
            "otherwise": self.otherwise,
            "decision": self.decision.value,
            "by": self.by,
            "at": stamp(self.at),
        }


@dataclass(frozen=True, slots=True)
class Signal:
    """Something told to a run from outside, kept until a worker has handed it over.

    `name` is the author's for `wait_for`, and `approval:<id>` for a decision: no surface can send that one as a signal.
    """

    id: int
    run: str
    name: str
    data: JSON


@dataclass(frozen=True, slots=True)
class Notice:
    """Something to be told: "telegram:<chat>[/<thread>]" or "file:<folder>"."""

    id: int
    run: str
    """The run that tells it; "" for what the program itself tells, such as reports."""
    step: str
    """What makes it one of its run's, or of the program's: it is told once."""
    to: str
    text: str
    created: datetime
    file: str | None = None
    """The path of a file inside the run's folder, to be attached."""
    state: NoticeState = NoticeState.PENDING
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Attachment:
    """A file that goes with something to be told, kept beside it in the database."""

    name: str
    content: bytes
    picture: bool = False
    """Shown where that can be, else sent as a file."""


@dataclass(frozen=True, slots=True)
class Telling:
    """A run whose newest change its chat has not been told. `message_id` is the message that shows its progress."""

    run: Run
    told: int
    message_id: int | None = None


@dataclass(frozen=True, slots=True)
class Detail:
    """Everything about a run that a person looks at."""

    run: Run
    steps: tuple[Step, ...] = ()
    approvals: tuple[Approval, ...] = ()
    """The open ones."""

    def as_json(self) -> dict[str, JSON]:
        """What is shown of it over HTTP and on the command line."""
        return self.run.as_json() | {
            "steps": [step.as_json() for step in self.steps],
            "approvals": [approval.as_json() for approval in self.approvals],
        }
