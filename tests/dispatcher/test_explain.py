"""What the gate would say: facts for every slot, and no call."""

from gateway.chat import Slot
from gateway.errors import BreakerOpen, CannotServe, Exhausted, Paused, UnknownPrice
from tests.dispatcher.rig import PRICED, Rig, question, refused, tokens, usd


async def explained(rig: Rig, **parts: int):
    """The verdicts on a short question."""
    return await rig.dispatcher.explain(question(**parts), "default", rig.origin())


async def test_each_slot_has_its_facts_and_nobody_is_called():
    budgets = (tokens("t", 50, provider="a"), usd("m", 1000, provider="b"), usd("n", 1000, provider="c"))
    models = {"b": PRICED, "c": {"free": False}, "d": {"context_tokens": 5}}
    rig = Rig("a", "b", "c", "d", budgets=budgets, models=models)
    clamped, whole, unpriced, small = await explained(rig)
    assert (clamped.slot, clamped.prompt_tokens, clamped.output_tokens, clamped.error) == (Slot("a", "m"), 10, 40, None)
    assert [(match.budget.name, match.limit, spent, held) for match, spent, held in clamped.matches] == [("t", 50, 0, 0)]
    assert (whole.cost_micro_usd, whole.output_tokens, whole.error) == (210, 100, None)
    assert isinstance(unpriced.error, UnknownPrice)
    assert isinstance(small.error, CannotServe)
    assert all(provider.calls == 0 for provider in rig.providers.values())
    assert (rig.rows, rig.disk.refusals, rig.held("t")) == ([], [], 0)


async def test_a_refusal_is_the_gates_own():
    rig = Rig(budgets=(tokens("t", 20),))
    (verdict,) = await explained(rig)
    assert isinstance(verdict.error, Exhausted)
    assert verdict.error.blocks[0].asked == 26
    await rig.store.pause(None, "admin")
    (verdict,) = await explained(rig)
    assert isinstance(verdict.error, Paused)


async def test_an_open_breaker_is_said():
    rig = Rig("a", "b")
    rig["a"].plays(refused(401))
    await rig.ask()
    first, second = await explained(rig)
    assert isinstance(first.error, BreakerOpen)
    assert second.error is None
