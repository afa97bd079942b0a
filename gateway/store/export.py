"""Usage rows as files: CSV with a heading, or one JSON object a line. Page by page, so that no file is ever held whole."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import orjson

from gateway.store.usage import FIELDS

Rows = Iterable[Mapping[str, Any]]


def heading() -> bytes:
    """The first line of a CSV file."""
    return (",".join(FIELDS) + "\n").encode()


def csv_lines(rows: Rows) -> bytes:
    """Rows of FIELDS."""
    page = io.StringIO(newline="")
    csv.writer(page, lineterminator="\n").writerows([cell(row[name]) for name in FIELDS] for row in rows)
    return page.getvalue().encode()


def cell(value: object) -> object:
    """A value as CSV has it. Text that a spreadsheet would take for a formula is quoted as text."""
    if isinstance(value, datetime):
        return _stamp(value)
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r"):
        return f"'{value}"
    return value


def json_lines(rows: Rows) -> bytes:
    """One object of FIELDS a line."""
    return b"".join(orjson.dumps(row, default=_plain, option=_OPTIONS) for row in rows)


FORMATS: Mapping[str, tuple[str, Callable[[], bytes], Callable[[Rows], bytes]]] = {
    "csv": ("text/csv; charset=utf-8", heading, csv_lines),
    "jsonl": ("application/x-ndjson", bytes, json_lines),
}
"""By the file's ending: the media type, what stands before the first row, and what rows become."""

_OPTIONS = orjson.OPT_APPEND_NEWLINE | orjson.OPT_PASSTHROUGH_DATETIME


def _plain(value: object) -> object:
    if isinstance(value, datetime):
        return _stamp(value)
    raise TypeError(type(value).__name__)


def _stamp(instant: datetime) -> str:
    """RFC 3339 in UTC."""
    return instant.astimezone(UTC).isoformat().replace("+00:00", "Z")
