"""The gate: what a slot would hold, clamping, refusals without a call."""

import asyncio
from datetime import timedelta

import pytest

from gateway.chat import Slot
from gateway.errors import CannotServe, ChainExhausted, Exhausted, InvalidRequest, LedgerUnavailable, Paused, UnknownPrice
from tests.dispatcher.rig import PRICED, Rig, lifetime, refused, requests, rolling, said, tokens, usd
from tests.doubles.memory_store import MemoryStore
from tests.doubles.provider import Play


async def test_a_call_holds_its_worst_case_and_settles_what_was_used():
    rig = Rig(budgets=(tokens("t", 1000),))
    rig["a"].plays(Play(delay_s=5))
    asking = asyncio.ensure_future(rig.ask())
    await asyncio.sleep(1)
    assert rig.held("t") == 110
    reply = await asking
    assert (rig.spent("t"), rig.held("t")) == (13, 0)
    assert (reply.usage.tokens, reply.slot, reply.chain, reply.clamped) == (13, Slot("a", "m"), "default", False)


async def test_case_1_an_exhausted_hour_survives_a_restart_and_sends_nothing():
    budgets = (tokens("t", 100, provider="a"),)
    before = Rig("a", "b", budgets=budgets)
    before["a"].plays(Play(prompt=60, words=said(35)))
    await before.ask()
    after = Rig("a", "b", budgets=budgets, disk=before.disk, owner="owner-2")
    reply = await after.ask()
    assert after["a"].calls == 0
    assert reply.slot.provider == "b"
    assert isinstance(reply.skipped[0].error, Exhausted)


async def test_case_2_an_exhausted_provider_gets_no_call_and_no_cooldown():
    rig = Rig(budgets=(tokens("t", 0),), models={"a": {"max_attempts": 3}})
    with pytest.raises(ChainExhausted) as caught:
        await rig.ask()
    assert rig["a"].calls == 0
    assert caught.value.budgets_only
    assert rig.observer.breaker_ == []
    assert asyncio.get_running_loop().time() == 0


async def test_case_3_a_streamed_reply_is_clamped_to_what_is_left():
    rig = Rig(budgets=(tokens("hour", 1000),), models={"a": {"max_output_tokens": 900}})
    rig["a"].plays(Play(words=said(870)), Play(words=said(500)))
    await rig.read()
    heard = await rig.read()
    assert len(heard.text.split()) == 1000 - 880 - 10
    assert heard.reply is not None
    assert heard.reply.clamped
    assert rig.spent("hour") == 1000
    assert rig.outcomes == ["answered", "clamped"]


async def test_case_3_with_less_than_the_least_useful_reply_nothing_is_sent():
    rig = Rig(budgets=(tokens("hour", 120),))
    rig["a"].plays(Play(words=said(90)))
    await rig.read()
    heard = await rig.read()
    assert isinstance(heard.error, ChainExhausted)
    assert rig["a"].calls == 1


async def test_case_4_fifty_at_once_with_room_for_ten():
    rig = Rig(budgets=(requests("r", 10),))
    rig["a"].default = Play(delay_s=3)
    asked = await asyncio.gather(*(rig.ask() for _ in range(50)), return_exceptions=True)
    assert rig["a"].calls == 10
    assert sum(isinstance(one, ChainExhausted) for one in asked) == 40


async def test_a_process_that_stood_still_makes_no_call_on_a_hold_that_expired_meanwhile():
    class StandsStill(MemoryStore):
        stood = False

        async def reserve(self, draft):
            made = await super().reserve(draft)
            if not self.stood:
                self.stood = True
                await asyncio.sleep(40)
                assert await Rig(disk=self.disk, budgets=budgets, owner="owner-2").store.sweep() == 1
            return made

    budgets = (tokens("t", 1000),)
    rig = Rig(budgets=budgets, store=StandsStill)
    await rig.ask()
    assert (rig["a"].calls, rig.outcomes, rig.spent("t")) == (1, ["expired", "answered"], 110 + 13)


async def test_case_5_the_second_budget_refuses_and_the_first_shows_no_hold():
    rig = Rig(budgets=(tokens("first", 1000), tokens("second", 0, user="*")))
    with pytest.raises(ChainExhausted):
        await rig.ask(user="1")
    assert (rig.held("first"), rig.spent("first")) == (0, 0)


async def test_case_9_the_fallback_has_its_own_budget():
    rig = Rig("a", "b", budgets=(tokens("b-hour", 0, provider="b"),), models={"a": {"max_attempts": 1}})
    rig["a"].plays(refused())
    with pytest.raises(ChainExhausted) as caught:
        await rig.ask()
    assert rig["b"].calls == 0
    assert not caught.value.budgets_only


