"""Runs: what was started, where each stands step by step, and what can be done about it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from gateway.errors import InvalidRequest, UnknownRun, UnknownWorkflow
from gateway.runs import Detail, Run, RunState, Step
from gateway.web.dashboard import caps
from gateway.web.dashboard.overview import ENDED_SHORT
from gateway.web.dashboard.visit import Answer, Missing, Onward, View, Visit
from gateway.web.parsing import any_json

PAGE = 50
CALLS_SHOWN = 100
STATES = {
    "queued": ("queued", ""),
    "running": ("running", "busy"),
    "waiting_budget": ("waits for budget", "near"),
    "waiting_approval": ("waits for an answer", "near"),
    "waiting": ("waits", "near"),
    "sleeping": ("sleeps", ""),
    "succeeded": ("succeeded", "good"),
    "failed": ("failed", "bad"),
    "cancelled": ("cancelled", ""),
}
"""The states of runs and steps in words, and how they look."""
WIDTH = 1000
"""The width of the time line in its own units."""


async def every(visit: Visit) -> Answer:
    """The newest runs first. Raises InvalidRequest for a state that is none."""
    workflow, state, before = visit.asked("workflow"), visit.asked("state"), visit.asked("before")
    if state and state not in [each.value for each in RunState]:
        raise InvalidRequest(f"state must be one of {', '.join(RunState)}", "state")
    found = await visit.services.desk.newest(
        visit.starter, workflow=workflow or None, state=RunState(state) if state else None, limit=PAGE, before=before or None
    )
    names = sorted(each.name for each in visit.services.desk.startable(visit.starter))
    fields = {
        "runs": found,
        "states": STATES,
        "all_states": list(RunState),
        "names": names,
        "workflow": workflow,
        "state": state,
        "older": found[-1].id if len(found) == PAGE else "",
    }
    return View("runs.html", "Runs", fields, {} if before else {"runs": "_runs.html"})


async def one(visit: Visit) -> Answer:
    """One run."""
    try:
        detail = await visit.services.desk.get(visit.part("id"), visit.starter)
    except UnknownRun:
        raise Missing from None
    run = detail.run
    fields = {
        "run": run,
        "steps": _timeline(detail, visit.now),
        "asked": detail.approvals,
        "paused": None,
        "states": STATES,
        "attempts": await visit.services.books.newest(CALLS_SHOWN, {"run": run.id}),
        "ended": ENDED_SHORT,
        "caps": _caps(visit, run) if run.state is RunState.FAILED else (),
        "took_s": ((run.ended or visit.now) - (run.started or run.created)).total_seconds() if run.started else None,
    }
    live = {"standing": "_run.html", "steps": "_steps.html", "calls": "_attempts.html"}
    return View("run.html", f"{run.workflow} {run.id}", fields, live)


async def cancel(visit: Visit) -> Answer:
    """Stops it. Raises WrongState."""
    run = await visit.services.desk.cancel(visit.part("id"), visit.starter)
    said = (
        "The run is cancelled." if run.state is RunState.CANCELLED else "The run will be cancelled as soon as its worker sees it."
    )
    return Onward(f"/runs/{run.id}", said)


async def retry(visit: Visit) -> Answer:
    """Goes on from the step that failed, with other caps if they are given. Raises WrongState, InvalidRequest."""
    run = await visit.services.desk.retry(visit.part("id"), visit.starter, caps.given(visit))
    return Onward(f"/runs/{run.id}", "It goes on from the step that failed.")


async def signal(visit: Visit) -> Answer:
    """Tells it what it waits for: any JSON, or nothing. Raises InvalidRequest, WrongState."""
    id, name = visit.part("id"), visit.text("name", "what it waits for", 64)
    data = any_json(visit.form.get("data", "").encode("utf-8", "replace"))
    await visit.services.desk.signal(id, name, data, visit.starter)
    return Onward(f"/runs/{id}", f"It was told {name}.")


def _caps(visit: Visit, run: Run) -> list[dict[str, Any]]:
    """The caps that a retry may change; none where its workflow is gone."""
    try:
        declared = visit.services.desk.startable_one(visit.starter, run.workflow).caps
    except UnknownWorkflow:
        return []
    return caps.fields(visit, run.caps or declared)


async def approve(visit: Visit) -> Answer:
    """Says yes to what it asks."""
    return await _decide(visit, approve=True)


async def reject(visit: Visit) -> Answer:
    """Says no."""
    return await _decide(visit, approve=False)


async def _decide(visit: Visit, *, approve: bool) -> Answer:
    id = visit.part("id")
    await visit.services.desk.decide(visit.form.get("approval") or id, approve, visit.starter, of=id)
    return Onward(f"/runs/{id}", "Approved." if approve else "Rejected.")


def _timeline(detail: Detail, now: datetime) -> Sequence[dict[str, Any]]:
    """Each step with its place on the run's line of time: from the first step's beginning until the run's end, or now."""
    if not detail.steps:
        return []
    begin = min(step.started for step in detail.steps)
    ends = [step.ended or now for step in detail.steps]
    whole = max((max(ends) - begin).total_seconds(), 0.001)

    def place(instant: datetime) -> int:
        return round(WIDTH * (instant - begin).total_seconds() / whole)

    return [_placed(step, place(step.started), place(step.ended or now)) for step in detail.steps]


def _placed(step: Step, first: int, last: int) -> dict[str, Any]:
    # In front of the step's own name stands where it belongs: "questions/0/ask".
    *path, name = step.name.split("/")
    took_ms = None if step.ended is None else round((step.ended - step.started).total_seconds() * 1000)
    width = max(last - first, 6)
    return {
        "step": step,
        "path": "/".join(path),
        "name": name,
        "took_ms": took_ms,
        "x": min(first, WIDTH - width),
        "width": width,
    }
