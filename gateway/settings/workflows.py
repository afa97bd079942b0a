"""`[workflows]` and `[[schedules]]`: where workflows are found, who may start them, and what starts by the clock.

Only the configuration is read here. Whether a workflow of a name exists and takes these parameters is known where the
workflows are loaded.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from gateway.cron import BadCron, Cron
from gateway.settings.table import Table
from gateway.settings.values import Schedule, WorkflowRules, WorkflowsSettings

DEFAULT_PATH = "workflows"
EVERYONE = ("admins", "users")
"""The words that `who` knows beside numeric ids."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_TO = re.compile(r"telegram:-?\d+(/\d+)?|file:.+")


def read_workflows(root: Table, folder: Path) -> WorkflowsSettings:
    """Reads `[workflows]`; a relative path is taken from `folder`, where the configuration lies."""
    section = root.table("workflows")
    written = section.text("path", DEFAULT_PATH)
    path = folder / Path(written).expanduser()
    if written != DEFAULT_PATH and not path.is_dir():
        section.wrong("path", f"there is no folder {path}")
    rules = {}
    for name, value in section.raw.items():
        if isinstance(value, Mapping):
            table = section.table(name)
            rules[name] = WorkflowRules(who=_who(table), allow_repos=table.texts("allow_repos"))
            table.finish()
    section.finish()
    return WorkflowsSettings(path=path, rules=rules)


def _who(table: Table) -> tuple[str, ...]:
    value = table.get("who")
    if value is None:
        return WorkflowRules().who
    if not isinstance(value, list) or not all(isinstance(item, int | str) and not isinstance(item, bool) for item in value):
        table.wrong("who", 'must be a list of "admins", "users" and numeric Telegram ids')
        return ()
    for item in value:
        if item not in EVERYONE and not re.fullmatch(r"[0-9]+", str(item)):
            table.wrong("who", f'"{item}" is neither admins, users nor a numeric id')
    return tuple(dict.fromkeys(str(item) for item in value))


def read_schedules(root: Table, zone: ZoneInfo, folder: Path) -> tuple[Schedule, ...]:
    """Reads every `[[schedules]]`."""
    found = []
    for table in named(root, "schedules"):
        cron = read_cron(table, zone)
        schedule = Schedule(
            name=table.text("name"),
            # A line that is wrong stops the start; until then any right one stands for it.
            cron=cron or Cron("0 0 * * *", zone),
            workflow=table.text("workflow", required=True),
            params=_params(table),
            to=read_to(table, folder),
        )
        table.finish()
        found.append(schedule)
    return tuple(found)


def named(root: Table, key: str) -> list[Table]:
    """The tables under `[[key]]`, each with a `name` of its own: what happened to it is remembered by that name."""
    tables = root.tables(key)
    seen: set[str] = set()
    for table in tables:
        name = table.text("name", required=True)
        if name and not _NAME.fullmatch(name):
            table.wrong("name", "has letters, digits and . _ - only, at most 64")
        elif name in seen:
            table.wrong("name", f"is used by an earlier one of [[{key}]]")
        seen.add(name)
    return tables


def read_cron(table: Table, zone: ZoneInfo) -> Cron | None:
    """The table's `cron` in the zone of the configuration; None when it is wrong."""
    text = table.text("cron", required=True)
    if not text.strip():
        return None
    try:
        return Cron(text.strip(), zone)
    except BadCron as error:
        table.wrong("cron", f'{error}; every weekday at eight is "0 8 * * 1-5"')
        return None


def read_to(table: Table, folder: Path, *, required: bool = False) -> str:
    """Where texts go, "" for nowhere. A file's path becomes absolute, relative to the configuration."""
    to = table.text("to", required=required)
    if to and not _TO.fullmatch(to):
        table.wrong("to", 'must be "telegram:CHAT", "telegram:CHAT/TOPIC" or "file:FOLDER"')
    kind, _, place = to.partition(":")
    return f"file:{folder / Path(place).expanduser()}" if kind == "file" and place else to


def _params(table: Table) -> dict[str, Any]:
    value = table.get("params")
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        table.wrong("params", 'must be a table, such as { topic = "oil prices" }')
        return {}
    return {key: _plain(item) for key, item in value.items()}


def _plain(value: Any) -> Any:
    """A TOML value as JSON can hold it."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, Decimal):
        return float(value)
    return value.isoformat() if isinstance(value, datetime | date | time) else value
