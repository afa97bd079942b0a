"""Alarms ring once for each fire: while nothing runs, when the clock is set, with two processes, when something fails."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from apscheduler.schedulers.asyncio import AsyncIOScheduler
from structlog.testing import capture_logs

from gateway.clock import SystemClock
from gateway.cron import Cron
from gateway.errors import LedgerUnavailable
from gateway.schedules import Alarm, Alarms
from gateway.schedules.alarms import LOOKS_BETWEEN_TRIES, Wake
from tests.doubles.clock import SettableClock

MADRID = ZoneInfo("Europe/Madrid")
NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)


class Remembered:
    """What a database keeps of alarms."""

    def __init__(self, clock: SettableClock) -> None:
        self._clock = clock
        self.seen: dict[str, tuple[str, datetime]] = {}
        self.fires: dict[str, set[datetime]] = {}

    async def first_seen(self, name: str, line: str) -> datetime:
        if name not in self.seen or self.seen[name][0] != line:
            self.seen[name] = line, self._clock.now()
        return self.seen[name][1]

    async def last(self, name: str) -> datetime | None:
        return max(self.fires.get(name, ()), default=None)

    async def mark(self, name: str, fire: datetime) -> bool:
        fires = self.fires.setdefault(name, set())
        new = fire not in fires
        fires.add(fire)
        return new


class Process:
    """One process with one alarm; `look` is what APScheduler does of itself."""

    def __init__(self, clock: SettableClock, memory: Remembered, cron: str = "0 8 * * *") -> None:
        self.rung: list[datetime] = []
        self.failing: Exception | None = None
        self.trigger: Wake
        self._look: Callable[[], Awaitable[object]]
        Alarms([Alarm("morning", Cron(cron, MADRID), self._ring)], memory, clock).join(self._take)

    def _take(self, look: Callable[[], Awaitable[object]], trigger: Wake) -> None:
        self._look, self.trigger = look, trigger

    async def _ring(self, fire: datetime) -> None:
        if self.failing is not None:
            raise self.failing
        self.rung.append(fire)

    async def looked(self, times: int = 1) -> list[str]:
        for _ in range(times):
            await self._look()
        return [f"{fire.astimezone(MADRID):%d %H:%M %Z}" for fire in self.rung]


async def test_it_rings_when_the_clock_has_reached_a_fire_and_once() -> None:
    clock = SettableClock(NOON)
    process = Process(clock, Remembered(clock))
    assert await process.looked() == []
    clock.set(datetime(2026, 6, 2, 5, 59, 59, tzinfo=UTC))
    assert await process.looked() == []
    clock.advance(1)
    assert await process.looked(3) == ["02 08:00 CEST"]
    # Set back and on again, the same fire is no new one.
    clock.advance(hours=-3)
    assert await process.looked() == ["02 08:00 CEST"]
    clock.advance(hours=4)
    assert await process.looked() == ["02 08:00 CEST"]


async def test_one_that_is_seen_first_has_no_past() -> None:
    clock = SettableClock(NOON)
    assert await Process(clock, Remembered(clock), "* * * * *").looked() == []


@pytest.mark.parametrize(("days", "expected"), [(0, []), (1, ["02 08:00 CEST"]), (9, ["10 08:00 CEST"])])
async def test_of_the_fires_that_were_missed_while_nothing_ran_the_last_one_rings(days: int, expected: list[str]) -> None:
    clock = SettableClock(NOON)
    memory = Remembered(clock)
    await Process(clock, memory).looked()
    clock.advance(days=days)
    assert await Process(clock, memory).looked() == expected
    assert await Process(clock, memory).looked() == []


async def test_a_stall_of_days_is_one_ring() -> None:
    clock = SettableClock(NOON)
    process = Process(clock, Remembered(clock))
    await process.looked()
    clock.advance(days=5)
    assert await process.looked(3) == ["06 08:00 CEST"]


async def test_a_changed_line_has_no_past_either_also_when_it_is_changed_back() -> None:
    clock = SettableClock(NOON)
    memory = Remembered(clock)
    await Process(clock, memory, "0 8 * * *").looked()
    clock.advance(hours=1)
    # Two in the afternoon in Madrid was an hour ago, and no fire of this alarm then.
    assert await Process(clock, memory, "0 14 * * *").looked() == []
    clock.advance(days=1)
    assert await Process(clock, memory, "0 8 * * *").looked() == []
    clock.advance(days=1)
    assert await Process(clock, memory, "0 8 * * *").looked() == ["03 08:00 CEST"]


async def test_the_changes_of_the_clocks_make_no_ring_too_many_and_none_too_few() -> None:
    for start, expected in (
        (datetime(2026, 3, 28, 12, tzinfo=UTC), ["29 03:00 CEST", "30 02:30 CEST"]),
        (datetime(2026, 10, 24, 12, tzinfo=UTC), ["25 02:30 CEST", "26 02:30 CET"]),
    ):
        clock = SettableClock(start)
        process = Process(clock, Remembered(clock), "30 2 * * *")
        for _ in range(2 * 24 * 12):
            await process.looked()
            clock.advance(minutes=5)
        assert await process.looked() == expected


async def test_a_fire_that_another_process_has_seen_to_is_done() -> None:
    clock = SettableClock(NOON)
    memory = Remembered(clock)
    first, second = Process(clock, memory), Process(clock, memory)
    assert await first.looked() == await second.looked() == []
    clock.advance(days=1)
    assert await second.looked() == ["02 08:00 CEST"]
    assert await first.looked() == []
    clock.advance(days=1)
    assert await first.looked() == ["03 08:00 CEST"]
    assert await second.looked() == ["02 08:00 CEST"]


@pytest.mark.parametrize("error", [LedgerUnavailable("gone"), ZeroDivisionError("x")])
async def test_a_ring_that_fails_is_tried_again_after_a_while(error: Exception) -> None:
    clock = SettableClock(NOON)
    memory = Remembered(clock)
    process = Process(clock, memory)
    await process.looked()
    clock.advance(days=1)
    process.failing = error
    with capture_logs() as told:
        assert await process.looked(LOOKS_BETWEEN_TRIES) == []
    assert [(one["event"], one["alarm"]) for one in told] == [("alarm_delayed", "morning")]
    assert memory.fires == {}
    process.failing = None
    assert await process.looked(2) == ["02 08:00 CEST"]


async def test_it_is_woken_at_its_fire_and_never_later_than_in_a_second() -> None:
    clock = SettableClock(NOON)
    process = Process(clock, Remembered(clock))
    await process.looked()
    machine = datetime(2030, 1, 1, tzinfo=UTC)
    assert process.trigger.get_next_fire_time(None, machine) == machine + timedelta(seconds=1)
    clock.set(datetime(2026, 6, 2, 5, 59, 59, 750_000, tzinfo=UTC))
    assert process.trigger.get_next_fire_time(None, machine) == machine + timedelta(seconds=0.25)
    # Due and not done: looked at again soon, not at once, or a failing one would keep a processor busy.
    clock.advance(hours=1)
    assert process.trigger.get_next_fire_time(None, machine) == machine + timedelta(seconds=1)


async def test_apscheduler_wakes_it() -> None:
    clock = SettableClock(NOON)
    memory = Remembered(clock)
    process = Process(clock, memory)
    scheduler = AsyncIOScheduler(timezone=UTC)
    scheduler.add_job(process.looked, process.trigger, next_run_time=SystemClock().now(), max_instances=2)
    scheduler.start()
    try:
        async with asyncio.timeout(20):
            while not memory.seen:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            clock.advance(days=1)
            while not process.rung:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
    finally:
        scheduler.shutdown(wait=False)
    assert await process.looked() == ["02 08:00 CEST"]
