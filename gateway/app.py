"""The composition root: the only file that knows every room. Opens, starts, stops, and listens to signals.

`open` gives the store and, with `gate`, the dispatcher: enough for a command. `start` adds the surfaces of its roles.
The clock comes in here and nowhere else, so that a test can set it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Coroutine, Mapping
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

import structlog

from gateway.alerts import LOOK_EVERY_S, AlertWatch
from gateway.budget import Budgets
from gateway.chat import Slot
from gateway.clock import Clock, SystemClock
from gateway.dispatcher import Dispatcher, Observer
from gateway.errors import LedgerUnavailable
from gateway.estimate import Estimator, Learnt
from gateway.ledger import Raises
from gateway.prices import Prices
from gateway.providers import Provider, build
from gateway.readiness import checks, depths
from gateway.reloading import FOLLOW_EVERY_S, Reload, with_workflows
from gateway.settings import Change, Settings
from gateway.signals import listening
from gateway.store import calibrations
from gateway.store.alerts import Alerts
from gateway.store.books import Books
from gateway.store.database import Database
from gateway.store.executors import Executors
from gateway.store.fires import Fires
from gateway.store.keys import Keys
from gateway.store.ledger_store import LedgerStore
from gateway.store.migrations import require_head
from gateway.store.outbox import Outbox
from gateway.store.runs import Runs
from gateway.store.sessions import Sessions
from gateway.store.standings import Standings
from gateway.store.telegram import ParkedPeople
from gateway.workflow.catalogue import Catalogue
from gateway.workflow.desk import Desk

if TYPE_CHECKING:
    from gateway.jobs import Jobs
    from gateway.reports import Reports
    from gateway.store.telegram_talk import People
    from gateway.telegram_bot import TelegramBot
    from gateway.web.metrics import Metrics
    from gateway.web.server import Server
    from gateway.workflow.parts import Parts
    from gateway.workflow.worker import Worker

log = structlog.get_logger(__name__)

BOT, WEB, WORKER, SCHEDULER = "bot", "web", "worker", "scheduler"
ROLES = frozenset({BOT, WEB, WORKER, SCHEDULER})
"""What a process may do; all of it by default."""

DRAIN_S = 5.0
"""How long a stop waits for closings that are on their way to the database."""
SWEEP_EVERY_S = 5.0
KEEP_EVERY_S = 10.0
DROP_EVERY_S = 3600.0
FILE_EVERY_S = 60.0
"""How often a report that could not be written to its folder is tried again."""
FIRES_KEPT = timedelta(days=30)
"""So is what was told. Of what fired, the latest of each schedule is kept for good."""


class App:
    """One per process. Make it, `open` or `start` it, `stop` it; or `async with app.running():`.

    `environ` is what a reload reads secrets from: the process's environment by default. Raises ConfigError when a workflow's
    file is wrong.
    """

    def __init__(
        self,
        settings: Settings,
        clock: Clock | None = None,
        *,
        roles: frozenset[str] = ROLES,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self.catalogue = Catalogue.load(settings)
        """Every workflow."""
        settings = with_workflows(settings, self.catalogue)
        self.settings = settings
        """What holds now: a reload changes this object."""
        self.clock: Clock = clock or SystemClock()
        self.roles = roles
        self.database = Database(settings.database_url)
        self.store = LedgerStore(self.database, settings.budgets, self.clock)
        environ = os.environ if environ is None else environ
        self._reload = Reload(settings, self.catalogue, self.store, environ, self.reload)
        self.books = Books(self.database, settings.budgets, self.clock)
        self.keys = Keys(self.database, self.clock)
        self.sessions = Sessions(self.database, self.clock)
        self.runs = Runs(self.database, self.clock)
        self._fires = Fires(self.database, self.clock)
        self.alerts = Alerts(self.database, self.clock)
        standings = Standings(self.database, self.clock)
        self.alert_watch = AlertWatch(self.alerts, standings, self._limits, self.clock, looks=SCHEDULER in roles)
        self._outbox = Outbox(self.database, self.clock)
        self.ready = asyncio.Event()
        """Set once every surface of this process takes work."""
        self.address = ""
        """Where the HTTP interface listens, as a URL; "" without one."""
        self.pairing_code: str | None = None
        """What makes the first admin by /start CODE; None when there is one, or no bot."""
        self.bot: TelegramBot | None = None
        self.worker: Worker | None = None
        self._desk: Desk | None = None
        self._reports: Reports | None = None
        self._dispatcher: Dispatcher | None = None
        self._providers: Mapping[str, Provider] = {}
        self._server: Server | None = None
        self._jobs: Jobs | None = None
        self._metrics: Metrics | None = None
        self._estimator = Estimator()
        self._prices: Prices | None = None
        self._learnt: Mapping[Slot, Learnt] = {}
        """What the database knows of the bounds."""
        self._tasks: list[asyncio.Task[None]] = []
        self._stopping = asyncio.Event()
        self._failure: BaseException | None = None

    @property
    def dispatcher(self) -> Dispatcher:
        """The gate and what is behind it; there once the program was opened with it."""
        assert self._dispatcher is not None, "opened without the gate"
        return self._dispatcher

    @property
    def desk(self) -> Desk:
        """What surfaces ask of workflows."""
        if self._desk is None:
            self._desk = Desk(self.runs, self.catalogue, self.settings, self.clock)
        return self._desk

    @property
    def reports(self) -> Reports:
        """What makes and sends reports."""
        if self._reports is None:
            from gateway.reports import Reports

            self._reports = Reports(self.books, self._outbox, self.settings, self.clock)
        return self._reports

    def parts(self) -> Parts:
        """What a run in work uses of the house."""
        from gateway.workflow.parts import Parts

        folder = self.settings.runs_folder
        return Parts(self.dispatcher, self.store, self.runs, self.settings, self.catalogue, self.clock, folder)

    async def worker_lives(self) -> bool:
        """True when some process works on runs, this one or another. Raises LedgerUnavailable."""
        looking = Executors(self.settings.database_url)
        try:
            return await looking.anybody()
        finally:
            await looking.close()

    async def open(self, *, gate: bool = True, observer: Observer | None = None) -> None:
        """Books and keys, and with `gate` the dispatcher. Raises DatabaseBehind, LedgerUnavailable."""
        await asyncio.to_thread(require_head, self.settings.database_url)
        if not gate:
            return
        await self.store.start()
        self._providers = build(self.settings, self.clock)
        self._prices = Prices(replace(self.settings))
        self._estimator.remember(await self.database.read(calibrations.known))
        self._dispatcher = Dispatcher(
            self.store,
            self._providers,
            replace(self.settings),
            self.clock,
            estimator=self._estimator,
            prices=self._prices,
            alert=self.alert_watch.hear,
            observer=observer,
        )
        # What a dead process on this machine held is charged before the first call asks for room.
        await self._sweep()
        self._spawn(self.store.keep_up())

    async def start(self) -> None:
        """Opens everything and takes work in.

        Raises DatabaseBehind, LedgerUnavailable, OSError (the port is taken).
        """
        from gateway.web.metrics import Metrics

        metrics = self._metrics = Metrics(self.settings)
        await self.open(observer=metrics)
        await self._reload.begin()
        self._begin_jobs()
        self._spawn(asyncio.to_thread(self._load_ahead))
        if BOT in self.roles and self.settings.telegram.token:
            await self._start_bot()
        if WORKER in self.roles:
            await self._start_worker()
        if WEB in self.roles:
            await self._start_web(metrics)
        self.ready.set()
        roles, workflows = ",".join(sorted(self.roles)), len(self.catalogue.definitions)
        log.info("started", roles=roles, address=self.address, bot=self.bot is not None, workflows=workflows)

    def _begin_jobs(self) -> None:
        from gateway.jobs import Jobs

        jobs = self._jobs = Jobs()
        jobs.every(self._sweep, SWEEP_EVERY_S)
        jobs.every(self._keep_learnt, KEEP_EVERY_S)
        jobs.every(self.store.drop_old, DROP_EVERY_S)
        jobs.every(self.alerts.prune, DROP_EVERY_S)
        jobs.every(self.alert_watch.watch, LOOK_EVERY_S)
        jobs.every(self._reload.follow, FOLLOW_EVERY_S)
        if SCHEDULER in self.roles:
            jobs.every(self._forget_told, DROP_EVERY_S)
            jobs.every(self.reports.file, FILE_EVERY_S)
        self._set_alarms()
        jobs.start()

    def _set_alarms(self) -> None:
        """What fires by the clock is what the configuration says now."""
        if self._jobs is None or SCHEDULER not in self.roles:
            return
        from gateway.schedules import Alarm, alarm_of

        alarms = [alarm_of(one, self.desk, self.runs) for one in self.settings.schedules]
        alarms += [Alarm(f"report:{one.name}", one.cron, partial(self.reports.ring, one)) for one in self.settings.reports]
        self._jobs.ring(alarms, self._fires, self.clock)

    async def _forget_told(self) -> None:
        before = self.clock.now() - FIRES_KEPT
        await self._fires.prune(before)
        await self._outbox.prune(before)

    def _load_ahead(self) -> None:
        """The price list and the vocabularies: tenths of a second that no first call should wait."""
        assert self._prices is not None, "opened without the gate"
        self._prices.load()
        self._estimator.load(slot.model for slots in self.settings.chains.values() for slot in slots)

    async def _keep_learnt(self) -> None:
        """Keeps what was learnt of the bounds since the last time."""
        learnt = dict(self._estimator.learnt)
        if learnt != self._learnt:
            await self.database.write(partial(calibrations.keep, learnt=learnt))
            self._learnt = learnt

    def _limits(self) -> tuple[Budgets, Raises]:
        """What holds now. Raises LedgerUnavailable while nothing can be written."""
        if self.store.trouble:
            raise LedgerUnavailable(self.store.trouble)
        return self.store.budgets, self.store.raises

    async def _sweep(self) -> None:
        expired = await self.store.sweep()
        if self._metrics is not None:
            self._metrics.expired.inc(expired)

    async def _start_bot(self) -> None:
        from gateway.telegram_bot import TelegramBot

        self.bot = TelegramBot(self.settings, self.database, self.store, self.dispatcher, self.clock, self.desk, self.reports)
        self.pairing_code = await self.bot.pairing_code()
        await self.bot.start()
        self.alert_watch.directly = self.bot.tell_admins
        self._spawn(self.bot.run())

    async def _start_worker(self) -> None:
        from gateway.workflow.late_engine import LateEngine, dbos
        from gateway.workflow.worker import Worker, new_worker

        name, url = new_worker(), self.settings.database_url
        engine = LateEngine(partial(dbos, url, name))
        people = ParkedPeople(self.database)
        worker = Worker(name, self.parts(), self.store, engine, Executors(url), people, self.desk.poke)
        await worker.start()
        self.worker = worker
        self._spawn(worker.run())

    async def _start_web(self, metrics: Metrics) -> None:
        from gateway.web.app import Services
        from gateway.web.server import Server

        services = Services(
            dispatcher=self.dispatcher,
            keys=self.keys,
            store=self.store,
            books=self.books,
            settings=self.settings,
            clock=self.clock,
            metrics=metrics,
            desk=self.desk,
            sessions=self.sessions,
            people=self._people(),
            parts=self.parts,
            reports=lambda: self.reports,
            alerts=self.alerts,
            reload=self.reload,
            ready=checks(self.store, self.worker, self.bot),
            receiver=self.bot,
            depths=partial(depths, self.bot),
        )
        self._server = Server(services)
        host = self.settings.host
        port = await self._server.start(host, self.settings.port)
        self.address = f"http://{f'[{host}]' if ':' in host else host}:{port}"

    def _people(self) -> People | None:
        from gateway.store.telegram_talk import People

        bot_id = self.settings.telegram.token.partition(":")[0]
        return People(self.database, int(bot_id)) if bot_id else None

    def signals(self) -> contextlib.AbstractContextManager[None]:
        """While it lasts, SIGTERM or SIGINT ends `until_stopped`, and SIGHUP reloads the configuration."""
        return listening(self._stopping.set, self._reload.by_signal)

    async def until_stopped(self) -> None:
        """Returns once a signal ended the serving. Raises what ended a part that should have gone on."""
        await self._stopping.wait()
        if self._failure is not None:
            raise self._failure

    async def reload(self, actor: str) -> list[Change]:
        """Reads the configuration again and goes by it from the next call on: all of it or nothing.

        Returns what differs; what needs a restart is among it, and is as before until then. Counters stay, calls under way
        end by what held when they began. Raises ConfigError when the new file is wrong, LedgerUnavailable.
        """
        await self.ready.wait()
        async with self._reload.alone:
            changes, self._providers = await self._reload(actor, self.dispatcher, self._providers, self._follow)
        return changes

    def _follow(self) -> None:
        """The settings have become others: those who keep something of them look again."""
        self.books.use(self.settings.budgets)
        if self.bot is not None:
            self.bot.books.use(self.settings.budgets)
        if self._metrics is not None:
            self._metrics.use(self.settings)
        self._set_alarms()

    async def stop(self) -> None:
        """Stops intake first, then lets what is under way end, settles, and closes."""
        self.ready.clear()
        surfaces = [part.stop() for part in (self.bot, self._server, self.worker) if part is not None]
        self.bot = self._server = self.worker = None
        await asyncio.gather(*surfaces)
        jobs, self._jobs = self._jobs, None
        if jobs is not None:
            jobs.stop()
        tasks, self._tasks = [*self._tasks, *self._reload.tasks], []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._dispatcher is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(DRAIN_S):
                    await self._dispatcher.drain()
            with contextlib.suppress(LedgerUnavailable):
                await self._keep_learnt()
                await self.store.stop()
        providers, self._providers = self._providers, {}
        await asyncio.gather(*(provider.close() for provider in providers.values()))
        await self.database.close()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[App]:
        """Started for the length of a `with` block."""
        try:
            await self.start()
            yield self
        finally:
            await self.stop()

    def _spawn(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.create_task(work)
        task.add_done_callback(self._ended)
        self._tasks.append(task)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """A part that ends by itself takes the process with it: half a server would look like a whole one."""
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failure = error
            self._stopping.set()
