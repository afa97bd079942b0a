"""`sluicegate audit`: who changed what, newest first."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import typer

from gateway.amounts import parse_period
from gateway.cli.budgets import CHANGES, change, detail, end
from gateway.cli.outcome import DONE, USAGE, CommandError
from gateway.cli.render import document, past, show, stamp
from gateway.cli.session import load_settings, opened
from gateway.clock import from_ms, to_ms
from gateway.settings import Settings
from gateway.store.audit import SHOWN_MAX, Entry

BEGINNING = "1970-01-02"


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which entries are shown; None: all."""

    subject: str | None
    by: str | None
    action: str | None
    since: str | None
    until: str | None
    limit: int


async def audit(config: Path | None, wanted: Wanted, *, as_json: bool) -> int:
    """The newest entries that are wanted."""
    settings = load_settings(config)
    if not 1 <= wanted.limit <= SHOWN_MAX:
        raise CommandError(f"--limit: a number from 1 to {SHOWN_MAX:,}", USAGE)
    async with opened(settings) as app:
        try:
            start, end = parse_period(wanted.since or BEGINNING, wanted.until, settings.zone, app.clock.now())
        except ValueError as error:
            raise CommandError(f"--from and --to: {error}", USAGE)
        period = {"from_ms": to_ms(start), "to_ms": to_ms(end)}
        entries = await app.books.audit(wanted.subject, actor=wanted.by, action=wanted.action, limit=wanted.limit, **period)
    if as_json:
        fields = ("actor", "action", "subject")
        found = [
            {"at": stamp(from_ms(entry.at_ms))} | {name: getattr(entry, name) for name in fields} | {"detail": detail(entry)}
            for entry in entries
        ]
        document({"audit": found})
        return DONE
    rows = [
        [
            past(from_ms(entry.at_ms), settings.zone),
            entry.actor,
            entry.action,
            entry.subject,
            _how(entry, settings),
        ]
        for entry in entries
    ]
    show(["at", "who", "did", "to", "how"], rows)
    if len(entries) == wanted.limit:
        typer.echo(f"The newest {wanted.limit}; --limit N shows more.")
    return DONE


def _how(entry: Entry, settings: Settings) -> str:
    """What was changed: of a budget in its unit, of anything else field by field."""
    budget, fields = settings.budgets.by_name.get(entry.subject), dict(entry.detail)
    fields.pop("ends", None)
    said = []
    if budget is not None and entry.action in CHANGES:
        said = [change(budget.unit, entry)]
        fields = {name: value for name, value in fields.items() if name not in ("operation", "amount", "spent")}
    said += [f"{name} {_said(value)}" for name, value in fields.items() if value not in (None, "", [], False)]
    if ends := end(entry, settings.zone):
        said.append(f"until {ends}")
    return "; ".join(filter(None, said))


def _said(value: object) -> str:
    if isinstance(value, dict):
        value = [f"{name} {part}" for name, part in value.items()]
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
