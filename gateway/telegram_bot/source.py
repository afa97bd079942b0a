"""Updates from Telegram into the inbox: committed first, acknowledged then.

By long polling the offset moves on only after the commit; by webhook the answer 200 is given only after it. A crash
between the two brings the update again, and its id drops it.
"""

from __future__ import annotations

import asyncio
import hmac
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import structlog
from telegram import Bot
from telegram.error import Conflict, InvalidToken, RetryAfter, TelegramError
from telegram.warnings import PTBUserWarning

from gateway.errors import LedgerUnavailable
from gateway.store.telegram import Arrival, Inbox
from gateway.telegram_bot.addressing import lane_of
from gateway.telegram_bot.limiter import retry_after_s

log = structlog.get_logger()

ALLOWED_UPDATES = ["message", "callback_query"]
POLL_S = 25
BATCH_MAX = 100
WAIT_MAX_S = 15.0
UPDATE_BYTES_MAX = 1_000_000

Received = Callable[[Sequence[Arrival]], None]
"""Called with the updates that are new, after they are committed."""


class Source:
    """Where updates come from. `received` hands them on."""

    def __init__(self, inbox: Inbox, now_ms: Callable[[], int], received: Received) -> None:
        self._inbox, self._now_ms, self._received = inbox, now_ms, received

    async def poll(self, bot: Bot, room: Callable[[], Any]) -> None:
        """Fetches updates until cancelled. Raises InvalidToken, since no waiting mends that."""
        # Updates are kept as they came, so the library's own objects, which its warning recommends, are not asked for.
        warnings.filterwarnings("ignore", "Please use 'Bot.getUpdates'", PTBUserWarning)
        offset, wait_s = 0, 1.0
        while True:
            await room()
            try:
                kwargs = {"offset": offset, "timeout": POLL_S, "limit": BATCH_MAX, "allowed_updates": ALLOWED_UPDATES}
                raws: Any = await bot.do_api_request("getUpdates", kwargs, read_timeout=POLL_S + 10)
                if isinstance(raws, list) and raws:
                    await self._take_all(raws)
                    offset = max(_id(raw) for raw in raws) + 1
                wait_s = 1.0
                continue
            except InvalidToken:
                raise
            except RetryAfter as error:
                wait_s = retry_after_s(error)
            except Conflict:
                log.error("telegram_conflict", reason="another program polls with this token, or a webhook is set")
            except TelegramError as error:
                log.warning("telegram_poll_failed", reason=type(error).__name__)
            except LedgerUnavailable as error:
                log.error("telegram_inbox_unavailable", reason=error.reason)
            await asyncio.sleep(wait_s)
            wait_s = min(wait_s * 2, WAIT_MAX_S)

    async def take(self, raws: Sequence[Mapping[str, Any]]) -> None:
        """Commits updates and hands on the new ones. Raises LedgerUnavailable: then they are not acknowledged."""
        arrivals = []
        for raw in raws:
            lane, sender = lane_of(raw)
            arrivals.append(Arrival(_id(raw), lane, sender, raw))
        new = set(await self._inbox.add(arrivals, self._now_ms()))
        self._received([arrival for arrival in arrivals if arrival.update_id in new])

    async def _take_all(self, raws: Sequence[Mapping[str, Any]]) -> None:
        try:
            await self.take(raws)
        except LedgerUnavailable:
            raise
        except Exception:
            # One update that cannot be kept must not hold up all that come after it.
            for raw in raws:
                try:
                    await self.take([raw])
                except LedgerUnavailable:
                    raise
                except Exception:
                    log.exception("telegram_update_not_kept", update_id=raw.get("update_id"))


def is_from_telegram(secret: str, header: str | None) -> bool:
    """Compares a webhook's secret header in constant time. An empty secret never matches."""
    return bool(secret) and header is not None and hmac.compare_digest(secret.encode(), header.encode("utf-8", "replace"))


def _id(raw: Mapping[str, Any]) -> int:
    value = raw.get("update_id")
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError("an update without an id")
    return value
