# ruff: noqa: S608 (the statements are put together from our own column names; every value is a parameter)
"""Usage rows as files: CSV with a heading, or one JSON object a line. Page by page, so that no file is ever held whole.

The database writes the lines itself. Made in Python, a million of them would hold the interpreter for half a minute, and the
gate would get a fifth of its calls done meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache

from sqlalchemy import Boolean, Connection, String, TextClause, or_, select, text

from gateway.store.rebuild import SCOPE_COLUMNS
from gateway.store.tables import usage
from gateway.store.usage import FIELDS, having

INSTANTS = ("started", "ended")
FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""What begins with one of these a spreadsheet would take for a formula."""

Place = tuple[int, str]
"""Where an attempt stands among all: when it was started, and its id."""


@dataclass(frozen=True, slots=True)
class Format:
    """A kind of file."""

    media: str
    heading: bytes
    """What stands before the first row."""
    line: Callable[[bool], str]
    """A row as a line: an SQL expression for SQLite, or else for PostgreSQL."""


@dataclass(frozen=True, slots=True)
class Page:
    """The lines of some attempts, and where the next page begins: None behind the last one."""

    lines: bytes
    after: Place | None


def page(connection: Connection, kind: Format, after: Place, to_ms: int, rows: int, only: Mapping[str, str]) -> Page:
    """The next attempts behind a place, up to an instant, oldest first; `only` holds values that they must have."""
    started, name = usage.c.started, usage.c.id
    # Written so that the index on `started` leads straight to the place, whatever lies before it.
    behind = started >= after[0], or_(started > after[0], name > after[1]), started < to_ms, *having(only)
    last = connection.execute(select(started, name).where(*behind).order_by(started, name).offset(rows - 1).limit(1)).first()
    to = (to_ms, "") if last is None else (last[0], last[1])
    bounds = {"after": after[0], "after_id": after[1], "to": to[0], "to_id": to[1]}
    lines = connection.scalar(_statement(kind, tuple(only), connection.dialect.name == "sqlite"), bounds | dict(only))
    return Page(b"" if lines is None else f"{lines}\n".encode(), None if last is None else to)


def cell(value: object) -> object:
    """A value as CSV has it. Text that a spreadsheet would take for a formula is quoted as text."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, str) and value.startswith(FORMULA):
        return f"'{value}"
    return value


@cache
def _statement(kind: Format, only: tuple[str, ...], is_sqlite: bool) -> TextClause:
    """The lines behind one place up to another as a single text, so that Python sees each page once and no row of it."""
    wanted = "".join(f'AND "{SCOPE_COLUMNS[one].name}" = :{one} ' for one in only)
    add = "group_concat" if is_sqlite else "string_agg"
    return text(f"""SELECT {add}(line, '\n') FROM (
        SELECT {kind.line(is_sqlite)} AS line FROM usage
        WHERE started >= :after AND (started > :after OR id > :after_id) AND started <= :to AND (started < :to OR id <= :to_id)
        {wanted} ORDER BY started, id) AS lines""")


def _csv(is_sqlite: bool) -> str:
    return " || ',' || ".join(_cell(field, is_sqlite) for field in FIELDS)


def _cell(field: str, is_sqlite: bool) -> str:
    column, kind = f'"{field}"', usage.c[field].type
    if field in INSTANTS:
        return f"coalesce({_stamp(column, is_sqlite)}, '')"
    if isinstance(kind, Boolean):
        return f"CASE WHEN {column} THEN '1' ELSE '0' END"
    if not isinstance(kind, String):
        return f"coalesce(CAST({column} AS text), '')"
    formula = ", ".join(f"'{letter}'" for letter in FORMULA)
    special = " OR ".join(f"{column} LIKE '%{letter}%'" for letter in ',"\n\r')
    shown = f"CASE WHEN substr({column}, 1, 1) IN ({formula}) THEN '''' ELSE '' END || {column}"
    quoted = f"""'"' || replace({shown}, '"', '""') || '"'"""
    return f"CASE WHEN {column} IS NULL THEN '' WHEN {special} THEN {quoted} ELSE {shown} END"


def _json(is_sqlite: bool) -> str:
    values = [(field, _stamp(f'"{field}"', is_sqlite) if field in INSTANTS else f'"{field}"') for field in FIELDS]
    if not is_sqlite:
        row = ", ".join(f'{value} AS "{field}"' for field, value in values)
        return f"CAST((SELECT row_to_json(fields) FROM (SELECT {row}) AS fields) AS text)"
    truth = "json(CASE WHEN {} THEN 'true' ELSE 'false' END)"
    pairs = (
        f"'{field}', {truth.format(value) if isinstance(usage.c[field].type, Boolean) else value}" for field, value in values
    )
    return f"json_object({', '.join(pairs)})"


def _stamp(column: str, is_sqlite: bool) -> str:
    """An instant in RFC 3339, UTC, with a fraction where there is one. NULL stays NULL."""
    if is_sqlite:
        whole = rf"strftime('%Y-%m-%dT%H\:%M\:%S', {column} / 1000, 'unixepoch')"
    else:
        whole = rf"""to_char(to_timestamp({column} / 1000) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24\:MI\:SS')"""
    part = f"'.' || substr(CAST({column} % 1000 + 1000 AS text), 2) || '000Z'"
    return f"{whole} || CASE WHEN {column} % 1000 = 0 THEN 'Z' ELSE {part} END"


FORMATS = {
    "csv": Format("text/csv; charset=utf-8", (",".join(FIELDS) + "\n").encode(), _csv),
    "jsonl": Format("application/x-ndjson", b"", _json),
}
"""By the file's ending."""
