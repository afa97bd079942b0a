"""Workflows: what can be started, a form made of the parameters, and the dry run."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

from gateway.errors import BadParameters, UnknownWorkflow
from gateway.runs import Run, RunState
from gateway.web.dashboard import caps
from gateway.web.dashboard.visit import Answer, Missing, Onward, View, Visit
from gateway.workflow.definition import Definition
from gateway.workflow.params import Field

PREFIX = "param:"
"""How fields of the form are named, so that no parameter is taken for one of ours."""
NUMBERS = {"int": "numeric", "float": "decimal"}


async def every(visit: Visit) -> Answer:
    """What can be started."""
    found = visit.services.desk.startable(visit.starter)
    schedules = [{"of": one, "next": one.cron.after(visit.now)} for one in visit.services.settings.schedules]
    return View("workflows.html", "Workflows", {"workflows": found, "schedules": schedules})


async def one(visit: Visit) -> Answer:
    """The form."""
    return _form(visit, _definition(visit))


async def start(visit: Visit) -> Answer:
    """Starts it, or shows what it would do; wrong parameters are said beside their fields."""
    definition = _definition(visit)
    raw = _given(visit, definition)
    desk, starter = visit.services.desk, visit.starter
    try:
        if visit.form.get("act") == "rehearse":
            return _form(visit, definition, raw, plan=await _rehearsed(visit, definition, raw))
        # A form that is sent twice is one run.
        once = f"form:{visit.text('once', 'the form')}"
        run = await desk.start(definition.name, raw, starter, key=once, caps=caps.given(visit))
    except BadParameters as error:
        return _form(visit, definition, raw, problems=error.problems, status=422)
    return Onward(f"/runs/{run.id}", f"{definition.title or definition.name} was started.")


async def _rehearsed(visit: Visit, definition: Definition, raw: Mapping[str, Any]) -> Any:
    from gateway.workflow.rehearsal import rehearse

    services = visit.services
    assert services.parts is not None, "the program has handed it in"
    values = services.desk.parse(definition.name, raw, visit.starter)
    own = caps.given(visit)
    run = Run(
        "rehearsal",
        definition.name,
        RunState.QUEUED,
        values,
        visit.starter,
        visit.now,
        version=definition.version,
        caps=None if own is None else own.over(definition.caps),
    )
    return await rehearse(services.parts(), definition, run)


def _form(
    visit: Visit,
    definition: Definition,
    raw: Mapping[str, Any] | None = None,
    *,
    problems: tuple[tuple[str, str], ...] = (),
    plan: Any = None,
    status: int = 200,
) -> View:
    said: dict[str, str] = {}
    for name, message in problems:
        # A problem of a list's item names its place: "urls[2]".
        said.setdefault(name.partition("[")[0], message)
    names = {field.name for field in definition.parameters.fields}
    fields = {
        "workflow": definition,
        "fields": [_shown(field, raw, said.get(field.name, "")) for field in definition.parameters.fields],
        "problems": [(name, message) for name, message in said.items() if name not in names],
        "caps": caps.fields(visit, definition.caps),
        "plan": plan,
        "once": visit.form.get("once") or secrets.token_hex(8),
    }
    return View("workflow.html", definition.title or definition.name, fields, status=status)


def _shown(field: Field, raw: Mapping[str, Any] | None, wrong: str) -> dict[str, Any]:
    value = field.default if raw is None else raw.get(field.name, "")
    if isinstance(value, list):
        value = ", ".join(map(str, value))
    choices = field.choices if field.kind == "enum" else ()
    shown = "" if value is None else str(value)
    checked = shown.lower() == "true"
    mode = NUMBERS.get(field.kind, "text")
    return {"field": field, "value": shown, "checked": checked, "choices": choices, "wrong": wrong, "mode": mode}


def _given(visit: Visit, definition: Definition) -> dict[str, str]:
    """The form's parameters. One that is left empty has its default."""
    given = {}
    for field in definition.parameters.fields:
        value = visit.form.get(PREFIX + field.name)
        if value is not None and (value.strip() or (field.kind == "str" and field.default is not None)):
            given[field.name] = value
    return given


def _definition(visit: Visit) -> Definition:
    try:
        return visit.services.desk.startable_one(visit.starter, visit.part("name"))
    except UnknownWorkflow:
        raise Missing from None
