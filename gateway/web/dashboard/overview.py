"""The overview: what is spent, held and left, who serves, what waits for an answer, and the last attempts as they come."""

from __future__ import annotations

from gateway.web.dashboard.facts import paused, served, standings
from gateway.web.dashboard.visit import Answer, View, Visit

JUDGED = 300
"""The newest attempts by which providers are judged."""
SHOWN = 12


async def overview(visit: Visit) -> Answer:
    """The first page."""
    attempts = await visit.services.books.newest(JUDGED)
    fields = {
        "standings": await standings(visit),
        "paused": paused(visit),
        "served": served(visit, attempts),
        "attempts": attempts[:SHOWN],
        "asked": await visit.services.desk.waiting(visit.starter),
        "ended": ENDED_SHORT,
    }
    live = {
        "asked": "_asked.html",
        "budgets": "_budgets.html",
        "providers": "_providers.html",
        "attempts": "_attempts.html",
    }
    return View("overview.html", "Overview", fields, live)


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
