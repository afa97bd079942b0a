"""What became of a message that is sent once: the ways in which a send ends, as states that are kept."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import NamedTuple

import structlog
from telegram.error import BadRequest, NetworkError, RetryAfter, TelegramError

from gateway.runs import Run
from gateway.store.telegram import Lane
from gateway.store.telegram_runs import PostState
from gateway.telegram_bot.delivery import Gone, Uncertain
from gateway.telegram_bot.limiter import Shed, Unsent

log = structlog.get_logger()


TO = "telegram:"


class Later(Exception):
    """It could not be told now, and is tried again after a while."""


class Ended(NamedTuple):
    """What is known of a message that was sent."""

    state: PostState
    message_id: int | None = None
    why: str = ""
    """In Telegram's words or the network's, where it did not arrive."""


async def attempt(sending: Awaitable[int]) -> Ended:
    """Sends once and says what is known of it; PENDING: it certainly was not sent.

    A stop that comes while the chat's pace still holds it back counts as not sent; its cancellation ends here, so that
    the state can be kept.
    """
    try:
        return Ended(PostState.SENT, await sending)
    except Uncertain:
        return Ended(PostState.UNCERTAIN)
    except Gone as gone:
        log.info("telegram_unreachable", reason=str(gone))
        return Ended(PostState.FAILED, why=str(gone))
    except (Shed, Unsent, RetryAfter):
        return Ended(PostState.PENDING)
    except TelegramError as error:
        # The library counts what Telegram refused among the faults of the network.
        if isinstance(error, NetworkError) and not isinstance(error, BadRequest):
            return Ended(PostState.PENDING, why=error.message)
        log.error("telegram_refused", reason=error.message)
        return Ended(PostState.FAILED, why=error.message)


def lane_of(run: Run) -> Lane | None:
    """Where a run's progress is told; None when that is no chat of Telegram's."""
    try:
        return Lane(int(run.starter.chat or ""), run.starter.thread or 0)
    except ValueError:
        return None


def lane_named(to: str) -> Lane | None:
    """The chat and topic of "telegram:<chat>[/<thread>]"; None for anything else."""
    chat, slash, thread = to.removeprefix(TO).partition("/")
    try:
        return Lane(int(chat), int(thread) if slash else 0) if to.startswith(TO) else None
    except ValueError:
        return None
