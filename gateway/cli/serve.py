"""`sluicegate serve`: the bot, the HTTP interface, the worker and the schedules until a signal comes."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import typer

from gateway.app import ROLES, SCHEDULER, WORKER, App
from gateway.cli import login_link
from gateway.cli.outcome import DONE, USAGE, CommandError
from gateway.cli.render import moment
from gateway.cli.session import load_settings, log_to, naming_the_upgrade

LEFT_S = 1.0
"""How long what is left after everything is closed may take to end."""


def serve(config: Path | None, only: str | None) -> int:
    """Serves until SIGTERM or SIGINT. Refuses a database that is behind."""
    roles = parse_roles(only)
    settings = load_settings(config)
    app = App(settings, roles=roles)
    log_to(app, sys.stderr)
    return run_app(app, _greet)


def parse_roles(only: str | None) -> frozenset[str]:
    """The roles of `--only`; all of them without it."""
    if only is None:
        return ROLES
    names = [name.strip() for name in only.split(",") if name.strip()]
    for name in names:
        if name not in ROLES:
            raise CommandError(f"--only {name}: no such role; there are {', '.join(sorted(ROLES))}", USAGE)
    if not names:
        raise CommandError(f"--only: name some of {', '.join(sorted(ROLES))}", USAGE)
    return frozenset(names)


def run_app(app: App, announce: Callable[[App], Awaitable[None]]) -> int:
    """Runs the program on a fast event loop until it is told to stop; `announce` is called once it is ready."""
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(app, announce))
        if runner.run(_is_held_up()):
            # Everything is closed; only a workflow's code that swallows its cancellation goes on, and would for ever.
            sys.stderr.flush()
            os._exit(DONE)
    return DONE


async def _is_held_up() -> bool:
    """Cancels what is left; True when some of it does not end."""
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    return bool(left) and bool((await asyncio.wait(left, timeout=LEFT_S))[1])


async def _serve(app: App, announce: Callable[[App], Awaitable[None]]) -> None:
    with app.signals(), naming_the_upgrade(app.settings):
        async with app.running():
            await announce(app)
            spare_the_collector()
            await app.until_stopped()


def spare_the_collector() -> None:
    """Sets the garbage collector up for a server: what the start made is kept for good and need not be looked at again.

    A stream makes hundreds of small objects that go by themselves; at the default threshold looking for cycles among
    them takes a sixth of its time.
    """
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


async def _greet(app: App) -> None:
    for line in await greeting(app):
        typer.echo(line, err=True)


async def greeting(app: App) -> list[str]:
    """What an operator wants to know at the start. Makes a link for the console."""
    lines = []
    if app.address:
        lines.append(f"Sluicegate listens on {app.address}")
        lines.append(f"The console, by a link that works once and for an hour: {await login_link.new(app, app.address)}")
    if app.bot is not None:
        lines.append("The Telegram bot is on.")
    if app.pairing_code:
        lines.append(f"It has no admin yet. Send it: /start {app.pairing_code}")
    if WORKER in app.roles:
        lines.append(f"The worker is on: {len(app.catalogue.definitions)} workflows can be started.")
    if SCHEDULER in app.roles:
        lines += _schedules(app)
    return lines


def _schedules(app: App) -> list[str]:
    now, zone = app.clock.now(), app.settings.zone
    lines = []
    for kind, ones in (("Schedules", app.settings.schedules), ("Reports", app.settings.reports)):
        fires = [(fire, one.name) for one in ones if (fire := one.cron.after(now)) is not None]
        if fires:
            fire, first = min(fires)
            lines.append(f"{kind}: {len(fires)}; the next is {first} at {moment(fire, zone, now)}.")
    if not lines and len(app.roles) == 1:
        lines.append("There are no schedules and no reports: this process has nothing to do.")
    return lines
