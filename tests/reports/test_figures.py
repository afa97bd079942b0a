"""The figures are what the rows add up to, in the right periods, on both databases."""

from __future__ import annotations

import csv
import io
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from gateway.reports import Reports
from gateway.reports.figures import Sums
from gateway.store.database import Database
from gateway.store.spans import Turned
from tests.contract.world import draft
from tests.reports.office import Office, settings


@pytest.fixture
async def office(database: Database, tmp_path: Path) -> AsyncIterator[Office]:
    """With three days of calls."""
    made = Office(database, tmp_path)
    await made.store.start()
    await made.three_days()
    yield made
    assert await made.books.check() == []


async def test_sums_equal_the_rows_of_each_period(office: Office) -> None:
    report = (await office.reports.make("day")).report
    yesterday = datetime(2026, 11, 28, 23, tzinfo=UTC)
    for sums, start, end in (
        (report.before, yesterday - timedelta(days=1), yesterday),
        (report.previous, yesterday, yesterday + timedelta(days=1)),
        (report.present, yesterday + timedelta(days=1), office.clock.now()),
    ):
        rows = [row for row in await office.books.newest(100) if start <= row["started"] < end]
        assert sums.attempts == len(rows)
        for name in ("cost_micro_usd", "estimated", "uncertain", "overrun", "overrun_micro_usd"):
            assert getattr(sums, name) == sum(row[name] for row in rows), name
        assert sums.tokens == sum(row["prompt_tokens"] + row["output_tokens"] for row in rows)
    assert report.previous.tokens == 30_000 + 9_000 + 1_000 + 1_500 + 10 + 10
    assert (report.previous.cost_micro_usd, report.before.cost_micro_usd) == (960_000, 600_000)
    assert (report.previous.estimated, report.previous.uncertain, report.previous.overrun) == (1, 1, 500)
    # Up to noon it was all but the call in the afternoon; the present period is that up to now, which the last calls are not in.
    assert report.same == Sums()
    for part in (report.users, report.models):
        assert sum(share.sums.cost_micro_usd for share in part) == report.previous.cost_micro_usd


async def test_who_and_what_are_ranked_by_money_and_what_fallback_saved_is_counted(office: Office) -> None:
    report = (await office.reports.make("day")).report
    assert [(one.name, one.sums.cost_micro_usd, one.share) for one in report.users] == [
        ("ada", 600_000, 0.625),
        ("bob", 360_000, 0.375),
        ("_weird*[name](x)\n=1", 0, 0.0),
    ]
    assert [(one.name, one.sums.tokens) for one in report.workflows] == [("digest", 9_000)]
    assert [one.name for one in report.models] == ["moonshot:m-1", "groq:m-1", "home:m-1"]
    assert report.turned == Turned(refused=2, failed=1, saved=1, later=1, never=1)
    assert report.turned_present == Turned()


async def test_budgets_have_what_their_own_rows_took_and_runs_caps_are_left_out(office: Office) -> None:
    found = {line.budget.name: line for line in (await office.reports.make("day")).report.budgets}
    assert list(found) == ["moonshot-hour", "person-day", "money-day"]
    hour, person, money = found.values()
    assert (hour.before, hour.previous, hour.present) == (30_000, 31_510, 0)
    assert (person.before, person.previous, person.counters, person.fullest.key) == (30_000, 41_510, 3, "user=ada")
    assert (money.before, money.previous) == (600_000, 960_000)
    assert (money.fullest.spent, money.fullest.limit) == (910_000, 2_000_000)


async def test_a_call_under_way_is_held_and_not_spent(office: Office) -> None:
    await office.store.reserve(draft(2_000))
    office.clock.advance(minutes=1)
    report = (await office.reports.make("day")).report
    assert (report.present.attempts, report.present.tokens) == (2, 37_000)
    assert report.budgets[0].fullest.held == 2_000


