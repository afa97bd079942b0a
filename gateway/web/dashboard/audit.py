"""The audit: who changed what, newest first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway.clock import from_ms
from gateway.errors import InvalidRequest
from gateway.store.audit import SHOWN
from gateway.web.dashboard.visit import Answer, View, Visit

DIGITS_MAX = 10


async def every(visit: Visit) -> Answer:
    """The newest entries, or those before one. Raises InvalidRequest for an entry that cannot be."""
    before = visit.asked("before")
    if before and not (before.isdecimal() and before.isascii() and len(before) < DIGITS_MAX):
        raise InvalidRequest("before must be the number of an entry", "before")
    found = await visit.services.books.audit(before=int(before) if before else None)
    entries = [{"at": from_ms(entry.at_ms), "entry": entry, "detail": _detail(entry.detail)} for entry in found]
    fields = {"entries": entries, "older": found[-1].id if len(found) == SHOWN else ""}
    return View("audit.html", "Audit", fields, {} if before else {"entries": "_audit.html"})


def _detail(detail: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """What is there to say, with instants as such."""
    said = [(name, value) for name, value in detail.items() if value not in (None, "", [])]
    return [(name, from_ms(value) if name == "ends" else _words(value)) for name, value in said]


def _words(value: Any) -> Any:
    if isinstance(value, dict):
        value = [part for pair in value.items() for part in pair]
    return " ".join(map(str, value)) if isinstance(value, list) else value
