"""The sections of parts that this version does not run: workflows, schedules, reports. Read and checked all the same.

A configuration that is written for them loads, its mistakes are named, and `check` and `serve` say that it rests.
"""

from __future__ import annotations

import re

from gateway.settings.table import Table

_CRON_FIELD = r"[0-9A-Za-z*/,#-]+"
_CRON = re.compile(rf"{_CRON_FIELD}(\s+{_CRON_FIELD}){{4}}")
_TO = re.compile(r"telegram:-?\d+(/\d+)?|file:.+")
PERIODS = ("day", "week", "month")


def read_later(root: Table) -> tuple[str, ...]:
    """Checks the sections and names those that are there, as they are written in the file."""
    _workflows(root.table("workflows"))
    for schedule in _named(root, "schedules"):
        _cron(schedule)
        schedule.text("workflow", required=True)
        params = schedule.get("params")
        if params is not None and not isinstance(params, dict):
            schedule.wrong("params", 'must be a table, such as { topic = "oil prices" }')
        _to(schedule)
        schedule.finish()
    for report in _named(root, "reports"):
        _cron(report)
        _to(report)
        report.text("period", "day", choices=PERIODS)
        report.finish()
    written = {"workflows": "[workflows]", "schedules": "[[schedules]]", "reports": "[[reports]]"}
    return tuple(shown for name, shown in written.items() if root.has(name))


def _workflows(section: Table) -> None:
    section.text("path", "workflows")
    for name, value in section.raw.items():
        if isinstance(value, dict):
            workflow = section.table(name)
            _who(workflow)
            workflow.texts("allow_repos")
            workflow.finish()
    section.finish()


def _who(workflow: Table) -> None:
    value = workflow.get("who")
    if value is None:
        return
    if not isinstance(value, list) or not all(isinstance(item, int | str) and not isinstance(item, bool) for item in value):
        workflow.wrong("who", 'must be a list of "admins", "users" and numeric Telegram ids')
        return
    for item in value:
        if item not in ("admins", "users") and not re.fullmatch(r"-?\d+", str(item)):
            workflow.wrong("who", f'"{item}" is neither admins, users nor a numeric id')


def _named(root: Table, key: str) -> list[Table]:
    tables = root.tables(key)
    seen: set[str] = set()
    for table in tables:
        name = table.text("name", required=True)
        if name in seen:
            table.wrong("name", f"is used by an earlier one of [[{key}]]")
        seen.add(name)
    return tables


def _cron(table: Table) -> None:
    cron = table.text("cron", required=True)
    if cron and not _CRON.fullmatch(cron.strip()):
        table.wrong("cron", 'must have five fields, such as "0 8 * * 1-5"')


def _to(table: Table) -> None:
    to = table.text("to", required=True)
    if to and not _TO.fullmatch(to):
        table.wrong("to", 'must be "telegram:CHAT", "telegram:CHAT/TOPIC" or "file:FOLDER"')
