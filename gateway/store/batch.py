"""One transaction of the gate: the reserves and closes that wait together, decided member by member with the ledger's rules.

Attempts to be closed are read first, then the union of all counters in one statement, in (budget, key) order; two
batches that lock in different orders would deadlock. Everything is written once, at the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import orjson
from sqlalchemy import Connection, select

from gateway import ledger
from gateway.budget import Budget, Budgets
from gateway.chat import Origin, Slot
from gateway.clock import Clock, to_ms
from gateway.errors import Exhausted, GatewayError, Paused
from gateway.ledger import Closing, Counter, CounterId, Draft, Raises, Reservation
from gateway.store import rows
from gateway.store.rebuild import insert_missing, rebuild
from gateway.store.rows import Standing
from gateway.store.statements import Statements
from gateway.store.tables import definitions
from gateway.store.writer import Repair

KNOWN_MAX = 1_000
"""How many counters a process keeps in memory, at most about 10 kB each."""
OPEN_MAX = 10_000
"""How many open attempts it keeps, about 1 kB each."""
REPLY_KEPT_MS = 24 * 3_600_000


@dataclass(eq=False, slots=True)
class Reserving:
    """A draft that waits for the gate, with the budgets that it counts in."""

    draft: Draft
    found: Sequence[tuple[Budget, str]]
    budgets: Budgets
    """Those of which they were found: others may be in force when its turn comes."""


@dataclass(eq=False, slots=True)
class Ending:
    """A reservation that waits to be ended."""

    attempt_id: str
    request_id: str
    closing: Closing


@dataclass(eq=False, slots=True)
class Refusing:
    """A slot that was passed over without a hold."""

    origin: Origin
    chain: str
    slot: Slot
    error: GatewayError


class Known(NamedTuple):
    """A counter as an earlier transaction left it, and the text that it has in the database if that was committed."""

    signature: str
    text: str
    counter: Counter


@dataclass(slots=True, repr=False)
class Memory:
    """What one process knows of its earlier transactions. With `exact` nothing has changed since: it need not be read.

    Without a repr: it changes in the writer thread while the event loop may log an error that mentions it.
    """

    counters: dict[CounterId, Known] = field(default_factory=dict)
    open: dict[str, Standing] = field(default_factory=dict)
    """Pending attempts of this process. Only kept while `exact` can be true."""
    exact: bool = False


@dataclass(slots=True)
class Batch:
    """The state of one such transaction. Made, run once, thrown away."""

    connection: Connection
    statements: Statements
    budgets: Budgets
    raises: Raises
    owner: str
    clock: Clock
    memory: Memory
    at_ms: int = 0
    """The instant of the decision: read once the counters are locked, so that no wait lies between."""
    counters: dict[CounterId, Counter] = field(default_factory=dict)
    signatures: dict[CounterId, str] = field(default_factory=dict)
    texts: dict[CounterId, str] = field(default_factory=dict)
    """What the database says of each counter."""
    standings: dict[str, Standing] = field(default_factory=dict)
    touched: set[CounterId] = field(default_factory=set)
    opened: dict[str, Reservation] = field(default_factory=dict)
    ended: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    refused: list[tuple[Any, ...]] = field(default_factory=list)
    replies: list[tuple[Any, ...]] = field(default_factory=list)

    @property
    def raw(self) -> Any:
        """The driver's own connection."""
        return self.connection.connection.driver_connection

    def run(self, members: Sequence[Reserving | Ending | Refusing]) -> list[object]:
        """Each member's result: a Reservation or a refusal; whether the closing changed anything; True."""
        self._read(members)
        outcomes: list[object] = [True] * len(members)
        # What is given back is given back first, so that those who wait for it get it.
        for index, member in enumerate(members):
            if isinstance(member, Ending):
                outcomes[index] = self._end(member)
        for index, member in enumerate(members):
            if isinstance(member, Reserving):
                outcomes[index] = self._reserve(member)
            elif isinstance(member, Refusing):
                self._refuse(member.origin, member.chain, member.slot, member.error)
        self._write()
        return outcomes

    def _read(self, members: Sequence[Reserving | Ending | Refusing]) -> None:
        for member in members:
            if isinstance(member, Reserving) and member.budgets is not self.budgets:
                member.found, member.budgets = self.budgets.matching(member.draft.scope_values()), self.budgets
        self._read_attempts({member.attempt_id for member in members if isinstance(member, Ending)})
        wanted = {
            (budget.name, key): budget for member in members if isinstance(member, Reserving) for budget, key in member.found
        }
        lines = {(line.budget, line.key) for standing in self.standings.values() for line in standing.lines}
        self._read_counters(wanted.keys() | lines)
        self.at_ms = to_ms(self.clock.now())
        self._add_missing(wanted)

    def _read_attempts(self, ids: set[str]) -> None:
        if self.memory.exact:
            opened = self.memory.open
            self.standings = {attempt_id: opened[attempt_id] for attempt_id in ids if attempt_id in opened}
            ids = ids - self.standings.keys()
        if ids:
            for row in self.statements.attempts(self.raw, sorted(ids)):
                self.standings[row[0]] = rows.standing(row)

    def _read_counters(self, ids: set[CounterId]) -> None:
        # Taken out until they are written: a batch that breaks leaves nothing half changed behind.
        known = {counter_id: found for counter_id in ids if (found := self.memory.counters.pop(counter_id, None)) is not None}
        if self.memory.exact:
            for counter_id, (signature, text, counter) in known.items():
                self._has(counter_id, signature, text, counter)
            ids = ids - known.keys()
        if ids:
            for budget, key, signature, text in self.statements.counters(self.raw, sorted(ids)):
                before = known.get((budget, key))
                same = before is not None and before.text == text
                self._has((budget, key), signature, text, before.counter if before and same else Counter(orjson.loads(text)))

    def _has(self, counter_id: CounterId, signature: str, text: str, counter: Counter) -> None:
        self.counters[counter_id], self.signatures[counter_id], self.texts[counter_id] = counter, signature, text

    def _add_missing(self, wanted: dict[CounterId, Budget]) -> None:
        """Sees that every counter that a draft needs is there and counts what its budget says."""
        missing, stale = [], set()
        for counter_id, budget in wanted.items():
            signature = self.signatures.get(counter_id)
            if signature is None:
                missing.append(counter_id)
            elif signature != budget.signature:
                stale.add(budget.name)
        if missing:
            names = sorted({name for name, _ in missing})
            query = select(definitions.c.budget, definitions.c.signature).where(definitions.c.budget.in_(names))
            known = {row.budget: row.signature for row in self.connection.execute(query)}
            stale.update(name for name in names if known.get(name) != self.budgets.by_name[name].signature)
        if stale:
            # Another process, with another configuration, made these counters or dropped them: count again.
            again, at_ms = [self.budgets.by_name[name] for name in sorted(stale)], self.at_ms
            raise Repair(lambda connection: rebuild(connection, again, at_ms))
        if missing and self.statements.locks:
            new = [(name, key, self.budgets.by_name[name].signature) for name, key in sorted(missing)]
            raise Repair(lambda connection: insert_missing(connection, new))
        for counter_id in missing:
            self.counters[counter_id] = Counter()
            self.signatures[counter_id] = wanted[counter_id].signature

    def _reserve(self, member: Reserving) -> Reservation | Exhausted | Paused:
        draft = member.draft
        try:
            matches = ledger.match(member.found, self.raises, draft.origin.guest, self.at_ms)
            reservation = ledger.reserve(self.counters, draft, matches, self.owner, self.at_ms)
        except (Exhausted, Paused) as error:
            self._refuse(draft.origin, draft.chain, draft.slot, error)
            return error
        self.opened[draft.id] = reservation
        self.touched.update((line.budget, line.key) for line in reservation.lines)
        return reservation

    def _end(self, member: Ending) -> bool:
        closing = member.closing
        if closing.reply is not None:
            self.replies.append((closing.reply, self.at_ms + REPLY_KEPT_MS, member.request_id))
        standing = self.standings.get(member.attempt_id)
        if standing is None:
            return False
        ended = ledger.close(self.counters, standing.lines, standing.state, standing.spent, closing)
        if ended is None:
            return False
        state, spent = ended
        self.ended[standing.id] = rows.ending(standing, state, spent, closing, self.at_ms)
        self.standings[standing.id] = standing._replace(state=state, spent=spent)
        self.touched.update((line.budget, line.key) for line in standing.lines)
        return True

    def _refuse(self, origin: Origin, chain: str, slot: Slot, error: GatewayError) -> None:
        detail = orjson.dumps(rows.refusal_detail(error)).decode()
        message = rows.clean(str(error), rows.DETAIL_MAX)
        self.refused.append(
            (origin.request_id, self.at_ms, chain, slot.provider, slot.model, rows.refusal_kind(error), message, detail)
        )

    def _write(self) -> None:
        raw, statements = self.raw, self.statements
        changed = [self._dumped(counter_id) for counter_id in sorted(self.touched) if counter_id in self.counters]
        if changed or self.opened or self.ended:
            opened = [rows.opening(reservation) for reservation in self.opened.values()]
            statements.write(raw, changed, opened, list(self.ended.values()))
        if self.refused:
            statements.refuse(raw, self.refused)
        if self.replies:
            statements.keep_replies(raw, self.replies)
        self._remember()

    def _dumped(self, counter_id: CounterId) -> tuple[Any, ...]:
        counter, budget = self.counters[counter_id], self.budgets.by_name.get(counter_id[0])
        spent = held = 0
        # A counter that another process defined is left as it is found, but for the amounts.
        if budget is not None and budget.signature == self.signatures[counter_id]:
            counter.prune(budget.window)
            spent, held = counter.balance(budget.window, 0)
        text = self.texts[counter_id] = orjson.dumps(counter.dump()).decode()
        return (*counter_id, self.signatures[counter_id], spent, held, text)

    def _remember(self) -> None:
        """Whether this transaction commits or not: a counter's text tells, and attempts are only believed while `exact`."""
        memory = self.memory
        if len(memory.counters) > KNOWN_MAX:
            memory.counters.clear()
        for counter_id, text in self.texts.items():
            memory.counters[counter_id] = Known(self.signatures[counter_id], text, self.counters[counter_id])
        if len(memory.open) > OPEN_MAX:
            memory.open.clear()
        for attempt_id, reservation in self.opened.items():
            memory.open[attempt_id] = rows.opened(reservation)
        for attempt_id in self.ended:
            memory.open.pop(attempt_id, None)
