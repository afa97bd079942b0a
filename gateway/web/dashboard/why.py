"""Why a request went as it did: slot by slot what the gate decided, and how each attempt ended."""

from __future__ import annotations

from gateway.story import ENDED, slots_of
from gateway.web.dashboard.overview import ENDED_SHORT
from gateway.web.dashboard.visit import Answer, Missing, View, Visit


async def why(visit: Visit) -> Answer:
    """The story of one request."""
    request_id = visit.part("request_id")
    story = await visit.services.books.story(request_id)
    slots = slots_of(story.attempts, story.refusals, visit.services.settings.budgets)
    if not slots:
        raise Missing
    return View("why.html", "Why", {"request_id": request_id, "slots": slots, "ended": ENDED, "short": ENDED_SHORT})
