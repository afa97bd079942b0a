"""PostgreSQL finds the gate's rows by key, however the table grows after a plan was made."""

from sqlalchemy import text

from gateway.budget import Budget, Budgets, Lifetime, Unit
from gateway.store.database import Database
from gateway.store.ledger_store import LedgerStore
from tests.contract.world import draft, settled
from tests.doubles.clock import SettableClock


async def test_no_call_reads_the_whole_usage_table(postgres_url: str) -> None:
    database = Database(postgres_url)
    store = LedgerStore(database, Budgets([Budget("tokens", Unit.TOKENS, 1_000_000, Lifetime())]), SettableClock())
    await store.start()

    async def calls() -> None:
        for _ in range(20):
            await store.close(await store.reserve(draft(1)), settled(1))

    async def scanned() -> int:
        # The writer's own numbers, handed in before the next transaction reads them.
        await database.write(lambda connection: connection.execute(text("SELECT pg_stat_force_next_flush()")))
        query = text("SELECT seq_scan FROM pg_stat_user_tables WHERE relname = 'usage'")
        return await database.write(lambda connection: int(connection.scalar(query)))

    # Enough calls for the driver to prepare its statements and for the server to keep their plans.
    await calls()
    before = await scanned()
    await calls()
    assert await scanned() == before
    await database.close()
