"""Sums over time are what adding up row by row gives, whatever a zone's clocks do, and however few rows there are."""

import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from sqlalchemy import Connection, insert

from gateway.budget import Budgets
from gateway.clock import to_ms
from gateway.store.books import Books
from gateway.store.database import Database
from gateway.store.tables import usage
from tests.doubles.clock import SettableClock

CHANGES = {
    "UTC": "2026-03-29T01:00Z",
    "Europe/Madrid": "2026-10-25T01:00Z",
    "America/New_York": "2026-03-08T07:00Z",
    "America/St_Johns": "2026-11-01T04:30Z",
    "Australia/Lord_Howe": "2026-04-04T15:00Z",
    "Africa/Cairo": "2026-04-23T22:00Z",
    "America/Havana": "2026-11-01T05:00Z",
    "Asia/Kathmandu": "2026-05-01T18:15Z",
    "Africa/Casablanca": "2026-02-15T02:00Z",
}
"""Zones with offsets of whole, half and quarter hours, and an instant at which their clocks change, where they do."""


def rows_around(zone: str, chance: random.Random) -> list[dict[str, Any]]:
    """Attempts of the days around the change, at its very instant too, and two that are years away."""
    change = to_ms(datetime.fromisoformat(CHANGES[zone]))
    near = [chance.choice((900_000, 1_800_000, 3_600_000, 1)) * chance.randrange(-120, 120) for _ in range(250)]
    instants = [change + shift for shift in (0, -1, 1, -3_600_000, 3_600_000, *near)]
    instants += [change - 900 * 86_400_000, change + 900 * 86_400_000]
    return [
        {
            "id": f"{number:032d}", "request_id": "r", "attempt": 1, "surface": "http",
            "user": chance.choice(("ada", "bob", None)), "chain": "default",
            "provider": chance.choice("pq"), "model_asked": "m", "outcome": "answered", "owner": "o",
            "started": at, "ended": at, "deadline": at, "state": chance.choice(("settled", "settled", "pending")),
            "spent_tokens": chance.randrange(3), "estimated": chance.random() < 0.3,
        }
        for number, at in enumerate(instants)
    ]  # fmt: skip


def value(row: dict[str, Any], name: str, zone: ZoneInfo) -> Any:
    """A row's place in a grouping."""
    if name not in ("hour", "day"):
        return row[name]
    local = datetime.fromtimestamp(row["started"] / 1000, zone)
    if name == "day":
        return local.date()
    return local.replace(minute=0, second=0, microsecond=0).astimezone(UTC)


def added(rows: list[dict[str, Any]], by: list[str], zone: ZoneInfo) -> Counter[tuple[Any, ...]]:
    """Attempts, tokens and estimated ones, row by row."""
    found: Counter[tuple[Any, ...]] = Counter()
    for row in rows:
        key = tuple(value(row, name, zone) for name in by)
        found.update({(*key, "attempts"): 1, (*key, "tokens"): row["spent_tokens"], (*key, "estimated"): row["estimated"]})
    return found


@pytest.mark.parametrize("zone", CHANGES)
async def test_sums_in_one_look_are_those_of_each_row_across_changes_of_clocks(database: Database, zone: str) -> None:
    chance = random.Random(zone)
    rows = rows_around(zone, chance)
    await database.write(lambda connection: _insert(connection, rows))
    clock = SettableClock()
    books, place = Books(database, Budgets([]), clock), ZoneInfo(zone)
    instants = sorted(row["started"] for row in rows)
    groupings = [["day"], ["hour", "provider"], ["user"], ["provider", "day", "user"], ["day", "hour"], []]
    for start, end in ((instants[0], instants[-1] + 1), (instants[40] + 7, instants[-40]), (instants[-1] + 1, instants[-1] + 2)):
        since, until = (datetime.fromtimestamp(at / 1000, UTC) for at in (start, end))
        wanted = [row for row in rows if start <= row["started"] < end and row["state"] != "pending"]
        apart = [await books.usage(by, since, until, place) for by in groupings]
        together = await books.together(groupings, since, until, place, added=("tokens", "attempts", "estimated"))
        assert await books.together([["day"], ["user", "chain", "key"]], since, until, place) == [
            apart[0],
            await books.usage(["user", "chain", "key"], since, until),
        ]
        for by, one, other in zip(groupings, apart, together, strict=True):
            for found in (one, other):
                sums = Counter[tuple[Any, ...]]()
                for row in found:
                    shown = (row[name].date() if name == "day" else row[name] for name in by)
                    key = tuple(each.astimezone(UTC) if isinstance(each, datetime) else each for each in shown)
                    assert (*key, "attempts") not in sums, "each group is one row"
                    sums.update({(*key, name): row[name] for name in ("attempts", "tokens", "estimated")})
                assert +sums == +added(wanted, by, place), (by, start)
        assert all(row["day"].utcoffset() == row["day"].astimezone(place).utcoffset() for row in apart[0])
    only = {"user": "ada"}
    found = await books.usage(["day"], since - timedelta(days=9999), until, place, only)
    assert sum(row["attempts"] for row in found) == sum(row["user"] == "ada" and row["state"] != "pending" for row in rows)


def _insert(connection: Connection, rows: list[dict[str, Any]]) -> None:
    connection.execute(insert(usage), rows)
