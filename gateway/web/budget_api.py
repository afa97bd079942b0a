"""`/api`: budgets as they stand, temporary raises, and usage."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
from aiohttp import web

from gateway.amounts import parse_change, parse_period, parse_span
from gateway.budget import Budget
from gateway.clock import Clock, to_ms
from gateway.errors import InvalidRequest
from gateway.settings import Settings
from gateway.store.books import Books
from gateway.store.export import FORMATS
from gateway.store.ledger_store import LedgerStore
from gateway.web.auth import caller, request_id
from gateway.web.parsing import json_object
from gateway.web.problems import REQUEST_ID

REST = 2
"""An export rests this many times as long as a page of it took, so that calls have the processor for most of the time."""
REST_MAX_S = 1.0


class BudgetApi:
    """The handlers of `/api`. What they read knows of every answer that this process has given."""

    def __init__(
        self,
        store: LedgerStore,
        books: Books,
        settings: Settings,
        clock: Clock,
        caught_up: Callable[[], Awaitable[None]],
    ) -> None:
        self._store, self._books, self._settings, self._clock = store, books, settings, clock
        self._caught_up = caught_up

    def routes(self) -> list[web.RouteDef]:
        """The routes under `/api`."""
        return [
            web.get("/api/budgets", self.budgets),
            web.post("/api/budgets/{name}/raise", self.raise_budget),
            web.get("/api/usage", self.usage),
            # No HEAD: what is sent page by page would be sent all the same.
            web.get("/api/usage/export.csv", self.export, allow_head=False),
            web.get("/api/usage/export.jsonl", self.export, allow_head=False),
        ]

    async def budgets(self, request: web.Request) -> web.Response:
        """Every budget, one entry for each counter of a `*` scope."""
        await self._caught_up()
        return _json({"budgets": [balance.as_json() for balance in await self._books.balances()]})

    async def raise_budget(self, request: web.Request) -> web.Response:
        """A temporary raise: `{"change": "+50k" | "+20%" | "=300k" | 5000, "for": "2h"}`, in the command line's words."""
        key = caller(request)
        name = request.match_info["name"]
        budget = self._settings.budgets.by_name.get(name)
        if budget is None:
            raise InvalidRequest(f"there is no budget {name[:100]!r}", "name", 404)
        operation, amount, length_s = _read_raise(json_object(await request.read()), budget)
        ends_at = self._clock.now() + timedelta(seconds=length_s)
        await self._store.raise_limit(name, operation, amount, to_ms(ends_at), f"http:{key.name}")
        balances = [balance.as_json() for balance in await self._books.balances() if balance.name == name]
        change = {"operation": operation, "amount": amount}
        return _json({"name": name, **change, "ends_at": _stamp(ends_at), "budgets": balances})

    async def usage(self, request: web.Request) -> web.Response:
        """Sums of usage rows: `?by=provider,user&from=…&to=…`, month to date and by provider unless it says otherwise."""
        _only(request.query, "by", "from", "to")
        given = ",".join(request.query.getall("by", ["provider"]))
        by = list(dict.fromkeys(name for part in given.split(",") if (name := part.strip())))
        start, end = self._period(request.query)
        await self._caught_up()
        rows = await self._books.usage(by, start, end, self._settings.zone)
        return _json({"from": _stamp(start), "to": _stamp(end), "by": by, "usage": [_plain(row) for row in rows]})

    async def export(self, request: web.Request) -> web.StreamResponse:
        """The usage rows themselves, oldest first, sent page by page: as CSV, or one JSON object a line."""
        _only(request.query, "from", "to")
        return await self.send_export(request)

    async def send_export(self, request: web.Request, only: Mapping[str, str] | None = None) -> web.StreamResponse:
        """The same, to somebody who may have it; `only` as for `Books.usage`."""
        kind = request.path.rpartition(".")[2]
        form = FORMATS.get(kind, FORMATS["csv"])
        start, end = self._period(request.query)
        await self._caught_up()
        async with aclosing(self._books.pages(form, start, end, only=only)) as pages:
            # The first page is read before the headers go out, so that a database that is gone is an error and no file.
            page = await anext(pages, b"")
            response = web.StreamResponse(
                headers={
                    "Content-Type": form.media,
                    "Cache-Control": "no-store",
                    "X-Content-Type-Options": "nosniff",
                    "Content-Disposition": f'attachment; filename="usage.{kind if kind in FORMATS else "csv"}"',
                    REQUEST_ID: request_id(request),
                }
            )
            await response.prepare(request)
            await response.write(form.heading)
            loop = asyncio.get_running_loop()
            while page:
                await response.write(page)
                began = loop.time()
                page = await anext(pages, b"")
                await asyncio.sleep(min(REST * (loop.time() - began), REST_MAX_S))
        await response.write_eof()
        return response

    def _period(self, query: Mapping[str, str]) -> tuple[datetime, datetime]:
        try:
            return parse_period(query.get("from"), query.get("to"), self._settings.zone, self._clock.now())
        except ValueError as error:
            raise InvalidRequest(f"from and to: {error}; in an address a + is written %2B", "from")


def _only(query: Mapping[str, str], *known: str) -> None:
    """Raises InvalidRequest for a parameter that would silently do nothing."""
    for name in query:
        if name not in known:
            raise InvalidRequest(f"{name[:50]}: unknown parameter; there are {', '.join(known)}", name[:50])


def _read_raise(fields: Mapping[str, object], budget: Budget) -> tuple[str, int, int]:
    """The operation, the amount and the length in seconds. Raises InvalidRequest (422) that names the field."""
    for name in fields:
        if name not in ("change", "for"):
            raise InvalidRequest(f"{name[:50]}: unknown field; there are change and for", name[:50], 422)
    change, length = fields.get("change"), fields.get("for")
    if isinstance(change, bool) or not isinstance(change, str | int):
        raise InvalidRequest('change must be "+50k", "+20%", "=300k" or a whole number', "change", 422)
    if not isinstance(length, str):
        raise InvalidRequest('for must say how long: "30m", "2h" or "1d"', "for", 422)
    field = "change"
    try:
        operation, amount = parse_change(str(change), budget.unit)
        field = "for"
        return operation, amount, parse_span(length)
    except ValueError as error:
        raise InvalidRequest(str(error)[:300], field, 422)


def _plain(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _stamp(value) if isinstance(value, datetime) else value for name, value in row.items()}


def _stamp(instant: datetime) -> str:
    """RFC 3339 in UTC."""
    return instant.astimezone(UTC).isoformat().replace("+00:00", "Z")


def _json(body: object) -> web.Response:
    return web.Response(body=orjson.dumps(body), headers={"Content-Type": "application/json"})
