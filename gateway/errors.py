"""Every error of the product. An error says what happened and carries the facts; words for people live in notice.py.

GatewayError
├── ConfigError            the configuration is wrong: every problem at once
├── UnknownTarget          no such chain, provider or model
├── TargetNotAllowed       the caller's key may use other chains and models only
├── InvalidRequest         the caller's request cannot be served as it is
├── RequestConflict        an idempotency key was used again with another body
├── LedgerUnavailable      the ledger cannot be read or written: no call is made
├── DatabaseBehind         the database is not at the newest migration
├── WorkflowError          what was asked of the workflows cannot be done as asked
│   ├── UnknownWorkflow    there is no workflow of this name
│   ├── BadParameters      every wrong parameter by name
│   ├── NotAllowed         this person may not do this
│   ├── UnknownRun         there is no such run, or none that this person may see
│   └── WrongState         the run, or the approval, is past that
├── SlotRefusal            one slot of a chain cannot be used now; nothing was sent
│   ├── Exhausted          a budget has no room
│   ├── Paused             an admin paused the gate
│   ├── UnknownPrice       a USD budget is in scope and the price is not known
│   ├── BreakerOpen        the provider failed lately and is left alone for a while
│   └── CannotServe        context too small, no tools, no images, no room for a useful reply
├── ProviderError          a call that was made did not end in an answer
│   ├── Refused            an error with the provider's own body, or no connection: not billed
│   │   ├── CallerFault    400 and the like: the request itself is wrong
│   │   │   ├── ContextTooLong
│   │   │   ├── OutputParameterRefused   the model wants the output limit under its other name
│   │   │   └── NoVectors      the model, or its server, makes none
│   │   └── ContentRefused  the vendor's content policy stopped it
│   └── Unanswered         time-out, reset, a gateway's page, a broken stream: may have been billed
└── ChainExhausted         no slot could serve: the causes, and the earliest time at which one can
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gateway.chat import Slot, Usage


class GatewayError(Exception):
    """The root of every error the product raises itself."""


@dataclass(frozen=True)
class Problem:
    """One wrong thing in the configuration: `place` is `file:key` or the environment variable."""

    place: str
    message: str

    def __str__(self) -> str:
        return f"{self.place}: {self.message}"


@dataclass
class ConfigError(GatewayError):
    """The configuration is wrong. All problems at once, in file order."""

    problems: tuple[Problem, ...]

    def __str__(self) -> str:
        return "\n".join(str(problem) for problem in self.problems)


@dataclass
class UnknownTarget(GatewayError):
    """No chain, provider, alias or `provider:model` of this name; `known` lists what there is."""

    name: str
    known: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"unknown model {self.name!r}; known: {', '.join(self.known)}"


@dataclass
class TargetNotAllowed(GatewayError):
    """The caller's key may use other names than this one only; `may_use` lists them. It need not exist."""

    name: str
    may_use: tuple[str, ...]

    def __str__(self) -> str:
        return f"the key may not use {self.name!r}, only {', '.join(self.may_use)}; an admin can make one that may"


@dataclass
class InvalidRequest(GatewayError):
    """The caller's request cannot be served as it is; `param` names the field."""

    message: str
    param: str | None = None
    status: int = 400

    def __str__(self) -> str:
        return self.message


@dataclass
class RequestConflict(GatewayError):
    """The request id was used before with another body."""

    request_id: str

    def __str__(self) -> str:
        return f"request {self.request_id} was made before with another body"


@dataclass
class LedgerUnavailable(GatewayError):
    """The ledger cannot be read or written, so no call is made. `reason` never holds a URL or a secret."""

    reason: str

    def __str__(self) -> str:
        return f"the ledger is unavailable: {self.reason}"


@dataclass
class DatabaseBehind(GatewayError):
    """The database is not at the newest migration; the command `mend` brings it there."""

    current: str | None
    head: str
    mend: str = "sluicegate db upgrade"

    def __str__(self) -> str:
        found = f"the database is at {self.current}" if self.current else "the database has no tables yet"
        return f"{found}, the program needs {self.head}: run `{self.mend}`"


class WorkflowError(GatewayError):
    """What was asked of the workflows cannot be done as it was asked. Nothing was changed."""


@dataclass
class UnknownWorkflow(WorkflowError):
    """There is no workflow of this name; `known` lists those that this person may start."""

    name: str
    known: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"there is no workflow {self.name!r}; known: {', '.join(self.known) or 'none'}"


@dataclass
class BadParameters(WorkflowError):
    """Parameters are wrong; `problems` is a name and a message for each, all at once."""

    problems: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        return "; ".join(f"{name}: {message}" for name, message in self.problems)


@dataclass
class NotAllowed(WorkflowError):
    """This person may not do this; `reason` says what they may not, in words that they may read."""

    reason: str

    def __str__(self) -> str:
        return self.reason


@dataclass
class UnknownRun(WorkflowError):
    """There is no such run (or approval), or none that this person may see."""

    id: str

    def __str__(self) -> str:
        return f"there is no run {self.id!r}"


@dataclass
class WrongState(WorkflowError):
    """The run (or the approval) is in a state in which this cannot be done."""

    id: str
    state: str
    wanted: str
    """What was asked: "cancel", "retry", "signal", "approve", "reject"."""

    def __str__(self) -> str:
        return f"{self.id} is {self.state}: it cannot be {_DONE.get(self.wanted, self.wanted)}"


_DONE = {"cancel": "cancelled", "retry": "retried", "signal": "signalled", "approve": "approved", "reject": "rejected"}


