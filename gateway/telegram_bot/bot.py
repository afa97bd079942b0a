"""The bot as the composition root sees it: made, started, run, stopped."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence

import structlog
from telegram.error import InvalidToken, TelegramError
from telegram.ext import ApplicationBuilder
from telegram.request import HTTPXRequest

from gateway.clock import Clock
from gateway.dispatcher import Dispatcher
from gateway.errors import ConfigError, Problem
from gateway.settings import Settings
from gateway.store.alerts import Alerts
from gateway.store.books import Books
from gateway.store.database import Database
from gateway.store.ledger_store import LedgerStore
from gateway.store.outbox import Outbox
from gateway.store.runs import Runs
from gateway.store.telegram import Arrival, Inbox, Lane, State
from gateway.store.telegram_runs import Forms, Posts
from gateway.store.telegram_talk import People, Talk
from gateway.telegram_bot.access import Door, new_code
from gateway.telegram_bot.addressing import item_of, urgent
from gateway.telegram_bot.alerts import tell_directly
from gateway.telegram_bot.delivery import Delivery
from gateway.telegram_bot.desk import Desk, Reporter
from gateway.telegram_bot.handlers import App, Handlers
from gateway.telegram_bot.lanes import Item, Lanes
from gateway.telegram_bot.limiter import Limiter
from gateway.telegram_bot.menu import set_menus
from gateway.telegram_bot.parking import Parking
from gateway.telegram_bot.runs.watch import Watch
from gateway.telegram_bot.source import ALLOWED_UPDATES, UPDATE_BYTES_MAX, WAIT_MAX_S, Source, is_from_telegram
from gateway.workflow.desk import Desk as Flows

log = structlog.get_logger()

SETTLE_S = 6.0
"""How long a stop waits for answers under way; what is not done by then is answered after the next start."""
DELIVER_S = 2.0
"""How much longer a stop waits for what is on its way to a chat, so that it is not said again after the next start."""
URGENT_MAX = 200
CONNECTIONS = 64


class TelegramBot:
    """One per process. Make it, `start` it, `run` it as a task, `stop` it. Raises ConfigError for an empty webhook secret.

    `database` holds the inbox and the conversations; `store` the budgets and raises; `flows` is asked of workflows,
    `reporter` for reports.
    """

    def __init__(
        self,
        settings: Settings,
        database: Database,
        store: LedgerStore,
        dispatcher: Dispatcher,
        clock: Clock,
        flows: Flows,
        reporter: Reporter,
    ) -> None:
        telegram = settings.telegram
        self._webhook = telegram.mode == "webhook"
        if self._webhook and not telegram.webhook_secret:
            raise ConfigError((Problem("TELEGRAM_WEBHOOK_SECRET", "is required in webhook mode"),))
        self._settings = settings
        self.bot_id = int(telegram.token.split(":", 1)[0])
        inbox = Inbox(database, self.bot_id)
        self._app = _application(settings)
        self._lanes = Lanes(self._run_lane)
        delivery = Delivery(self._app.bot, inbox)
        books = Books(database, settings.budgets, clock)
        talk, people = Talk(database, self.bot_id), People(database, self.bot_id)
        runs, posts, forms = Runs(database, clock), Posts(database, self.bot_id), Forms(database, self.bot_id)
        self._desk = Desk(
            settings, clock, dispatcher, store, books, inbox, talk, people, delivery, self._lanes, self.bot_id,
            flows, runs, posts, forms, Outbox(database, clock), Alerts(database, clock), reporter,
        )  # fmt: skip
        self._handlers = Handlers(self._desk, Door(self._desk), self._app)
        self._parking, self._watch = Parking(self._desk), Watch(self._desk)
        self._source = Source(inbox, self._desk.now_ms, self._received)
        self._met = asyncio.Event()
        self._urgent: set[asyncio.Task[None]] = set()
        self._tasks: list[asyncio.Task[None]] = []
        self.ready = False
        """True once Telegram knows the token and updates are taken."""

    @property
    def books(self) -> Books:
        """The budgets as this bot shows them."""
        return self._desk.books

    @property
    def queue_depth(self) -> int:
        """Updates that wait or are being answered."""
        return self._lanes.depth + len(self._urgent)

    @property
    def lanes(self) -> int:
        """Conversations with something to do."""
        return self._lanes.count

    @property
    def parked(self) -> int:
        """Questions that wait for their window."""
        return self._parking.parked

    async def pairing_code(self) -> str | None:
        """A new one-time code that makes the first admin by /start CODE; None when there is an admin."""
        if await self._desk.admins():
            return None
        code = new_code()
        await self._desk.people.new_code(code, self._desk.now_ms())
        return code

    async def tell_admins(self, kind: str, facts: Mapping[str, object]) -> None:
        """Says to admins, without the database, what cannot be kept in it: to the configured ones, and those known by now."""
        await tell_directly(self._desk, kind, facts)

    async def start(self) -> None:
        """Takes up what was left unanswered, and begins to work in the background. Returns without waiting for Telegram."""
        for letter in await self._desk.inbox.unfinished():
            self._put(Arrival(letter.update_id, letter.lane, letter.user_id, letter.raw))
        self._tasks.append(asyncio.create_task(self._serve()))

    async def run(self) -> None:
        """Returns when the bot was stopped; raises ConfigError when Telegram does not know the token."""
        if not self._tasks:
            await self.start()
        with contextlib.suppress(asyncio.CancelledError):
            try:
                await asyncio.gather(*self._tasks)
            except InvalidToken:
                raise unknown_token() from None

    async def stop(self, settle_s: float = SETTLE_S) -> None:
        """Takes no more updates, lets answers under way end within `settle_s`, and leaves the rest to the next start."""
        self.ready = False
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if not await self._lanes.settle(settle_s):
            log.info("telegram_left_for_next_start", updates=self._lanes.depth)
        self._desk.stopping.set()
        for urgent_task in list(self._urgent):
            urgent_task.cancel()
        await asyncio.gather(self._lanes.cancel(), *self._urgent, return_exceptions=True)
        await self._app.shutdown()
        await self._app.bot.shutdown()

    def admits(self, path: str, secret: str) -> bool:
        """For the webhook's route: whether an update comes from Telegram, decided before anything is read."""
        return self._webhook and path == str(self.bot_id) and is_from_telegram(self._settings.telegram.webhook_secret, secret)

    async def receive(self, body: bytes) -> bool:
        """Stores one update of the webhook; returns after the commit. False when it is none. Raises LedgerUnavailable."""
        if len(body) > UPDATE_BYTES_MAX:
            return False
        try:
            raw = json.loads(body)
        except ValueError:
            return False
        if not isinstance(raw, dict) or not isinstance(raw.get("update_id"), int):
            return False
        await self._source.take([raw])
        return True

    async def _serve(self) -> None:
        bot = self._app.bot
        await self._patiently(self._app.initialize)
        self._desk.username = bot.username
        self._met.set()
        log.info("telegram_bot_ready", bot=self.bot_id, name=bot.username)
        parking = asyncio.create_task(self._parking.run())
        watch = asyncio.create_task(self._watch.run())
        menu = asyncio.create_task(set_menus(self._desk, bot))
        try:
            if self._webhook:
                url = f"{self._settings.telegram.public_url.rstrip('/')}/telegram/{self.bot_id}"
                secret = self._settings.telegram.webhook_secret
                await self._patiently(lambda: bot.set_webhook(url, allowed_updates=ALLOWED_UPDATES, secret_token=secret))
                self.ready = True
                await asyncio.Event().wait()
            await self._patiently(bot.delete_webhook)
            self.ready = True
            await self._source.poll(bot, self._lanes.room)
        finally:
            self.ready = False
            beside = (parking, watch, menu)
            for task in beside:
                task.cancel()
            await asyncio.gather(*beside, return_exceptions=True)

    async def _patiently(self, call: Callable[[], Awaitable[object]]) -> None:
        """Repeats a call to Telegram until it is through; only a rejected token ends it."""
        wait_s = 1.0
        while True:
            try:
                await call()
                return
            except InvalidToken:
                log.error("telegram_token_rejected", bot=self.bot_id)
                raise unknown_token() from None
            except TelegramError as error:
                log.warning("telegram_unreachable", reason=type(error).__name__)
            await asyncio.sleep(wait_s)
            wait_s = min(wait_s * 2, WAIT_MAX_S)

    def _background(self, work: Coroutine[object, object, None]) -> None:
        """A task that a stop cancels."""
        task = asyncio.create_task(work)
        self._urgent.add(task)
        task.add_done_callback(self._urgent.discard)

    def _received(self, arrivals: Sequence[Arrival]) -> None:
        for arrival in arrivals:
            self._put(arrival)

    def _put(self, arrival: Arrival) -> None:
        item = item_of(arrival.update_id, arrival.raw)
        if not urgent(arrival.raw) or len(self._urgent) >= URGENT_MAX:
            self._lanes.put(arrival.lane, item)
            return
        self._background(self._run_urgent(item))

    async def _run_urgent(self, item: Item) -> None:
        try:
            await self._answer([item])
        except Exception:
            log.exception("telegram_update_failed", update_id=item.update_id)

    async def _run_lane(self, _lane: Lane, items: list[Item]) -> None:
        await self._answer(items)

    async def _answer(self, items: list[Item]) -> None:
        await self._met.wait()
        first, inbox = items[0].update_id, self._desk.inbox
        await self._desk.persist(lambda: inbox.begin(first, [item.update_id for item in items[1:]]))
        letter = await self._desk.persist(lambda: inbox.load(first))
        if letter is not None and letter.state is State.ANSWERING:
            await _whole(self._handlers.run(letter))


