"""A store in memory: the ledger's own rules, without a database, without threads.

`Disk` is what survives a crash; a `MemoryStore` is one process that uses it. Two stores on one disk are two processes;
a crash is a store that is dropped, and a restart a new one on the same disk. Only `door` ever waits, so that a
simulator can run it in virtual time: it is awaited before and after every change with the door's name, and what it
raises passes through (a cancelled reserve gives its hold back, as the real store does; any other BaseException is a
crash and leaves everything as it is).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from gateway import ledger
from gateway.budget import PAUSE, Amounts, Budget, Budgets, Raise
from gateway.chat import Origin, Slot
from gateway.clock import Clock, to_ms
from gateway.errors import Exhausted, GatewayError, InvalidRequest, Paused, RequestConflict
from gateway.ledger import Closing, Counter, CounterId, Draft, Match, Outcome, Reservation, State
from gateway.store import Answered, Claimed, Peek, Underway
from gateway.store import rows as row_rules

LEASE_MS = 30_000
REPLY_KEPT_MS = 24 * 3_600_000


@dataclass
class Request:
    """A deduplicated request's claim or answer."""

    fingerprint: str
    owner: str
    expires_ms: int
    reply: bytes | None = None


@dataclass
class Disk:
    """Everything that is kept."""

    counters: dict[CounterId, Counter] = field(default_factory=dict)
    definitions: dict[str, str] = field(default_factory=dict)
    rows: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Usage rows by attempt id, with the columns of the usage table."""
    refusals: list[dict[str, Any]] = field(default_factory=list)
    requests: dict[str, Request] = field(default_factory=dict)
    owners: dict[str, int] = field(default_factory=dict)
    """When each process was last seen."""
    raises: list[Raise] = field(default_factory=list)
    down: GatewayError | None = None
    """While set, every door but `close` raises it; closings are kept and written once it is cleared."""
    kept: list[tuple[str, Closing]] = field(default_factory=list)


async def open_door(_name: str) -> None:
    """The door of a store whose caller does not care."""


class MemoryStore:
    """The Store face, and what maintenance and admins need of it."""

    def __init__(
        self,
        budgets: Budgets,
        clock: Clock,
        *,
        disk: Disk | None = None,
        owner: str = "owner-1",
        door: Callable[[str], Awaitable[None]] = open_door,
    ) -> None:
        self.budgets, self.clock, self.owner = budgets, clock, owner
        self.disk = disk or Disk()
        self._door = door
        self._room = asyncio.Event()
        self.rooms = 0
        self._ids = count(len(self.disk.raises) + 1)
        self.renew()
        self.sync_budgets()

    @property
    def now_ms(self) -> int:
        """The clock's instant."""
        return to_ms(self.clock.now())

    # --- The face that the dispatcher sees ---

    async def reserve(self, draft: Draft) -> Reservation:
        """As Store.reserve."""
        await self._enter("reserve")
        reservation = self._reserve(draft)
        try:
            await self._door("reserved")
        except asyncio.CancelledError:
            self._close(draft.id, Closing(State.RELEASED, Amounts(), Outcome.NOT_SENT))
            raise
        return reservation

    async def peek(self, draft: Draft) -> Peek:
        """As Store.peek."""
        await self._enter("peek")
        matches = ledger.with_limits(self._found(draft), self._raises(), draft.origin.guest, self.now_ms)
        counters = {found.id: self.disk.counters.get(found.id) or Counter() for found in matches}
        _, lines, blocks = ledger.weigh(counters, draft, matches, self.now_ms)
        paused = ledger.pause(self._raises(), self.now_ms)
        refusal = paused or (Exhausted(blocks) if blocks else None)
        return Peek(tuple((found, line.spent, line.held) for found, line in zip(matches, lines, strict=True)), refusal)

    async def close(self, reservation: Reservation, closing: Closing) -> bool:
        """As Store.close."""
        await self._door("close")
        if self.disk.down is not None:
            self.disk.kept.append((reservation.id, closing))
            return True
        changed = self._close(reservation.id, closing)
        await self._door("closed")
        return changed

    async def note_refusal(self, origin: Origin, chain: str, slot: Slot, error: GatewayError) -> None:
        """As Store.note_refusal."""
        await self._enter("note_refusal")
        self._refuse(origin, chain, slot, error)

    async def claim(self, request_id: str, fingerprint: str) -> Claimed | Answered | Underway:
        """As Store.claim."""
        await self._enter("claim")
        found = self.disk.requests.get(request_id)
        if found is not None and found.expires_ms > self.now_ms:
            if found.fingerprint != fingerprint:
                raise RequestConflict(request_id)
            if found.reply is not None:
                return Answered(found.reply)
            if found.owner == self.owner or self._lives(found.owner):
                return Underway()
        self.disk.requests[request_id] = Request(fingerprint, self.owner, self.now_ms + REPLY_KEPT_MS)
        await self._door("claimed")
        return Claimed()

    async def unclaim(self, request_id: str) -> None:
        """As Store.unclaim."""
        await self._enter("unclaim")
        found = self.disk.requests.get(request_id)
        if found is not None and found.reply is None and found.owner == self.owner:
            del self.disk.requests[request_id]

    async def wait_for_room(self, timeout_s: float, since: int | None = None) -> None:
        """As Store.wait_for_room."""
        if since is not None and since != self.rooms:
            return
        room = self._room
        try:
            async with asyncio.timeout(timeout_s):
                await room.wait()
        except TimeoutError:
            pass

    # --- Maintenance and admins ---

    def renew(self) -> None:
        """Keeps this process's lease."""
        self.disk.owners[self.owner] = self.now_ms

    def write_kept(self) -> None:
        """Writes the closings that were kept while the disk was down, as the real writer does by itself."""
        kept, self.disk.kept = self.disk.kept, []
        for attempt_id, closing in kept:
            self._close(attempt_id, closing)

    async def sweep(self) -> int:
        """Ends holds of dead owners and holds past their deadline at their worst case; how many."""
        await self._enter("sweep")
        expired = 0
        for row in list(self.disk.rows.values()):
            overdue = row["deadline"] < self.now_ms or not self._lives(row["owner"])
            if row["state"] == State.PENDING and overdue:
                expired += self._close(row["id"], ledger.expiry(_held(row)))
        return expired

    async def raise_limit(self, budget: str, operation: str, amount: int, ends_ms: int | None, actor: str) -> Raise:
        """Changes a limit from now until an instant. Raises InvalidRequest when there is no such budget."""
        await self._enter("raise_limit")
        if budget != PAUSE and budget not in self.budgets.by_name:
            raise InvalidRequest(f"there is no budget named {budget!r}", "budget")
        change = Raise(next(self._ids), budget, operation, amount, self.now_ms, ends_ms, actor)
        self.disk.raises.append(change)
        self._wake()
        return change

    async def pause(self, ends_ms: int | None, actor: str) -> None:
        """Lets no call through until an instant, or until resumed."""
        await self.raise_limit(PAUSE, "=", 0, ends_ms, actor)

    async def resume(self, actor: str) -> bool:
        """Ends every pause; False when there was none."""
        await self._enter("resume")
        now, paused = self.now_ms, False
        for index, change in enumerate(self.disk.raises):
            if change.budget == PAUSE and change.in_force(now):
                self.disk.raises[index] = Raise(
                    change.id, PAUSE, "=", 0, change.starts_ms, max(now, change.starts_ms), change.actor
                )
                paused = True
        self._wake()
        return paused

    def sync_budgets(self) -> None:
        """Rebuilds the counters of budgets that are new or were something else, and drops those of removed ones."""
        for name in set(self.disk.definitions) - set(self.budgets.by_name):
            del self.disk.definitions[name]
            self._drop(name)
        for budget in self.budgets.all:
            if self.disk.definitions.get(budget.name) != budget.signature:
                self.disk.definitions[budget.name] = budget.signature
                self._drop(budget.name)
                self._rebuild(budget)

    def balance(self, budget: str, key: str = "") -> tuple[int, int]:
        """What is spent and held of one counter now."""
        counter = self.disk.counters.get((budget, key), Counter())
        return counter.balance(self.budgets.by_name[budget].window, self.now_ms)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The usage rows, oldest first."""
        return list(self.disk.rows.values())

    # --- Inside one step: nothing below waits ---

    async def _enter(self, name: str) -> None:
        await self._door(name)
        if self.disk.down is not None:
            raise self.disk.down

    def _reserve(self, draft: Draft) -> Reservation:
        try:
            matches = ledger.match(self._found(draft), self._raises(), draft.origin.guest, self.now_ms)
            reservation = ledger.reserve(self._counters(matches), draft, matches, self.owner, self.now_ms)
        except (Exhausted, Paused) as error:
            self._refuse(draft.origin, draft.chain, draft.slot, error)
            raise
        row: dict[str, Any] = dict.fromkeys(row_rules.ENDING) | dict(
            zip(row_rules.OPENING, row_rules.opening(reservation), strict=True)
        )
        assert draft.id not in self.disk.rows, "an attempt's id was used twice"
        # With the hold: one that is left without a lease would be swept while its call goes out.
        self.renew()
        self.disk.rows[draft.id] = row | dict.fromkeys(("spent_requests", "spent_tokens", "cost_micro_usd"), 0)
        return reservation

    def _close(self, attempt_id: str, closing: Closing) -> bool:
        row = self.disk.rows[attempt_id]
        standing = row_rules.standing([row[column] for column in row_rules.STANDING])
        if closing.reply is not None:
            self._keep_reply(row["request_id"], closing.reply)
        ended = ledger.close(self.disk.counters, standing.lines, standing.state, standing.spent, closing)
        if ended is None:
            return False
        values = row_rules.ending(standing, *ended, closing, self.now_ms)
        row.update(zip(row_rules.ENDING, values, strict=True))
        for line in standing.lines:
            if (counter := self.disk.counters.get((line.budget, line.key))) and line.budget in self.budgets.by_name:
                counter.prune(self.budgets.by_name[line.budget].window)
        self._wake()
        return True

    def _keep_reply(self, request_id: str, reply: bytes) -> None:
        found = self.disk.requests.setdefault(request_id, Request("", self.owner, 0))
        found.reply, found.expires_ms = reply, self.now_ms + REPLY_KEPT_MS

    def _refuse(self, origin: Origin, chain: str, slot: Slot, error: GatewayError) -> None:
        self.disk.refusals.append(
            {
                "request_id": origin.request_id,
                "at": self.now_ms,
                "chain": chain,
                "provider": slot.provider,
                "model": slot.model,
                "kind": row_rules.refusal_kind(error),
                "message": str(error),
                "detail": row_rules.refusal_detail(error),
            }
        )

    def _found(self, draft: Draft) -> tuple[tuple[Budget, str], ...]:
        return self.budgets.matching(draft.scope_values())

    def _counters(self, matches: tuple[Match, ...]) -> Mapping[CounterId, Counter]:
        return {found.id: self.disk.counters.setdefault(found.id, Counter()) for found in matches}

    def _raises(self) -> dict[str, list[Raise]]:
        found: dict[str, list[Raise]] = {}
        for change in self.disk.raises:
            found.setdefault(change.budget, []).append(change)
        return found

    def _lives(self, owner: str) -> bool:
        return self.now_ms - self.disk.owners.get(owner, -LEASE_MS) <= LEASE_MS

    def _wake(self) -> None:
        self.rooms += 1
        room, self._room = self._room, asyncio.Event()
        room.set()

    def _drop(self, name: str) -> None:
        for counter_id in [counter_id for counter_id in self.disk.counters if counter_id[0] == name]:
            del self.disk.counters[counter_id]

    def _rebuild(self, budget: Budget) -> None:
        for row in self.disk.rows.values():
            values = {kind: row[kind] for kind in ("surface", "chain", "provider", "user", "chat", "workflow", "run", "key")}
            values["model"] = row["model_asked"]
            key = budget.key({kind: value for kind, value in values.items() if value is not None})
            pending = row["state"] == State.PENDING
            bucket, amount = budget.window.bucket(row["started"]), _held(row).of(budget.unit)
            if pending:
                lines = [line for line in row_rules.load_lines(row["lines"]) if line.budget != budget.name]
                if key is not None:
                    limit = budget.base_limit(key, row["guest"])
                    lines.append(ledger.Line(budget.name, key, budget.unit, bucket, amount, limit, 0, 0))
                row["lines"] = row_rules.dump_lines(sorted(lines))
            if key is not None:
                spent = Amounts(row["spent_requests"], row["spent_tokens"], row["cost_micro_usd"]).of(budget.unit)
                counter = self.disk.counters.setdefault((budget.name, key), Counter())
                counter.add(bucket, spent, amount if pending else 0)


def _held(row: Mapping[str, Any]) -> Amounts:
    return Amounts(row["held_requests"], row["held_tokens"], row["held_micro_usd"])
