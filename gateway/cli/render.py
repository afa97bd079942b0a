"""How things look: amounts, bars, times and tables. Pure but for `show`, which prints.

On a terminal tables are drawn by Rich; piped they are plain aligned text that `awk` and a reader understand.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Collection, Sequence
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import typer

from gateway.amounts import amount as amount
from gateway.amounts import span as span
from gateway.amounts import unit_name as unit_name

BAR_WIDTH = 20


def bar(spent: int, held: int, limit: int, width: int = BAR_WIDTH, *, plain: bool = False) -> str:
    """Spent, held and left as a bar of `width` cells. Anything spent or held shows at least one cell; a limit of 0 is full."""
    full, part, free = "#+." if plain else "█▒░"
    if limit <= 0:
        return full * width
    first = min(width, _cells(spent, limit, width))
    second = min(width - first, _cells(held, limit, width))
    return full * first + part * second + free * (width - first - second)


def _cells(value: int, limit: int, width: int) -> int:
    return max(1, value * width // limit) if value > 0 else 0


def countdown(seconds: float) -> str:
    """A length of time in as few letters as can be: `4:55`, `7h12`, `3d`."""
    left = max(0, -int(-seconds // 1))
    if left < 3600:
        return f"{left // 60}:{left % 60:02}"
    return f"{left // 3600}h{left % 3600 // 60:02}" if left < 86_400 else f"{left // 86_400}d"


def moment(instant: datetime | None, zone: ZoneInfo, now: datetime, never: str = "never") -> str:
    """An instant in the configuration's zone with the wait until it: `14:20 (in 23 min)`; the date too if it is not today."""
    if instant is None:
        return never
    local, today = instant.astimezone(zone), now.astimezone(zone)
    pattern = "%H:%M:%S"
    if (instant - now).total_seconds() >= 120:
        # Up to the minute: said a little late rather than too early.
        local, pattern = local + timedelta(seconds=-local.second % 60), "%H:%M"
    if local.date() != today.date():
        pattern = "%Y-%m-%d %H:%M"
    return f"{local.strftime(pattern)} (in {span((instant - now).total_seconds())})"


def past(instant: datetime | None, zone: ZoneInfo) -> str:
    """An instant that has been, in the configuration's zone, to the second: `2026-03-02 14:20:07`."""
    return "-" if instant is None else f"{instant.astimezone(zone):%Y-%m-%d %H:%M:%S}"


def stamp(instant: datetime | None) -> str | None:
    """RFC 3339 in UTC, to the second when it is whole: the form of every instant in a JSON document."""
    if instant is None:
        return None
    return instant.astimezone(UTC).isoformat().replace("+00:00", "Z")


def scope_text(scope: dict[str, str]) -> str:
    """A budget's scope for people: `provider=moonshot user=1002`, or `every call`."""
    return " ".join(f"{kind}={value}" for kind, value in scope.items()) or "every call"


def plain_table(headers: Sequence[str], rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> str:
    """Aligned text without a frame, two spaces between columns, nothing after the last word of a line."""
    table = [list(headers), *[list(row) for row in rows]]
    widths = [max(len(row[i]) for row in table) for i in range(len(headers))]
    lines = []
    for row in table:
        cells = [cell.rjust(widths[i]) if i in right else cell.ljust(widths[i]) for i, cell in enumerate(row)]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def on_terminal() -> bool:
    """True when standard output is a terminal."""
    return sys.stdout.isatty()


def show(headers: Sequence[str], rows: Sequence[Sequence[str]], right: Collection[int] = (), title: str = "") -> None:
    """Prints a table in the form that fits where standard output goes."""
    if not on_terminal():
        typer.echo(plain_table(headers, rows, right))
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title or None, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for i, header in enumerate(headers):
        table.add_column(header, justify="right" if i in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*[Text(cell) for cell in row])
    Console().print(table)


def tame(text: str) -> str:
    """The text without what a terminal would obey: repositories, web pages and models may have put it there."""
    return _CONTROLS.sub("\ufffd", text)


_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def document(value: object) -> None:
    """Prints one JSON document."""
    typer.echo(json.dumps(value, ensure_ascii=False, indent=2))
