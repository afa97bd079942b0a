"""One run: processes of the gateway over one disk, providers outside of them, people who ask, and faults.

Everything is drawn from one `random.Random(seed)` and runs in virtual time, so that a seed always plays the same. A
crash is a BaseException at a door of the store: the process is gone with everything it remembered, its connections are
closed, and a new one with a new owner starts after a while.
"""

import asyncio
import random
from collections.abc import Callable, Coroutine
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

from gateway.budget import PAUSE, Budget, Budgets, Calendar, Lifetime, Rolling, Unit
from gateway.chat import Origin, Request, Slot, Usage
from gateway.clock import to_ms
from gateway.dispatcher import Dispatcher, Reply
from gateway.errors import GatewayError, LedgerUnavailable
from gateway.ledger import Closing, Reservation, State
from gateway.settings import Model, Price, ProviderSettings, Settings, TelegramSettings
from tests.dispatcher.rig import UTC_ZONE
from tests.doubles.memory_store import Disk, MemoryStore
from tests.doubles.provider import ScriptedProvider
from tests.doubles.virtual import LoopClock, VirtualLoop
from tests.sim.audit import Audit
from tests.sim.faults import Mix

OPERATIONS = 220
"""Requests that people make in one seed."""
NAMES = ("ann", "bob", "cem")
TIMEOUT_S = 20.0
"""What the providers are configured with; a slow call takes longer than its hold lives."""


class Crash(BaseException):
    """The process is gone."""


@dataclass(frozen=True)
class Bug:
    """A planted bug: another store, or a dispatcher that is tampered with."""

    name: str
    store: type[MemoryStore] = MemoryStore
    tamper: Callable[[Dispatcher], None] = lambda dispatcher: None
    sweeps: bool = True


NO_BUG = Bug("none")


@dataclass(frozen=True)
class Report:
    """What one seed came to."""

    seed: int
    violations: tuple[str, ...]
    fired: dict[str, int]
    admitted: int
    calls: int
    operations: int


class Words:
    """Every word of a prompt is at most a token, and the template adds five."""

    def prompt_bound(self, slot: Slot, model: Model, request: Request) -> int:
        """Words and five."""
        return 5 + sum(len(str(message["content"]).split()) for message in request.messages)

    def received_bound(self, slot: Slot, text: str) -> int:
        """Words."""
        return len(text.split())

    def learn(self, slot: Slot, model: Model, request: Request, usage: Usage) -> None:
        """Nothing: the providers that lie must not move the bounds."""


