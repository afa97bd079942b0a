"""Which handler takes what: python-telegram-bot's handlers and filters, after the door has let a message in."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import structlog
from telegram import Bot, Message, Update
from telegram.ext import Application, CallbackContext, CallbackQueryHandler, CommandHandler, MessageHandler, TypeHandler, filters
from telegram.ext import ApplicationHandlerStop as Stop

from gateway.errors import GatewayError
from gateway.notice import notice
from gateway.store.telegram import Letter
from gateway.telegram_bot import admin, commands, figures
from gateway.telegram_bot.access import Door
from gateway.telegram_bot.buttons import tapped
from gateway.telegram_bot.desk import Desk, Standing, Work
from gateway.telegram_bot.questions import ask
from gateway.telegram_bot.runs import commands as runs
from gateway.telegram_bot.runs import forms
from gateway.telegram_bot.runs.starting import workflows

log = structlog.get_logger()

App = Application[Any, Any, Any, Any, Any, Any]
Context = CallbackContext[Any, Any, Any, Any]
Command = Callable[[Work, list[str]], Awaitable[None]]


class Handlers:
    """Registered with an application; `run` takes one letter through it."""

    def __init__(self, desk: Desk, door: Door, app: App) -> None:
        self._desk, self._door, self._app = desk, door, app
        app.add_handler(TypeHandler(Update, self._enter), group=-1)
        for name, command in self._commands().items():
            app.add_handler(CommandHandler(name, self._commanded(command), filters=filters.UpdateType.MESSAGE))
        app.add_handler(CallbackQueryHandler(self._tap))
        app.add_handler(MessageHandler(filters.UpdateType.MESSAGE & filters.COMMAND, self._unknown))
        app.add_handler(MessageHandler(filters.UpdateType.MESSAGE & ~filters.StatusUpdate.ALL, self._ask))
        app.add_error_handler(self._failed)

    def _commands(self) -> dict[str, Command]:
        desk, door = self._desk, self._door
        return {
            "start": lambda work, words: commands.start(desk, door, self._app.bot, work, words),
            "help": lambda work, _: commands.help_(desk, work),
            "id": lambda work, _: commands.show_id(desk, work),
            "new": lambda work, _: commands.new(desk, work),
            "stop": lambda work, _: commands.stop(desk, work),
            "cancel": lambda work, words: runs.cancel(desk, work, words),
            "run": lambda work, _: runs.run(desk, work),
            "runs": lambda work, _: runs.runs(desk, work),
            "workflows": lambda work, _: workflows(desk, work),
            "retry": lambda work, _: commands.retry(desk, work),
            "model": lambda work, words: commands.model(desk, work, words),
            "budget": lambda work, _: figures.budget(desk, work),
            "usage": lambda work, _: figures.usage(desk, work),
            "report": lambda work, words: admin.report(desk, work, words),
            "allow": lambda work, words: admin.allow(desk, work, words),
            "deny": lambda work, words: admin.deny(desk, work, words),
            "raise": lambda work, words: admin.raise_(desk, work, words),
            "pause": lambda work, words: admin.pause(desk, work, words),
            "resume": lambda work, _: admin.resume(desk, work),
        }

    async def run(self, letter: Letter) -> None:
        """Takes one letter to its end. Only a cancellation, or a database that stays away, leaves it unfinished."""
        desk, bot = self._desk, self._app.bot
        decided = desk.decisions.pop(letter.update_id, None) or asyncio.Event()
        work = await self._work(letter, bot, decided)
        if work is None:
            await desk.persist(lambda: desk.inbox.finish(letter.update_id, "unreadable"))
            return
        desk.works[letter.update_id] = work
        try:
            await self._app.process_update(work.update)
        finally:
            desk.works.pop(letter.update_id, None)
            decided.set()
        if not work.ended:
            await desk.persist(lambda: desk.inbox.finish(letter.update_id, work.outcome))

    async def _work(self, letter: Letter, bot: Bot, decided: asyncio.Event) -> Work | None:
        try:
            update = Update.de_json(dict(letter.raw), bot)
            messages = [update.message] if update.message is not None else []
            for raw in letter.pieces:
                piece = Update.de_json(dict(raw), bot).message
                messages += [piece] if isinstance(piece, Message) else []
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            log.warning("telegram_update_unreadable", update_id=letter.update_id, reason=type(error).__name__)
            return None
        known = letter.user_id != 0
        standing = await self._desk.standing(letter.user_id, letter.lane.chat_id) if known else Standing(False, False, False)
        return Work(letter, update, messages, standing, self._desk.reader(update, standing), decided)

    def _of(self, update: object) -> Work:
        assert isinstance(update, Update)
        return self._desk.works[update.update_id]

    async def _enter(self, update: object, _context: Context) -> None:
        work = self._of(update)
        if work.update.callback_query is None and not await self._door.admits(work):
            raise Stop

    def _commanded(self, command: Command) -> Callable[[Update, Context], Coroutine[Any, Any, None]]:
        async def handle(update: Update, context: Context) -> None:
            await command(self._of(update), list(context.args or []))

        return handle

    async def _tap(self, update: Update, _context: Context) -> None:
        assert update.callback_query is not None
        await tapped(self._desk, self._of(update), update.callback_query)

    async def _unknown(self, update: Update, _context: Context) -> None:
        await commands.unknown(self._desk, self._of(update))

    async def _ask(self, update: Update, _context: Context) -> None:
        work = self._of(update)
        form = await forms.heard_by(self._desk, work)
        if form is not None:
            await forms.answer(self._desk, work, form)
        else:
            await ask(self._desk, self._app.bot, work)

    async def _failed(self, update: object, context: Context) -> None:
        """Whatever went wrong in a handler: logged, and the person is told plainly."""
        work, error = self._of(update), context.error
        work.outcome = "failed"
        if isinstance(error, GatewayError):
            said = notice(error, work.reader, self._desk.clock.now()).text
            log.warning("telegram_message_failed", update_id=work.letter.update_id, reason=str(error))
        else:
            said = work.say("failed")
            log.error("telegram_handler_failed", update_id=work.letter.update_id, exc_info=error)
        if work.messages:
            await self._desk.delivery.say(work.place, said)
