"""Budgets: where they stand, their history, raises with an end, corrections with a reason, and the pause of every call."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from urllib.parse import quote

from gateway.amounts import amount, parse_change, parse_signed, parse_span
from gateway.budget import Budget, Calendar, Raise
from gateway.clock import from_ms, to_ms
from gateway.errors import ConfigError, InvalidRequest
from gateway.settings import Change
from gateway.store.audit import Entry
from gateway.web.dashboard.facts import Standing, fullness, paused, raises_of, standings
from gateway.web.dashboard.visit import Answer, Missing, Onward, View, Visit

COUNTERS_MAX = 200
LINE_KEYS = {"micro_usd": "usd"}


async def every(visit: Visit) -> Answer:
    """Every budget, those of single runs apart."""
    fields = {"standings": await standings(visit), "caps": await standings(visit, caps=True), "paused": paused(visit)}
    return View("budgets.html", "Budgets", fields, {"pause": "_pause.html", "budgets": "_budgets.html", "caps": "_caps.html"})


async def one(visit: Visit) -> Answer:
    """One budget with its counters, its definition and its history."""
    budget = _budget(visit)
    balances = [balance for balance in await visit.services.books.balances() if balance.name == budget.name]
    balances.sort(key=fullness, reverse=True)
    raises = raises_of(visit, budget.name)
    fields = {
        "budget": budget,
        "standing": Standing(budget, balances[:COUNTERS_MAX], max(0, len(balances) - COUNTERS_MAX), bool(raises)),
        "definition": definition(budget),
        "raises": [_in_force(budget, each) for each in raises],
        "history": [told(budget, entry) for entry in await visit.services.books.audit(budget.name)],
        "place": quote(budget.name, safe=""),
    }
    return View("budget.html", budget.name, fields, {"counters": "_counters.html", "history": "_history.html"})


async def raise_limit(visit: Visit) -> Answer:
    """A raise until an end."""
    budget = _budget(visit)
    operation, value = _parsed("change", parse_change, visit.text("change", "the change"), budget.unit)
    seconds = _parsed("for", parse_span, visit.text("for", "how long"))
    ends_at = visit.now + timedelta(seconds=seconds)
    await visit.services.store.raise_limit(budget.name, operation, value, to_ms(ends_at), visit.actor)
    return Onward(_place(budget), f"The limit is changed: {_change(budget, operation, value)}.")


async def end_raises(visit: Visit) -> Answer:
    """Ends what is in force before its time."""
    budget = _budget(visit)
    ended = await visit.services.store.end_raises(budget.name, visit.actor)
    return Onward(_place(budget), "The limit is again as the file says." if ended else "No change was in force.")


async def adjust(visit: Visit) -> Answer:
    """A correction of what is spent, as a new entry with its reason."""
    budget = _budget(visit)
    value = _parsed("spent", parse_signed, visit.text("spent", "the amount"), budget.unit)
    reason = visit.text("reason", "the reason", 500)
    stars = {kind for kind in budget.scope_kinds if budget.scope[kind] == "*"}
    scope = {kind: visit.text(f"scope:{kind}", f"the {kind}") for kind in sorted(stars)}
    await visit.services.books.adjust(budget.name, value, reason, visit.actor, scope)
    return Onward(_place(budget), f"Corrected by {amount(budget.unit, value)}.")


async def pause(visit: Visit) -> Answer:
    """No call goes through until then, or until resumed."""
    length = visit.form.get("for", "").strip()
    until = visit.now + timedelta(seconds=_parsed("for", parse_span, length)) if length else None
    await visit.services.store.pause(None if until is None else to_ms(until), visit.actor)
    return Onward("/budgets", "Every call is paused.")


async def resume(visit: Visit) -> Answer:
    """Ends the pause."""
    ended = await visit.services.store.resume(visit.actor)
    return Onward("/budgets", "Calls go through again." if ended else "Nothing was paused.")


async def reload(visit: Visit) -> Answer:
    """Reads the configuration again: all of it or nothing, with what differs."""
    assert visit.services.reload is not None, "the program has handed it in"
    try:
        changes = await visit.services.reload(visit.actor)
    except ConfigError as error:
        return View("reloaded.html", "The configuration is wrong", {"changes": (), "problems": error.problems}, status=422)
    shown = [_shown(visit, change) for change in changes]
    return View("reloaded.html", "The configuration was read again", {"changes": shown, "problems": ()})


def _shown(visit: Visit, change: Change) -> dict[str, Any]:
    """A difference for people: a budget's limit in its unit."""
    values = [change.before, change.after]
    name = change.place.removeprefix("budgets.").removesuffix(".limit")
    budget = visit.services.settings.budgets.by_name.get(name)
    if budget is not None and change.place == f"budgets.{name}.limit":
        values = [value if value is None else amount(budget.unit, int(value)) for value in values]
    return {"place": change.place, "before": values[0], "after": values[1], "needs_restart": change.needs_restart}


