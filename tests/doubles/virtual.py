"""Virtual time: an event loop that moves its clock on instead of waiting."""

import asyncio
import selectors
from collections.abc import Coroutine, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

T = TypeVar("T")


class _Selector(selectors.BaseSelector):
    """Has no ready file ever: waiting for one moves the time on."""

    def __init__(self) -> None:
        self.now = 0.0
        self._keys: dict[int, selectors.SelectorKey] = {}

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        """Keeps it, and never looks at it."""
        fd = fileobj if isinstance(fileobj, int) else fileobj.fileno()
        key = self._keys[fd] = selectors.SelectorKey(fileobj, fd, events, data)
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        """Forgets it."""
        return self._keys.pop(fileobj if isinstance(fileobj, int) else fileobj.fileno())

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """The time is now later by `timeout` seconds."""
        assert timeout is not None, "everybody waits and nothing will ever happen"
        self.now += max(timeout, 0.0)
        return []

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        """What was registered."""
        return self._keys


class VirtualLoop(asyncio.SelectorEventLoop):
    """Its time begins at 0 and goes on only when everybody waits."""

    def __init__(self) -> None:
        self._virtual = _Selector()
        super().__init__(self._virtual)

    def time(self) -> float:
        """Virtual seconds."""
        return self._virtual.now


class LoopClock:
    """The running loop's time as a clock; `offset` moves the wall time without moving the monotonic one."""

    def __init__(self, start: datetime = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)) -> None:
        self.start = start
        self.offset = timedelta()

    def now(self) -> datetime:
        """The start, and the loop's seconds since."""
        return self.start + self.offset + timedelta(seconds=self.monotonic())

    def monotonic(self) -> float:
        """The loop's seconds."""
        return asyncio.get_running_loop().time()


def run(work: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine in virtual time, to its end."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(work)
