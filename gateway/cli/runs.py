"""`sluicegate runs`: the newest runs, one run in full, and what can be done to it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from gateway.cli.outcome import DONE, USAGE, CommandError, complain
from gateway.cli.render import amount, document, show, span, tame
from gateway.cli.run_words import MARKS, lacks_cap, parse_caps, question_lines, spent_text, state_text, step_text, took
from gateway.cli.session import load_settings, opened
from gateway.cli.typed import typed
from gateway.cli.words import starter
from gateway.runs import JSON, Detail, Run, RunState
from gateway.settings import Settings

if TYPE_CHECKING:
    from gateway.app import App

LOG_LINES = 20
CANCEL_S = 3.0
"""How long `cancel` waits to see it done."""


async def list_runs(config: Path | None, name: str | None, state: str | None, limit: int, *, as_json: bool) -> int:
    """Prints the newest runs."""
    wanted = _state(state)
    async with opened(load_settings(config)) as app:
        found = await app.desk.newest(starter(), workflow=name, state=wanted, limit=limit)
        if name is not None and not found:
            # A workflow that is gone may have runs still; a name that never was one is a mistake.
            app.desk.startable_one(starter(), name)
        if as_json:
            document({"runs": [run.as_json() for run in found]})
        elif not found:
            typer.echo("There are no runs." if wanted is None else f"There are no runs that are {wanted}.")
        else:
            _print_list(app, found)
    return DONE


def _state(text: str | None) -> RunState | None:
    try:
        return None if text is None else RunState(text)
    except ValueError:
        raise CommandError(f"--state {text}: there are {', '.join(RunState)}", USAGE)


def _print_list(app: App, found: Sequence[Run]) -> None:
    now, zone = app.clock.now(), app.settings.zone
    rows = [
        [
            run.id,
            run.workflow,
            state_text(run, zone, now),
            run.starter.name,
            f"{span((now - run.created).total_seconds())} ago",
            f"{run.tokens:,}",
            amount("micro_usd", run.cost_micro_usd),
        ]
        for run in found
    ]
    show(["run", "workflow", "state", "started by", "when", "tokens", "cost"], rows, right={5, 6})


async def show_run(config: Path | None, id: str, *, as_json: bool) -> int:
    """Prints one run in full."""
    async with opened(load_settings(config)) as app:
        detail = await app.desk.get(id, starter())
        if as_json:
            document(detail.as_json())
        else:
            _print_run(app, detail, await _log_lines(app, detail.run))
            await hint_without_worker(app, detail.run)
    return DONE


async def _log_lines(app: App, run: Run) -> list[str]:
    """The last lines that the run wrote for those who look at it."""
    events = await app.desk.events(run.id, max(0, run.change - 500))
    return [str(event.data.get("text", "")) for event in events if event.kind == "log"][-LOG_LINES:]


def _print_run(app: App, detail: Detail, lines: Sequence[str]) -> None:
    run, now, zone = detail.run, app.clock.now(), app.settings.zone
    spent = spent_text(run.tokens, run.cost_micro_usd)
    typer.echo(f"{run.id}: {run.workflow}, {state_text(run, zone, now)}{f'; {spent}' if spent else ''}")
    started = f", runs for {took(run.started, run.ended, now)}" if run.started and not run.ended else ""
    ended = f", took {took(run.started or run.created, run.ended, now)}" if run.ended else ""
    again = f", retry {run.generation}" if run.generation else ""
    typer.echo(f"started by {run.starter.name} {span((now - run.created).total_seconds())} ago{started}{ended}{again}")
    for name, value in run.params.items():
        typer.echo(tame(f"  {name} = {value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}"))
    if detail.steps:
        typer.echo()
        rows = [
            [
                MARKS[step.state],
                step.name,
                str(step.state),
                str(step.attempts),
                f"{step.tokens:,}" if step.tokens else "",
                amount("micro_usd", step.cost_micro_usd) if step.cost_micro_usd else "",
                took(step.started, step.ended, now),
                step_text(step, zone, now),
            ]
            for step in detail.steps
        ]
        show(["", "step", "state", "attempts", "tokens", "cost", "took", "what"], rows, right={3, 4, 5})
    for line in lines:
        typer.echo(tame(f"log: {line}"))
    for approval in detail.approvals:
        typer.echo("")
        for line in question_lines(approval, app.settings, now):
            typer.echo(line)
    for line in end_lines(run, app.settings):
        typer.echo(line)


def end_lines(run: Run, settings: Settings) -> list[str]:
    """What an ended run leaves: its result, or its error and how to go on."""
    if run.state is RunState.FAILED:
        retry = typed(settings, f"runs retry {run.id}")
        larger = " --set-budget UNIT=AMOUNT (a larger cap)" if lacks_cap(run) else ""
        return [tame(f"error: {run.error}"), f"go on from the failed step: {retry}{larger}"]
    if run.result is None:
        return []
    return [tame(run.result if isinstance(run.result, str) else json.dumps(run.result, ensure_ascii=False, indent=2))]


async def cancel(config: Path | None, id: str, *, as_json: bool) -> int:
    """Has a run stopped, and waits a moment to see it stopped."""
    async with opened(load_settings(config)) as app:
        run = await app.desk.cancel(id, starter())
        if not run.state.ended and await app.worker_lives():
            run = await _ended_soon(app, run)
        _acted(run, "cancelled" if run.state.ended else "will be cancelled by its worker", as_json=as_json)
        await hint_without_worker(app, run)
    return DONE


async def _ended_soon(app: App, run: Run) -> Run:
    try:
        async with asyncio.timeout(CANCEL_S):
            while not run.state.ended:
                await asyncio.sleep(0.1)
                run = (await app.desk.get(run.id, starter())).run
    except TimeoutError:
        pass
    return run


async def retry(config: Path | None, id: str, caps: Sequence[str], *, follow: bool, as_json: bool) -> int:
    """Queues a failed run again."""
    wanted, settings = parse_caps(caps), load_settings(config)
    if follow:
        from gateway.cli.follow import followed

        return await followed(settings, lambda app: app.desk.retry(id, starter(), wanted), as_json=as_json)
    async with opened(settings) as app:
        run = await app.desk.retry(id, starter(), wanted)
        _acted(run, "goes on from the step that failed", as_json=as_json)
        await hint_without_worker(app, run)
    return DONE


async def decide(config: Path | None, id: str, *, approve: bool, as_json: bool) -> int:
    """Answers what a run asks."""
    async with opened(load_settings(config)) as app:
        approval = await app.desk.decide(id, approve, starter())
        if as_json:
            document({"id": approval.run, "approval": approval.as_json()})
        else:
            typer.echo(f"{approval.run}: {approval.step} {approval.decision}")
        await hint_without_worker(app, (await app.desk.get(approval.run, starter())).run)
    return DONE


async def signal(config: Path | None, id: str, name: str, data: str, *, as_json: bool) -> int:
    """Tells a run something."""
    value = _json_value(data)
    async with opened(load_settings(config)) as app:
        await app.desk.signal(id, name, value, starter())
        if as_json:
            document({"id": id, "signal": name})
        else:
            typer.echo(f"{id}: told {name}")
        await hint_without_worker(app, (await app.desk.get(id, starter())).run)
    return DONE


def _json_value(text: str) -> JSON:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise CommandError(f"--data is not JSON ({error.msg}): a text needs quotes of its own, as in '\"yes\"'", USAGE)


def _acted(run: Run, what: str, *, as_json: bool) -> None:
    if as_json:
        document(run.brief())
    else:
        typer.echo(f"{run.id}: {what}")


async def hint_without_worker(app: App, run: Run) -> None:
    """Says on standard error when nobody is there who would do something about a run."""
    if not run.state.ended and not await app.worker_lives():
        serve, worker = typed(app.settings, "serve"), typed(app.settings, "serve --only worker")
        complain(f"no worker is running: `{serve}` (or `{worker}`) goes on with it")
