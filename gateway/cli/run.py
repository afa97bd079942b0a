"""`sluicegate run`: starts a workflow, and with `--follow` shows it to its end, working on it where nobody else does."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from gateway.cli.outcome import DONE, USAGE, CommandError, complain
from gateway.cli.render import document
from gateway.cli.run_words import parse_caps, parse_values
from gateway.cli.runs import hint_without_worker
from gateway.cli.session import load_settings, opened
from gateway.cli.typed import typed
from gateway.cli.words import starter
from gateway.cli.workflows import takes
from gateway.errors import BadParameters, RequestConflict, UnknownWorkflow
from gateway.runs import Caps, Run
from gateway.settings.table import did_you_mean

if TYPE_CHECKING:
    from gateway.app import App


@dataclass(frozen=True, slots=True)
class Wanted:
    """What was typed: a workflow, its parameters, a key, and caps."""

    name: str
    values: tuple[str, ...]
    key: str | None
    caps: tuple[str, ...]


async def start(config: Path | None, wanted: Wanted, *, follow: bool, dry_run: bool, as_json: bool) -> int:
    """Starts a run, or says what a run would do."""
    settings = load_settings(config)
    caps = parse_caps(wanted.caps)
    if dry_run:
        from gateway.cli.rehearse import rehearse

        async with opened(settings, gate=True) as app:
            return await rehearse(app, wanted.name, _checked(app, wanted), caps, as_json=as_json)
    if follow:
        from gateway.cli.follow import followed

        return await followed(settings, lambda app: _queued(app, wanted, caps), as_json=as_json)
    async with opened(settings) as app:
        run = await _queued(app, wanted, caps)
        if as_json:
            document(run.brief())
        else:
            typer.echo(run.id)
        await hint_without_worker(app, run)
    return DONE


async def _queued(app: App, wanted: Wanted, caps: Caps | None) -> Run:
    values = _checked(app, wanted)
    try:
        return await app.desk.start(wanted.name, values, starter(), key=wanted.key, caps=caps)
    except RequestConflict:
        text = f"--key {wanted.key}: there is a run with this key that was started differently; take another key"
        raise CommandError(text) from None


def _checked(app: App, wanted: Wanted) -> dict[str, object]:
    """The parameters as typed, once they are right; else every wrong one is named with its help. Raises CommandError."""
    values = parse_values(wanted.values)
    try:
        app.desk.parse(wanted.name, values, starter())
    except UnknownWorkflow as error:
        near = did_you_mean(wanted.name, error.known)
        known = "" if near else f"; there are {', '.join(error.known) or 'none'}"
        raise CommandError(f"there is no workflow {wanted.name!r}{near}{known}", USAGE) from None
    except BadParameters as error:
        complain(f"{wanted.name}: these parameters are wrong:")
        fields = {field.name: field for field in app.catalogue.get(wanted.name).parameters.fields}
        for name, message in error.problems:
            field = fields.get(name.partition("[")[0])
            near = did_you_mean(name, fields) if field is None else ""
            about = "" if field is None else f" ({takes(field)}{f': {field.help}' if field.help else ''})"
            typer.echo(f"  {name}: {message}{near}{about}", err=True)
        raise CommandError(f"give them with --set name=value; `{typed(app.settings, 'workflows')}` lists them", USAGE) from None
    return values
