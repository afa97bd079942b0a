"""Alarms: what is done at the times of a cron line, once for each fire, over any number of processes and restarts.

APScheduler wakes each alarm; which fire is due is asked of the cron line and of the program's own clock at that moment. So
a wake-up that is late (a stall, a machine that slept, a clock that was set) rings the last fire that was missed, once, and
one that is early rings nothing. What rang is remembered in the database: an alarm that was missed while no process ran
rings at the next start. One that is new, or whose line has changed, has no past.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

import structlog
from apscheduler.triggers.base import BaseTrigger  # type: ignore[import-untyped]

from gateway.clock import Clock
from gateway.cron import Cron

log = structlog.get_logger(__name__)

LOOK_S = 1.0
"""The longest that an alarm sleeps: the clock may be set meanwhile, and the machine may."""
LOOKS_BETWEEN_TRIES = 10
"""After a ring that failed, so many looks pass before the next try."""
NEVER = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Alarm:
    """Something that is done at the times of a cron line.

    `ring` is handed the fire's time in UTC. Two processes may ring the same fire, and one that was killed rings it again
    at its next start: what `ring` does must be the same when done twice.
    """

    name: str
    """Known by it in the database, such as `schedule:morning-digest`."""
    cron: Cron
    ring: Callable[[datetime], Awaitable[object]]


class Memory(Protocol):
    """What outlives the process. Methods raise LedgerUnavailable."""

    async def first_seen(self, name: str, line: str) -> datetime:
        """Since when the alarm is known with this line: from now on, if it was not."""
        ...

    async def last(self, name: str) -> datetime | None:
        """The latest fire that rang."""
        ...

    async def mark(self, name: str, fire: datetime) -> bool:
        """Remembers a fire; False when it was remembered before."""
        ...


class Alarms:
    """The alarms of one process."""

    def __init__(self, alarms: Iterable[Alarm], memory: Memory, clock: Clock) -> None:
        self._bells = [_Bell(alarm, memory, clock) for alarm in alarms]

    def join(self, add: Callable[[Callable[[], Awaitable[object]], BaseTrigger], object]) -> None:
        """Hands each alarm's look and its trigger to `add`, which makes a job of it: the first look belongs at once."""
        for bell in self._bells:
            add(bell.look, Wake(bell))


class _Bell:
    """One alarm and how far it is."""

    def __init__(self, alarm: Alarm, memory: Memory, clock: Clock) -> None:
        self._alarm, self._memory, self._clock = alarm, memory, clock
        self._done: datetime | None = None
        """Fires up to here are seen to; None until the memory was asked."""
        self._next = NEVER
        """The first fire that is not."""
        self._pause = 0

    @property
    def ahead(self) -> timedelta:
        """How long until the next fire, by the program's clock; not above nought when it is due."""
        return self._next - self._clock.now()

    async def look(self) -> None:
        """Rings the last fire that is due, if one is. What goes wrong is logged, and tried again."""
        if self._pause:
            self._pause -= 1
            return
        try:
            await self._look()
        except Exception as error:
            # Whatever it is, the alarm must ring once it has passed: a schedule that dies silently is found weeks later.
            self._pause = LOOKS_BETWEEN_TRIES
            log.warning("alarm_delayed", alarm=self._alarm.name, error=f"{type(error).__name__}: {error}")

    async def _look(self) -> None:
        name, cron = self._alarm.name, self._alarm.cron
        if self._done is None:
            since = await self._memory.first_seen(name, f"{cron.text} {cron.zone.key}")
            self._reached(max(since, await self._memory.last(name) or since))
        now = self._clock.now()
        if now < self._next:
            return
        fire = cron.until(now)
        assert fire is not None, "a fire is due and none was"
        last = await self._memory.last(name)
        if last is None or last < fire:
            await self._alarm.ring(fire)
            await self._memory.mark(name, fire)
        self._reached(fire)

    def _reached(self, fire: datetime) -> None:
        self._done = fire
        self._next = self._alarm.cron.after(fire) or NEVER


class Wake(BaseTrigger):  # type: ignore[misc]
    """When APScheduler looks at an alarm again: at its next fire, and never later than in a second.

    APScheduler goes by the machine's time and the alarm by the program's clock, so only the span between the two matters.
    """

    def __init__(self, bell: _Bell) -> None:
        self._bell = bell

    def get_next_fire_time(self, previous_fire_time: Any, now: datetime) -> datetime:
        """`now` is the machine's time."""
        ahead, longest = self._bell.ahead, timedelta(seconds=LOOK_S)
        return now + (ahead if timedelta(0) < ahead < longest else longest)
