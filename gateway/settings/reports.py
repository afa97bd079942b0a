"""`[[reports]]`: what is told of the money by the clock, and to whom."""

from __future__ import annotations

from pathlib import Path
from zoneinfo import ZoneInfo

from gateway.cron import Cron
from gateway.settings.table import Table
from gateway.settings.values import ReportSettings
from gateway.settings.workflows import named, read_cron, read_to

PERIODS = ("day", "week", "month")
LANGUAGES = ("en", "es")
"""Those that every text of a report is written in."""


def read_reports(root: Table, zone: ZoneInfo, folder: Path) -> tuple[ReportSettings, ...]:
    """Reads every `[[reports]]`."""
    found = []
    for table in named(root, "reports"):
        cron = read_cron(table, zone)
        report = ReportSettings(
            name=table.text("name"),
            # A line that is wrong stops the start; until then any right one stands for it.
            cron=cron or Cron("0 0 * * *", zone),
            to=read_to(table, folder, required=True),
            period=table.text("period", "day", choices=PERIODS),
            language=table.text("language", "en", choices=LANGUAGES),
            csv=table.flag("csv", False),
        )
        table.finish()
        found.append(report)
    return tuple(found)
