"""The options that many commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        envvar="SLUICEGATE_CONFIG",
        help="The configuration; `demo` is the built-in one.  [default: sluicegate.toml]",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="One JSON document on standard output.")]
