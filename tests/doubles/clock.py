"""A clock that a test sets."""

from datetime import UTC, datetime, timedelta


class SettableClock:
    """Stands still until it is moved. `monotonic` moves with it."""

    def __init__(self, now: datetime | None = None) -> None:
        self._start = self._now = now or datetime(2026, 3, 2, 12, 0, tzinfo=UTC)

    def now(self) -> datetime:
        """The instant last set."""
        return self._now

    def monotonic(self) -> float:
        """Seconds since the clock was made."""
        return (self._now - self._start).total_seconds()

    def set(self, now: datetime) -> None:
        """Jumps to an instant, also backwards."""
        self._now = now

    def advance(self, seconds: float = 0, **parts: float) -> None:
        """Moves on by seconds, or by `hours=…`, `minutes=…`, `days=…`."""
        self._now += timedelta(seconds=seconds, **parts)
