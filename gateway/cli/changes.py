"""What a reload would change of a server that runs: the file as it is now against what the server says it runs by."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import typer

from gateway.clock import SystemClock, to_ms
from gateway.errors import LedgerUnavailable
from gateway.settings import Change, Settings, differences, outline
from gateway.store import in_force
from gateway.store.database import Database
from gateway.store.migrations import current, head


async def against_running(settings: Settings) -> list[Change] | None:
    """What differs from any process that serves; None where none does, or its database cannot be asked."""
    try:
        if not await asyncio.to_thread(_usable, settings.database_url):
            return None
        database = Database(settings.database_url)
        try:
            running = await database.read(partial(in_force.running, now_ms=to_ms(SystemClock().now())))
        finally:
            await database.close()
    except LedgerUnavailable:
        return None
    if not running:
        return None
    asked = outline(settings)
    found = {str(change): change for one in running for change in differences(one, asked)}
    return sorted(found.values(), key=lambda change: change.place)


def _usable(url: str) -> bool:
    """True for a database that is there, and of this version. Looking for a file does not make it."""
    file = url.removeprefix("sqlite:///")
    return (file == url or Path(file).exists()) and current(url) == head()


def as_documents(changes: Sequence[Change] | None) -> list[dict[str, object]] | None:
    """For `--json`."""
    if changes is None:
        return None
    return [{"place": one.place, "running": one.before, "file": one.after, "needs_restart": one.needs_restart} for one in changes]


def show_changes(changes: Sequence[Change] | None) -> None:
    """For people."""
    typer.echo()
    if changes is None:
        typer.echo("No server runs on this database.")
        return
    if not changes:
        typer.echo("A server runs by this configuration.")
        return
    typer.echo("A server runs by another configuration. A reload (SIGHUP) would change:")
    for one in changes:
        typer.echo(f"  {one}{' (needs a restart)' if one.needs_restart else ''}")
