"""Times as people say them."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from gateway.notice import Reader, until, wait, when

MADRID = ZoneInfo("Europe/Madrid")
NOW = datetime(2026, 3, 2, 21, 48, tzinfo=UTC)  # Monday, 22:48 in Madrid
EN, ES = Reader("en", MADRID), Reader("es-AR", MADRID)


@pytest.mark.parametrize(
    ("away", "english", "spanish"),
    [
        (timedelta(hours=7, minutes=12), "at 06:00", "a las 06:00"),
        (timedelta(hours=2, minutes=32), "at 01:20", "a la 01:20"),
        (timedelta(days=1, hours=7, minutes=12), "on Wednesday at 06:00", "el miércoles a las 06:00"),
        (timedelta(days=1, hours=2, minutes=12), "on Wednesday at 01:00", "el miércoles a la 01:00"),
        (timedelta(days=30, hours=1, minutes=12), "on 2 April at 01:00", "el 2 de abril a la 01:00"),
        (timedelta(days=299), "on 26 December at 22:48", "el 26 de diciembre a las 22:48"),
        (timedelta(days=366), "on 3 March 2027", "el 3 de marzo de 2027"),
        (timedelta(seconds=1), "at 22:49", "a las 22:49"),
    ],
)
def test_when(away: timedelta, english: str, spanish: str) -> None:
    assert when(NOW + away, EN, NOW) == english
    assert when(NOW + away, ES, NOW) == spanish


def test_until() -> None:
    at = NOW + timedelta(hours=7, minutes=12)
    assert until(at, EN, NOW) == "until 06:00"
    assert until(at, ES, NOW) == "hasta las 06:00"
    assert until(at + timedelta(days=1), ES, NOW) == "hasta el miércoles a las 06:00"


@pytest.mark.parametrize(
    ("away", "said"),
    [
        (timedelta(hours=7, minutes=12), "in 7 h 12 min"),
        (timedelta(minutes=22, seconds=1), "in 23 min"),
        (timedelta(hours=1), "in 1 h"),
        (timedelta(days=2, hours=3, minutes=4), "in 2 d 3 h"),
        (timedelta(seconds=60), "in less than a minute"),
        (timedelta(seconds=61), "in 2 min"),
        (timedelta(seconds=0), "now"),
        (timedelta(hours=-1), "now"),
    ],
)
def test_wait(away: timedelta, said: str) -> None:
    assert wait(NOW + away, EN, NOW) == said


def test_a_time_is_said_in_the_readers_zone_and_never_early() -> None:
    at = datetime(2026, 3, 3, 4, 59, 59, 999_000, tzinfo=UTC)
    assert when(at, EN, NOW) == "at 06:00"
    assert when(at, Reader("en", ZoneInfo("Asia/Kathmandu")), NOW) == "at 10:45"
