"""The overview: what is spent, held and left, who serves, what waits for an answer, and the last attempts as they come."""

from __future__ import annotations

from typing import Any

from gateway.errors import InvalidRequest
from gateway.notice import Reader, alert_text
from gateway.web.dashboard.facts import paused, served, standings
from gateway.web.dashboard.visit import Answer, Onward, View, Visit

JUDGED = 300
"""The newest attempts by which providers are judged."""
SHOWN = 12
ALERTS_MAX = 30


async def overview(visit: Visit) -> Answer:
    """The first page."""
    attempts = await visit.services.books.newest(JUDGED)
    fields = {
        "standings": await standings(visit),
        "paused": paused(visit),
        "served": served(visit, attempts),
        "attempts": attempts[:SHOWN],
        "asked": await visit.services.desk.waiting(visit.starter),
        "alerts": await _alerts(visit),
        "ended": ENDED_SHORT,
    }
    live = {
        "asked": "_asked.html",
        "budgets": "_budgets.html",
        "providers": "_providers.html",
        "attempts": "_attempts.html",
    }
    return View("overview.html", "Overview", fields, live)


async def acknowledge(visit: Visit) -> Answer:
    """Takes note of an alert."""
    alerts, given = visit.services.alerts, visit.form.get("alert", "")
    if alerts is None or not given.isdecimal() or await alerts.acknowledge(int(given[:15]), visit.actor) is None:
        raise InvalidRequest("there is no such alert", "alert")
    return Onward("/", "Noted.")


async def _alerts(visit: Visit) -> list[dict[str, Any]]:
    """What lasts and nobody has taken note of yet, in words."""
    if visit.services.alerts is None:
        return []
    reader = Reader("en", visit.zone, admin=True)
    found = [one for one in await visit.services.alerts.newest(ALERTS_MAX) if one.ended_at is None and not one.by]
    return [{"id": one.id, "at": one.opened_at, "text": alert_text(one.kind, one.facts, reader, visit.now)} for one in found]


ENDED_SHORT = {
    "pending": ("under way", "busy"),
    "answered": ("answered", "good"),
    "clamped": ("shortened", "near"),
    "refused": ("refused", "bad"),
    "caller_fault": ("bad request", "near"),
    "content_refused": ("content policy", "near"),
    "unanswered": ("no answer", "bad"),
    "cancelled": ("stopped", "near"),
    "cut_off": ("cut off", "bad"),
    "not_sent": ("not sent", "near"),
    "expired": ("expired", "bad"),
}
"""How an attempt ended in two words at most, and how that looks."""
