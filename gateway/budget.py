"""Budgets: a limit on one unit in one window of one scope, and the arithmetic of windows.

Rules:
- Integers only: requests, tokens, micro-USD. Instants are milliseconds since 1970 UTC; a zone matters only for edges.
- A window cuts time into buckets. A calendar window has one live bucket; a rolling one has 60 and the one leaving, so
  room comes back at most 1/60 of its length late and never early; a lifetime window has a single bucket for ever.
- A budget is known by its name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from enum import StrEnum
from functools import cached_property
from typing import NamedTuple, Protocol
from urllib.parse import quote, unquote
from zoneinfo import ZoneInfo

SCOPE_KINDS = ("provider", "chain", "model", "user", "chat", "workflow", "run", "key", "surface")
"""The attributes of a call that a scope may name, in the order in which they are written."""

ROLLING_BUCKETS = 60
REMEMBERED_MAX = 10_000
"""Callers come and go, so what is remembered about which budgets they count in is bounded."""


class Unit(StrEnum):
    """What a budget counts. Money is counted in micro-USD (one millionth of a US dollar)."""

    REQUESTS = "requests"
    TOKENS = "tokens"
    MICRO_USD = "micro_usd"


class Amounts(NamedTuple):
    """How much of each unit an attempt holds or has spent. Never negative."""

    requests: int = 0
    tokens: int = 0
    micro_usd: int = 0

    def of(self, unit: Unit) -> int:
        """The amount in one unit."""
        if unit is Unit.TOKENS:
            return self.tokens
        return self.requests if unit is Unit.REQUESTS else self.micro_usd


class Window(Protocol):
    """How time is cut for one budget. All instants are milliseconds since 1970 UTC."""

    @property
    def text(self) -> str:
        """The window as configured: "hour", "day", "rolling 1h", "lifetime" …"""
        ...

    @property
    def signature(self) -> str:
        """Text that changes when the window's edges do; a counter with another signature is rebuilt."""
        ...

    def bucket(self, at_ms: int) -> int:
        """The start of the bucket that holds this instant."""
        ...

    def live_from(self, bucket: int) -> int:
        """The start of the oldest bucket that still counts while `bucket` is the current one."""
        ...

    def leaves_at(self, bucket: int) -> int | None:
        """The instant at which what was spent in this bucket no longer counts; None: never."""
        ...

    @property
    def holds_outlive(self) -> bool:
        """True when a hold counts until it is closed, even after its bucket has left (rolling windows)."""
        ...


@dataclass(frozen=True, slots=True)
class Lifetime:
    """One bucket for ever."""

    text: str = "lifetime"
    signature: str = "lifetime"
    holds_outlive: bool = True

    def bucket(self, at_ms: int) -> int:
        """Always 0."""
        return 0

    def live_from(self, bucket: int) -> int:
        """Always 0."""
        return 0

    def leaves_at(self, bucket: int) -> int | None:
        """Never."""
        return None


@dataclass(frozen=True)
class Rolling:
    """The last `length_s` seconds, in 60 buckets and the one leaving. `length_s` is a multiple of 60."""

    length_s: int
    text: str
    holds_outlive: bool = True

    @property
    def signature(self) -> str:
        """The length in seconds."""
        return f"rolling {self.length_s}s"

    @cached_property
    def bucket_ms(self) -> int:
        """The length of one bucket in milliseconds."""
        return self.length_s * 1000 // ROLLING_BUCKETS

    def bucket(self, at_ms: int) -> int:
        """The start of the bucket that holds this instant."""
        return at_ms - at_ms % self.bucket_ms

    def live_from(self, bucket: int) -> int:
        """Sixty buckets back: the one leaving still counts."""
        return bucket - ROLLING_BUCKETS * self.bucket_ms

    def leaves_at(self, bucket: int) -> int:
        """When the bucket is the sixty-second from now."""
        return bucket + (ROLLING_BUCKETS + 1) * self.bucket_ms


