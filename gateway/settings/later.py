"""The section of a part that this version does not run: reports. Read and checked all the same.

A configuration that is written for it loads, its mistakes are named, and `check` and `serve` say that it rests.
"""

from __future__ import annotations

from pathlib import Path
from zoneinfo import ZoneInfo

from gateway.settings.table import Table
from gateway.settings.workflows import named, read_cron, read_to

PERIODS = ("day", "week", "month")


def read_later(root: Table, zone: ZoneInfo, folder: Path) -> tuple[str, ...]:
    """Checks the section and names it as it is written in the file, if it is there."""
    for report in named(root, "reports"):
        read_cron(report, zone)
        read_to(report, folder, required=True)
        report.text("period", "day", choices=PERIODS)
        report.finish()
    return ("[[reports]]",) if root.has("reports") else ()
