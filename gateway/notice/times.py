"""Times as people say them, in the reader's zone: never earlier than they are."""

from __future__ import annotations

from datetime import datetime, timedelta

from gateway.notice.catalogue import best, text
from gateway.notice.values import Reader

MINUTE = timedelta(minutes=1)
NEAR, FAR = timedelta(days=6), timedelta(days=300)
"""Within these a weekday, and a day without its year, mean one day only."""


def when(instant: datetime, reader: Reader, now: datetime) -> str:
    """ "at 14:20" within a day, else "on Monday at 06:00" or "on 3 April at 06:00", and of what is far "on 3 April 2027".

    Rounded up to the minute.
    """
    return _said("at", instant, reader, now)


def until(instant: datetime, reader: Reader, now: datetime) -> str:
    """ "until 14:20" within a day, else "until Monday at 06:00" and so on. Rounded up to the minute."""
    return _said("until", instant, reader, now)


def wait(instant: datetime, reader: Reader, now: datetime) -> str:
    """ "in 23 min", "in 7 h 12 min", "in 2 d 3 h". Rounded up to the minute."""
    minutes = -((now - instant) // MINUTE)
    if minutes <= 1:
        return text(reader.language, "in_a_moment" if minutes <= 0 else "in_a_minute")
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = [("d", days), ("h", hours), ("min", minutes)] if not days else [("d", days), ("h", hours)]
    span = " ".join(f"{amount} {unit}" for unit, amount in parts if amount)
    return text(reader.language, "in_span", span=span)


def _said(preposition: str, instant: datetime, reader: Reader, now: datetime) -> str:
    local = _minute_up(instant).astimezone(reader.zone)
    clock = f"{local:%H:%M}"
    # Spanish says "a la 01:20" and "a las 14:20"; other languages have the same text twice.
    one = "_one" if local.hour == 1 else ""
    time = text(reader.language, f"{preposition}_time{one}", time=clock)
    away = instant - now
    if away < timedelta(days=1):
        return time
    # Nobody means a minute of another year.
    clock_time = "" if away >= FAR else text(reader.language, f"at_time{one}", time=clock)
    return text(reader.language, f"{preposition}_day", day=_day(local, reader, away), time=clock_time).rstrip()


def _day(local: datetime, reader: Reader, away: timedelta) -> str:
    from babel.dates import format_date

    key = "format_weekday" if away < NEAR else "format_day" if away < FAR else "format_day_of_year"
    return format_date(local.date(), text(reader.language, key), best(reader.language))


def _minute_up(instant: datetime) -> datetime:
    whole = instant.replace(second=0, microsecond=0)
    return whole if whole == instant else whole + MINUTE
