"""The rooms of the outside world run on the program's own event loop: its processes and sockets are not asyncio's."""

import asyncio
from collections.abc import Callable, Mapping

import uvloop


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The loop of every test in this folder."""
    return {"uvloop": uvloop.new_event_loop}