async def test_case_11_the_later_reset_is_the_one_that_counts():
    rig = Rig(budgets=(rolling("hour", 50), rolling("day", 60, length_s=86_400)))
    rig["a"].plays(Play(prompt=10, words=said(40)))
    await rig.ask(limit=40)
    with pytest.raises(ChainExhausted) as caught:
        await rig.ask(limit=20)
    assert caught.value.available_at is not None
    assert caught.value.available_at - rig.clock.now() > timedelta(hours=20)


async def test_case_15_a_call_refused_by_one_limit_uses_up_no_other():
    rig = Rig(budgets=(requests("r", 5), tokens("t", 0)))
    for _ in range(5):
        with pytest.raises(ChainExhausted):
            await rig.ask()
    assert rig.spent("r") == 0


async def test_case_16_a_call_counts_in_the_window_in_which_it_was_reserved():
    rig = Rig(budgets=(tokens("t", 1000),))
    rig.clock.offset = timedelta(minutes=59, seconds=58)
    rig["a"].plays(Play(delay_s=10))
    await rig.ask()
    assert rig.spent("t") == 0
    assert rig.rows[0]["spent_tokens"] == 13
    assert rig.disk.counters["t", ""].newest == rig.rows[0]["started"] // 3_600_000 * 3_600_000


async def test_case_60_answers_multiply_the_hold():
    rig = Rig(budgets=(tokens("t", 1000),))
    await rig.ask(n=5, limit=20)
    assert rig.rows[0]["held_tokens"] == 10 + 5 * 20
    assert rig["a"].bills[0].reservation.output_tokens == 20


async def test_case_62_a_long_prompt_fits_or_is_refused_as_what_it_is():
    rig = Rig(budgets=(rolling("t", 1000),), models={"a": {"max_output_tokens": 500}})
    rig["a"].plays(Play(prompt=500, words=said(100)), Play(prompt=500, words=said(10)))
    long = " ".join(["word"] * 500)
    await rig.ask(long)
    with pytest.raises(ChainExhausted) as caught:
        await rig.ask(long)
    refusal = caught.value.causes[0].error
    assert isinstance(refusal, Exhausted)
    assert not refusal.too_large
    assert refusal.resets_at is not None
    with pytest.raises(ChainExhausted) as caught:
        await rig.ask(" ".join(["word"] * 1500))
    refusal = caught.value.causes[0].error
    assert isinstance(refusal, Exhausted)
    assert refusal.too_large


async def test_case_63_little_room_goes_to_the_next_slot_in_full():
    rig = Rig("a", "b", budgets=(tokens("t", 22, provider="a"),))
    rig["b"].plays(Play(words=said(80)))
    reply = await rig.ask()
    assert reply.slot.provider == "b"
    assert len(reply.completion.text.split()) == 80
    assert not reply.clamped
    assert rig["a"].calls == 0


async def test_a_refusal_speaks_of_the_least_useful_reply():
    """Fully a call holds 110, so its whole answer never fits; sixteen tokens of it do, once the window opens."""
    rig = Rig(budgets=(rolling("t", 60),))
    rig["a"].plays(Play(words=said(40)))
    await rig.ask()
    with pytest.raises(ChainExhausted) as caught:
        await rig.ask()
    refusal = caught.value.causes[0].error
    assert isinstance(refusal, Exhausted)
    assert refusal.blocks[0].asked == 26
    assert caught.value.available_at is not None


async def test_what_was_asked_is_the_least_useful_reply_where_it_is_less():
    rig = Rig(budgets=(tokens("t", 15),))
    rig["a"].plays(Play(words=said(5)))
    reply = await rig.ask(limit=5)
    assert not reply.clamped
    assert rig.spent("t") == 15


async def test_an_unclampable_request_is_never_clamped():
    rig = Rig("a", "b", budgets=(tokens("t", 90, provider="a"),))
    reply = await rig.ask(clampable=False)
    assert reply.slot.provider == "b"
    assert rig["b"].bills[0].reservation.output_tokens == 100
    with pytest.raises(ChainExhausted) as caught:
        await rig.ask(clampable=False, limit=500, target="b")
    assert isinstance(caught.value.causes[0].error, CannotServe)


async def test_what_is_held_is_no_room():
    rig = Rig(budgets=(tokens("t", 200),))
    rig["a"].plays(Play(delay_s=5))
    first = asyncio.ensure_future(rig.ask())
    await asyncio.sleep(1)
    await rig.ask()
    assert [bill.reservation.output_tokens for bill in rig["a"].bills] == [100, 80]
    await first


async def test_money_clamps_too():
    rig = Rig(budgets=(usd("m", 100),), models={"a": PRICED})
    rig["a"].plays(Play(words=said(100)))
    reply = await rig.ask()
    assert rig["a"].bills[0].reservation.output_tokens == 45
    assert (reply.cost_micro_usd, reply.clamped, rig.spent("m")) == (100, True, 100)


