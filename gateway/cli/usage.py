"""`sluicegate usage`: sums of usage rows, and the rows themselves."""

from __future__ import annotations

import csv
import sys
from contextlib import aclosing
from datetime import datetime
from pathlib import Path
from typing import Any

from gateway.amounts import parse_period
from gateway.cli.outcome import DONE, USAGE, CommandError
from gateway.cli.render import amount, document, show, stamp
from gateway.cli.session import load_settings, opened
from gateway.settings import Settings
from gateway.store.export import FORMATS, cell
from gateway.store.usage import GROUPS, SUMS

SHOWN = ("attempts", "prompt_tokens", "output_tokens", "tokens", "cost_micro_usd", "estimated", "uncertain", "overrun")
"""The sums that a table has room for; JSON and CSV have all of them."""


async def export(config: Path | None, kind: str, since: str | None, until: str | None, *, summed: bool) -> int:
    """The usage rows themselves on standard output, oldest first, page by page. `summed`: sums were asked for as well."""
    if summed:
        raise CommandError("--rows gives the rows themselves: leave out --by, --json and --csv", USAGE)
    settings = load_settings(config)
    if kind not in FORMATS:
        raise CommandError(f"--rows: {kind!r} is none of {', '.join(FORMATS)}", USAGE)
    form = FORMATS[kind]
    async with opened(settings) as app:
        start, end = _period(settings, since, until, app.clock.now())
        out = sys.stdout.buffer
        out.write(form.heading)
        async with aclosing(app.books.pages(form, start, end)) as pages:
            async for page in pages:
                out.write(page)
        out.flush()
    return DONE


def _period(settings: Settings, since: str | None, until: str | None, now: datetime) -> tuple[datetime, datetime]:
    try:
        return parse_period(since, until, settings.zone, now)
    except ValueError as error:
        raise CommandError(f"--from and --to: {error}", USAGE)


async def usage(config: Path | None, by: str, since: str | None, until: str | None, *, as_json: bool, as_csv: bool) -> int:
    """Sums by any attributes between two instants; month to date by default, in the configuration's zone."""
    if as_json and as_csv:
        raise CommandError("--json and --csv: choose one", USAGE)
    settings = load_settings(config)
    groups = list(dict.fromkeys(name.strip() for name in by.split(",") if name.strip()))
    for name in groups:
        if name not in GROUPS:
            raise CommandError(f"--by: {name!r} is none of {', '.join(GROUPS)}", USAGE)
    async with opened(settings) as app:
        start, end = _period(settings, since, until, app.clock.now())
        rows = await app.books.usage(groups, start, end, settings.zone)
    if as_json:
        document({"from": stamp(start), "to": stamp(end), "by": groups, "usage": [_plain(row) for row in rows]})
    elif as_csv:
        writer = csv.DictWriter(sys.stdout, [*groups, *SUMS], lineterminator="\n")
        writer.writeheader()
        writer.writerows({name: cell(value) for name, value in row.items()} for row in rows)
    else:
        cells = [[*(_name(row[group], group) for group in groups), *(_cell(name, row[name]) for name in SHOWN)] for row in rows]
        headers = [*groups, *(name.replace("_micro_usd", "").replace("_", " ") for name in SHOWN)]
        show(headers, cells, right=range(len(groups), len(headers)))
    return DONE


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    return {name: stamp(value) if isinstance(value, datetime) else value for name, value in row.items()}


def _name(value: object, group: str) -> str:
    if isinstance(value, datetime):
        # With its distance from UTC: of the two hours that an autumn night has twice one sees which it is.
        return f"{value:%Y-%m-%d}" if group == "day" else value.isoformat(" ", "minutes")
    return "-" if value is None else str(value)


def _cell(name: str, value: int) -> str:
    return amount("micro_usd" if name == "cost_micro_usd" else "tokens", value)
