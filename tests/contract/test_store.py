"""What every store promises: on memory, on SQLite and on PostgreSQL."""

import asyncio
from datetime import UTC, datetime, time, timedelta
from zoneinfo import ZoneInfo

import pytest

from gateway.budget import Amounts, Budget, Calendar, Lifetime, Rolling, Unit
from gateway.clock import to_ms
from gateway.errors import Exhausted, Paused
from gateway.ledger import Closing, Outcome, Reservation, State
from tests.contract.world import RELEASED, World, draft, settled

MADRID = ZoneInfo("Europe/Madrid")
HOUR = Calendar("hour", ZoneInfo("UTC"))
DAY = Calendar("day", MADRID, time(6))
ROLLING = Rolling(3600, "rolling 1h")


def tokens(limit: int, name: str = "tokens", window=HOUR, **fields) -> Budget:  # type: ignore[no-untyped-def]
    return Budget(name, Unit.TOKENS, limit, window, **fields)


async def test_a_hold_counts_until_it_is_settled_and_then_what_was_spent(world: World) -> None:
    budget = tokens(100)
    store = await world.process(budget)
    first = await store.reserve(draft(60))
    with pytest.raises(Exhausted) as refused:
        await store.reserve(draft(60))
    assert (refused.value.blocks[0].spent, refused.value.blocks[0].held, refused.value.blocks[0].asked) == (0, 60, 60)
    assert await store.close(first, settled(25))
    await store.reserve(draft(60))
    assert await world.balance(budget) == (25, 60)


async def test_closing_twice_changes_nothing_the_second_time(world: World) -> None:
    budget = tokens(100)
    store = await world.process(budget)
    reservation = await store.reserve(draft(60))
    assert await store.close(reservation, settled(25))
    for again in (settled(50), RELEASED, settled(25)):
        assert not await store.close(reservation, again)
    assert await world.balance(budget) == (25, 0)


async def test_a_release_gives_everything_back(world: World) -> None:
    budget = tokens(100)
    store = await world.process(budget)
    assert await store.close(await store.reserve(draft(60)), RELEASED)
    assert await world.balance(budget) == (0, 0)
    row = (await world.rows())[0]
    assert (row["state"], row["outcome"], row["detail"], row["cost_micro_usd"]) == ("released", "refused", "503", 0)


async def test_the_row_tells_the_whole_attempt(world: World) -> None:
    store = await world.process(tokens(100_000), Budget("money", Unit.MICRO_USD, 10**6, DAY))
    asker = {"user": "ada", "chat": "-1/7", "workflow": "clone", "run": "r1", "step": "s1", "key": "ops", "guest": True}
    reservation = await store.reserve(draft(600, micro_usd=900, attempt=2, surface="telegram", **asker))
    pending = (await world.rows())[0]
    assert (pending["state"], pending["outcome"], pending["held_tokens"], pending["ended"]) == ("pending", "pending", 600, None)
    world.clock.advance(2)
    closing = settled(700, 1_000, model_served="m-1-0905", price_source="list", estimated=True, first_token_ms=120, total_ms=1900)
    await store.close(reservation, closing)
    row = (await world.rows())[0]
    expected = asker | {
        "id": reservation.id, "request_id": reservation.draft.origin.request_id, "attempt": 2, "surface": "telegram",
        "chain": "default", "provider": "moonshot", "model_asked": "m-1", "model_served": "m-1-0905", "prompt_tokens": 350,
        "output_tokens": 350, "cached_tokens": 0, "reasoning_tokens": 0, "cost_micro_usd": 1000, "price_source": "list",
        "outcome": "answered", "estimated": True, "uncertain": False, "overrun": 100, "overrun_micro_usd": 100,
        "latency_to_first_token_ms": 120, "total_latency_ms": 1900, "started": to_ms(world.clock.now()) - 2000,
        "ended": to_ms(world.clock.now()), "state": "settled", "spent_tokens": 700, "spent_requests": 1,
    }  # fmt: skip
    assert {name: row[name] for name in expected} == expected


async def test_where_the_usage_is_unknown_prompt_and_output_sum_to_what_was_spent(world: World) -> None:
    store = await world.process(tokens(1000))
    closing = Closing(State.SETTLED, Amounts(1, 90, 0), Outcome.UNANSWERED, uncertain=True)
    await store.close(await store.reserve(draft(100)), closing)
    row = (await world.rows())[0]
    assert (row["prompt_tokens"], row["output_tokens"], row["spent_tokens"], row["uncertain"]) == (50, 40, 90, True)