@dataclass(frozen=True)
class Calendar:
    """Minute, hour, day, week (from Monday) or month in a zone. `resets` is the local time at which a day begins.

    A local time that does not exist (clocks go forward) begins at the end of the gap; one that comes twice begins at
    the first. Minutes and hours follow the zone's offset and are cut at an offset change that is no whole hour.
    """

    kind: str
    zone: ZoneInfo
    resets: time = time(0)
    holds_outlive: bool = False
    _edges: list[int] = field(default_factory=lambda: [0, -1], compare=False, repr=False)
    """Start and end of the bucket asked for last: the same one is asked for a thousand times in a row."""

    @property
    def text(self) -> str:
        """The kind."""
        return self.kind

    @property
    def signature(self) -> str:
        """Kind, zone and reset time."""
        return f"{self.kind} {self.zone.key} {self.resets.isoformat()}"

    def bucket(self, at_ms: int) -> int:
        """The start of the bucket that holds this instant."""
        return self._around(at_ms)[0]

    def live_from(self, bucket: int) -> int:
        """Only the current bucket counts."""
        return bucket

    def leaves_at(self, bucket: int) -> int:
        """The start of the next bucket."""
        return self._around(bucket)[1]

    def _around(self, at_ms: int) -> tuple[int, int]:
        start, end = self._edges
        if not start <= at_ms < end:
            start, end = self._short(at_ms) if self.kind in ("minute", "hour") else self._long(at_ms)
            self._edges[:] = (start, end)
        return start, end

    def _short(self, at_ms: int) -> tuple[int, int]:
        length = 60_000 if self.kind == "minute" else 3_600_000
        offset = _offset_ms(at_ms, self.zone)
        start = (at_ms + offset) // length * length - offset
        end = start + length
        if _offset_ms(start, self.zone) != offset:
            start = _offset_change(start, at_ms, self.zone)
        if _offset_ms(end - 1, self.zone) != offset:
            end = _offset_change(at_ms, end - 1, self.zone)
        return start, end

    def _long(self, at_ms: int) -> tuple[int, int]:
        first = self._first_day(datetime.fromtimestamp(at_ms / 1000, self.zone).date())
        while self._edge(first) > at_ms:
            first = self._first_day(first - timedelta(days=1))
        while self._edge(following := self._next_day(first)) <= at_ms:
            first = following
        return self._edge(first), self._edge(following)

    def _first_day(self, day: date) -> date:
        if self.kind == "week":
            return day - timedelta(days=day.weekday())
        return day.replace(day=1) if self.kind == "month" else day

    def _next_day(self, first: date) -> date:
        return self._first_day(first + timedelta(days={"day": 1, "week": 7, "month": 31}[self.kind]))

    def _edge(self, day: date) -> int:
        local = datetime.combine(day, self.resets, self.zone)
        at_ms = _ms(local)
        if datetime.fromtimestamp(at_ms / 1000, self.zone).replace(tzinfo=None) != local.replace(tzinfo=None):
            return _offset_change(at_ms - 86_400_000, at_ms, self.zone)
        return at_ms


def _ms(instant: datetime) -> int:
    return int(instant.timestamp()) * 1000


def _offset_ms(at_ms: int, zone: ZoneInfo) -> int:
    offset = datetime.fromtimestamp(at_ms / 1000, UTC).astimezone(zone).utcoffset()
    assert offset is not None
    return int(offset.total_seconds()) * 1000


def _offset_change(before_ms: int, after_ms: int, zone: ZoneInfo) -> int:
    """The first instant with the offset of `after_ms`, to the second; `before_ms` has another one."""
    low, high, target = before_ms // 1000, after_ms // 1000, _offset_ms(after_ms, zone)
    while high - low > 1:
        middle = (low + high) // 2
        if _offset_ms(middle * 1000, zone) == target:
            high = middle
        else:
            low = middle
    return high * 1000


@dataclass(frozen=True)
class Budget:
    """A limit on one unit in one window of one scope.

    `scope` maps attribute kinds to a value or to `*` (one counter for each value); {} is every call. `exceptions`
    maps a `*` value, or "guests", to its own limit. `limit` 0 means nothing allowed.
    """

    name: str
    unit: Unit
    limit: int
    window: Window
    scope: Mapping[str, str] = field(default_factory=dict)
    label: str = ""
    warn_at: tuple[float, ...] = ()
    exceptions: Mapping[str, int] = field(default_factory=dict)

    @cached_property
    def scope_kinds(self) -> tuple[str, ...]:
        """The attributes that the scope names, in the order of SCOPE_KINDS."""
        return tuple(kind for kind in SCOPE_KINDS if kind in self.scope)

    @cached_property
    def signature(self) -> str:
        """Text that changes when unit, scope or window do: then the counters are rebuilt from usage rows."""
        scope = ",".join(f"{kind}={quote(self.scope[kind], safe='*')}" for kind in self.scope_kinds)
        return f"{self.unit}|{scope}|{self.window.signature}"

    def key(self, values: Mapping[str, str]) -> str | None:
        """The counter that a call with these attributes counts in ("" without `*`), None where the scope does not match."""
        parts = []
        for kind in self.scope_kinds:
            value, wanted = values.get(kind), self.scope[kind]
            if value is None or (wanted != "*" and wanted != value):
                return None
            if wanted == "*":
                parts.append(f"{kind}={quote(value, safe='')}")
        return ",".join(parts)

    def scope_of(self, key: str) -> dict[str, str]:
        """The scope of one counter, with each `*` replaced by the counter's value."""
        stars = dict(part.split("=", 1) for part in key.split(",") if part)
        return {kind: unquote(stars[kind]) if kind in stars else self.scope[kind] for kind in self.scope_kinds}

    def base_limit(self, key: str, guest: bool = False) -> int:
        """The configured limit of one counter, before raises."""
        if self.exceptions and key:
            values = [unquote(part.split("=", 1)[1]) for part in key.split(",")]
            for value in values:
                if value in self.exceptions:
                    return self.exceptions[value]
            if guest and "guests" in self.exceptions:
                return self.exceptions["guests"]
        return self.limit


