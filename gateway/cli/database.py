"""`sluicegate db upgrade`: the database to its newest migration."""

from __future__ import annotations

from pathlib import Path

import typer

from gateway.cli.outcome import DONE
from gateway.cli.session import load_settings
from gateway.store.migrations import current, head, upgrade


def upgrade_database(config: Path | None) -> int:
    """Upgrades, and says from where to where."""
    url = load_settings(config).database_url
    before = current(url)
    if before == head():
        typer.echo(f"The database is at {before}, the newest.")
        return DONE
    upgrade(url)
    typer.echo(f"The database went from {before or 'nothing'} to {head()}.")
    return DONE
