"""How commands of this program are told to people: so that what is copied into the same terminal works there."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path

from gateway.settings import Settings, locate

DEMO = "demo"
"""`--config demo`: the built-in configuration, in the working directory's var/."""


def typed(settings: Settings, command: str) -> str:
    """A command of this program as a person here types it: for the same configuration."""
    if settings.path is None:
        return f"{own_name()} {command} --config {DEMO}"
    usual = settings.path == locate(None, os.environ)
    return f"{own_name()} {command}" + ("" if usual else f" --config {shlex.quote(os.path.relpath(settings.path))}")


def own_name() -> str:
    """How a person here types this program's name: with its path where the shell would not find it."""
    return "sluicegate" if shutil.which("sluicegate") else os.path.relpath(Path(sys.executable).with_name("sluicegate"))
