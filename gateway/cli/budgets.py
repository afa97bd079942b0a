"""`sluicegate budgets`: where every budget stands, temporary raises, and their history."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import typer

from gateway.amounts import parse_change, parse_span
from gateway.budget import Unit
from gateway.cli.outcome import DONE, USAGE, CommandError
from gateway.cli.render import amount, bar, document, moment, on_terminal, past, scope_text, show, stamp, unit_name
from gateway.cli.session import actor, load_settings, opened
from gateway.clock import from_ms, to_ms
from gateway.store.audit import Entry
from gateway.store.budgets import Balance

CHANGES = ("raise", "end raise", "adjust")
"""What the audit calls the changes of a budget."""


async def show_budgets(config: Path | None, *, as_json: bool) -> int:
    """Every counter: spent, held, left, a bar, when it resets, and when it runs out at its present pace."""
    settings = load_settings(config)
    async with opened(settings) as app:
        balances = await app.books.balances()
        now = app.clock.now()
    if as_json:
        document({"budgets": [balance.as_json() for balance in balances]})
        return DONE
    plain = not on_terminal()
    rows = [
        [
            balance.name,
            scope_text(dict(balance.scope)),
            unit_name(balance.unit),
            balance.window,
            bar(balance.spent, balance.held, balance.limit, plain=plain),
            amount(balance.unit, balance.spent),
            amount(balance.unit, balance.held),
            amount(balance.unit, balance.left),
            amount(balance.unit, balance.limit),
            moment(balance.resets_at, settings.zone, now, never="-"),
            _end_of(balance, settings.zone, now),
        ]
        for balance in balances
    ]
    headers = ["budget", "scope", "unit", "per", "used", "spent", "held", "left", "limit", "resets at", "runs out"]
    show(headers, rows, right={5, 6, 7, 8})
    return DONE


def _end_of(balance: Balance, zone: ZoneInfo, now: datetime) -> str:
    """When it is used up at its present pace."""
    return moment(balance.runs_out_at, zone, now, never="-") if balance.left else "used up"


async def raise_budget(config: Path | None, name: str, change: str, duration: str, *, as_json: bool) -> int:
    """Raises a limit for a while, and says what it is now."""
    settings = load_settings(config)
    budget = settings.budgets.by_name.get(name)
    if budget is None:
        raise CommandError(f"there is no budget {name!r}; there are {', '.join(settings.budgets.by_name) or 'none'}", USAGE)
    try:
        operation, value = parse_change(change, budget.unit)
        seconds = parse_span(duration)
    except ValueError as error:
        raise CommandError(str(error), USAGE)
    async with opened(settings) as app:
        ends_at = app.clock.now() + timedelta(seconds=seconds)
        await app.store.raise_limit(name, operation, value, to_ms(ends_at), actor())
        balances = [balance for balance in await app.books.balances() if balance.name == name]
        now = app.clock.now()
    if as_json:
        document({"name": name, "change": change, "ends_at": stamp(ends_at), "budgets": [one.as_json() for one in balances]})
        return DONE
    typer.echo(f"{name}: {change} until {moment(ends_at, settings.zone, now)}.")
    for balance in balances:
        left, limit = amount(balance.unit, balance.left), amount(balance.unit, balance.limit)
        typer.echo(f"  {scope_text(dict(balance.scope))}: limit {limit} {unit_name(balance.unit)}, {left} left")
    return DONE


async def history(config: Path | None, name: str, *, as_json: bool) -> int:
    """Raises, their ends, and corrections of one budget, newest first."""
    settings = load_settings(config)
    if name not in settings.budgets.by_name:
        raise CommandError(f"there is no budget {name!r}; there are {', '.join(settings.budgets.by_name) or 'none'}", USAGE)
    unit = settings.budgets.by_name[name].unit
    async with opened(settings) as app:
        entries = await app.books.audit(name)
    facts = [
        {"at": stamp(from_ms(entry.at_ms)), "actor": entry.actor, "action": entry.action, **detail(entry)}
        for entry in entries
        if entry.action in CHANGES
    ]
    if as_json:
        document({"name": name, "unit": str(unit), "history": facts})
        return DONE
    told = [entry for entry in entries if entry.action in CHANGES]
    rows = [
        [
            past(from_ms(entry.at_ms), settings.zone),
            entry.actor,
            entry.action,
            change(unit, entry),
            end(entry, settings.zone) or str(entry.detail.get("reason", "")),
        ]
        for entry in told
    ]
    show(["at", "by", "what", "change", "until or why"], rows)
    return DONE


def detail(entry: Entry) -> dict[str, object]:
    """What an entry says of a change, as documents have it: its end is an instant like every other."""
    found = dict(entry.detail)
    ends = found.pop("ends", None)
    return found | ({"ends_at": stamp(from_ms(ends))} if isinstance(ends, int) else {})


def change(unit: Unit, entry: Entry) -> str:
    """By how much, in the budget's unit; empty for what ends a change."""
    value = entry.detail.get("amount", entry.detail.get("spent"))
    if not isinstance(value, int):
        return ""
    if entry.detail.get("operation") == "%":
        return f"+{value}%"
    sign = "+" if entry.action == "adjust" and value > 0 else ""
    return f"{entry.detail.get('operation', sign)}{amount(unit, value)}"


def end(entry: Entry, zone: ZoneInfo) -> str:
    """When it ends by itself; empty where it does not."""
    ends = entry.detail.get("ends")
    return past(from_ms(ends), zone) if isinstance(ends, int) else ""
