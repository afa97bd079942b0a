"""When a schedule fires: five cron fields, read in a time zone as Debian's cron reads them.

0 and 7 are Sunday. A fixed time that the change of clocks skips fires at the end of the gap, one that comes twice fires
once, the first time; what fires every few minutes or every hour goes by the time that really passes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

FIELDS = 5
_AHEAD = timedelta(hours=4)
"""More than any change of clocks: from so far ahead, walking back meets every fire in its order."""


class BadCron(ValueError):
    """The text is not five cron fields; says which one is wrong."""


@dataclass(frozen=True, slots=True)
class Cron:
    """A checked cron line in its zone. Raises BadCron."""

    text: str
    zone: ZoneInfo

    def __post_init__(self) -> None:
        if len(self.text.split()) != FIELDS:
            raise BadCron("must have five fields: minute, hour, day of the month, month, day of the week")
        try:
            CronSim(self.text, datetime(2000, 1, 1, tzinfo=UTC))
        except CronSimError as error:
            raise BadCron(str(error).lower()) from None

    def after(self, instant: datetime) -> datetime | None:
        """The first fire after an instant, in UTC; None when there is none for fifty years."""
        return next((fire for fire in self._walk(instant) if fire > instant), None)

    def until(self, instant: datetime) -> datetime | None:
        """The last fire up to and with an instant, in UTC; None when there was none for fifty years."""
        return next((fire for fire in self._walk(instant + _AHEAD, back=True) if fire <= instant), None)

    def _walk(self, start: datetime, *, back: bool = False) -> Iterator[datetime]:
        # In the hour that comes twice a fire's first coming may lie before the start: callers look at each one.
        for fire in CronSim(self.text, start.astimezone(self.zone), reverse=back):
            yield fire.astimezone(UTC)
