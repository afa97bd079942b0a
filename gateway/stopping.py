"""The signals that stop a server: the first asks it to end, a second one ends it at once."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Iterator

import structlog

log = structlog.get_logger(__name__)

SIGNALS = (signal.SIGTERM, signal.SIGINT)


@contextlib.contextmanager
def listening(stopping: asyncio.Event) -> Iterator[None]:
    """While it lasts, the first SIGTERM or SIGINT sets the event, and a second one ends the process at once."""
    loop = asyncio.get_running_loop()

    def signalled(number: signal.Signals) -> None:
        log.info("stopping", signal=number.name)
        stopping.set()
        # From here on the system's own answer to a signal holds: it ends the process at once. What is then left
        # behind is what a crash leaves, and the next start settles it.
        for other in SIGNALS:
            loop.remove_signal_handler(other)
            signal.signal(other, signal.SIG_DFL)

    for number in SIGNALS:
        loop.add_signal_handler(number, signalled, number)
    try:
        yield
    finally:
        for number in SIGNALS:
            loop.remove_signal_handler(number)
