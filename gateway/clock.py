"""The only place in the product that reads the time.

Everything else is handed a `Clock`, so that a test can set it and a simulator can run it.
"""

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Wall time for windows and deadlines, monotonic time for latencies."""

    def now(self) -> datetime:
        """The current instant, aware, in UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds from an arbitrary origin that never goes back."""
        ...


class SystemClock:
    """The machine's own clock."""

    def now(self) -> datetime:
        """The current instant, aware, in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Seconds from an arbitrary origin that never goes back."""
        return time.monotonic()


def to_ms(instant: datetime) -> int:
    """Milliseconds since 1970 UTC, rounded down: the form in which the store keeps every instant."""
    delta = instant - EPOCH
    return (delta.days * 86_400 + delta.seconds) * 1000 + delta.microseconds // 1000


def from_ms(milliseconds: int) -> datetime:
    """The aware UTC instant of `to_ms`."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
