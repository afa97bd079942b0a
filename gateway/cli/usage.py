"""`sluicegate usage`: sums of usage rows."""

from __future__ import annotations

import csv
import sys
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from gateway.cli.outcome import DONE, USAGE, CommandError
from gateway.cli.render import amount, document, show, stamp
from gateway.cli.session import load_settings, opened
from gateway.store.usage import GROUPS, SUMS

SHOWN = ("attempts", "prompt_tokens", "output_tokens", "tokens", "cost_micro_usd", "estimated", "uncertain", "overrun")
"""The sums that a table has room for; JSON and CSV have all of them."""


async def usage(config: Path | None, by: str, since: str | None, until: str | None, *, as_json: bool, as_csv: bool) -> int:
    """Sums by any attributes between two instants; month to date by default, in the configuration's zone."""
    if as_json and as_csv:
        raise CommandError("--json and --csv: choose one", USAGE)
    settings = load_settings(config)
    groups = [name.strip() for name in by.split(",") if name.strip()]
    for name in groups:
        if name not in GROUPS:
            raise CommandError(f"--by: {name!r} is none of {', '.join(GROUPS)}", USAGE)
    async with opened(settings) as app:
        start, end = period(since, until, settings.zone, app.clock.now())
        rows = await app.books.usage(groups, start, end, settings.zone)
    if as_json:
        document({"from": stamp(start), "to": stamp(end), "by": groups, "usage": [_plain(row) for row in rows]})
    elif as_csv:
        writer = csv.DictWriter(sys.stdout, [*groups, *SUMS], lineterminator="\n")
        writer.writeheader()
        writer.writerows(_plain(row) for row in rows)
    else:
        cells = [[*(_name(row[group]) for group in groups), *(_cell(name, row[name]) for name in SHOWN)] for row in rows]
        headers = [*groups, *(name.replace("_micro_usd", "").replace("_", " ") for name in SHOWN)]
        show(headers, cells, right=range(len(groups), len(headers)))
    return DONE


def period(since: str | None, until: str | None, zone: ZoneInfo, now: datetime) -> tuple[datetime, datetime]:
    """The span that two texts name; each a date in the zone or an RFC 3339 instant. A last date is counted whole."""
    local = now.astimezone(zone)
    first = local.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    start = first if since is None else _instant("--from", since, zone, 0)
    end = now + timedelta(seconds=1) if until is None else _instant("--to", until, zone, 1)
    if start >= end:
        raise CommandError("--from must be before --to", USAGE)
    return start, end


def _instant(option: str, text: str, zone: ZoneInfo, later: int) -> datetime:
    try:
        if len(text) == len("2026-03-02"):
            day = date.fromisoformat(text) + timedelta(days=later)
            return datetime(day.year, day.month, day.day, tzinfo=zone)
        instant = datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        raise CommandError(f"{option}: {text!r} is neither a date (2026-03-02) nor an instant (2026-03-02T12:00:00Z)", USAGE)
    return instant if instant.tzinfo is not None else instant.replace(tzinfo=zone)


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    return {name: stamp(value) if isinstance(value, datetime) else value for name, value in row.items()}


def _name(value: object) -> str:
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d %H:%M")
    return "-" if value is None else str(value)


def _cell(name: str, value: int) -> str:
    return amount("micro_usd" if name == "cost_micro_usd" else "tokens", value)
