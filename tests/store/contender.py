"""One process of several on one database: `python -m tests.store.contender URL COUNT [hold]`.

Makes COUNT reservations at once and prints how many were admitted and refused. With `hold` it then waits to be killed.
"""

import asyncio
import sys

from gateway import logs
from gateway.budget import Budget, Budgets, Lifetime, Unit
from gateway.clock import SystemClock
from gateway.errors import Exhausted
from gateway.ledger import Reservation
from gateway.store.database import Database
from gateway.store.ledger_store import LedgerStore
from tests.contract.world import draft

BUDGETS = Budgets(
    [
        Budget("a", Unit.TOKENS, 10_000, Lifetime()),
        Budget("b", Unit.REQUESTS, 50, Lifetime()),
        Budget("c", Unit.TOKENS, 1_000_000, Lifetime(), {"user": "*"}),
    ]
)


async def main(url: str, count: int, name: str, hold: bool) -> None:
    logs.configure(SystemClock(), sys.stderr, ())
    store = LedgerStore(Database(url), BUDGETS, SystemClock())
    await store.start()
    print("ready", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    drafts = [draft(10, user=f"u{number % 7}", prefix=name) for number in range(count)]
    results = await asyncio.gather(*(store.reserve(each) for each in drafts), return_exceptions=True)
    admitted = sum(isinstance(result, Reservation) for result in results)
    refused = sum(isinstance(result, Exhausted) for result in results)
    print(admitted, refused, flush=True)
    if hold:
        await asyncio.sleep(60)
    await store.database.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), sys.argv[3], len(sys.argv) > 4))
