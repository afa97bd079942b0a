"""What every store promises over processes, restarts and changes of the configuration."""

import asyncio
from datetime import UTC, datetime, time, timedelta
from zoneinfo import ZoneInfo

import pytest

from gateway.budget import Budget, Calendar, Rolling, Unit
from gateway.chat import Slot
from gateway.clock import to_ms
from gateway.errors import CannotServe, Exhausted, InvalidRequest, Paused, RequestConflict
from gateway.store import Answered, Claimed, Underway
from tests.contract.world import World, draft, settled

MADRID = ZoneInfo("Europe/Madrid")
HOUR = Calendar("hour", ZoneInfo("UTC"))
DAY = Calendar("day", MADRID, time(6))
ROLLING = Rolling(3600, "rolling 1h")


def tokens(limit: int, name: str = "tokens", window=HOUR, **fields) -> Budget:  # type: ignore[no-untyped-def]
    return Budget(name, Unit.TOKENS, limit, window, **fields)


async def test_case_12_a_raise_lets_the_next_call_through_and_ends_by_itself(world: World) -> None:
    store = await world.process(tokens(100))
    await store.close(await store.reserve(draft(100)), settled(100))
    waiting = asyncio.create_task(store.wait_for_room(60))
    await asyncio.sleep(0.01)
    await store.raise_limit("tokens", "+", 50, to_ms(world.clock.now()) + 60_000, "telegram:1")
    await asyncio.wait_for(waiting, 20)
    await store.close(await store.reserve(draft(30)), settled(30))
    world.clock.advance(60)
    with pytest.raises(Exhausted) as refused:
        await store.reserve(draft(10))
    assert (refused.value.blocks[0].limit, refused.value.blocks[0].spent) == (100, 130)
    with pytest.raises(InvalidRequest):
        await store.raise_limit("nothing", "+", 50, None, "telegram:1")


async def test_case_13_a_changed_limit_keeps_usage_and_a_changed_window_starts_from_the_rows(world: World) -> None:
    world.clock.set(datetime(2026, 3, 2, 12, 30, tzinfo=UTC))
    store = await world.process(tokens(1000, scope={"user": "*"}))
    await store.close(await store.reserve(draft(100, user="ada")), settled(70))
    world.clock.advance(hours=1)
    await store.close(await store.reserve(draft(100, user="ada")), settled(5))
    held = await store.reserve(draft(100, user="ada"))
    await world.process(tokens(90, scope={"user": "*"}), owner="limit")
    assert await world.balance(tokens(90), "user=ada") == (5, 100)
    day = tokens(1000, window=DAY, scope={"user": "*"})
    added = tokens(1000, "added", ROLLING)
    store = await world.process(day, added, owner="window")
    assert await world.balance(day, "user=ada") == (75, 100)
    assert await world.balance(added) == (75, 100)
    assert await store.close(held, settled(40))
    assert await world.balance(day, "user=ada") == (115, 0)
    assert await world.balance(added) == (115, 0)


async def test_a_removed_budget_forgets_its_counters_and_starts_from_the_rows_when_it_returns(world: World) -> None:
    budget = tokens(1000)
    store = await world.process(budget)
    held = await store.reserve(draft(100))
    store = await world.process(owner="without")
    await store.close(await store.reserve(draft(100)), settled(30))
    assert await store.close(held, settled(20))
    await world.process(budget, owner="with")
    assert await world.balance(budget) == (50, 0)


async def test_case_35_a_dead_process_leaves_nothing_stuck(world: World) -> None:
    budget = tokens(100)
    dead = await world.process(budget, owner="dead")
    alive = await world.process(budget, owner="alive")
    left = await dead.reserve(draft(60))
    kept = await alive.reserve(draft(30))
    await alive.sweep()
    assert await world.balance(budget) == (0, 90)
    for _ in range(4):
        world.clock.advance(10)
        await _renew(alive)
        swept = await alive.sweep()
    assert swept == 1
    assert await world.balance(budget) == (60, 30)
    row = next(row for row in await world.rows() if row["id"] == left.id)
    assert (row["state"], row["outcome"], row["spent_tokens"], row["uncertain"]) == ("expired", "expired", 60, True)
    assert await alive.close(kept, settled(10))
    # It was not dead after all: less than the worst case changes nothing, more is recorded.
    assert not await dead.close(left, settled(20))
    assert await world.balance(budget) == (70, 0)
    assert await dead.close(left, settled(80))
    assert await world.balance(budget) == (90, 0)


