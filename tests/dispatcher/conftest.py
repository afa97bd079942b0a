"""The dispatcher's tests run in virtual time: a wait of an hour takes no time."""

from collections.abc import Callable, Mapping

from tests.doubles.virtual import VirtualLoop


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], VirtualLoop]]:
    """An event loop that moves its clock on instead of waiting."""
    return {"virtual": VirtualLoop}
