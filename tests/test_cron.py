"""When a schedule fires: weekdays as cron counts them, and both changes of the clocks."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest

from gateway.cron import BadCron, Cron

MADRID = ZoneInfo("Europe/Madrid")
SPRING, AUTUMN = datetime(2026, 3, 28, 12, tzinfo=UTC), datetime(2026, 10, 24, 12, tzinfo=UTC)
"""The day before the clocks change in Madrid: 02:00 becomes 03:00, 03:00 becomes 02:00."""


def fires(text: str, start: datetime, days: int, zone: ZoneInfo = MADRID) -> list[datetime]:
    found, cron = [], Cron(text, zone)
    fire = cron.after(start)
    while fire is not None and fire <= start + timedelta(days=days):
        found.append(fire)
        fire = cron.after(fire)
    return found


def shown(found: list[datetime]) -> list[str]:
    return [f"{fire.astimezone(MADRID):%d %H:%M %Z}" for fire in found]


def test_1_to_5_are_monday_to_friday_and_0_and_7_are_sunday() -> None:
    week = datetime(2026, 6, 1, tzinfo=UTC)
    assert {fire.weekday() for fire in fires("0 8 * * 1-5", week, 14)} == {0, 1, 2, 3, 4}
    assert [fire.weekday() for fire in fires("0 8 * * 0", week, 7)] == [6]
    assert fires("0 8 * * 0", week, 30) == fires("0 8 * * 7", week, 30) == fires("0 8 * * sun", week, 30)


def test_a_time_that_the_clocks_skip_fires_once_at_the_end_of_the_gap() -> None:
    assert shown(fires("30 2 * * *", SPRING, 2)) == ["29 03:00 CEST", "30 02:30 CEST"]
    # Two times in the gap, and one at its end, are one fire.
    assert shown(fires("0,30 2,3 * * *", SPRING, 1)) == ["29 03:00 CEST", "29 03:30 CEST"]


def test_a_time_that_comes_twice_fires_the_first_time_only() -> None:
    assert shown(fires("30 2 * * *", AUTUMN, 2)) == ["25 02:30 CEST", "26 02:30 CET"]
    # Asked in the second coming of that hour, the fire that already was is not given again.
    second = datetime(2026, 10, 25, 1, 10, tzinfo=UTC)
    assert f"{second.astimezone(MADRID):%H:%M %Z}" == "02:10 CET"
    assert shown(fires("30 2 * * *", second, 2)) == ["26 02:30 CET"]


def test_what_fires_often_goes_by_the_time_that_passes() -> None:
    for start in (SPRING, AUTUMN):
        found = fires("*/20 * * * *", start, 1)
        assert len(found) == 72
        assert {later - earlier for earlier, later in pairwise(found)} == {timedelta(minutes=20)}


@pytest.mark.parametrize("text", ["30 2 * * *", "0,30 2,3 * * *", "*/30 * * * *", "15 1-4 * * *", "0 0 * * 0"])
@pytest.mark.parametrize("zone", ["Europe/Madrid", "America/Santiago", "Australia/Lord_Howe", "UTC"])
def test_walking_back_meets_the_fires_of_walking_on(text: str, zone: str) -> None:
    cron = Cron(text, ZoneInfo(zone))
    for start in (SPRING, AUTUMN, datetime(2026, 4, 3, tzinfo=UTC), datetime(2026, 9, 4, tzinfo=UTC)):
        found = fires(text, start, 8, cron.zone)
        for earlier, later in pairwise(found):
            assert cron.until(earlier) == cron.until(later - timedelta(microseconds=1)) == earlier


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "five fields"),
        ("* * * *", "five fields"),
        ("0 * * * * *", "five fields"),
        ("61 * * * *", "bad minute"),
        ("0 8 * * mon-fri-sun", "bad day-of-week"),
        ("0 8 30 2 *", "bad day-of-month"),
        ("*/0 * * * *", "bad minute"),
        ("@daily x x x x", "bad minute"),
    ],
)
def test_a_wrong_line_says_which_field_is_wrong(text: str, said: str) -> None:
    with pytest.raises(BadCron, match=said):
        Cron(text, MADRID)