async def _renew(store) -> None:  # type: ignore[no-untyped-def]
    renewed = store.renew()
    if renewed is not None:
        await renewed


async def test_a_hold_past_its_deadline_expires_though_its_process_lives(world: World) -> None:
    budget = tokens(100)
    store = await world.process(budget)
    await store.reserve(draft(60, deadline_ms=to_ms(world.clock.now()) + 5_000))
    await store.reserve(draft(10, deadline_ms=to_ms(world.clock.now()) + 9_000))
    world.clock.advance(6)
    assert await store.sweep() == 1
    assert await world.balance(budget) == (60, 10)


async def test_a_short_command_on_the_side_expires_nothing_of_a_living_server(world: World) -> None:
    server = await world.process(tokens(100), owner="server")
    await server.reserve(draft(60))
    world.clock.advance(20)
    command = await world.process(tokens(100), owner="command")
    await command.close(await command.reserve(draft(10)), settled(10))
    assert await command.sweep() == 0


async def test_a_pause_stops_every_call_until_resumed(world: World) -> None:
    store = await world.process(tokens(100))
    until = world.clock.now() + timedelta(minutes=5)
    await store.pause(to_ms(until), "telegram:1")
    with pytest.raises(Paused) as paused:
        await store.reserve(draft(10))
    assert paused.value.until == until
    assert await store.resume("telegram:1")
    await store.reserve(draft(10))
    assert not await store.resume("telegram:1")
    await store.pause(None, "telegram:1")
    with pytest.raises(Paused):
        await store.reserve(draft(10))


async def test_refusals_are_kept_with_their_facts(world: World) -> None:
    store = await world.process(tokens(100))
    refused = draft(101)
    with pytest.raises(Exhausted):
        await store.reserve(refused)
    await store.note_refusal(refused.origin, "default", Slot("groq", "g"), CannotServe(Slot("groq", "g"), "no images"))
    first, second = await world.refusals()
    assert (first["request_id"], first["provider"], first["kind"]) == (refused.origin.request_id, "moonshot", "Exhausted")
    block = first["detail"]["blocks"][0]
    assert (block["budget"], block["asked"], block["limit"]) == ("tokens", 101, 100)
    assert (second["provider"], second["kind"], second["detail"]["reason"]) == ("groq", "CannotServe", "no images")


async def test_a_request_is_claimed_once_and_answered_from_then_on(world: World) -> None:
    store = await world.process(tokens(1000))
    assert isinstance(await store.claim("k:1", "body"), Claimed)
    assert isinstance(await store.claim("k:1", "body"), Underway)
    with pytest.raises(RequestConflict):
        await store.claim("k:1", "other body")
    reservation = await store.reserve(draft(10, request_id="k:1"))
    await store.close(reservation, settled(10, reply=b"\0reply\xff"))
    restarted = await world.process(tokens(1000), owner="restarted")
    assert await restarted.claim("k:1", "body") == Answered(b"\0reply\xff")
    with pytest.raises(RequestConflict):
        await restarted.claim("k:1", "other body")
    world.clock.advance(hours=24)
    assert isinstance(await restarted.claim("k:1", "other body"), Claimed)


async def test_an_unanswered_claim_is_given_back_or_taken_over_from_the_dead(world: World) -> None:
    first = await world.process(tokens(1000), owner="first")
    second = await world.process(tokens(1000), owner="second")
    assert isinstance(await first.claim("k:1", "body"), Claimed)
    assert isinstance(await second.claim("k:1", "body"), Underway)
    await second.unclaim("k:1")
    assert isinstance(await second.claim("k:1", "body"), Underway)
    await first.unclaim("k:1")
    assert isinstance(await second.claim("k:1", "body"), Claimed)
    world.clock.advance(31)
    assert isinstance(await first.claim("k:1", "body"), Claimed)


async def test_a_reply_is_kept_though_the_hold_had_expired(world: World) -> None:
    store = await world.process(tokens(1000))
    await store.claim("k:1", "body")
    reservation = await store.reserve(draft(10, request_id="k:1", deadline_ms=to_ms(world.clock.now()) + 1))
    world.clock.advance(1)
    assert await store.sweep() == 1
    await store.close(reservation, settled(10, reply=b"late"))
    assert await store.claim("k:1", "body") == Answered(b"late")
