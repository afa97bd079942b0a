"""Which spans of time a report is about: whole days, weeks (from Monday) and months in a zone. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

from gateway.budget import Calendar
from gateway.clock import from_ms, to_ms

QUARTER = timedelta(minutes=15)
"""Hours of any zone begin at one of these."""


@dataclass(frozen=True, slots=True)
class Periods:
    """The period that is going on, the whole one before it, and the one before that, which it is measured against.

    Instants in UTC. `kind` is day, week or month.
    """

    kind: str
    zone: ZoneInfo
    before: datetime
    """Where the one before the previous one begins; it ends where that begins."""
    previous: datetime
    start: datetime
    """Where the present one begins, and the previous one ends."""
    until: datetime
    """Up to where the present one is told: the report's own instant, or its end."""
    same: datetime
    """As far into the previous one as `until` is into the present one, and never past its end."""

    @classmethod
    def at(cls, kind: str, zone: ZoneInfo, instant: datetime, now: datetime) -> Periods:
        """Those of a report that is due at an instant and is made now: a late one is about the same periods."""
        window = Calendar(kind, zone)
        start = window.bucket(to_ms(instant))
        previous = window.bucket(start - 1)
        until = min(max(to_ms(now), start), window.leaves_at(start))
        same = min(previous + until - start, start)
        found = (window.bucket(previous - 1), previous, start, until, same)
        return cls(kind, zone, *map(from_ms, found))

    @property
    def edges(self) -> tuple[datetime, ...]:
        """Cut into: the one before, the previous one up to the same point, its rest, and the present one so far."""
        return self.before, self.previous, self.same, self.start, self.until

    @property
    def hourly(self) -> bool:
        """True where it is drawn by the hour; else by the day."""
        return self.kind == "day"

    @property
    def bar(self) -> str:
        """What it is drawn by, as usage is grouped by it."""
        return "hour" if self.hourly else "day"

    def bars(self) -> list[datetime]:
        """Where each hour or day begins, from the previous period's first to the present one's latest, in the zone."""
        return [instant.astimezone(self.zone) for instant in self._bars()]

    def _bars(self) -> Iterator[datetime]:
        if self.hourly:
            yield from hours(self.previous, max(self.until, self.start), self.zone)
            return
        window = Calendar("day", self.zone)
        day = to_ms(self.previous)
        while day < max(to_ms(self.until), to_ms(self.start)):
            yield from_ms(day)
            day = window.leaves_at(day)

    def bar_of(self, local: datetime) -> datetime | date:
        """What two instants in the same hour or day have in common."""
        return hour_of(local) if self.hourly else local.date()


def hours(start: datetime, end: datetime, zone: ZoneInfo) -> Iterator[datetime]:
    """Where each hour of the zone's own clock begins that has a part in [start, end), in UTC.

    A change of half an hour moves where they begin.
    """
    quarter, latest = hour_of(start.astimezone(zone)), None
    while quarter < end:
        hour = hour_of(quarter.astimezone(zone))
        if hour != latest:
            yield hour
        quarter, latest = quarter + QUARTER, hour


def hour_of(local: datetime) -> datetime:
    """Where an instant's hour begins, in UTC: the two hours that an autumn night has twice are two."""
    return local.replace(minute=0, second=0, microsecond=0).astimezone(UTC)