def definition(budget: Budget) -> list[tuple[str, str]]:
    """The budget as its section of the file has it: key and value, in TOML's notation."""
    unit = LINE_KEYS.get(budget.unit, str(budget.unit))
    lines = [("name", _quoted(budget.name))]
    lines += [("label", _quoted(budget.label))] if budget.label else []
    lines += [(kind, _quoted(budget.scope[kind])) for kind in budget.scope_kinds]
    lines += [(unit, _number(budget, budget.limit)), ("per", _quoted(budget.window.text))]
    if isinstance(budget.window, Calendar) and (budget.window.resets.hour or budget.window.resets.minute):
        lines.append(("resets", _quoted(budget.window.resets.strftime("%H:%M"))))
    if budget.exceptions:
        limits = ", ".join(f"{_quoted(key)} = {_number(budget, value)}" for key, value in budget.exceptions.items())
        lines.append(("limits", f"{{ {limits} }}"))
    if budget.warn_at:
        lines.append(("warn_at", f"[{', '.join(f'{part:g}' for part in budget.warn_at)}]"))
    return lines


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _number(budget: Budget, value: int) -> str:
    return amount(budget.unit, value).replace(",", "_").removeprefix("$")


def _budget(visit: Visit) -> Budget:
    found = visit.services.settings.budgets.by_name.get(visit.part("name"))
    if found is None:
        raise Missing
    return found


def _place(budget: Budget) -> str:
    return f"/budgets/{quote(budget.name, safe='')}"


def _parsed(field: str, parse: Any, *given: Any) -> Any:
    try:
        return parse(*given)
    except ValueError as error:
        raise InvalidRequest(str(error)[:300], field) from None


def _change(budget: Budget, operation: str, value: int) -> str:
    return f"+{value}%" if operation == "%" else f"{operation}{amount(budget.unit, value)}"


def _in_force(budget: Budget, change: Raise) -> dict[str, Any]:
    return {"by": change.actor, "change": _change(budget, change.operation, change.amount), "ends": _end(change.ends_ms)}


def _end(ends_ms: int | None) -> Any:
    return None if ends_ms is None else from_ms(ends_ms)


def told(budget: Budget, entry: Entry) -> dict[str, Any]:
    """One change of a budget for people."""
    detail, change, why = entry.detail, "", ""
    if entry.action == "raise":
        change = _change(budget, str(detail["operation"]), int(detail["amount"]))
    elif entry.action == "adjust":
        change, why = f"{amount(budget.unit, int(detail['spent']))} spent", str(detail["reason"])
        if int(detail["spent"]) > 0:
            change = f"+{change}"
    return {
        "at": from_ms(entry.at_ms),
        "by": entry.actor,
        "action": entry.action,
        "change": change,
        "ends": _end(detail.get("ends")),
        "why": why,
        "of": str(detail.get("key", "")),
    }
