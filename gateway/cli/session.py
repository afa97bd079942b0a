"""What most commands begin with: the configuration, and the database opened beside a server that may be running."""

from __future__ import annotations

import getpass
import logging
import os
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from gateway import settings as configuration
from gateway.cli.typed import DEMO, typed
from gateway.errors import DatabaseBehind
from gateway.settings import Settings

if TYPE_CHECKING:
    from gateway.app import App


def load_settings(config: Path | None) -> Settings:
    """The configuration of `--config`, SLUICEGATE_CONFIG or the working directory. Raises ConfigError."""
    if config is not None and str(config) == DEMO and not config.exists():
        return demo_settings()
    return configuration.load(config, os.environ)


def demo_settings() -> Settings:
    """The built-in configuration; the packaged model where it is installed, else the scripted provider."""
    from gateway.providers import local_available

    return configuration.demo(Path.cwd(), local_available(), os.environ)


@asynccontextmanager
async def opened(settings: Settings, *, gate: bool = False) -> AsyncIterator[App]:
    """The program without its surfaces: the store, and with `gate` the dispatcher too. Raises DatabaseBehind."""
    from gateway.app import App

    app = App(settings)
    log_to(app, sys.stderr, logging.WARNING)
    with naming_the_upgrade(settings):
        await app.open(gate=gate)
    try:
        yield app
    finally:
        await app.stop()


@contextmanager
def naming_the_upgrade(settings: Settings) -> Iterator[None]:
    """Lets the refusal of a database that is behind name the command for this configuration."""
    try:
        yield
    except DatabaseBehind as behind:
        raise replace(behind, mend=typed(settings, "db upgrade")) from None


@asynccontextmanager
async def working(settings: Settings) -> AsyncIterator[App]:
    """A worker in this process, and nothing else of a server. Raises DatabaseBehind."""
    from gateway.app import WORKER, App

    app = App(settings, roles=frozenset({WORKER}))
    log_to(app, sys.stderr, logging.WARNING)
    async with app.running():
        yield app


def log_to(app: App, stream: TextIO, level: int = logging.INFO) -> None:
    """Sets the process's logging up; no line shows a secret of the configuration."""
    from gateway import logs

    logs.configure(app.clock, stream, app.settings.secrets, level)


def actor() -> str:
    """Who acts, for the audit: the machine's user."""
    try:
        return f"cli:{getpass.getuser()}"
    except (OSError, KeyError):  # A container's user may have no name.
        return f"cli:{os.getuid()}"
