"""`sluicegate check`: is the configuration right, what does it allow, and (online) does every provider answer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from gateway.budget import Budget, Unit
from gateway.chat import Request, Slot
from gateway.cli.changes import against_running, as_documents, show_changes
from gateway.cli.outcome import DONE, FAILED, USAGE, complain
from gateway.cli.render import amount, document, moment, scope_text, show, stamp, unit_name
from gateway.cli.session import load_settings, opened
from gateway.cli.words import origin
from gateway.cli.workflows import caps_text, who_text
from gateway.clock import SystemClock
from gateway.errors import ChainExhausted, GatewayError, UnknownPrice
from gateway.prices import Prices, Source
from gateway.settings import Settings
from gateway.workflow.catalogue import Catalogue

if TYPE_CHECKING:
    from gateway.app import App

Sources = dict[Slot, Source | None]
"""Where each slot's price comes from; None where it has none."""


async def check(config: Path | None, *, online: bool, as_json: bool) -> int:
    """Prints what there is; exit code 2 when a USD budget meets a model without a price, 1 when a provider does not answer."""
    settings = load_settings(config)
    catalogue = Catalogue.load(settings)
    prices = Prices(settings)
    sources = {slot: prices.source(slot) for slot in _slots(settings)}
    unpriced = [slot for slot, source in sources.items() if source is None and _usd_budgets(settings, slot)]
    results: dict[str, str] = {}
    if online and not unpriced:
        async with opened(settings, gate=True) as app:
            for name in settings.providers:
                results[name] = await _probe(app, name)
    changes = await against_running(settings)
    if as_json:
        document(
            _document(settings, sources, unpriced, results)
            | _workflows_document(settings, catalogue)
            | {"reload": as_documents(changes)}
        )
    else:
        _print(settings, sources, results, right=not unpriced)
        _print_workflows(settings, catalogue)
        show_changes(changes)
    for slot in unpriced:
        names = ", ".join(budget.name for budget in _usd_budgets(settings, slot))
        complain(f"{UnknownPrice(slot.provider, slot.model)}")
        complain(f"  (USD budget: {names}; until then every call of {slot} is refused)")
    if unpriced:
        return USAGE
    return FAILED if any(results.values()) else DONE


def _slots(settings: Settings) -> list[Slot]:
    """Every slot that a chain names, and every provider's own model, once each."""
    found = [Slot(provider.name, provider.model) for provider in settings.providers.values()]
    found += [slot for slots in settings.chains.values() for slot in slots]
    return list(dict.fromkeys(found))


def _usd_budgets(settings: Settings, slot: Slot) -> list[Budget]:
    """The USD budgets that a call of this slot may count in."""
    fixed = {"provider": slot.provider, "model": slot.model}
    return [
        budget
        for budget in settings.budgets.all
        if budget.unit is Unit.MICRO_USD and all(value in ("*", fixed.get(kind, value)) for kind, value in budget.scope.items())
    ]


async def _probe(app: App, provider: str) -> str:
    """One call of 1 token through the gate; "" when it was answered, else why not."""
    request = Request(messages=[{"role": "user", "content": "Say ok."}], max_output_tokens=1)
    try:
        await app.dispatcher.complete(request, provider, origin())
    except ChainExhausted as error:
        return "; ".join(str(cause.error) for cause in error.causes)
    except GatewayError as error:
        return str(error)
    return ""


def _document(settings: Settings, sources: Sources, unpriced: list[Slot], results: dict[str, str]) -> dict[str, object]:
    providers = []
    for provider in settings.providers.values():
        slot = Slot(provider.name, provider.model)
        entry: dict[str, object] = {
            "name": provider.name,
            "api": provider.api,
            "model": provider.model,
            "key_source": provider.key_source or None,
            "price": sources[slot],
        }
        if provider.name in results:
            entry["online"] = not results[provider.name]
            entry["error"] = results[provider.name] or None
        providers.append(entry)
    return {
        "ok": not unpriced and not any(results.values()),
        "config": str(settings.path) if settings.path else None,
        "timezone": settings.zone.key,
        "providers": providers,
        "chains": {name: [str(slot) for slot in slots] for name, slots in settings.chains.items()},
        "budgets": [
            {
                "name": budget.name,
                "scope": dict(budget.scope),
                "unit": str(budget.unit),
                "limit": budget.limit,
                "per": budget.window.text,
            }
            for budget in settings.budgets.all
        ],
        "unpriced": [str(slot) for slot in unpriced],
        "telegram": bool(settings.telegram.token),
    }