async def test_what_a_provider_says_cannot_break_the_closing(world: World) -> None:
    store = await world.process(tokens(1000))
    closing = Closing(
        State.SETTLED, Amounts(1, 10**30, -5), Outcome.UNANSWERED, model_served="m\0\ud800", detail="\0\udfff" + "x" * 9999
    )
    assert await store.close(await store.reserve(draft(100)), closing)
    row = (await world.rows())[0]
    assert row["state"] == "settled"
    assert (row["spent_tokens"], row["cost_micro_usd"]) == (10**15, 0)
    assert len(row["detail"]) <= 500


async def test_case_4_fifty_at_once_with_room_for_ten(world: World) -> None:
    budget = tokens(100)
    store = await world.process(budget)
    results = await asyncio.gather(*(store.reserve(draft(10)) for _ in range(50)), return_exceptions=True)
    assert sum(isinstance(result, Reservation) for result in results) == 10
    assert sum(isinstance(result, Exhausted) for result in results) == 40
    assert await world.balance(budget) == (0, 100)


async def test_case_5_a_second_budget_that_refuses_leaves_no_hold_on_the_first(world: World) -> None:
    provider = tokens(1000, "a-provider", scope={"provider": "moonshot"})
    user = tokens(50, "z-user", scope={"user": "*"})
    store = await world.process(provider, user)
    with pytest.raises(Exhausted) as refused:
        await store.reserve(draft(60, user="ada"))
    assert [block.budget for block in refused.value.blocks] == ["z-user"]
    assert await world.balance(provider) == (0, 0)
    assert await world.rows() == []


async def test_case_6_nought_means_nothing(world: World) -> None:
    store = await world.process(tokens(0))
    for amount in (0, 1):
        with pytest.raises(Exhausted):
            await store.reserve(draft(amount))


async def test_case_7_exactly_the_limit_is_allowed_and_one_more_is_not(world: World) -> None:
    store = await world.process(tokens(100))
    await store.close(await store.reserve(draft(60)), settled(60))
    await store.reserve(draft(40))
    with pytest.raises(Exhausted):
        await store.reserve(draft(1))


async def test_case_11_the_later_reset_of_two_windows_is_the_one_that_counts(world: World) -> None:
    world.clock.set(datetime(2026, 3, 2, 12, 30, tzinfo=UTC))
    store = await world.process(tokens(100, "hour"), tokens(100, "day", DAY))
    await store.close(await store.reserve(draft(100)), settled(100))
    with pytest.raises(Exhausted) as refused:
        await store.reserve(draft(1))
    assert {block.budget: block.resets_at for block in refused.value.blocks} == {
        "hour": datetime(2026, 3, 2, 13, tzinfo=UTC),
        "day": datetime(2026, 3, 3, 5, tzinfo=UTC),
    }
    assert refused.value.resets_at == datetime(2026, 3, 3, 5, tzinfo=UTC)


async def test_case_12a_a_lowered_limit_lets_nothing_through_until_enough_has_left_the_window(world: World) -> None:
    store = await world.process(tokens(300_000, window=ROLLING))
    for _ in range(3):
        await store.close(await store.reserve(draft(100_000)), settled(100_000))
        world.clock.advance(minutes=10)
    store = await world.process(tokens(250_000, window=ROLLING), owner="restarted")
    with pytest.raises(Exhausted) as refused:
        await store.reserve(draft(16_924))
    assert refused.value.blocks[0].spent == 300_000
    resets_at = refused.value.resets_at
    assert resets_at == datetime(2026, 3, 2, 13, 1, tzinfo=UTC)
    world.clock.set(resets_at - timedelta(milliseconds=1))
    with pytest.raises(Exhausted):
        await store.reserve(draft(16_924))
    world.clock.set(resets_at)
    await store.reserve(draft(16_924))


async def test_case_15_a_refusal_by_one_limit_does_not_use_up_another(world: World) -> None:
    calls = Budget("calls", Unit.REQUESTS, 5, HOUR)
    store = await world.process(calls, tokens(10))
    for _ in range(9):
        with pytest.raises(Exhausted):
            await store.reserve(draft(11))
    assert await world.balance(calls) == (0, 0)


async def test_case_16_a_call_counts_in_the_window_in_which_it_was_reserved(world: World) -> None:
    budget = tokens(100)
    world.clock.set(datetime(2026, 3, 2, 12, 59, 59, tzinfo=UTC))
    store = await world.process(budget)
    reservation = await store.reserve(draft(80))
    world.clock.advance(6)
    assert await world.balance(budget) == (0, 0)
    await store.close(reservation, settled(80))
    assert await world.balance(budget) == (0, 0)
    await store.reserve(draft(100))
    assert (await world.rows())[0]["spent_tokens"] == 80