class SlotRefusal(GatewayError):
    """One slot of a chain cannot be used now. Nothing was sent and nothing is held."""


@dataclass(frozen=True)
class Block:
    """One budget line without room. Amounts in the budget's unit (requests, tokens, micro-USD)."""

    budget: str
    label: str
    scope_kinds: tuple[str, ...]
    """Which attributes the budget's scope names, e.g. ("user",); () for every call."""
    unit: str
    limit: int
    spent: int
    held: int
    asked: int
    resets_at: datetime | None
    """The first instant at which this request would fit; None if never (lifetime, or larger than the whole limit)."""
    window: str = ""
    """The window as configured: "hour", "day", "rolling 1h", "lifetime" …"""

    @property
    def held_only(self) -> bool:
        """True when only holds are in the way: the wait is short."""
        return self.limit > 0 and self.spent + self.asked <= self.limit

    @property
    def too_large(self) -> bool:
        """True when the request is larger than the whole limit: it can never fit."""
        return self.asked > self.limit and self.resets_at is None


@dataclass
class Exhausted(SlotRefusal):
    """At least one budget has no room for this reservation; `blocks` names each of them."""

    blocks: tuple[Block, ...]

    @property
    def held_only(self) -> bool:
        """True when every refusing budget would have room but for holds."""
        return all(block.held_only for block in self.blocks)

    @property
    def too_large(self) -> bool:
        """True when some budget's whole limit is smaller than the request (and not nought)."""
        return any(block.too_large and block.limit > 0 for block in self.blocks)

    @property
    def resets_at(self) -> datetime | None:
        """The instant at which all refusing budgets have room; None if one never has."""
        instants = [block.resets_at for block in self.blocks]
        if any(instant is None for instant in instants):
            return None
        return max(instant for instant in instants if instant is not None)

    def __str__(self) -> str:
        return "; ".join(
            f"budget {b.budget}: asked {b.asked} {b.unit}, spent {b.spent} and held {b.held} of {b.limit}" for b in self.blocks
        )


@dataclass
class Paused(SlotRefusal):
    """An admin paused every call, until `until` or until resumed."""

    until: datetime | None

    def __str__(self) -> str:
        return f"paused until {self.until.isoformat() if self.until else 'resumed'}"


@dataclass
class UnknownPrice(SlotRefusal):
    """A USD budget is in scope and the model has no known price."""

    provider: str
    model: str
    section: str = ""
    """Where its price belongs in the file; "" for the provider's own section."""

    def __str__(self) -> str:
        section = f"[{self.section or f'providers.{self.provider}'}]"
        return (
            f"no price is known for {self.provider}:{self.model}, and a USD budget applies. "
            f'Add under {section}: price = {{ input = …, output = … }} (USD per million tokens) or price = "free"'
        )


@dataclass
class BreakerOpen(SlotRefusal):
    """The provider failed lately; it is left alone until `until`."""

    provider: str
    until: datetime
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.provider} is left alone until {self.until.isoformat()}: {self.reason}"


@dataclass
class CannotServe(SlotRefusal):
    """This slot cannot serve this request, now or ever: `reason` says why."""

    slot: Slot
    reason: str

    def __str__(self) -> str:
        return f"{self.slot}: {self.reason}"


@dataclass
class ProviderError(GatewayError):
    """A call that was made did not end in an answer.

    `sent` is true once a byte of the request left; `usage` is what the provider stated, if anything;
    `retry_after_s` is the latest wait it asked for (never negative); `message` is the provider's own text, bounded
    and without secrets; `body` its error object, for callers whose fault it is.
    """

    provider: str
    model: str
    message: str
    status: int | None = None
    sent: bool = True
    usage: Usage | None = None
    retry_after_s: float | None = None
    code: str | None = None
    body: dict[str, object] | None = field(default=None, repr=False)

    def __str__(self) -> str:
        status = f" ({self.status})" if self.status else ""
        return f"{self.provider}{status}: {self.message}"


class Refused(ProviderError):
    """Certainly not billed: no connection, or an error status with the provider's own error body and no content."""


class CallerFault(Refused):
    """The request itself is wrong: no retry, no fallback, no breaker."""


class ContextTooLong(CallerFault):
    """The prompt does not fit this model's context: a slot with a larger one may serve it."""


class OutputParameterRefused(CallerFault):
    """The model wants the output limit under its other name; the adapter has flipped it for the next attempt."""


class NoVectors(CallerFault):
    """This model or its server makes no vectors: another slot may. It says nothing of how the slot fares otherwise."""


class ContentRefused(Refused):
    """The vendor's content policy stopped it; `usage` is set where the vendor bills the prompt."""


class Unanswered(ProviderError):
    """It may have been billed: time-out or reset after send, a gateway's page, a stream that broke or simply ended."""


@dataclass(frozen=True)
class Cause:
    """Why one slot did not serve. `error` is a SlotRefusal or a ProviderError."""

    slot: Slot
    error: GatewayError


@dataclass
class ChainExhausted(GatewayError):
    """No slot could serve. `available_at` is the earliest time at which any slot can, None if never or unknown."""

    request_id: str
    chain: str
    causes: tuple[Cause, ...]
    available_at: datetime | None

    @property
    def budgets_only(self) -> bool:
        """True when every slot lacks budget: the end is `budget_exhausted`, else `providers_unavailable`."""
        return bool(self.causes) and all(isinstance(cause.error, Exhausted | Paused) for cause in self.causes)

    def __str__(self) -> str:
        return "; ".join(f"{cause.slot}: {cause.error}" for cause in self.causes)
