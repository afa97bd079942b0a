"""The memory store keeps the ledger's promises in the smallest case."""

import pytest

from gateway.budget import Amounts, Budget, Budgets, Lifetime, Unit
from gateway.chat import Origin, Slot, Usage
from gateway.errors import Exhausted
from gateway.ledger import Closing, Draft, Outcome, State
from tests.doubles.clock import SettableClock
from tests.doubles.memory_store import MemoryStore


def draft(name: str, tokens: int) -> Draft:
    origin = Origin(f"request-{name}", "http", user="ada")
    return Draft(name, origin, 1, "default", Slot("p", "m"), Amounts(1, tokens, 0), tokens // 2, tokens // 2, 10**15)


async def test_reserve_refuse_settle_reserve() -> None:
    store = MemoryStore(Budgets([Budget("b", Unit.TOKENS, 100, Lifetime())]), SettableClock())
    first = await store.reserve(draft("a", 60))
    with pytest.raises(Exhausted):
        await store.reserve(draft("b", 60))
    closing = Closing(State.SETTLED, Amounts(1, 25, 0), Outcome.ANSWERED, usage=Usage(10, 15))
    assert await store.close(first, closing)
    assert not await store.close(first, closing)
    await store.reserve(draft("c", 60))
    assert store.balance("b") == (25, 60)
    assert [row["state"] for row in store.rows] == ["settled", "pending"]
    assert store.disk.refusals[0]["kind"] == "Exhausted"
