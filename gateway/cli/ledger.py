"""`sluicegate ledger`: the proof that counters are what the usage rows say, and corrections."""

from __future__ import annotations

from pathlib import Path

import typer

from gateway.amounts import parse_signed
from gateway.budget import Unit
from gateway.cli.outcome import DONE, FAILED, USAGE, CommandError, complain
from gateway.cli.render import amount, document, show
from gateway.cli.session import actor, load_settings, opened


async def check(config: Path | None, *, as_json: bool) -> int:
    """Exit code 1 and the differences when a counter is not the sum of its rows."""
    settings = load_settings(config)
    async with opened(settings) as app:
        differences, uncounted = await app.books.check(), await app.books.uncounted()
    if as_json:
        found = [
            {"budget": one.budget, "counter": one.key, "what": one.what, "has": one.counter, "rows_say": one.rows}
            for one in differences
        ]
        document({"ok": not differences, "differences": found} | ({"uncounted": uncounted} if uncounted else {}))
    elif not differences:
        count = len(settings.budgets.all) - sum(name in settings.budgets.by_name for name in uncounted)
        typer.echo(f"Right: every counter of {count} budget{'s' * (count != 1)} is the sum of its rows and holds.")
    else:
        units = {budget.name: budget.unit for budget in settings.budgets.all}
        rows = [
            [one.budget, one.key or "-", one.what, amount(units[one.budget], one.counter), amount(units[one.budget], one.rows)]
            for one in differences
        ]
        show(["budget", "counter of", "what", "counter has", "rows say"], rows, right={3, 4})
    if uncounted and not as_json:
        typer.echo(f"Not counted as the file has them, until a server starts or reloads: {', '.join(uncounted)}.")
    if differences:
        complain(f"{len(differences)} counter values are not what the usage rows say")
    return FAILED if differences else DONE


async def adjust(config: Path | None, name: str, spent: str, reason: str, scope: list[str], *, as_json: bool) -> int:
    """A correcting entry of ±N in the configuration's unit, with its reason."""
    settings = load_settings(config)
    budget = settings.budgets.by_name.get(name)
    if budget is None:
        raise CommandError(f"there is no budget {name!r}; there are {', '.join(settings.budgets.by_name) or 'none'}", USAGE)
    if not reason.strip():
        raise CommandError("--reason: say why", USAGE)
    value = _signed(spent, budget.unit)
    counter = dict(_pair(text) for text in scope)
    async with opened(settings) as app:
        await app.books.adjust(name, value, reason.strip(), actor(), counter)
        balances = [
            balance
            for balance in await app.books.balances()
            if balance.name == name and all(balance.scope.get(kind) == wanted for kind, wanted in counter.items())
        ]
    if as_json:
        document({"name": name, "adjusted": value, "reason": reason.strip(), "budgets": [one.as_json() for one in balances]})
    else:
        for balance in balances:
            typer.echo(f"{name}: {amount(balance.unit, balance.spent)} spent now, {amount(balance.unit, balance.left)} left.")
    return DONE


def _signed(text: str, unit: Unit) -> int:
    try:
        return parse_signed(text, unit)
    except ValueError as error:
        raise CommandError(f"--spent: {error}", USAGE)


def _pair(text: str) -> tuple[str, str]:
    kind, equals, value = text.partition("=")
    if not equals or not value:
        raise CommandError(f"--scope: {text!r} is not KIND=VALUE, such as user=1002", USAGE)
    return kind, value