async def test_bars_are_the_hours_of_the_zone_and_sum_to_the_whole(office: Office) -> None:
    office.clock.advance(minutes=30)
    report = (await office.reports.make("day")).report
    hours = report.periods.bars()
    assert (len(hours), hours[0].isoformat(), hours[24].isoformat()) == (
        24 + 13, "2026-11-29T00:00:00+01:00", "2026-11-30T00:00:00+01:00",
    )  # fmt: skip
    assert report.bars[12]["moonshot"].micro_usd == 660_000
    assert sum(amounts.micro_usd for bar in report.bars[:24] for amounts in bar.values()) == report.previous.cost_micro_usd
    assert sum(amounts.micro_usd for bar in report.bars[24:] for amounts in bar.values()) == report.present.cost_micro_usd
    month = (await office.reports.make("month")).report
    assert (month.previous, len(month.bars)) == (Sums(), 31 + 30)
    assert sum(amounts.tokens for bar in month.bars for amounts in bar.values()) == month.present.tokens


async def test_the_table_sums_to_the_totals_and_no_name_is_a_formula(office: Office) -> None:
    office.clock.advance(minutes=1)
    made = await office.reports.make("day")
    rows = list(csv.DictReader(io.StringIO(made.csv())))
    for period, sums in (("before", made.report.before), ("previous", made.report.previous), ("present", made.report.present)):
        for name in ("attempts", "tokens", "cost_micro_usd", "estimated"):
            assert sum(int(row[name]) for row in rows if row["period"] == period) == getattr(sums, name)
    await office.spend(10, 0, user="=HYPERLINK(1)")
    office.clock.advance(1)
    assert ",'=HYPERLINK(1)," in (await office.reports.make("day")).csv()


async def test_the_document_has_both_periods_with_percentages(office: Office) -> None:
    office.clock.advance(minutes=1)
    found = (await office.reports.make("day")).document()
    assert (found["previous"]["from"], found["previous"]["to"]) == ("2026-11-28T23:00:00Z", "2026-11-29T23:00:00Z")
    assert found["previous"]["change"] == {"requests": 5.0, "tokens": 0.384, "cost_micro_usd": 0.6}
    # Up to a minute after noon yesterday had 960,000 too.
    assert found["present"]["change"]["cost_micro_usd"] == round((910_000 - 960_000) / 960_000, 4)
    assert found["budgets"][0]["spent_in"] == {"previous": 31_510, "before": 30_000, "present": 37_000}
    assert found["users"][0] | {"attempts": 0} == {
        "name": "ada", "share": 0.625, "attempts": 0, "requests": 1, "tokens": 30_000, "cost_micro_usd": 600_000,
        "estimated": 0, "uncertain": 0, "overrun": 0, "overrun_micro_usd": 0,
    }  # fmt: skip


@pytest.mark.parametrize("zone", ["Australia/Lord_Howe", "Europe/Madrid", "Asia/Kathmandu", "America/Havana"])
async def test_where_clocks_change_by_an_hour_or_half_of_one_the_chart_leaves_no_call_out(
    sqlite_url: str, tmp_path: Path, zone: str
) -> None:
    days = {"Australia/Lord_Howe": ((4, 5), (10, 4)), "America/Havana": ((3, 8), (11, 1))}.get(zone, ((3, 29), (10, 25)))
    office = Office(Database(sqlite_url), tmp_path)
    await office.store.start()
    made = Reports(office.books, office.outbox, replace(settings(tmp_path), zone=ZoneInfo(zone)), office.clock)
    for month, day in days:
        start = datetime(2026, month, day, tzinfo=ZoneInfo(zone)).astimezone(UTC)
        for quarter in range(3, 100, 3):
            office.clock.set(start + timedelta(minutes=15 * quarter))
            await office.spend(10, 1000)
        office.clock.advance(minutes=1)
        report = (await made.make("day")).report
        drawn = sum(amounts.requests for bar in report.bars for amounts in bar.values())
        assert drawn == report.previous.attempts + report.present.attempts == 33
    await office.store.stop()
    await office.database.close()
