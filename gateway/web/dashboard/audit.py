"""The audit: who changed what, newest first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway.clock import from_ms
from gateway.web.dashboard.visit import Answer, View, Visit


async def every(visit: Visit) -> Answer:
    """The newest entries."""
    entries = [
        {"at": from_ms(entry.at_ms), "entry": entry, "detail": _detail(entry.detail)}
        for entry in await visit.services.books.audit()
    ]
    return View("audit.html", "Audit", {"entries": entries}, {"entries": "_audit.html"})


def _detail(detail: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """What is there to say, with instants as such."""
    said = [(name, value) for name, value in detail.items() if value not in (None, "")]
    return [(name, from_ms(value) if name == "ends" else value) for name, value in said]