@dataclass(frozen=True, slots=True)
class Raise:
    """A temporary change of a budget's limit: `+` adds, `%` adds a percentage of the base (rounded up), `=` replaces.

    `budget` "*" with `=` 0 is a pause of every call. In force while `starts_ms <= at < ends_ms` (None: until removed).
    """

    id: int
    budget: str
    operation: str
    amount: int
    starts_ms: int
    ends_ms: int | None
    actor: str = ""

    def in_force(self, at_ms: int) -> bool:
        """True at an instant inside its span."""
        return self.starts_ms <= at_ms and (self.ends_ms is None or at_ms < self.ends_ms)


PAUSE = "*"
"""The budget name under which a pause of every call is kept."""


CAP = "run:"
"""How the names of runs' caps begin: `run:<workflow>:<unit>`, with a counter for each run."""


def is_cap(budget: str) -> bool:
    """True for the name of a cap on single runs."""
    return budget.startswith(CAP)


def counter_name(budget: str, key: str) -> str:
    """The name under which the changes of one counter's limit are kept: counters of runs can be raised one by one."""
    return f"{budget}#{key}"


def limit_at(base: int, raises: Iterable[Raise], at_ms: int) -> int:
    """A counter's limit at an instant: raises in force apply in the order in which they were made; never below 0."""
    limit = base
    for change in raises:
        if change.in_force(at_ms):
            if change.operation == "=":
                limit = change.amount
            else:
                limit += -(-base * change.amount // 100) if change.operation == "%" else change.amount
    return max(limit, 0)


def limits_after(base: int, raises: Iterable[Raise], at_ms: int) -> tuple[tuple[int, int], ...]:
    """Each later instant at which a raise ends, with the limit from then on, in order."""
    changes = tuple(raises)
    ends = {change.ends_ms for change in changes if change.ends_ms is not None and change.ends_ms > at_ms}
    return tuple((end_ms, limit_at(base, changes, end_ms)) for end_ms in sorted(ends))


class Budgets:
    """All configured budgets, indexed so that a call meets only those that may match it."""

    def __init__(self, budgets: Iterable[Budget]) -> None:
        self.all = tuple(budgets)
        self.by_name = {budget.name: budget for budget in self.all}
        counts: dict[tuple[str, str], int] = {}
        for budget in self.all:
            for pair in budget.scope.items():
                counts[pair] = counts.get(pair, 0) + 1
        self._open: list[Budget] = []
        self._indexed: dict[tuple[str, str], list[Budget]] = {}
        for budget in self.all:
            fixed = [pair for pair in budget.scope.items() if pair[1] != "*"]
            if fixed:
                self._indexed.setdefault(min(fixed, key=lambda pair: counts[pair]), []).append(budget)
            else:
                self._open.append(budget)
        self._kinds = tuple(kind for kind in SCOPE_KINDS if any(kind in budget.scope for budget in self.all))
        self._remembered: dict[tuple[str | None, ...], tuple[tuple[Budget, str], ...]] = {}

    def matching(self, values: Mapping[str, str]) -> tuple[tuple[Budget, str], ...]:
        """The budgets that a call with these attributes counts in, each with its counter's key, sorted by name.

        The order is the order in which counters are locked: two reservations that lock in different orders deadlock.
        """
        asked = tuple(map(values.get, self._kinds))
        found = self._remembered.get(asked)
        if found is None:
            if len(self._remembered) >= REMEMBERED_MAX:
                self._remembered.clear()
            found = self._remembered[asked] = tuple(self._match(values))
        return found

    def _match(self, values: Mapping[str, str]) -> list[tuple[Budget, str]]:
        candidates = list(self._open)
        for pair in values.items():
            candidates += self._indexed.get(pair, ())
        found = [(budget, key) for budget in candidates if (key := budget.key(values)) is not None]
        found.sort(key=lambda pair: (pair[0].name, pair[1]))
        return found
