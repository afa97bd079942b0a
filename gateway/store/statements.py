# ruff: noqa: S608 (the statements are put together from our own column names; every value is a parameter)
"""The ledger's hot statements, for SQLite and PostgreSQL: a handful per batch, whatever its size.

They run on the driver's own connection, since the cost of a layer above it would be paid once per reservation.
SQLite takes many rows in one VALUES list: a statement per row would give the interpreter's lock away, and wait for it,
once per row. It answers with one JSON value for the same reason. `OR FAIL` spares it a copy of every page that a statement
changes, in a file of its own as soon as there are a few: a statement that fails undoes the transaction anyhow.
PostgreSQL takes the rows as one JSON parameter.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any, Protocol

import orjson
from sqlalchemy import BigInteger, Boolean, Integer, Table

from gateway.ledger import CounterId
from gateway.store import tables
from gateway.store.rows import ENDING, OPENING, STANDING

COUNTERS = ("budget", "key", "signature", "spent", "held", "buckets")
REFUSALS = ("request_id", "at", "chain", "provider", "model", "kind", "message", "detail")

Row = Sequence[Any]


class Statements(Protocol):
    """`raw` is the driver's connection, inside the writer's transaction. Rows are in the order of the named columns."""

    locks: bool
    """True where counters are locked row by row, so that they must exist before they can be."""

    def version(self, raw: Any) -> int | None:
        """A number that changes when another connection has committed anything; None where there is no such number."""
        ...

    def attempts(self, raw: Any, ids: Sequence[str]) -> Iterable[Row]:
        """The STANDING columns of these attempts, locked."""
        ...

    def counters(self, raw: Any, ids: Sequence[CounterId]) -> Iterable[Row]:
        """budget, key, signature and buckets of these counters, locked in this order."""
        ...

    def write(self, raw: Any, counters: Sequence[Row], opened: Sequence[Row], ended: Sequence[Row]) -> None:
        """Inserts or updates COUNTERS, inserts OPENING, and updates ENDING of attempts that were there before."""
        ...

    def refuse(self, raw: Any, rows: Sequence[Row]) -> None:
        """Inserts REFUSALS."""
        ...

    def keep_replies(self, raw: Any, rows: Sequence[Row]) -> None:
        """Sets reply and expires of the request with an id."""
        ...

    def renew(self, raw: Any, owner: str, at_ms: int, mark: str) -> None:
        """Keeps an owner's lease; `mark` says which process it is."""
        ...


def _names(columns: Iterable[str]) -> str:
    return ", ".join(f'"{column}"' for column in columns)


_UPDATE_COUNTER = ", ".join(f'"{column}" = excluded."{column}"' for column in COUNTERS[2:])
_RENEW = "INSERT INTO owners (id, seen, mark) VALUES ({0}, {0}, {0}) ON CONFLICT (id) DO UPDATE SET seen = excluded.seen"


class SqliteStatements:
    """The writer holds the only write lock (BEGIN IMMEDIATE), so nothing is locked by row."""

    locks = False

    def version(self, raw: Any) -> int | None:
        """As Statements.version."""
        found: int = raw.execute("PRAGMA data_version").fetchone()[0]
        return found

    def attempts(self, raw: Any, ids: Sequence[str]) -> Iterable[Row]:
        """As Statements.attempts."""
        sql = _sqlite_attempts(len(ids))
        found: list[Row] = orjson.loads(raw.execute(sql, ids).fetchone()[0])
        return found

    def counters(self, raw: Any, ids: Sequence[CounterId]) -> Iterable[Row]:
        """As Statements.counters."""
        found: list[Row] = orjson.loads(raw.execute(_sqlite_counters(len(ids)), _flat(ids)).fetchone()[0])
        return found

    def write(self, raw: Any, counters: Sequence[Row], opened: Sequence[Row], ended: Sequence[Row]) -> None:
        """As Statements.write."""
        if counters:
            tail = f" ON CONFLICT (budget, key) DO UPDATE SET {_UPDATE_COUNTER}"
            raw.execute(_sqlite_insert("counters", COUNTERS, len(counters), tail), _flat(counters))
        if opened:
            raw.execute(_sqlite_insert("usage", OPENING, len(opened)), _flat(opened))
        if ended:
            raw.execute(_sqlite_end(len(ended)), _flat(ended))

    def refuse(self, raw: Any, rows: Sequence[Row]) -> None:
        """As Statements.refuse."""
        raw.execute(_sqlite_insert("refusals", REFUSALS, len(rows)), _flat(rows))

    def keep_replies(self, raw: Any, rows: Sequence[Row]) -> None:
        """As Statements.keep_replies."""
        raw.executemany("UPDATE requests SET reply = ?, expires = ? WHERE id = ?", rows)

    def renew(self, raw: Any, owner: str, at_ms: int, mark: str) -> None:
        """As Statements.renew."""
        raw.execute(_RENEW.format("?"), (owner, at_ms, mark))


def _flat(rows: Iterable[Row]) -> list[Any]:
    return [value for row in rows for value in row]


