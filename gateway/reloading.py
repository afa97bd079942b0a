"""A changed configuration, read again while the program runs: checked whole before anything of it holds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from functools import partial

import structlog
from sqlalchemy import Connection

from gateway.clock import Clock, to_ms
from gateway.dispatcher import Dispatcher
from gateway.errors import ConfigError, LedgerUnavailable, Problem
from gateway.logs import hide
from gateway.prices import Prices
from gateway.providers import Provider, build
from gateway.settings import Change, Settings, differences, kept_until_restart, load, outline
from gateway.store import audit, in_force
from gateway.store.ledger_store import LedgerStore
from gateway.workflow.caps import with_caps
from gateway.workflow.catalogue import Catalogue

log = structlog.get_logger(__name__)

ACTION, SUBJECT = "reload", "configuration"
"""What the audit calls it."""


def with_workflows(settings: Settings, catalogue: Catalogue) -> Settings:
    """With what workflows' runs may spend, which is counted in the same ledger by every process that calls a model."""
    return replace(settings, budgets=with_caps(settings.budgets, catalogue.definitions.values()))


class Wanted:
    """What the file says now, made ready to hold: settings, providers and prices."""

    def __init__(self, running: Settings, asked: Settings, catalogue: Catalogue, clock: Clock) -> None:
        self.changes: list[Change] = differences(outline(running), outline(asked))
        """Everything that differs from what runs, also what a restart is needed for."""
        self.settings = with_workflows(kept_until_restart(running, asked), catalogue)
        self.prices = Prices(self.settings)
        self._running, self._clock = running, clock

    def providers(self, running: Mapping[str, Provider]) -> dict[str, Provider]:
        """Every provider; one that has not changed goes on as it is, with its connections."""
        made, before = build(self.settings, self._clock), self._running.providers
        return {
            name: running[name] if name in running and before.get(name) == self.settings.providers[name] else provider
            for name, provider in made.items()
        }


FOLLOW_EVERY_S = 1.0
"""How often a process looks whether another one was asked to reload."""
BY_ANOTHER = ""
"""The actor of a reload that another process was asked for, and has put into the audit."""


class Reload:
    """Has a running program go by what its file says now. Whoever calls it holds `alone`."""

    def __init__(
        self,
        settings: Settings,
        catalogue: Catalogue,
        store: LedgerStore,
        environ: Mapping[str, str],
        again: Callable[[str], Coroutine[object, object, object]],
    ) -> None:
        """`again` reloads the whole program, for an actor, by calling this."""
        self._settings, self._catalogue, self._store, self._environ = settings, catalogue, store, environ
        self._again = again
        self.alone = asyncio.Lock()
        """One reload at a time: each begins with what the one before has left."""
        self._seen = self._noted = 0
        """The newest reloads in the audit: of which this process knows, and which it was asked for itself."""
        self.tasks: set[asyncio.Task[None]] = set()
        """What goes on beside: a stop cancels it."""

    async def begin(self) -> None:
        """Says by what this process runs. Raises LedgerUnavailable."""

        def work(connection: Connection) -> int:
            in_force.say(connection, self._store.owner, outline(self._settings), to_ms(self._store.clock.now()))
            return audit.newest(connection, ACTION, SUBJECT)

        self._seen = await self._store.database.write(work)

    async def follow(self) -> None:
        """Reloads if another process on this database was asked to since the last look. Raises LedgerUnavailable."""
        newest = await self._store.database.read(partial(audit.newest, action=ACTION, subject=SUBJECT))
        if newest <= self._seen or self._settings.path is None:
            return
        try:
            await self._again(BY_ANOTHER)
        except ConfigError as error:
            log.debug("reload_left", problems=len(error.problems))
        self._seen = max(self._seen, newest)

    async def __call__(
        self, actor: str, dispatcher: Dispatcher, providers: Mapping[str, Provider], follow: Callable[[], None]
    ) -> tuple[list[Change], Mapping[str, Provider]]:
        """What differs, and the providers from now on. `follow` is called once the settings have become the new ones.

        Raises ConfigError and LedgerUnavailable; then nothing has changed.
        """
        wanted = await read_again(self._settings, self._catalogue, self._store.clock, self._environ)
        if actor == BY_ANOTHER and not wanted.changes:
            return [], providers
        made = wanted.providers(providers)
        await self._store.use(wanted.settings.budgets, partial(self._note, actor, wanted))
        self._seen = max(self._seen, self._noted)
        hide(wanted.settings.secrets)
        self._settings.become(wanted.settings)
        # The dispatcher has a copy of its own: what is under way goes by it, whatever the next reload says.
        gone = [one for name, one in providers.items() if made.get(name) is not one]
        self._beside(_retire(dispatcher.use(replace(wanted.settings), made, wanted.prices), gone))
        follow()
        tell(wanted.changes)
        return wanted.changes, made

    def by_signal(self) -> None:
        """Reloads beside everything else; what is wrong is in the log."""
        self._beside(_logged(self._again("signal:SIGHUP")))

    def _note(self, actor: str, wanted: Wanted, connection: Connection) -> None:
        now = to_ms(self._store.clock.now())
        in_force.say(connection, self._store.owner, outline(wanted.settings), now)
        if actor != BY_ANOTHER:
            audit.record(connection, now, actor, ACTION, SUBJECT, changes=[str(change) for change in wanted.changes])
            self._noted = audit.newest(connection, ACTION, SUBJECT)

    def _beside(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)


async def _retire(ended: Coroutine[object, object, None], gone: Sequence[Provider]) -> None:
    """Closes providers that nobody has any more once their calls have ended."""
    try:
        await ended
    finally:
        await asyncio.gather(*(provider.close() for provider in gone))


async def _logged(reload: Coroutine[object, object, object]) -> None:
    try:
        await reload
    except ConfigError as error:
        log.debug("reload_left", problems=len(error.problems))
    except LedgerUnavailable as error:
        log.error("reload_refused", reason=error.reason, holds="the configuration from before")


async def read_again(running: Settings, catalogue: Catalogue, clock: Clock, environ: Mapping[str, str]) -> Wanted:
    """Reads the file of a running configuration. Raises ConfigError with everything that is wrong; each is logged."""
    try:
        if running.path is None:
            raise ConfigError((Problem("configuration", "is the built-in demo: there is no file to read again"),))
        asked = await asyncio.to_thread(load, running.path, environ)
        catalogue.check(asked)
    except ConfigError as error:
        for problem in error.problems:
            log.error("configuration_wrong", place=problem.place, problem=problem.message)
        log.error("reload_refused", problems=len(error.problems), holds="the configuration from before")
        raise
    wanted = Wanted(running, asked, catalogue, clock)
    # The price list takes tenths of a second the first time: no call should wait for it.
    await asyncio.to_thread(wanted.prices.load)
    return wanted


def tell(changes: list[Change]) -> None:
    """Logs what differs, and what waits for a restart."""
    for change in changes:
        event = "configuration_needs_restart" if change.needs_restart else "configuration_changed"
        log.warning(event, place=change.place, before=change.before, after=change.after)
    log.info("reloaded", changes=len(changes), after_restart=sum(change.needs_restart for change in changes))
