"""Schedules: alarms that start a workflow. One run for each fire, and one run of a schedule at a time."""

from __future__ import annotations

from datetime import datetime

import structlog

from gateway.errors import RequestConflict
from gateway.runs import Run, Starter
from gateway.schedules.alarms import Alarm
from gateway.settings import Schedule
from gateway.store.runs import Runs
from gateway.workflow.desk import Desk

log = structlog.get_logger(__name__)

LOOK_BACK = 20
"""So many of a schedule's newest runs are looked at for one that has not ended."""


def alarm_of(schedule: Schedule, desk: Desk, runs: Runs) -> Alarm:
    """The alarm of a schedule. It is known by the schedule's name."""

    async def ring(fire: datetime) -> None:
        await _start(schedule, fire, desk, runs)

    return Alarm(f"schedule:{schedule.name}", schedule.cron, ring)


def key_of(schedule: Schedule, fire: datetime) -> str:
    """What makes two processes that ring the same fire start one run."""
    return f"{schedule.name}:{fire:%Y-%m-%dT%H:%M:%SZ}"


def starter_of(schedule: Schedule) -> Starter:
    """Who starts it: the configuration itself. What is told goes to the chat of its `to`."""
    kind, _, place = schedule.to.partition(":")
    chat, _, thread = place.partition("/") if kind == "telegram" else ("", "", "")
    return Starter(
        surface="schedule",
        user=schedule.name,
        chat=chat or None,
        thread=int(thread) if thread else None,
        to="" if chat else schedule.to,
    )


async def _start(schedule: Schedule, fire: datetime, desk: Desk, runs: Runs) -> None:
    """Queues the fire's run, unless an earlier one of the schedule still goes on or waits.

    With its budget gone for a day, an hourly schedule would otherwise pile up two dozen runs that all ask at once when the
    window opens, and each would do the same work.
    """
    starter, key = starter_of(schedule), key_of(schedule, fire)
    earlier = _living(await runs.newest(workflow=schedule.workflow, of=starter, limit=LOOK_BACK), key)
    if earlier is not None:
        log.warning("schedule_passed_over", schedule=schedule.name, fire=fire.isoformat(), run=earlier.id, state=earlier.state)
        return
    try:
        run = await desk.start(schedule.workflow, schedule.params, starter, key=key)
    except RequestConflict:
        # A process with an earlier configuration has started this fire's run, with the parameters that it knows.
        log.warning("schedule_started_elsewhere", schedule=schedule.name, fire=fire.isoformat())
        return
    log.info("schedule_fired", schedule=schedule.name, fire=fire.isoformat(), run=run.id)


def _living(found: list[Run], key: str) -> Run | None:
    """A run that has not ended, other than the one of this fire."""
    return next((run for run in found if not run.state.ended and not (run.key or "").endswith(f":{key}")), None)
