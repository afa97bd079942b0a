"""The store on a database: the Store face, over the writer's group commit.

A call costs the event loop one queue entry and one future. Everything that decides runs in the writer thread, in the
transaction that writes it.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import orjson
import structlog
from sqlalchemy import Connection, delete, select, tuple_

from gateway import ledger
from gateway.budget import PAUSE, Amounts, Budgets, Raise
from gateway.chat import Origin, Slot
from gateway.clock import Clock, to_ms
from gateway.errors import Exhausted, GatewayError, InvalidRequest, LedgerUnavailable, SlotRefusal
from gateway.ledger import Closing, Counter, Draft, Outcome, Raises, Reservation, State
from gateway.store import Answered, Claimed, Peek, Underway, maintenance, raises
from gateway.store.batch import Batch, Ending, Memory, Refusing, Reserving
from gateway.store.budgets import Balance, balances
from gateway.store.claims import claim, unclaim
from gateway.store.database import Database
from gateway.store.process import mark
from gateway.store.statements import PostgresStatements, SqliteStatements, Statements
from gateway.store.tables import counters, owners

RESERVE_PATIENCE_S = 5.0
"""How long a reserve waits for a database that does not answer."""
CLOSE_PATIENCE_S = 0.8
"""How long a close waits before its caller goes on; it is written later."""
LEASE_RENEWED_MS = 10_000
REFRESH_EVERY_S = 0.5
"""How soon a raise made by another process is seen."""

log = structlog.get_logger(__name__)


class LedgerStore:
    """One per process. `owner` names the process in the leases; nobody else uses the same one."""

    def __init__(self, database: Database, budgets: Budgets, clock: Clock, owner: str | None = None) -> None:
        self.database, self.budgets, self.clock = database, budgets, clock
        self.owner = owner or secrets.token_hex(8)
        self.raises: Raises = {}
        """Every raise that may be in force; kept current by `gateway.store.raises`."""
        self._reloads = 0
        """How often the budgets were replaced."""
        self.trouble = ""
        """Why the ledger cannot be used, as `keep_up` last found; "" while it can."""
        self._mark = mark()
        self._statements: Statements = SqliteStatements() if database.is_sqlite else PostgresStatements()
        self._memory = Memory()
        self._seen: tuple[int, int | None] | None = None
        """What the writer and the database said at this store's last transaction."""
        self._renewed_ms = self._renewing_ms = 0
        self._reserves = _Overdue(RESERVE_PATIENCE_S, _give_up)
        self._closes = _Overdue(CLOSE_PATIENCE_S, _go_on)
        self._room = asyncio.Event()
        self.rooms = 0
        """As Store.rooms."""

    @property
    def limits(self) -> tuple[int, ...]:
        """Another one when a raise or a pause begins or ends, and after each reload: what waits for room looks again then."""
        now_ms = to_ms(self.clock.now())
        return self._reloads, *(one.id for raises in self.raises.values() for one in raises if one.in_force(now_ms))

    async def reserve(self, draft: Draft) -> Reservation:
        """As Store.reserve."""
        budgets = self.budgets
        member = Reserving(draft, budgets.matching(draft.scope_values()), budgets)
        future = self.database.join(self, member)
        self._reserves.watch(future)
        try:
            reservation: Reservation = await future
        except asyncio.CancelledError:
            # Cancelled between the commit and here: nobody will close what was reserved.
            if not future.cancelled() and future.exception() is None:
                self._release(member)
            raise
        except (SlotRefusal, LedgerUnavailable):
            raise
        except Exception as error:
            log.exception("reservation_failed", id=draft.id)
            raise LedgerUnavailable(f"this reservation cannot be written ({type(error).__name__})") from error
        finally:
            self._reserves.forget(future)
        return reservation

    async def peek(self, draft: Draft) -> Peek:
        """As Store.peek."""
        now, changes = to_ms(self.clock.now()), self.raises
        matches = ledger.with_limits(self.budgets.matching(draft.scope_values()), changes, draft.origin.guest, now)

        def look(connection: Connection) -> dict[tuple[str, str], Counter]:
            wanted = tuple_(counters.c.budget, counters.c.key).in_([found.id for found in matches])
            query = select(counters.c.budget, counters.c.key, counters.c.buckets).where(wanted)
            return {(budget, key): Counter(orjson.loads(buckets)) for budget, key, buckets in connection.execute(query)}

        found = await self.database.read(look)
        _, lines, blocks = ledger.weigh({match.id: found.get(match.id) or Counter() for match in matches}, draft, matches, now)
        refusal = ledger.pause(changes, now) or (Exhausted(blocks) if blocks else None)
        return Peek(tuple((match, line.spent, line.held) for match, line in zip(matches, lines, strict=True)), refusal)

    async def close(self, reservation: Reservation, closing: Closing) -> bool:
        """As Store.close."""
        future = self._end(reservation.draft, closing)
        try:
            changed: bool = await future
        except Exception:
            # Not the database's fault, so trying again would not help: the sweep ends the hold at its worst case.
            log.exception("closing_failed", id=reservation.id)
            return False
        finally:
            self._closes.forget(future)
        return changed

    async def note_refusal(self, origin: Origin, chain: str, slot: Slot, error: GatewayError) -> None:
        """As Store.note_refusal."""
        await self.database.join(self, Refusing(origin, chain, slot, error))

    async def claim(self, request_id: str, fingerprint: str) -> Claimed | Answered | Underway:
        """As Store.claim."""
        await self.renew()
        now = to_ms(self.clock.now())
        return await self.database.write(lambda connection: claim(connection, self.owner, request_id, fingerprint, now))

    async def unclaim(self, request_id: str) -> None:
        """As Store.unclaim."""
        future = self.database.insist(lambda connection: unclaim(connection, self.owner, request_id))
        self._closes.watch(future)
        await future

    async def wait_for_room(self, timeout_s: float, since: int | None = None) -> None:
        """As Store.wait_for_room."""
        if since is not None and since != self.rooms:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._room.wait()

    def wake(self) -> None:
        """Lets everybody who waits for room look again."""
        self.rooms += 1
        room, self._room = self._room, asyncio.Event()
        room.set()

    # --- Maintenance and admins ---

    async def start(self) -> None:
        """Makes the counters what the configured budgets say, and reads the raises. Before the first reserve."""
        await self._sync(self.budgets)
        await self.refresh()

    async def use(self, budgets: Budgets, note: Callable[[Connection], None]) -> None:
        """From the next call on, these budgets hold: what is new or was something else is counted from the rows, and
        nothing else is touched. `note` is written with it. Those who wait for room look again.
        """
        await self._sync(budgets, note)
        self.budgets = budgets
        self._reloads += 1
        self.wake()

    async def stop(self) -> None:
        """Gives the lease back: what this process still holds counts as left behind."""

        def leave(connection: Connection) -> None:
            maintenance.drop_unknown(connection, self.budgets)
            connection.execute(delete(owners).where(owners.c.id == self.owner))

        await self.database.write(leave)

    async def _sync(self, budgets: Budgets, note: Callable[[Connection], None] = lambda connection: None) -> None:
        """Where a process with another configuration ran beside this one, each has budgets that the other did not count."""
        now = to_ms(self.clock.now())

        def work(connection: Connection) -> list[str]:
            note(connection)
            return maintenance.sync_budgets(connection, budgets, now)

        changed = await self.database.write(work)
        if changed:
            log.info("budgets_rebuilt", count=len(changed), names=changed[:10])

    async def renew(self) -> None:
        """Keeps this process's lease, if it was not kept lately."""
        now = to_ms(self.clock.now())
        if abs(now - self._renewed_ms) >= LEASE_RENEWED_MS:
            await self.database.write(lambda connection: self._statements.renew(_raw(connection), self.owner, now, self._mark))
            self._renewed_ms = now

    async def sweep(self) -> int:
        """Ends holds of dead owners and holds past their deadline at their worst case; how many."""
        expired = 0
        while True:
            now = to_ms(self.clock.now())
            found = await self.database.read(partial(maintenance.overdue, now_ms=now))
            ended: int = sum(await asyncio.gather(*(self.database.join(self, ending) for ending in found)))
            expired += ended
            if ended < maintenance.SWEEP_MAX:
                break
        if expired:
            log.warning("holds_expired", count=expired)
        return expired

    async def drop_old(self) -> None:
        """Drops what nobody needs any more. Doing it twice changes nothing."""
        now = to_ms(self.clock.now())
        await self.database.write(partial(maintenance.drop_old, budgets=self.budgets, now_ms=now))

    async def forget_runs(self, ids: Sequence[str]) -> None:
        """Drops what was counted for single runs that are about to be forgotten."""
        await self.database.write(partial(maintenance.forget_runs, budgets=self.budgets, ids=ids))

    async def refresh(self) -> None:
        """Reads the raises that other processes made; wakes those who wait for room if there are other ones now."""
        now = to_ms(self.clock.now())
        found = await self.database.read(lambda connection: raises.current(connection, now))
        if found != self.raises:
            self.raises = found
            self.wake()

    async def raise_limit(self, budget: str, operation: str, amount: int, ends_ms: int | None, actor: str) -> Raise:
        """Changes a limit from now until an instant: a budget's, or one run's by its `counter_name`.

        Raises InvalidRequest when there is no such budget.
        """
        if budget != PAUSE and budget.partition("#")[0] not in self.budgets.by_name:
            raise InvalidRequest(f"there is no budget named {budget!r}", "budget")
        now = to_ms(self.clock.now())
        made = await self.database.write(
            lambda connection: raises.add(connection, budget, operation, amount, ends_ms, actor, now)
        )
        await self.refresh()
        return made

    async def end_raises(self, budget: str, actor: str) -> int:
        """Ends every raise of a budget that is in force; how many."""
        now = to_ms(self.clock.now())
        ended = await self.database.write(lambda connection: raises.end(connection, budget, actor, now))
        await self.refresh()
        return ended

    async def pause(self, ends_ms: int | None, actor: str) -> None:
        """Lets no call through until an instant, or until resumed."""
        await self.raise_limit(PAUSE, "=", 0, ends_ms, actor)

    async def resume(self, actor: str) -> bool:
        """Ends every pause; False when there was none."""
        return await self.end_raises(PAUSE, actor) > 0

    async def balances(self) -> list[Balance]:
        """Where every budget stands now, with the raises that this process knows."""
        now = to_ms(self.clock.now())
        return await self.database.read(lambda connection: balances(connection, self.budgets, self.raises, now))

    async def keep_up(self) -> None:
        """Keeps the lease and sees other processes' raises, until it is cancelled.

        By the event loop's own time: a lease must be kept also when somebody sets the machine's clock back.
        """
        while True:
            try:
                await self.renew()
                await self.refresh()
                self.trouble = ""
            except LedgerUnavailable as error:
                self.trouble = error.reason
                log.warning("lease_delayed", reason=error.reason)
            await asyncio.sleep(REFRESH_EVERY_S)

    # --- The group: called by the writer ---

    def apply(self, connection: Connection, members: Sequence[Any]) -> Sequence[object]:
        """Decides and writes the members of one transaction."""
        now = to_ms(self.clock.now())
        if abs(now - self._renewed_ms) >= LEASE_RENEWED_MS:
            # Counts as renewed once it is committed: a hold without a lease would be swept.
            self._statements.renew(_raw(connection), self.owner, now, self._mark)
            self._renewing_ms = now
        self._recall(connection)
        return Batch(connection, self._statements, self.budgets, self.raises, self.owner, self.clock, self._memory).run(members)

    def _recall(self, connection: Connection) -> None:
        """Believes what is remembered if nobody can have changed it: no other connection, and nobody else on this one."""
        version = self._statements.version(_raw(connection))
        seen = (self.database.disturbed, version)
        self._memory.exact = version is not None and seen == self._seen
        if not self._memory.exact:
            self._memory.open.clear()
        self._seen = seen

    def committed(self, members: Sequence[Any], lost: Sequence[tuple[Any, object]]) -> None:
        """Releases what was reserved for callers that have left, and wakes those who wait for room."""
        self._renewed_ms = self._renewing_ms
        for member, outcome in lost:
            if isinstance(outcome, Reservation):
                self._release(member)
        if any(isinstance(member, Ending) for member in members):
            self.wake()

    def uncertain(self, members: Sequence[Any]) -> None:
        """Releases what may have been reserved."""
        for member in members:
            if isinstance(member, Reserving):
                self._release(member)

    def _release(self, member: Reserving) -> None:
        self._end(member.draft, Closing(State.RELEASED, Amounts(), Outcome.NOT_SENT))

    def _end(self, draft: Draft, closing: Closing) -> asyncio.Future[Any]:
        future = self.database.join(self, Ending(draft.id, draft.origin.request_id, closing), patient=True)
        self._closes.watch(future)
        return future