class Process:
    """One process of the gateway."""

    def __init__(self, world: "World", number: int) -> None:
        self.world, self.owner, self.dead = world, f"process-{number}", False
        self.store = world.bug.store(world.settings.budgets, world.clock, disk=world.disk, owner=self.owner, door=self.door)
        self.dispatcher = Dispatcher(
            self.store, world.providers, world.settings, world.clock, estimator=Words(), observer=world, chance=world.chance
        )
        world.bug.tamper(self.dispatcher)
        # In the order in which they began: a set's order would differ from run to run.
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self.run(self._keep_house())

    def run(self, work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        """Runs work that ends with the process."""
        task = asyncio.ensure_future(work)
        self._tasks[task] = None
        task.add_done_callback(lambda done: self._tasks.pop(done, None))
        return task

    async def door(self, name: str) -> None:
        """A door of the store: it takes a while, and may be where the process ends."""
        world = self.world
        if self.dead:
            raise Crash
        if name == "reserved":
            world.audit.committed(self.store.now_ms)
        if world.mix.latency_s:
            try:
                await asyncio.sleep(world.chance.uniform(0, world.mix.latency_s))
            except asyncio.CancelledError:
                if self.dead:
                    raise Crash from None
                raise
        if self.dead:
            raise Crash
        if world.mix.strikes("crash"):
            self.die()
            raise Crash

    def die(self) -> None:
        """Ends the process here and now."""
        self.dead = True
        disk = self.world.disk
        # What waited in its memory to be written is lost with it.
        disk.kept = [(row, closing) for row, closing in disk.kept if disk.rows[row]["owner"] != self.owner]
        for task in tuple(self._tasks):
            if task is not asyncio.current_task():
                task.cancel()

    async def _keep_house(self) -> None:
        """Renews the lease, and sweeps."""
        while True:
            await asyncio.sleep(10)
            with suppress(LedgerUnavailable):
                if self.world.disk.down is None:
                    self.store.renew()
                if self.world.bug.sweeps:
                    self.world.mix.fired["hold_expired"] += await self.store.sweep()


class World:
    """Everything of one seed."""

    def __init__(self, seed: int, bug: Bug = NO_BUG, operations: int = OPERATIONS) -> None:
        self.chance = random.Random(seed)
        self.bug, self.operations = bug, operations
        self.mix = Mix(self.chance)
        self.clock = LoopClock()
        self.clock.start += timedelta(seconds=self.chance.randint(0, 86_400))
        self.disk = Disk()
        self.settings = self._settings()
        self.audit = Audit(self.settings.budgets, self.disk)
        self.providers = {name: ScriptedProvider(name, self._pending, draw=self.mix.play) for name in self.settings.providers}
        self._started = 0
        self._processes: list[Process] = []
        self._same = 0

    def _settings(self) -> Settings:
        chance = self.chance
        providers = {}
        for name in ("cheap", "dear", "free"):
            price = Price(Decimal(chance.randint(1, 3)), Decimal(chance.randint(1, 9)), Decimal(1), Decimal(1))
            model = Model("m", chance.choice((None, 30, 60)), 12, price=None if name == "free" else price, free=name == "free",
                          timeout_s=TIMEOUT_S, max_attempts=chance.randint(1, 3))  # fmt: skip
            providers[name] = ProviderSettings(name, "demo", "m", models={"m": model})
        slots = [Slot(name, "m") for name in providers]
        chance.shuffle(slots)
        return Settings(
            path=None, database_url="sqlite:////nowhere", zone=UTC_ZONE, host="127.0.0.1", port=0, max_output_tokens=12,
            min_reply_tokens=4, providers=providers, chains={"default": tuple(slots), "short": (slots[0],)},
            budgets=Budgets(self._budgets()), telegram=TelegramSettings(), chain_timeout_s=chance.choice((15.0, 300.0)),
        )  # fmt: skip

    def _budgets(self) -> list[Budget]:
        chance = self.chance
        minute, hour = Calendar("minute", UTC_ZONE), Calendar("hour", UTC_ZONE)
        rolling = Rolling(600, "rolling 10m")
        return [
            Budget("cheap-minute", Unit.TOKENS, chance.randint(30, 200), minute, {"provider": "cheap"}),
            Budget("dear-money", Unit.MICRO_USD, chance.randint(200, 4000), rolling, {"provider": "dear"}),
            Budget("everything", Unit.TOKENS, chance.randint(1000, 9000), chance.choice((hour, Lifetime(), rolling))),
            Budget("person", Unit.TOKENS, chance.randint(60, 900), chance.choice((minute, rolling)), {"user": "*"}),
            Budget("calls", Unit.REQUESTS, chance.randint(5, 60), minute, {"chain": "default"}),
        ]

    def _pending(self, attempt_id: str) -> bool:
        return bool(self.disk.rows[attempt_id]["state"] == State.PENDING)

    # The world observes its dispatchers.

    def settled(self, reservation: Reservation, closing: Closing) -> None:
        """Counts the calls that ended after their hold had expired."""
        self.mix.fired["settled_late"] += self.disk.rows[reservation.id]["state"] == State.EXPIRED

    def refused(self, slot: Slot, error: GatewayError) -> None:
        """Nothing: the rows of refusals say it."""

    def breaker(self, slot: Slot, is_open: bool) -> None:
        """Nothing."""

    def start_process(self) -> Process:
        """A new process with a new owner."""
        self._started += 1
        process = Process(self, self._started)
        self._processes.append(process)
        return process

    async def process(self) -> Process:
        """A living process; waits until one is started."""
        while True:
            self._processes = [process for process in self._processes if not process.dead]
            if self._processes:
                return self.chance.choice(self._processes)
            await asyncio.sleep(0.5)

    async def run(self) -> Report:
        """The whole seed: trouble, then peace, then the audit."""
        asyncio.get_running_loop().set_exception_handler(self._unheard)
        replicas = self.chance.choice((1, 2))
        for _ in range(replicas):
            self.start_process()
        background = [asyncio.ensure_future(work) for work in (self._supervise(replicas), self._meddle())]
        people = []
        for _ in range(self.operations):
            await asyncio.sleep(self.chance.choice((0.0, 0.0, 0.5, 6.0, 15.0)))
            people.append(asyncio.ensure_future(self._person()))
            if self.mix.strikes("client_has_twin"):
                people.append(asyncio.ensure_future(self._ask(self._twin(), patient=True)))
        await asyncio.gather(*people)
        for task in background:
            task.cancel()
        await self._peace()
        return Report(
            0, tuple(self.audit.violations), dict(self.mix.fired), self.audit.admitted,
            sum(provider.calls for provider in self.providers.values()), self.operations,
        )  # fmt: skip

    async def _peace(self) -> None:
        self.mix.peace = True
        self.disk.down = None
        process = await self.process() if self._living() else self.start_process()
        process.store.write_kept()
        # Longer than any lease and any hold, and than the clock was ever set back.
        await asyncio.sleep(1200)
        for provider in self.providers.values():
            self.audit.bills(provider.bills)
        self.audit.end(to_ms(self.clock.now()))
        for living in self._processes:
            living.die()
        await asyncio.sleep(1)

    def _living(self) -> bool:
        return any(not process.dead for process in self._processes)

    async def _supervise(self, replicas: int) -> None:
        while True:
            await asyncio.sleep(self.chance.uniform(1, 40))
            if sum(not process.dead for process in self._processes) < replicas:
                self.start_process()

    async def _meddle(self) -> None:
        """Admins, the clock and the database."""
        while True:
            await asyncio.sleep(self.chance.uniform(20, 120))
            await self.chance.choice((self._change_limit, self._pause, self._clock_back, self._ledger_down))()

    async def _change_limit(self) -> None:
        budget = self.chance.choice(self.settings.budgets.all)
        fault, change = self.chance.choice((("limit_raised", 30), ("limit_lowered", -60)))
        await self._admin(fault, budget.name, "%", change, self.chance.uniform(10, 200))

    async def _pause(self) -> None:
        await self._admin("paused", PAUSE, "=", 0, self.chance.uniform(1, 10))

    async def _admin(self, fault: str, budget: str, operation: str, amount: int, for_s: float) -> None:
        process = await self.process()
        ends_ms = process.store.now_ms + int(for_s * 1000)
        try:
            await process.run(process.store.raise_limit(budget, operation, amount, ends_ms, "admin"))
        except (GatewayError, Crash, asyncio.CancelledError):
            return
        self.mix.fired[fault] += 1

    async def _clock_back(self) -> None:
        self.clock.offset -= timedelta(seconds=self.chance.randint(1, 90))
        self.mix.fired["clock_back"] += 1

    async def _ledger_down(self) -> None:
        self.disk.down = LedgerUnavailable("gone")
        self.mix.fired["ledger_down"] += 1
        await asyncio.sleep(self.chance.uniform(1, 20))
        self.disk.down = None
        if self._living():
            (await self.process()).store.write_kept()

    async def _person(self) -> None:
        """One person with one question: asks until there is an answer or a notice, unless they leave."""
        origin = self._origin()
        repeats = origin.dedupe and self.mix.strikes("client_repeats")
        await self._ask(origin, patient=True)
        if repeats:
            await self._ask(origin, patient=True)

    def _origin(self) -> Origin:
        chance = self.chance
        self._same += 1
        dedupe = chance.random() < 0.5
        return Origin(
            request_id=f"{'same' if dedupe else 'new'}-{self._same}",
            surface=chance.choice(("telegram", "http")),
            user=chance.choice(NAMES),
            dedupe=dedupe,
            patience_s=chance.choice((0.0, 0.0, 5.0, 40.0)),
        )

    def _twin(self) -> Origin:
        """The origin of the request made last, if it is one that has an id of its own: at the same time, by another way."""
        return Origin(f"same-{self._same}", "http", user="ann", dedupe=True)

    async def _ask(self, origin: Origin, *, patient: bool) -> None:
        size = int(origin.request_id.rpartition("-")[2]) % 23 + 1
        request = Request(({"role": "user", "content": " ".join(["w"] * size)},), clampable=size % 5 != 0)
        streams = self.chance.random() < 0.5
        target = "short" if size % 7 == 0 else "default"
        while True:
            process = await self.process()
            work = (
                self._stream(process, request, target, origin)
                if streams
                else process.dispatcher.complete(request, target, origin)
            )
            task = process.run(work)
            leaves = self.mix.strikes("client_cancels")
            if leaves:
                asyncio.get_running_loop().call_later(self.chance.uniform(0, 10), task.cancel)
            try:
                answer = await task
            except GatewayError:
                return
            except (Crash, asyncio.CancelledError):
                if leaves:
                    return
                if not process.dead:
                    self.audit.blame(f"{origin.request_id} got neither an answer nor a notice")
                    return
                continue
            except BaseException as error:
                self.audit.blame(f"{origin.request_id} ended in {type(error).__name__}: {error}")
                return
            if answer is None:
                self.audit.blame(f"{origin.request_id} ended without a reply")
            return

    async def _stream(self, process: Process, request: Request, target: str, origin: Origin) -> "Reply | str | None":
        shown = 0
        leaves_after = self.chance.randint(0, 8) if self.mix.strikes("client_leaves_stream") else None
        async with aclosing(process.dispatcher.stream(request, target, origin)) as events:
            async for event in events:
                if isinstance(event, Reply):
                    return event
                shown += 1
                if shown == leaves_after:
                    return "left"
        return None

    def _unheard(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if not isinstance(error, Crash):
            self.audit.blame(f"{context.get('message')}: {error!r}")


def run_seed(seed: int, bug: Bug = NO_BUG, operations: int = OPERATIONS) -> Report:
    """Runs one seed in virtual time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return replace(runner.run(World(seed, bug, operations).run()), seed=seed)
