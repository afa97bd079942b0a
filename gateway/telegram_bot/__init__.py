"""The Telegram surface: inbox → lanes → handlers → streaming → delivery. `TelegramBot` is its face."""

from gateway.telegram_bot.bot import TelegramBot

__all__ = ["TelegramBot"]
