"""The command menus that Telegram shows: everybody's, those of private chats, and the admins'."""

from __future__ import annotations

from collections.abc import Sequence

import structlog
from telegram import Bot, BotCommand, BotCommandScope, BotCommandScopeAllPrivateChats, BotCommandScopeChat, BotCommandScopeDefault
from telegram.error import TelegramError

from gateway.notice import languages, text
from gateway.telegram_bot.desk import Desk

log = structlog.get_logger()

GROUP = ("new", "stop", "retry", "model", "budget", "usage", "run", "workflows", "runs", "cancel", "id", "help")
PRIVATE = (*GROUP[:-1], "start", "help")
ADMIN = (*PRIVATE, "report", "allow", "deny", "raise", "pause", "resume")
FIRST = "en"
"""The language of people whose own there is no menu in."""


async def set_menus(desk: Desk, bot: Bot) -> None:
    """Sets every menu, in every language."""
    await _set(bot, GROUP, BotCommandScopeDefault())
    await _set(bot, PRIVATE, BotCommandScopeAllPrivateChats())
    for admin in await desk.admins():
        await set_admin_menu(bot, admin)


async def set_admin_menu(bot: Bot, admin: int) -> None:
    """Shows the admins' commands in one admin's chat."""
    await _set(bot, ADMIN, BotCommandScopeChat(admin))


async def _set(bot: Bot, names: Sequence[str], scope: BotCommandScope) -> None:
    for language in languages():
        menu = [BotCommand(name, text(language, f"command_{name}")) for name in names]
        try:
            await bot.set_my_commands(menu, scope, None if language == FIRST else language)
        except TelegramError as error:
            # An admin who never wrote to the bot has no chat yet.
            log.info("telegram_menu_not_set", scope=scope.type, reason=type(error).__name__)
            return
