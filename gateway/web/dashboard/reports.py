"""Reports: the one of this moment with its chart, and those that are sent by the clock with what became of them."""

from __future__ import annotations

import asyncio
from typing import Any

from aiohttp import web

from gateway.errors import InvalidRequest
from gateway.runs import Notice, NoticeState
from gateway.settings import ReportSettings
from gateway.web.app import Reporting, Told
from gateway.web.dashboard.visit import Answer, Missing, Onward, View, Visit

PERIODS = {"day": "Day", "week": "Week", "month": "Month"}
STATES = {
    NoticeState.PENDING: ("waits", "busy"),
    NoticeState.SENT: ("sent", "good"),
    NoticeState.FAILED: ("failed", "bad"),
    NoticeState.UNCERTAIN: ("may have arrived", "near"),
}
"""What became of one in few words, and how that looks."""


async def page(visit: Visit) -> Answer:
    """The report of this moment. What lives on the page is what became of those that were sent."""
    desk = await desk_of(visit)
    fields: dict[str, Any] = {"configured": [await _configured(visit, desk, one) for one in visit.services.settings.reports]}
    if not visit.follows:
        made = await desk.make(_period(visit))
        drawn = await asyncio.to_thread(made.svg)
        fields |= {"told": made.sections(), "drawing": drawn, "period": _period(visit), "periods": PERIODS}
    return View("reports.html", "Reports", fields, {"configured": "_reports.html"})


async def table(visit: Visit) -> Answer:
    """Its figures as CSV."""
    return _file(visit, "csv", "text/csv; charset=utf-8", (await _made(visit)).csv().encode("utf-8", "replace"))


async def document(visit: Visit) -> Answer:
    """Everything in it, for programs."""
    return web.json_response((await _made(visit)).document())


async def picture(visit: Visit) -> Answer:
    """Its chart as a picture."""
    made = await _made(visit)
    return _file(visit, "png", "image/png", await asyncio.to_thread(made.png))


async def send(visit: Visit) -> Answer:
    """Sends a configured report at once, whatever was sent before."""
    name = visit.part("name")
    report = next((one for one in visit.services.settings.reports if one.name == name), None)
    if report is None:
        raise Missing
    notice = await (await desk_of(visit)).send_now(report, visit.actor)
    if notice.state is NoticeState.SENT:
        said = f"The report {name} is written."
    elif notice.detail:
        return Onward("/reports", f"The report {name} could not be written yet: {notice.detail}", bad=True)
    else:
        said = f"The report {name} is on its way to {report.to}."
    return Onward("/reports", said)


async def desk_of(visit: Visit) -> Reporting:
    """What makes reports."""
    assert visit.services.reports is not None, "the program has handed it in"
    return await asyncio.to_thread(visit.services.reports)


async def _made(visit: Visit) -> Told:
    return await (await desk_of(visit)).make(_period(visit))


def _period(visit: Visit) -> str:
    period = visit.asked("period", "day")
    if period not in PERIODS:
        raise InvalidRequest(f"a report is of a {', '.join(PERIODS)}, and not of {period[:100]!r}", "period")
    return period


def _file(visit: Visit, kind: str, media: str, body: bytes) -> web.Response:
    name = f"report-{_period(visit)}-{visit.now.astimezone(visit.zone):%Y-%m-%d}.{kind}"
    return web.Response(body=body, headers={"Content-Type": media, "Content-Disposition": f'attachment; filename="{name}"'})


async def _configured(visit: Visit, desk: Reporting, report: ReportSettings) -> dict[str, Any]:
    last: Notice | None = next(iter(await desk.sent(report)), None)
    state, level = ("", "") if last is None else STATES[last.state]
    return {"report": report, "next": report.cron.after(visit.now), "last": last, "state": state, "level": level}