async def _whole(work: Coroutine[object, object, None]) -> None:
    """Runs `work`; a caller that is cancelled waits for its end up to DELIVER_S more.

    A message that Telegram has taken and whose id nobody kept would be sent again after the next start.
    """
    task = asyncio.create_task(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task}, timeout=DELIVER_S)
        task.cancel()
        for outcome in await asyncio.gather(task, return_exceptions=True):
            if isinstance(outcome, Exception):
                log.error("telegram_update_failed", exc_info=outcome)
        raise


def unknown_token() -> ConfigError:
    """What ends the bot: no waiting mends it. The library's own error holds the token, this one does not."""
    return ConfigError((Problem("TELEGRAM_BOT_TOKEN", "Telegram does not know this token"),))


def _application(settings: Settings) -> App:
    telegram = settings.telegram
    root = telegram.api_root.rstrip("/")
    requests = HTTPXRequest(
        connection_pool_size=CONNECTIONS, connect_timeout=5, read_timeout=20, write_timeout=20, pool_timeout=5
    )
    polls = HTTPXRequest(connection_pool_size=2, connect_timeout=5)
    builder = ApplicationBuilder().token(telegram.token).base_url(f"{root}/bot").base_file_url(f"{root}/file/bot")
    return builder.request(requests).get_updates_request(polls).rate_limiter(Limiter()).updater(None).job_queue(None).build()
