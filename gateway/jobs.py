"""What a server does by the clock: each job at once and then at its times, one at a time, by the machine's own clock."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from datetime import UTC
from typing import TYPE_CHECKING, Any

import structlog

from gateway.clock import Clock, SystemClock
from gateway.errors import LedgerUnavailable

if TYPE_CHECKING:
    from gateway.schedules import Alarm
    from gateway.schedules.alarms import Memory

log = structlog.get_logger(__name__)

Work = Callable[[], Awaitable[object]]


class Jobs:
    """One per server. They go by the machine's clock, whatever clock the program is given."""

    def __init__(self) -> None:
        from apscheduler.schedulers.asyncio import AsyncIOScheduler  # type: ignore[import-untyped]

        self._scheduler = AsyncIOScheduler(timezone=UTC, job_defaults={"coalesce": True, "misfire_grace_time": None})
        self._alarms: list[str] = []

    def every(self, work: Work, seconds: float) -> None:
        """Has the work done at once and every so many seconds."""
        from apscheduler.triggers.interval import IntervalTrigger  # type: ignore[import-untyped]

        self._add(work, IntervalTrigger(seconds=seconds, timezone=UTC))

    def ring(self, alarms: Iterable[Alarm], memory: Memory, clock: Clock) -> None:
        """Has these alarms rung, in the place of the ones before; what is being rung goes on."""
        from gateway.schedules import Alarms

        for name in self._alarms:
            self._scheduler.remove_job(name)
        self._alarms.clear()
        Alarms(alarms, memory, clock).join(lambda look, wake: self._alarms.append(self._add(look, wake)))

    def _add(self, work: Work, trigger: Any) -> str:
        # Of two instances the second passes by.
        arguments = [work.__name__, work, asyncio.Lock()]
        job = self._scheduler.add_job(_alone, trigger, arguments, next_run_time=SystemClock().now(), max_instances=2)
        return str(job.id)

    def start(self) -> None:
        """Begins to fire."""
        self._scheduler.start()

    def stop(self) -> None:
        """Fires no more."""
        self._scheduler.shutdown(wait=False)


async def _alone(name: str, work: Work, running: asyncio.Lock) -> None:
    """One run of a job. After a stall the scheduler may fire a job again while it runs: that one is passed over."""
    if running.locked():
        return
    async with running:
        try:
            await work()
        except LedgerUnavailable as error:
            log.warning("job_delayed", job=name, reason=error.reason)
        except asyncio.CancelledError:
            # The program stops. Passed on, it would be told as a job that failed; the next start does what is left.
            log.debug("job_stopped", job=name)