def _print(settings: Settings, sources: Sources, results: dict[str, str], *, right: bool) -> None:
    database = settings.database_url.partition("://")[0].partition("+")[0]
    place, verdict = settings.path or "the built-in demo configuration", "right" if right else "not right, see the end"
    typer.echo(f"{place}: {verdict}. Time zone {settings.zone.key}, database {database}.\n")
    rows = []
    for provider in settings.providers.values():
        slot = Slot(provider.name, provider.model)
        row = [provider.name, provider.api, provider.model, provider.key_source or "no key", sources[slot] or "unknown"]
        if results:
            row.append(results[provider.name] or "answered")
        rows.append(row)
    show(["provider", "api", "model", "key from", "price", *(["online"] if results else [])], rows)
    typer.echo()
    show(["chain", "in this order"], [[name, " → ".join(map(str, slots))] for name, slots in settings.chains.items()])
    typer.echo()
    limits = [
        [
            budget.name,
            scope_text(dict(budget.scope)),
            amount(budget.unit, budget.limit),
            unit_name(budget.unit),
            budget.window.text,
        ]
        for budget in settings.budgets.all
    ]
    if limits:
        show(["budget", "scope", "limit", "unit", "per"], limits, right={2})
    else:
        typer.echo("No budgets: nothing bounds what is spent.")
    typer.echo()
    bot = "on" if settings.telegram.token else "off (set TELEGRAM_BOT_TOKEN in .env)"
    typer.echo(f"Telegram bot: {bot}. HTTP: {settings.host}:{settings.port}.")


def _workflows_document(settings: Settings, catalogue: Catalogue) -> dict[str, object]:
    now = SystemClock().now()
    return {
        "workflows": [
            {"name": name, "who": list(settings.workflows.of(name).who), "file": str(definition.path)}
            for name, definition in catalogue.definitions.items()
        ],
        "schedules": [
            {
                "name": schedule.name,
                "cron": schedule.cron.text,
                "workflow": schedule.workflow,
                "params": dict(schedule.params),
                "to": schedule.to or None,
                "next": stamp(schedule.cron.after(now)),
            }
            for schedule in settings.schedules
        ],
        "reports": [
            {
                "name": report.name,
                "cron": report.cron.text,
                "period": report.period,
                "to": report.to,
                "next": stamp(report.cron.after(now)),
            }
            for report in settings.reports
        ],
    }


def _print_workflows(settings: Settings, catalogue: Catalogue) -> None:
    now = SystemClock().now()
    typer.echo()
    found = catalogue.definitions.items()
    if found:
        rows = [[name, who_text(settings, name), caps_text(definition.caps)] for name, definition in found]
        show(["workflow", "who may start it", "a run may spend"], rows)
    else:
        typer.echo(f"No workflows: none came with the program, and there is none in {settings.workflows.path}.")
    if settings.schedules:
        typer.echo()
        schedules = [
            [one.name, one.cron.text, one.workflow, one.to or "nowhere", moment(one.cron.after(now), settings.zone, now)]
            for one in settings.schedules
        ]
        show(["schedule", "cron", "starts", "tells", "next"], schedules)
    if settings.reports:
        typer.echo()
        reports = [
            [one.name, one.cron.text, one.period, one.to, moment(one.cron.after(now), settings.zone, now)]
            for one in settings.reports
        ]
        show(["report", "cron", "of a", "goes to", "next"], reports)
