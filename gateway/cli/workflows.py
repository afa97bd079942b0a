"""`sluicegate workflows`: what can be started, with its parameters."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import typer

from gateway.cli.outcome import DONE
from gateway.cli.render import document, show
from gateway.cli.session import load_settings
from gateway.cli.typed import typed
from gateway.runs import Caps
from gateway.settings import Settings
from gateway.workflow.catalogue import Catalogue
from gateway.workflow.definition import Definition
from gateway.workflow.params import Field


def show_workflows(config: Path | None, *, as_json: bool) -> int:
    """Prints every workflow and what it takes."""
    settings = load_settings(config)
    definitions = Catalogue.load(settings).definitions.values()
    if as_json:
        document({"workflows": [_entry(settings, definition) for definition in definitions]})
        return DONE
    for number, definition in enumerate(definitions):
        if number:
            typer.echo()
        typer.echo(f"{definition.name}: {definition.help or definition.title}")
        typer.echo(f"  who: {who_text(settings, definition.name)}; a run may spend {caps_text(definition.caps)}")
        if definition.parameters.fields:
            show(["  parameter", "takes", "default", "what"], [_row(field) for field in definition.parameters.fields])
    typer.echo(f"\nStart one: {typed(settings, 'run NAME --set parameter=value --follow')}")
    return DONE


def who_text(settings: Settings, workflow: str) -> str:
    """Who may start a workflow, in words."""
    return ", ".join(dict.fromkeys(["admins", *settings.workflows.of(workflow).who]))


def caps_text(caps: Caps | None) -> str:
    """What one run may spend, in words."""
    if caps is None:
        return "what the budgets allow"
    parts = [
        f"{caps.tokens:,} tokens" if caps.tokens is not None else "",
        f"${caps.usd}" if caps.usd is not None else "",
        f"{caps.requests:,} requests" if caps.requests is not None else "",
    ]
    return " and ".join(part for part in parts if part) or "what the budgets allow"


def takes(field: Field) -> str:
    """What a parameter takes, in a word or two."""
    if field.choices:
        return " | ".join(str(choice) for choice in field.choices)
    return f"list of {field.item}" if field.item else field.kind


def _row(field: Field) -> list[str]:
    if field.required:
        default = "(required)"
    elif isinstance(field.default, str):
        default = field.default
    else:
        default = "none" if field.default is None else json.dumps(field.default, ensure_ascii=False)
    return [f"  {field.name}", takes(field), default, field.help]


def _entry(settings: Settings, definition: Definition) -> dict[str, Any]:
    rules = settings.workflows.of(definition.name)
    return {
        "name": definition.name,
        "title": definition.title,
        "help": definition.help,
        "who": list(rules.who),
        "caps": definition.caps.as_json() if definition.caps else None,
        "file": str(definition.path),
        "parameters": [
            {
                "name": field.name,
                "kind": field.kind,
                "required": field.required,
                "default": field.default,
                "help": field.help,
                "choices": list(field.choices),
            }
            for field in definition.parameters.fields
        ],
        "schema": definition.parameters.schema(),
    }
