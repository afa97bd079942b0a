"""Lanes in virtual time: order, concurrency, bounds, joined pieces."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from gateway.store.telegram import Lane
from gateway.telegram_bot.addressing import item_of, joined, lane_of, urgent
from gateway.telegram_bot.lanes import Item, Lanes
from tests.doubles.botapi import message
from tests.doubles.virtual import run

A, B = Lane(1), Lane(2)


def collected(
    script: Callable[[Lanes], Awaitable[None]], seconds: float = 1.0, running_max: int = 64
) -> list[tuple[float, list[int]]]:
    """What a script of puts made the lanes run, with the time at which each began. Each run takes `seconds`."""
    begun: list[tuple[float, list[int]]] = []

    async def one(_lane: Lane, items: list[Item]) -> None:
        begun.append((asyncio.get_running_loop().time(), [item.update_id for item in items]))
        await asyncio.sleep(seconds)

    async def work() -> None:
        lanes = Lanes(one, running_max)
        await script(lanes)
        assert await lanes.settle(1000)
        assert (lanes.depth, lanes.count) == (0, 0)

    run(work())
    return begun


def test_a_lane_keeps_order_and_lanes_run_side_by_side() -> None:
    async def script(lanes: Lanes) -> None:
        for number in (1, 2):
            lanes.put(A, Item(number))
        lanes.put(B, Item(3))

    assert collected(script) == [(0, [1]), (0, [3]), (1, [2])]


def test_no_more_lanes_run_than_may() -> None:
    async def script(lanes: Lanes) -> None:
        for number in range(1, 7):
            lanes.put(Lane(number), Item(number))

    assert [time for time, _ in collected(script, running_max=2)] == [0, 0, 1, 1, 2, 2]


def test_a_message_that_fails_ends_only_itself() -> None:
    ran = []

    async def one(_lane: Lane, items: list[Item]) -> None:
        ran.append(items[0].update_id)
        if items[0].update_id == 1:
            raise RuntimeError("broken")

    async def work() -> None:
        lanes = Lanes(one)
        for number in (1, 2):
            lanes.put(A, Item(number))
        await lanes.settle(10)

    run(work())
    assert ran == [1, 2]


def test_an_album_waits_a_moment_and_no_longer_for_its_next_photo() -> None:
    async def script(lanes: Lanes) -> None:
        for number in (1, 2, 3):
            lanes.put(A, Item(number, 5, group="g"))
            await asyncio.sleep(0.3)
        await asyncio.sleep(2)
        lanes.put(A, Item(4, 5, group="g"))

    begun = collected(script)
    assert [items for _, items in begun] == [[1, 2, 3], [4]]
    assert begun[0][0] <= 1.0, "0.4 s after the last"


def test_joining_ends_after_a_second_and_a_half() -> None:
    async def script(lanes: Lanes) -> None:
        for number in range(10):
            lanes.put(A, Item(number, 5, group="g"))
            await asyncio.sleep(0.3)

    begun = collected(script, seconds=0)
    assert begun[0][0] == pytest.approx(1.5)


def test_only_the_same_persons_next_piece_is_joined() -> None:
    async def script(lanes: Lanes) -> None:
        lanes.put(A, Item(1, 5, cut=True, text=True))
        lanes.put(A, Item(2, 6, text=True))
        lanes.put(A, Item(3, 5, group="g"))
        lanes.put(A, Item(4, 5, group="h"))

    assert [items for _, items in collected(script)] == [[1], [2], [3], [4]]


def test_what_is_read_of_a_raw_update() -> None:
    raw: dict[str, Any] = {"update_id": 1, "message": message(1, "x" * 4096, 42, -5, message_thread_id=9, is_topic_message=True)}
    assert lane_of(raw) == (Lane(-5, 9), 42)
    assert item_of(1, raw) == Item(1, 42, None, cut=True, text=True)
    assert lane_of({"update_id": 1}) == (Lane(0), 0)
    assert lane_of({"update_id": 1, "message": "nonsense"}) == (Lane(0), 0)
    assert lane_of({"message": {"chat": {"id": "5"}, "from": None}}) == (Lane(0), 0)


@pytest.mark.parametrize(
    ("text", "overtakes"),
    [("/stop", True), ("/stop@test_bot now", True), ("/cancel", True), ("/new", False), ("stop", False), ("", False)],
)
def test_stop_and_cancel_overtake(text: str, overtakes: bool) -> None:
    assert urgent({"message": message(1, text)}) is overtakes
    assert urgent({"callback_query": {}})


def test_a_cut_without_a_space_is_joined_without_one() -> None:
    assert joined(["a" * 4096, "b"]) == "a" * 4096 + "b"
    assert joined(["a" * 4000, "b"]) == "a" * 4000 + "\nb"
