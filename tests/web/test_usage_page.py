"""The usage page's chart: a place for every hour and day of the zone."""

from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from gateway.web.dashboard.usage import chart

MADRID, CAIRO = ZoneInfo("Europe/Madrid"), ZoneInfo("Africa/Cairo")


def row(step: str, begin: str, zone: ZoneInfo, tokens: int) -> dict[str, Any]:
    return {"provider": "p", step: datetime.fromisoformat(begin).astimezone(zone), "cost_micro_usd": 0, "tokens": tokens}


@pytest.mark.parametrize(
    ("step", "zone", "first", "second", "places"),
    [
        # The same hour by the clock, twice.
        ("hour", MADRID, "2026-10-25T00:00Z", "2026-10-25T01:00Z", 2),
        ("hour", MADRID, "2026-03-29T00:00Z", "2026-03-29T02:00Z", 3),
        ("day", MADRID, "2026-10-23T22:00Z", "2026-10-25T23:00Z", 3),
        # The day that has no midnight.
        ("day", CAIRO, "2026-04-23T22:00Z", "2026-04-24T21:00Z", 2),
    ],
)
def test_each_hour_and_day_has_a_place_of_its_own_when_clocks_change(
    step: str, zone: ZoneInfo, first: str, second: str, places: int
) -> None:
    drawn = chart([row(step, first, zone, 10), row(step, second, zone, 5)], step, zone)
    assert drawn is not None
    assert [bar["value"] for bar in drawn["bars"]] == ["10", "5"]
    one, other = (bar["x"] for bar in drawn["bars"])
    assert round((other - one) / (1000 / places)) == places - 1
    shape = "%Y-%m-%d %H:%M" if step == "hour" else "%Y-%m-%d"
    ends = [f"{datetime.fromisoformat(each).astimezone(UTC).astimezone(zone):{shape}}" for each in (first, second)]
    assert [drawn["first"], drawn["last"]] == ends
