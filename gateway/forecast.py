"""Forecast: when a budget runs out if spending goes on at its present pace. Pure; instants are milliseconds since 1970 UTC.

The pace is what was spent since the window began (calendar), in the last quarter of its length (rolling), or of late by the
usage rows (lifetime, whose one bucket says nothing of when). What leaves a rolling window meanwhile gives its room back.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from gateway.budget import Window

PARTS = 4
"""The pace of a rolling window is that of its last fourth."""
EARLY = 20
"""Before this part of a calendar window has passed nothing is said: one call in its first second is no pace."""
AHEAD_MAX_MS = 3650 * 86_400_000
"""What lasts for ten years lasts."""


class Pace(NamedTuple):
    """So much was spent in so long."""

    amount: int
    """In the budget's unit."""
    span_ms: int
    """At least 1."""


def forecast(
    window: Window, limit: int, spends: Mapping[int, int], held: int, now_ms: int, recent: Pace | None = None
) -> int | None:
    """When a counter runs out at its present pace; now, if it has; None where it lasts, or where nothing is spent.

    `spends` is what was spent per bucket, by the bucket's start; `recent` is the pace of a lifetime budget.
    """
    current = window.bucket(now_ms)
    oldest, end = window.live_from(current), window.leaves_at(current)
    live = {start: amount for start, amount in spends.items() if start >= oldest}
    room = limit - sum(live.values()) - held
    if room <= 0:
        return now_ms
    pace = recent if end is None else _pace(live, current, oldest, end, now_ms)
    if pace is None or pace.amount <= 0:
        return None
    return _reached(window, live, room, pace, now_ms, now_ms + AHEAD_MAX_MS if end is None else end)


def _pace(live: Mapping[int, int], current: int, oldest: int, end: int, now_ms: int) -> Pace | None:
    if oldest == current:
        passed = now_ms - current
        return Pace(sum(live.values()), passed) if passed * EARLY >= end - current else None
    since = current - (current - oldest) // PARTS
    return Pace(sum(amount for start, amount in live.items() if start >= since), now_ms - since)


def _reached(window: Window, live: Mapping[int, int], room: int, pace: Pace, now_ms: int, end: int) -> int | None:
    """The instant at which the room is gone, before `end`: until then nothing of what is spent from now on leaves."""
    # Counted in amount times span, so that all numbers are whole.
    at, left = now_ms, room * pace.span_ms
    for leaves, amount in sorted((leaves, live[start]) for start in live if (leaves := window.leaves_at(start)) is not None):
        reached = at - -left // pace.amount
        if reached < leaves:
            return reached
        left += amount * pace.span_ms - pace.amount * (leaves - at)
        at = leaves
    reached = at - -left // pace.amount
    return reached if reached < end else None
