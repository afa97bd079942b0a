"""One transaction of the gate: the reserves and closes that wait together, decided member by member with the ledger's rules.

Attempts to be closed are read first, then the union of all counters in one statement, in (budget, key) order; two
batches that lock in different orders would deadlock. Everything is written once, at the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

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
REPLY_KEPT_MS = 24 * 3_600_000


@dataclass(eq=False, slots=True)
class Reserving:
    """A draft that waits for the gate, with the budgets that it counts in."""

    draft: Draft
    found: Sequence[tuple[Budget, str]]


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


@dataclass(slots=True)
class Batch:
    """The state of one such transaction. Made, run once, thrown away."""

    connection: Connection
    statements: Statements
    budgets: Budgets
    raises: Raises
    owner: str
    clock: Clock
    known: dict[CounterId, tuple[str, Counter]]
    """Counters of earlier transactions with the text that they were read from: the same text need not be read again."""
    at_ms: int = 0
    """The instant of the decision: read once the counters are locked, so that no wait lies between."""
    counters: dict[CounterId, Counter] = field(default_factory=dict)
    signatures: dict[CounterId, str] = field(default_factory=dict)
    standings: dict[str, Standing] = field(default_factory=dict)
    touched: set[CounterId] = field(default_factory=set)
    opened: list[tuple[Any, ...]] = field(default_factory=list)
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
        ids = {member.attempt_id for member in members if isinstance(member, Ending)}
        if ids:
            for row in self.statements.attempts(self.raw, sorted(ids)):
                self.standings[row[0]] = rows.standing(row)
        wanted = {
            (budget.name, key): budget for member in members if isinstance(member, Reserving) for budget, key in member.found
        }
        lines = {(line.budget, line.key) for standing in self.standings.values() for line in standing.lines}
        every = sorted(wanted.keys() | lines)
        if every:
            for budget, key, signature, buckets in self.statements.counters(self.raw, every):
                text, counter = self.known.pop((budget, key), (None, None))
                self.counters[budget, key] = counter if counter and text == buckets else Counter(orjson.loads(buckets))
                self.signatures[budget, key] = signature
        self.at_ms = to_ms(self.clock.now())
        self._add_missing(wanted)

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
        self.opened.append(rows.opening(reservation))
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
        if len(self.known) > KNOWN_MAX:
            self.known.clear()
        raw, statements = self.raw, self.statements
        changed = [self._dumped(counter_id) for counter_id in sorted(self.touched) if counter_id in self.counters]
        if changed:
            statements.write_counters(raw, changed)
        if self.opened:
            statements.open_attempts(raw, self.opened)
        if self.ended:
            statements.end_attempts(raw, list(self.ended.values()))
        if self.refused:
            statements.refuse(raw, self.refused)
        if self.replies:
            statements.keep_replies(raw, self.replies)

    def _dumped(self, counter_id: CounterId) -> tuple[Any, ...]:
        counter, budget = self.counters[counter_id], self.budgets.by_name.get(counter_id[0])
        spent = held = 0
        # A counter that another process defined is left as it is found, but for the amounts.
        if budget is not None and budget.signature == self.signatures[counter_id]:
            counter.prune(budget.window)
            spent, held = counter.balance(budget.window, 0)
        buckets = orjson.dumps(counter.dump()).decode()
        # Whether this transaction commits or not: the text tells whether the database says the same.
        self.known[counter_id] = buckets, counter
        return (*counter_id, self.signatures[counter_id], spent, held, buckets)
