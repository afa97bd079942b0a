"""The audit: who changed what, newest first."""

from __future__ import annotations

from typing import Any

from gateway.clock import from_ms
from gateway.errors import InvalidRequest
from gateway.store.audit import SHOWN, Entry
from gateway.web.dashboard.budgets import told
from gateway.web.dashboard.visit import Answer, View, Visit

DIGITS_MAX = 10
OF_BUDGETS = ("raise", "adjust")


async def every(visit: Visit) -> Answer:
    """The newest entries, or those before one. Raises InvalidRequest for an entry that cannot be."""
    before = visit.asked("before")
    if before and not (before.isdecimal() and before.isascii() and len(before) < DIGITS_MAX):
        raise InvalidRequest("before must be the number of an entry", "before")
    found = await visit.services.books.audit(before=int(before) if before else None)
    entries = [{"at": from_ms(entry.at_ms), "entry": entry} | _told(visit, entry) for entry in found]
    fields = {"entries": entries, "older": found[-1].id if len(found) == SHOWN else ""}
    return View("audit.html", "Audit", fields, {} if before else {"entries": "_audit.html"})


def _told(visit: Visit, entry: Entry) -> dict[str, Any]:
    """What there is to say of an entry, and until when it holds."""
    budget = visit.services.settings.budgets.by_name.get(entry.subject)
    if budget is not None and entry.action in OF_BUDGETS:
        change = told(budget, entry)
        return {"said": ", ".join(filter(None, (change["of"], change["change"], change["why"]))), "ends": change["ends"]}
    detail = [f"{name} {_plain(value)}" for name, value in entry.detail.items() if name != "ends" and _says(value)]
    if entry.detail.get("admin") is True:
        detail = ["an admin key"]
    ends = entry.detail.get("ends")
    return {"said": "; ".join(detail), "ends": None if ends is None else from_ms(ends)}


def _plain(value: object) -> object:
    if isinstance(value, dict):
        value = [f"{name} {part}" for name, part in value.items()]
    return ", ".join(map(str, value)) if isinstance(value, list) else value


def _says(value: object) -> bool:
    """False for what is not there, and for a no."""
    return value not in (None, "", False, [])
