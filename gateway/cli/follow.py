"""`--follow`: a run's steps as they go, drawn live on a terminal and as plain lines elsewhere. Only rows are read.

Whether the run is worked on by this command or by a server makes no difference to what is seen.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AsyncExitStack
from datetime import datetime
from typing import TYPE_CHECKING, Protocol

import typer

from gateway.cli.outcome import DONE, EXHAUSTED, FAILED, complain
from gateway.cli.render import document, moment, on_terminal, tame
from gateway.cli.run_words import MARKS, event_line, lacks_cap, question_lines, spent_text, state_text, step_text, took
from gateway.cli.runs import end_lines
from gateway.cli.session import opened, working
from gateway.cli.typed import typed
from gateway.cli.words import starter
from gateway.errors import LedgerUnavailable
from gateway.runs import Detail, Run, RunEvent, RunState, StepState
from gateway.settings import Settings

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live

    from gateway.app import App
    from gateway.workflow.worker import Worker

LOOK_S = 0.25
SHORT_S = 15.0
"""A wait for a budget that is shorter is waited for, as a person's question is."""
ROWS_BESIDE = 7
"""Rows of the picture that are no steps: the head, the log's last lines, and what a long line takes."""
STANDS_S = 3.0
"""So long a wait for a budget must have stood: just after a raise, the row is still as it was."""


class View(Protocol):
    """How a run is shown."""

    def show(self, detail: Detail, events: Iterable[RunEvent]) -> None:
        """Shows where it stands, and what is new."""
        ...

    def close(self) -> None:
        """Nothing more comes."""
        ...


async def followed(settings: Settings, queue: Callable[[App], Awaitable[Run]], *, as_json: bool) -> int:
    """Queues a run and shows it to its end, working on it where nobody else does; returns the exit code."""
    async with AsyncExitStack() as stack:
        app = await stack.enter_async_context(opened(settings))
        run = await queue(app)
        worker: Worker | None = None
        if not run.state.ended and not await app.worker_lives():
            complain("no worker is running: this command does the work, until the run ends or waits for a budget")
            worker = (await stack.enter_async_context(working(settings))).worker
        return await _follow(app, run, worker, as_json=as_json)


async def _follow(app: App, run: Run, worker: Worker | None, *, as_json: bool) -> int:
    """Shows a run until it ends or waits for a budget; returns the exit code. `worker` is the one in this process, if any."""
    inside = worker is not None
    view: View = Silent() if as_json else Drawn(app) if on_terminal() else Lines(app)
    try:
        detail = await _watch(app, run, worker, view)
    except asyncio.CancelledError:
        # Ctrl-C ends the looking, not the run.
        view.close()
        goes_on = f"`{typed(app.settings, 'serve')}`" if inside else "a worker"
        show, cancel = typed(app.settings, f"runs show {run.id}"), typed(app.settings, f"runs cancel {run.id}")
        complain(f"run {run.id} is not stopped: {goes_on} goes on with it; `{show}`, `{cancel}`")
        return FAILED
    finally:
        view.close()
    return _conclude(app, detail, inside=inside, as_json=as_json)


async def _watch(app: App, run: Run, worker: Worker | None, view: View) -> Detail:
    """The run once it has ended or waits for a budget for longer than a person would."""
    after, since = 0, app.clock.monotonic()
    while True:
        try:
            detail = await app.desk.get(run.id, starter())
            events = await app.desk.events(run.id, after)
        except LedgerUnavailable as error:
            # What is followed goes on; looking at it again costs nothing.
            complain(str(error))
            await asyncio.sleep(LOOK_S * 8)
            continue
        after = events[-1].seq if events else after
        view.show(detail, events)
        if not _waits_long(detail.run, app.clock.now()) or (worker is not None and not worker.is_parked(run.id)):
            since = app.clock.monotonic()
        told = after >= detail.run.change
        if told and (detail.run.state.ended or app.clock.monotonic() - since >= STANDS_S):
            return detail
        await asyncio.sleep(0 if not told else LOOK_S)


def _waits_long(run: Run, now: datetime) -> bool:
    """True when a run waits for a budget, and not only for a moment: other calls' holds, or the next minute's first second."""
    if run.state is not RunState.WAITING_BUDGET:
        return False
    return run.waiting_until is None or (run.waiting_until - now).total_seconds() > SHORT_S


