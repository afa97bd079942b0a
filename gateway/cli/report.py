"""`sluicegate report` and `sluicegate reports`: the report of this moment, and what became of those that were sent."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from gateway.cli.outcome import DONE, FAILED, USAGE, CommandError
from gateway.cli.render import document, moment, on_terminal, show, stamp
from gateway.cli.session import actor, load_settings, opened
from gateway.runs import Notice, NoticeState
from gateway.settings import ReportSettings

if TYPE_CHECKING:
    from gateway.app import App

PERIODS = ("day", "week", "month")
FORMATS = ("text", "png", "csv", "json")
LOOKS = 40
"""How often it is looked whether a bot has sent a report, every LOOK_S."""
LOOK_S = 0.25
STATES = {
    NoticeState.PENDING: "waits",
    NoticeState.SENT: "sent",
    NoticeState.FAILED: "failed",
    NoticeState.UNCERTAIN: "may have arrived",
}


async def report(config: Path | None, period: str, format_: str, *, send: bool) -> int:
    """Makes it in one format, or sends it to where the configuration says."""
    if period not in PERIODS:
        raise CommandError(f"--period: {period!r} is none of {', '.join(PERIODS)}", USAGE)
    if format_ not in FORMATS:
        raise CommandError(f"--format: {format_!r} is none of {', '.join(FORMATS)}", USAGE)
    if format_ == "png" and not send and on_terminal():
        raise CommandError("a picture is no text: add `> report.png`", USAGE)
    settings = load_settings(config)
    async with opened(settings) as app:
        if send:
            return await _send(app, [one for one in settings.reports if one.period == period], period, as_json=format_ == "json")
        made = await app.reports.make(period)
    if format_ == "png":
        sys.stdout.buffer.write(await asyncio.to_thread(made.png))
    elif format_ == "csv":
        sys.stdout.write(made.csv().replace("\r\n", "\n"))
    elif format_ == "json":
        document(made.document())
    else:
        typer.echo(made.text())
    return DONE


async def _send(app: App, wanted: list[ReportSettings], period: str, *, as_json: bool) -> int:
    if not wanted:
        raise CommandError(f'the configuration has no [[reports]] with period = "{period}": it says where one is sent', USAGE)
    sent = [(one, await app.reports.send_now(one, actor())) for one in wanted]
    found = []
    for one, notice in sent:
        for _ in range(LOOKS):
            notice = await app.reports.state(notice.step) or notice
            # While it is on its way it may have arrived; soon more is known.
            if notice.state in (NoticeState.SENT, NoticeState.FAILED) or (notice.state is NoticeState.PENDING and notice.detail):
                break
            await asyncio.sleep(LOOK_S)
        found.append((one, notice))
    if as_json:
        document({"sent": [{"name": one.name, **_facts(notice)} for one, notice in found]})
    else:
        for one, notice in found:
            typer.echo(f"{one.name} to {one.to}: {_said(notice)}")
    return FAILED if any(notice.state is NoticeState.FAILED for _, notice in found) else DONE


def _said(notice: Notice) -> str:
    """What became of it, for people."""
    said = STATES[notice.state]
    if notice.state is NoticeState.PENDING and not notice.detail:
        return f"{said} for a running bot to send it"
    return f"{said}: {notice.detail}" if notice.detail else said


def _facts(notice: Notice | None) -> dict[str, object]:
    if notice is None:
        return {"to": None, "created": None, "state": None, "detail": None}
    created = stamp(notice.created)
    return {"to": notice.to, "created": created, "state": notice.state.value, "detail": notice.detail or None}


async def reports(config: Path | None, *, as_json: bool) -> int:
    """Every configured report, when it is due next, and what became of the last one."""
    settings = load_settings(config)
    async with opened(settings) as app:
        now = app.clock.now()
        found = [(one, next(iter(await app.reports.sent(one)), None)) for one in settings.reports]
    if as_json:
        facts = [
            {
                "name": one.name,
                "period": one.period,
                "cron": one.cron.text,
                "to": one.to,
                "next": stamp(one.cron.after(now)),
                "last": None if last is None else _facts(last),
            }
            for one, last in found
        ]
        document({"reports": facts})
        return DONE
    if not found:
        typer.echo("No reports: the configuration has no [[reports]].")
        return DONE
    rows = [
        [
            one.name,
            one.period,
            one.to,
            moment(one.cron.after(now), settings.zone, now),
            "-" if last is None else f"{last.created.astimezone(settings.zone):%Y-%m-%d %H:%M}",
            "nothing yet" if last is None else _said(last),
        ]
        for one, last in found
    ]
    show(["report", "of a", "goes to", "next", "last made", "what became of it"], rows)
    return DONE
