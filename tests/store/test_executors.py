"""Whether there is a worker at all."""

import asyncio

from gateway.store.executors import Executors


async def test_a_worker_is_seen_while_it_lives_and_by_whoever_looks(database_url: str) -> None:
    first, second, looking = (Executors(database_url) for _ in range(3))
    assert not await looking.anybody()
    await first.announce()
    await second.announce()
    assert await looking.anybody()
    assert await looking.anybody(), "to look takes nothing away"
    await first.close()
    assert await looking.anybody()
    await second.close()
    # A server needs a moment to notice that a connection is gone.
    async with asyncio.timeout(30):
        while await looking.anybody():  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    await looking.close()