def _conclude(app: App, detail: Detail, *, inside: bool, as_json: bool) -> int:
    run = detail.run
    if as_json:
        document(detail.as_json())
    if run.state is RunState.SUCCEEDED:
        if not as_json:
            for line in end_lines(run, app.settings):
                typer.echo(line)
        return DONE
    if run.state is RunState.WAITING_BUDGET:
        now = app.clock.now()
        if run.waiting_until is None:
            mend = f"it goes on after a raise (`{typed(app.settings, 'budgets raise …')}`)"
        else:
            mend = f"it goes on {moment(run.waiting_until, app.settings.zone, now)}, or after a raise"
        worker = f"; for that, a worker must run: `{typed(app.settings, 'serve')}`" if inside else ""
        complain(f"run {run.id} waits for budget {run.waiting_for}: {mend}{worker}")
        return EXHAUSTED
    for line in end_lines(run, app.settings) or [f"{run.state}"]:
        complain(line)
    return EXHAUSTED if lacks_cap(run) else FAILED


class Silent:
    """For `--json`: one document at the end is all there is."""

    def show(self, detail: Detail, events: Iterable[RunEvent]) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""


class Lines:
    """A line for whatever happens."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._asked: set[str] = set()
        self._began = False

    def show(self, detail: Detail, events: Iterable[RunEvent]) -> None:
        """One line for each event, and the questions that are open."""
        if not self._began:
            self._began = True
            typer.echo(f"run {detail.run.id} of {detail.run.workflow}")
        now, zone = self._app.clock.now(), self._app.settings.zone
        for event in events:
            if line := event_line(event, detail.run, zone, now):
                typer.echo(line)
        for approval in detail.approvals:
            if approval.id not in self._asked:
                self._asked.add(approval.id)
                for line in question_lines(approval, self._app.settings, now):
                    typer.echo(line)

    def close(self) -> None:
        """Nothing: every line is out."""


class Drawn:
    """A picture of the steps on a terminal, drawn anew several times a second."""

    def __init__(self, app: App) -> None:
        self._app = app
        from rich.console import Console

        self._console = Console()
        self._live: Live | None = None
        self._logged: list[str] = []

    def show(self, detail: Detail, events: Iterable[RunEvent]) -> None:
        """Draws the run anew."""
        from rich.live import Live

        self._logged += [tame(str(event.data.get("text", ""))) for event in events if event.kind == "log"]
        picture = self._picture(detail)
        if self._live is None:
            self._live = Live(picture, console=self._console, refresh_per_second=8)
            self._live.start()
        self._live.update(picture)

    def close(self) -> None:
        """Leaves the last picture standing."""
        live, self._live = self._live, None
        if live is not None:
            live.stop()

    def _picture(self, detail: Detail) -> RenderableType:
        from rich.console import Group
        from rich.spinner import Spinner
        from rich.table import Table
        from rich.text import Text

        run, now, zone = detail.run, self._app.clock.now(), self._app.settings.zone
        grid = Table.grid(padding=(0, 1))
        # A picture that is higher than the terminal would lose its end, where the news is.
        room = max(3, self._console.size.height - ROWS_BESIDE - 3 * len(detail.approvals))
        hidden = max(0, len(detail.steps) - room)
        if hidden:
            grid.add_row(Text(MARKS[StepState.SUCCEEDED], "dim"), Text(f"{hidden} steps before", "dim"))
        for step in detail.steps[hidden:]:
            running = step.state is StepState.RUNNING
            mark: RenderableType = Spinner("dots", style="cyan") if running else Text(MARKS[step.state], _COLOURS[step.state])
            grid.add_row(
                mark,
                Text(step.name),
                Text(step_text(step, zone, now), "dim", overflow="ellipsis", no_wrap=True),
                Text(spent_text(step.tokens, step.cost_micro_usd), "dim"),
                Text(took(step.started, step.ended, now), "dim"),
            )
        spent = spent_text(run.tokens, run.cost_micro_usd)
        head = Text(f"{run.workflow} {run.id}: {state_text(run, zone, now)}{f'; {spent}' if spent else ''}", "bold")
        logged = [Text(f"log: {line}", "dim") for line in self._logged[-3:]]
        asked = [Text(line, "yellow") for one in detail.approvals for line in question_lines(one, self._app.settings, now)]
        return Group(head, grid, *logged, *asked)


_COLOURS = {
    StepState.RUNNING: "cyan",
    StepState.WAITING: "yellow",
    StepState.SUCCEEDED: "green",
    StepState.FAILED: "red",
    StepState.CANCELLED: "dim",
}
