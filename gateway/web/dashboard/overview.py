"""The overview: what is spent, held and left, who serves, what waits for an answer, and the last attempts as they come."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gateway.errors import InvalidRequest
from gateway.notice import Reader, alert_text
from gateway.runs import RunState
from gateway.web.dashboard.facts import Served, Standing, paused, served, standings
from gateway.web.dashboard.render import FULL
from gateway.web.dashboard.visit import Answer, Onward, View, Visit

JUDGED = 300
"""The newest attempts by which providers are judged."""
SHOWN = 12
ALERTS_MAX = 30
RUNS_SEEN = 100
"""Of the newest runs those are counted that have not ended."""


async def overview(visit: Visit) -> Answer:
    """The first page."""
    attempts = await visit.services.books.newest(JUDGED)
    listed, slots = await standings(visit), served(visit, attempts)
    fields = {
        "glance": await _glance(visit, listed, slots, attempts),
        "standings": listed,
        "paused": paused(visit),
        "served": slots,
        "attempts": attempts[:SHOWN],
        "asked": await visit.services.desk.waiting(visit.starter),
        "alerts": await _alerts(visit),
        "ended": ENDED_SHORT,
    }
    live = {
        "glance": "_glance.html",
        "asked": "_asked.html",
        "budgets": "_budgets.html",
        "providers": "_providers.html",
        "attempts": "_attempts.html",
    }
    return View("overview.html", "Overview", fields, live)


async def _glance(
    visit: Visit, listed: Sequence[Standing], slots: Sequence[Served], attempts: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    """What is spent today, what is under way, which budgets end first, who is left alone, and what runs there are."""
    midnight = visit.now.astimezone(visit.zone).replace(hour=0, minute=0, second=0, microsecond=0)
    today = await visit.services.books.usage([], midnight, visit.now, visit.zone)
    runs = [run for run in await visit.services.desk.newest(visit.starter, limit=RUNS_SEEN) if not run.state.ended]
    balances = [balance for one in listed for balance in one.balances]
    gone = [one for one in balances if one.limit <= 0 or one.spent * 100 >= FULL * one.limit]
    ahead = [one for one in balances if one.runs_out_at is not None and one not in gone]
    return {
        "midnight": midnight,
        "spent": today[0] if today else dict.fromkeys(("attempts", "tokens", "cost_micro_usd"), 0),
        "open": sum(one["ended"] is None for one in attempts),
        "gone": gone,
        "ahead": sorted(ahead, key=lambda one: one.runs_out_at or visit.now),
        "slots": len(slots),
        "alone": [one for one in slots if one.left_alone_until is not None],
        "going": sum(run.state is RunState.RUNNING for run in runs),
        "waiting": sum(run.state is not RunState.RUNNING for run in runs),
    }


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