class _Overdue:
    """Answers futures that a stalled database leaves open; one timer for all of them, since each call has one."""

    def __init__(self, patience_s: float, answer: Callable[[asyncio.Future[Any]], None]) -> None:
        self._patience_s, self._answer = patience_s, answer
        self._open: dict[asyncio.Future[Any], float] = {}
        """When each is overdue, the oldest first."""
        self._armed = False

    def watch(self, future: asyncio.Future[Any]) -> None:
        """Answers this future after the patience, if nobody has by then."""
        loop = future.get_loop()
        self._open[future] = loop.time() + self._patience_s
        if not self._armed:
            self._armed = True
            loop.call_later(self._patience_s / 4, self._look, loop)

    def forget(self, future: asyncio.Future[Any]) -> None:
        """Lets go of a future that was answered: what it holds is needed no longer."""
        self._open.pop(future, None)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        now = loop.time()
        for future, overdue_at in list(self._open.items()):
            if not future.done():
                if overdue_at > now:
                    break
                self._answer(future)
            del self._open[future]
        self._armed = bool(self._open)
        if self._armed:
            loop.call_later(self._patience_s / 4, self._look, loop)


def _give_up(future: asyncio.Future[Any]) -> None:
    future.set_exception(LedgerUnavailable(f"no answer from the database within {RESERVE_PATIENCE_S:.0f} s"))


def _go_on(future: asyncio.Future[Any]) -> None:
    future.set_result(True)


def _raw(connection: Connection) -> Any:
    return connection.connection.driver_connection