async def test_case_27_an_unknown_price_is_refused_only_under_a_budget_of_money():
    rig = Rig(
        "a", "b", budgets=(usd("m", 100, provider="a"), tokens("t", 1000)), models={"a": {"free": False}, "b": {"free": False}}
    )
    with pytest.raises(ChainExhausted) as caught:
        await rig.ask(target="a")
    assert isinstance(caught.value.causes[0].error, UnknownPrice)
    assert rig["a"].calls == 0
    reply = await rig.ask(target="b")
    assert reply.cost_micro_usd == 0


async def test_a_slot_that_cannot_serve_is_passed_over_without_a_call():
    rig = Rig("a", "b", "c", models={"a": {"context_tokens": 8}, "b": {"tools": False}})
    reply = await rig.ask(extra={"tools": [{"type": "function"}]})
    assert reply.slot.provider == "c"
    assert [type(cause.error) for cause in reply.skipped] == [CannotServe, CannotServe]
    assert [refusal["kind"] for refusal in rig.disk.refusals] == ["CannotServe", "CannotServe"]


async def test_the_output_limit_leaves_room_for_the_prompt_in_the_context():
    rig = Rig(models={"a": {"context_tokens": 60}})
    await rig.ask()
    assert rig["a"].bills[0].reservation.output_tokens == 50


async def test_a_pause_refuses_everything():
    rig = Rig("a", "b")
    await rig.store.pause(None, "admin")
    with pytest.raises(ChainExhausted) as caught:
        await rig.ask()
    assert caught.value.budgets_only
    assert all(isinstance(cause.error, Paused) for cause in caught.value.causes)


async def test_without_a_ledger_no_call_is_made():
    rig = Rig("a", "b")
    rig.disk.down = LedgerUnavailable("gone")
    with pytest.raises(LedgerUnavailable):
        await rig.ask()
    assert rig["a"].calls + rig["b"].calls == 0


@pytest.mark.parametrize("parts", [{"limit": 0}, {"n": 0}])
async def test_a_request_for_nothing_is_invalid(parts: dict[str, int]):
    rig = Rig()
    with pytest.raises(InvalidRequest):
        await rig.ask(**parts)


async def test_a_lifetime_budget_never_opens_again():
    rig = Rig(budgets=(lifetime("t", 30),))
    rig["a"].plays(Play(words=said(20)))
    await rig.ask(limit=20)
    with pytest.raises(ChainExhausted) as caught:
        await rig.ask(limit=20)
    assert caught.value.available_at is None


async def test_case_64_only_holds_in_the_way_and_a_patient_request_waits():
    rig = Rig(budgets=(tokens("t", 120),))
    rig["a"].plays(Play(delay_s=4))
    first = asyncio.ensure_future(rig.ask())
    await asyncio.sleep(1)
    with pytest.raises(ChainExhausted) as caught:
        await rig.ask()
    assert isinstance(caught.value.causes[0].error, Exhausted)
    assert caught.value.causes[0].error.held_only
    assert caught.value.available_at == rig.clock.now()
    reply = await rig.ask(patience_s=30)
    assert reply.completion.text
    assert 4 < asyncio.get_running_loop().time() < 5
    await first


class ClosesMeanwhile(MemoryStore):
    """What holds the room is closed in the transaction after a refusal, before the refused one hears of it."""

    other: asyncio.Future[object] | None = None

    async def reserve(self, draft):
        try:
            return await super().reserve(draft)
        except Exhausted:
            if self.other is not None:
                await self.other
            raise


async def test_case_64_room_that_came_before_the_refused_request_began_to_wait_is_seen_at_once():
    rig = Rig(budgets=(tokens("t", 120),), store=ClosesMeanwhile)
    rig["a"].plays(Play(delay_s=4))
    rig.store.other = asyncio.ensure_future(rig.ask())
    await asyncio.sleep(1)
    assert (await rig.ask(limit=16, patience_s=30)).completion.text
    assert 4 < asyncio.get_running_loop().time() < 5


async def test_a_patient_request_does_not_wait_for_what_is_spent():
    rig = Rig(budgets=(tokens("t", 110),))
    rig["a"].plays(Play(words=said(100)))
    await rig.ask()
    with pytest.raises(ChainExhausted):
        await rig.ask(patience_s=30)
    assert asyncio.get_running_loop().time() == 0


async def test_patience_ends():
    rig = Rig(budgets=(tokens("t", 110),))
    rig["a"].plays(Play(delay_s=60))
    first = asyncio.ensure_future(rig.ask())
    await asyncio.sleep(0)
    with pytest.raises(ChainExhausted):
        await rig.ask(patience_s=3)
    assert 3 <= asyncio.get_running_loop().time() < 3.2
    await first


async def test_case_67_two_hundred_and_fifty_at_once_with_room_for_thirty():
    rig = Rig(budgets=(requests("r", 30),))
    asked = await asyncio.gather(*(rig.ask(patience_s=1) for _ in range(250)), return_exceptions=True)
    assert rig["a"].calls == 30
    assert sum(isinstance(one, ChainExhausted) for one in asked) == 220
