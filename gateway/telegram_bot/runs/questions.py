"""What a form asks next, and how: one question per parameter, buttons where there is something to choose. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from gateway.store.telegram_runs import Form
from gateway.telegram_bot.runs.words import one_line
from gateway.workflow.definition import Definition
from gateway.workflow.params import Field

CHOICES_MAX = 24
"""More choices than this are typed."""
VALUE_MAX = 100
"""Longer choices are typed: what a button stands for is kept in a short column."""
LABEL_MAX = 40
HELP_MAX = 300
DEFAULT_MAX = 60
LISTED_MAX = 600
WORDS = ("bool", "int", "float", "path", "url", "repository", "list")
"""Kinds whose question says what they look like."""

Say = Callable[..., str]


@dataclass(frozen=True, slots=True)
class Question:
    """What a form asks: the parameter, the text, and what is on its buttons with the value that each stands for."""

    field: Field
    text: str
    choices: tuple[tuple[str, str], ...]


def next_field(definition: Definition, form: Form) -> Field | None:
    """The parameter to ask for: what must be given first, then what has a default. None: everything was said."""
    open_ = [field for field in definition.parameters.fields if field.name not in form.given and field.name not in form.passed]
    return next((field for field in open_ if field.required), next(iter(open_), None))


def complete(definition: Definition, given: Mapping[str, str]) -> bool:
    """True when the workflow could be started with these parameters."""
    return all(field.name in given for field in definition.parameters.fields if field.required)


def question(definition: Definition, field: Field, form: Form, say: Say, *, private: bool) -> Question:
    """The question for one parameter."""
    choices = _choices(field, say)
    number = len(form.given) + len(form.passed) + 1
    head = f"{one_line(definition.title, LABEL_MAX)} · {number}/{max(number, len(definition.parameters.fields))}"
    lines = [head, "", f"{field.name}: {one_line(field.help, HELP_MAX)}" if field.help else field.name]
    if not choices:
        kind = field.item if field.kind == "list" and field.item in ("int", "float", "url") else field.kind
        if kind in WORDS:
            lines.append(say(f"form_kind_{kind}"))
        if field.kind == "list" and kind != "list":
            lines.append(say("form_kind_list"))
        if field.choices:
            lines.append(one_line(", ".join(str(choice) for choice in field.choices), LISTED_MAX))
        lines.append(say("form_write" if private else "form_reply"))
    return Question(field, "\n".join(lines), choices)


def default_text(field: Field, say: Say) -> str:
    """A parameter's default in words."""
    return shown(field.default, say)


def shown(value: Any, say: Say) -> str:
    """A value as JSON holds it, in words."""
    if value is None or value in ("", []):
        return say("form_nothing")
    if isinstance(value, bool):
        return say("form_yes" if value else "form_no")
    return one_line(", ".join(map(str, value)) if isinstance(value, list) else str(value), DEFAULT_MAX)


def _choices(field: Field, say: Say) -> tuple[tuple[str, str], ...]:
    if field.kind == "bool":
        return (say("form_yes"), "true"), (say("form_no"), "false")
    values = [str(choice) for choice in field.choices]
    if field.kind != "enum" or len(values) > CHOICES_MAX or any(len(value) > VALUE_MAX for value in values):
        return ()
    return tuple((one_line(value, LABEL_MAX) or "·", value) for value in values)