def _values(width: int, height: int) -> str:
    row = f"({', '.join('?' * width)})"
    return ", ".join([row] * height)


@cache
def _sqlite_attempts(count: int) -> str:
    return f"SELECT json_group_array(json_array({_names(STANDING)})) FROM usage WHERE id IN ({', '.join('?' * count)})"


@cache
def _sqlite_counters(count: int) -> str:
    # CROSS JOIN keeps the order of the tables: one index lookup per wanted counter, however many there are.
    return (
        "SELECT json_group_array(json_array(budget, key, signature, buckets))"
        f" FROM (VALUES {_values(2, count)}) AS wanted"
        " CROSS JOIN counters ON budget = wanted.column1 AND key = wanted.column2"
    )


@cache
def _sqlite_insert(table: str, columns: tuple[str, ...], count: int, tail: str = "") -> str:
    return f"INSERT OR FAIL INTO {table} ({_names(columns)}) VALUES {_values(len(columns), count)}{tail}"


@cache
def _sqlite_end(count: int) -> str:
    changes = ", ".join(f'"{column}" = ended.column{index}' for index, column in enumerate(ENDING, 1) if column != "id")
    return (
        f"UPDATE OR FAIL usage SET {changes} FROM (VALUES {_values(len(ENDING), count)}) AS ended WHERE usage.id = ended.column1"
    )


class PostgresStatements:
    """Rows are locked in one order by every process, so that two batches cannot deadlock."""

    locks = True

    def version(self, raw: Any) -> int | None:
        """As Statements.version: rows are locked one by one, and others' may change at any time."""
        return None

    def attempts(self, raw: Any, ids: Sequence[str]) -> Iterable[Row]:
        """As Statements.attempts."""
        found: Iterable[Row] = raw.execute(_POSTGRES_ATTEMPTS, (list(ids),)).fetchall()
        return found

    def counters(self, raw: Any, ids: Sequence[CounterId]) -> Iterable[Row]:
        """As Statements.counters."""
        found: Iterable[Row] = raw.execute(_POSTGRES_COUNTERS, (_json(ids),)).fetchall()
        return found

    def write(self, raw: Any, counters: Sequence[Row], opened: Sequence[Row], ended: Sequence[Row]) -> None:
        """As Statements.write, in one statement: each one costs a way to the server and back."""
        raw.execute(_POSTGRES_WRITE, (_json(opened), _json(ended), _json(counters)))

    def refuse(self, raw: Any, rows: Sequence[Row]) -> None:
        """As Statements.refuse."""
        raw.execute(_POSTGRES_REFUSE, (_json(rows),))

    def keep_replies(self, raw: Any, rows: Sequence[Row]) -> None:
        """As Statements.keep_replies."""
        raw.cursor().executemany("UPDATE requests SET reply = %s, expires = %s WHERE id = %s", rows)

    def renew(self, raw: Any, owner: str, at_ms: int, mark: str) -> None:
        """As Statements.renew."""
        raw.execute(_RENEW.format("%s"), (owner, at_ms, mark))


def _json(rows: Sequence[Row]) -> str:
    return orjson.dumps(rows).decode()


def _postgres_values(table: Table, columns: Sequence[str]) -> list[str]:
    casts = {Boolean: "boolean", Integer: "integer", BigInteger: "bigint"}
    return [f"(item ->> {index})::{casts.get(type(table.c[column].type), 'text')}" for index, column in enumerate(columns)]


def _postgres_insert(table: Table, columns: Sequence[str]) -> str:
    values = ", ".join(_postgres_values(table, columns))
    return f"INSERT INTO {table.name} ({_names(columns)}) SELECT {values} FROM jsonb_array_elements(%s::jsonb) AS item"


_POSTGRES_ATTEMPTS = f"SELECT {_names(STANDING)} FROM usage WHERE id = ANY(%s) ORDER BY id FOR UPDATE"
_POSTGRES_COUNTERS = """
    SELECT budget, key, signature, buckets
    FROM counters JOIN jsonb_array_elements(%s::jsonb) AS item ON budget = item ->> 0 AND key = item ->> 1
    ORDER BY budget, key FOR UPDATE OF counters
"""
_POSTGRES_WRITE_COUNTERS = (
    f"{_postgres_insert(tables.counters, COUNTERS)} ON CONFLICT (budget, key) DO UPDATE SET {_UPDATE_COUNTER}"
)
_POSTGRES_OPEN = _postgres_insert(tables.usage, OPENING)
_POSTGRES_REFUSE = _postgres_insert(tables.refusals, REFUSALS)
_POSTGRES_END = (
    "UPDATE usage SET "
    + ", ".join(
        f'"{column}" = {value}'
        for column, value in zip(ENDING, _postgres_values(tables.usage, ENDING), strict=True)
        if column != "id"
    )
    + " FROM jsonb_array_elements(%s::jsonb) AS item WHERE usage.id = item ->> 0"
)
_POSTGRES_WRITE = f"WITH opened AS ({_POSTGRES_OPEN}), ended AS ({_POSTGRES_END}) {_POSTGRES_WRITE_COUNTERS}"
