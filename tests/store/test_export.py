"""Rows as files: what the database writes is what the rows say, in order, whatever the names are and wherever a page ends."""

import csv
import io
import json
from datetime import datetime, timedelta
from typing import Any

import pytest

from gateway.budget import Amounts, Budgets
from gateway.ledger import Closing, Outcome, State
from gateway.store.books import Books
from gateway.store.database import Database
from gateway.store.export import FORMATS, cell
from gateway.store.ledger_store import LedgerStore
from gateway.store.usage import FIELDS
from tests.contract.world import draft, settled
from tests.doubles.clock import SettableClock

HOSTILE = (
    "ada", "", "a,b", 'say "x"', "two\nlines", "\r", "=HYPERLINK(1)", "+1,\n", "-1", "@x", "\t", "'quoted'", '"', ",", "100%_\\",
    "Zoë 東京 🚢", "\x01\x1f\x7f\u2028", "null", "<script>",
)  # fmt: skip


async def exported(books: Books, kind: str, since: datetime, until: datetime, rows: int) -> tuple[list[dict[str, Any]], int]:
    """The file read back, and its pages."""
    pages = [page async for page in books.pages(FORMATS[kind], since, until, rows)]
    text = (FORMATS[kind].heading + b"".join(pages)).decode()
    if kind == "csv":
        return list(csv.DictReader(io.StringIO(text, newline=""))), len(pages)
    # Not splitlines: a name may have what that takes for the end of a line.
    return [json.loads(line) for line in text.split("\n")[:-1]], len(pages)


@pytest.mark.parametrize("rows", [1, 4, 5, 1000])
async def test_the_lines_are_the_rows_whatever_stands_in_them(database: Database, rows: int) -> None:
    clock = SettableClock()
    store, books = LedgerStore(database, Budgets([]), clock), Books(database, Budgets([]), clock)
    await store.start()
    since = clock.now()
    for number, name in enumerate(HOSTILE):
        held = await store.reserve(draft(5, user=name, chat=name or None, provider=name or "p", request_id=f"r{number}"))
        if number != 3:
            said = settled(5, 7, estimated=True) if number % 2 else Closing(State.RELEASED, Amounts(), Outcome.REFUSED)
            await store.close(held, said)
        # Several have one instant, some a whole second; the last are outside.
        clock.advance((0, 0, 0.001, 0, 0.999)[number % 5])
    until = clock.now()
    await store.close(await store.reserve(draft(5)), settled(5))
    expected = sorted(
        (row for row in await books.newest(100) if row["started"] < until), key=lambda row: (row["started"], row["id"])
    )
    assert len(expected) >= len(HOSTILE) - 2
    as_json, pages = await exported(books, "jsonl", since, until, rows)
    assert pages == -(-len(expected) // rows)
    stamps = [{name: cell(value) if isinstance(value, datetime) else value for name, value in row.items()} for row in expected]
    assert as_json == stamps
    assert all(list(row) == list(FIELDS) for row in as_json)
    as_csv, pages = await exported(books, "csv", since, until, rows)
    assert pages == -(-len(expected) // rows)
    assert as_csv == [{name: "" if value is None else str(cell(value)) for name, value in row.items()} for row in expected]
    assert [row async for row in books.pages(FORMATS["csv"], until + timedelta(days=1), until + timedelta(days=2))] == []
