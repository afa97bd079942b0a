"""The signals that a server listens to: SIGTERM and SIGINT stop it, SIGHUP has it read its configuration again."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Iterator

import structlog

log = structlog.get_logger(__name__)

STOPS = (signal.SIGTERM, signal.SIGINT)


@contextlib.contextmanager
def listening(stop: Callable[[], object], reload: Callable[[], object]) -> Iterator[None]:
    """While it lasts, the first SIGTERM or SIGINT calls `stop`, and a second one ends the process at once."""
    loop = asyncio.get_running_loop()

    def stopped(number: signal.Signals) -> None:
        log.info("stopping", signal=number.name)
        stop()
        # From here on the system's own answer to a signal holds: it ends the process at once. What is then left
        # behind is what a crash leaves, and the next start settles it.
        for other in STOPS:
            loop.remove_signal_handler(other)
            signal.signal(other, signal.SIG_DFL)

    for number in STOPS:
        loop.add_signal_handler(number, stopped, number)
    loop.add_signal_handler(signal.SIGHUP, reload)
    try:
        yield
    finally:
        for number in (*STOPS, signal.SIGHUP):
            loop.remove_signal_handler(number)
