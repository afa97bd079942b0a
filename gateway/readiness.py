"""What must be right for a process to do its work, and what waits in it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from gateway.store.ledger_store import LedgerStore

if TYPE_CHECKING:
    from gateway.telegram_bot import TelegramBot
    from gateway.workflow.worker import Worker

Check = Callable[[], Awaitable[bool]]


def checks(store: LedgerStore, worker: Worker | None, bot: TelegramBot | None) -> dict[str, Check]:
    """Each part that the process has, and how it is asked."""

    async def database() -> bool:
        await store.refresh()
        return True

    found: dict[str, Check] = {"database": database}
    for name, part in (("engine", worker), ("bot", bot)):
        if part is not None:
            found[name] = _asks(part)
    return found


def _asks(part: Worker | TelegramBot) -> Check:
    async def ready() -> bool:
        return part.ready

    return ready


def depths(bot: TelegramBot | None) -> dict[str, int]:
    """What waits in the bot; nothing without one."""
    return {} if bot is None else {"queue_depth": bot.queue_depth, "lanes": bot.lanes, "parked": bot.parked}