async def test_a_clock_that_goes_back_does_not_open_an_old_window(world: World) -> None:
    world.clock.set(datetime(2026, 3, 2, 13, 0, 1, tzinfo=UTC))
    store = await world.process(tokens(100))
    await store.close(await store.reserve(draft(90)), settled(90))
    world.clock.set(datetime(2026, 3, 2, 12, 59, tzinfo=UTC))
    with pytest.raises(Exhausted):
        await store.reserve(draft(90))
    await store.close(await store.reserve(draft(10)), settled(10))
    world.clock.set(datetime(2026, 3, 2, 13, 0, 2, tzinfo=UTC))
    with pytest.raises(Exhausted):
        await store.reserve(draft(1))


async def test_room_comes_back_bucket_by_bucket_and_never_early(world: World) -> None:
    store = await world.process(tokens(100, window=ROLLING))
    await store.close(await store.reserve(draft(100)), settled(100))
    world.clock.advance(minutes=60)
    with pytest.raises(Exhausted):
        await store.reserve(draft(100))
    world.clock.advance(minutes=1)
    await store.reserve(draft(100))


async def test_a_rolling_hold_counts_until_it_is_closed(world: World) -> None:
    budget = tokens(100, window=ROLLING)
    store = await world.process(budget)
    reservation = await store.reserve(draft(100))
    world.clock.advance(hours=3)
    with pytest.raises(Exhausted) as refused:
        await store.reserve(draft(1))
    assert refused.value.held_only
    await store.close(reservation, settled(100))
    await store.reserve(draft(100))


async def test_case_64_room_taken_by_holds_only_is_said_and_a_close_wakes_who_waits(world: World) -> None:
    store = await world.process(tokens(100))
    reservation = await store.reserve(draft(100))
    with pytest.raises(Exhausted) as refused:
        await store.reserve(draft(50))
    assert refused.value.held_only
    waiting = asyncio.create_task(store.wait_for_room(60))
    await asyncio.sleep(0.01)
    assert not waiting.done()
    await store.close(reservation, settled(50))
    await asyncio.wait_for(waiting, 20)
    await store.reserve(draft(50))


async def test_room_that_came_between_a_refusal_and_the_wait_is_not_missed(world: World) -> None:
    store = await world.process(tokens(100))
    reservation = await store.reserve(draft(100))
    seen = store.rooms
    with pytest.raises(Exhausted):
        await store.reserve(draft(50))
    await store.close(reservation, settled(50))
    await asyncio.wait_for(store.wait_for_room(60, seen), 20)
    seen = store.rooms
    await store.raise_limit("tokens", "+", 100, None, "test")
    await asyncio.wait_for(store.wait_for_room(60, seen), 20)


async def test_waiting_for_room_ends_by_itself(world: World) -> None:
    store = await world.process(tokens(100))
    await asyncio.wait_for(store.wait_for_room(0.05), 20)


async def test_peek_says_what_reserve_would_and_holds_nothing(world: World) -> None:
    budget = tokens(100)
    store = await world.process(budget)
    await store.close(await store.reserve(draft(60)), settled(60))
    ((match, spent, held),) = (peeked := await store.peek(draft(30))).matches
    assert (match.budget.name, match.limit, spent, held, peeked.refusal) == ("tokens", 100, 60, 0, None)
    refusal = (await store.peek(draft(50))).refusal
    assert isinstance(refusal, Exhausted)
    assert refusal.blocks[0].spent == 60
    await store.pause(None, "x")
    assert isinstance((await store.peek(draft(50))).refusal, Paused)
    assert await world.balance(budget) == (60, 0)
    assert await world.refusals() == []


async def test_a_lifetime_budget_never_opens(world: World) -> None:
    store = await world.process(tokens(100, window=Lifetime()))
    await store.close(await store.reserve(draft(100)), settled(100))
    world.clock.advance(days=4000)
    with pytest.raises(Exhausted) as refused:
        await store.reserve(draft(1))
    assert refused.value.resets_at is None


async def test_limits_of_single_people_and_of_guests(world: World) -> None:
    store = await world.process(tokens(50, scope={"user": "*"}, exceptions={"1002": 150, "guests": 0}))
    await store.reserve(draft(50, user="1001"))
    await store.reserve(draft(150, user="1002"))
    for amount, user, guest in ((51, "1003", False), (151, "1002", False), (1, "1004", True)):
        with pytest.raises(Exhausted):
            await store.reserve(draft(amount, user=user, guest=guest))
