"""`sluicegate explain`: what the gate would decide about a request now."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from gateway.chat import Request
from gateway.cli.outcome import DONE
from gateway.cli.render import amount, document, on_terminal, scope_text, unit_name
from gateway.cli.session import load_settings, opened
from gateway.cli.words import default_target, error_text, origin
from gateway.ledger import Match

if TYPE_CHECKING:
    from gateway.app import App
    from gateway.dispatcher import Verdict


async def explain(config: Path | None, text: str, user: str | None, chain: str, *, as_json: bool) -> int:
    """Per slot: matching budgets, worst case, room, verdict. Calls nobody."""
    settings = load_settings(config)
    target = chain or default_target(settings)
    settings.slots(target)
    async with opened(settings, gate=True) as app:
        request = Request(messages=[{"role": "user", "content": text}])
        verdicts = await app.dispatcher.explain(request, target, origin(user))
        if as_json:
            document({"target": target, "slots": [_verdict_document(verdict) for verdict in verdicts]})
        else:
            for number, verdict in enumerate(verdicts, 1):
                _print_verdict(app, number, verdict)
    return DONE


def _asked(match: Match, verdict: Verdict) -> int:
    unit = str(match.budget.unit)
    if unit == "requests":
        return 1
    return verdict.prompt_tokens + verdict.output_tokens if unit == "tokens" else verdict.cost_micro_usd or 0


def _verdict_document(verdict: Verdict) -> dict[str, object]:
    return {
        "provider": verdict.slot.provider,
        "model": verdict.slot.model,
        "verdict": "refused" if verdict.error else "admitted",
        "reason": str(verdict.error) if verdict.error else None,
        "worst_case": {
            "prompt_tokens": verdict.prompt_tokens,
            "output_tokens": verdict.output_tokens,
            "cost_micro_usd": verdict.cost_micro_usd,
        },
        "budgets": [
            {
                "name": match.budget.name,
                "scope": match.budget.scope_of(match.key),
                "unit": str(match.budget.unit),
                "limit": match.limit,
                "spent": spent,
                "held": held,
                "left": max(0, match.limit - spent - held),
                "asked": _asked(match, verdict),
            }
            for match, spent, held in verdict.matches
        ],
    }


def _print_verdict(app: App, number: int, verdict: Verdict) -> None:
    now, zone = app.clock.now(), app.settings.zone
    state = "would be called" if verdict.error is None else "would be skipped"
    heading(f"{number}. {verdict.slot}: {state}", good=verdict.error is None)
    cost = "" if verdict.cost_micro_usd is None else f", {amount('micro_usd', verdict.cost_micro_usd)}"
    typer.echo(f"   worst case: {verdict.prompt_tokens:,} prompt + {verdict.output_tokens:,} output tokens{cost}")
    for match, spent, held in verdict.matches:
        unit = str(match.budget.unit)
        scope = scope_text(match.budget.scope_of(match.key))
        typer.echo(budget_line(match.budget.name, scope, unit, match.limit, spent, held, _asked(match, verdict)))
    if not verdict.matches:
        typer.echo("   no budget counts it")
    if verdict.error is not None:
        typer.echo(f"   because: {error_text(verdict.error, zone, now)}")


def budget_line(name: str, scope: str, unit: str, limit: int, spent: int, held: int, asked: int) -> str:
    """One budget of a slot, with what was asked of it."""
    room = "room" if spent + held + asked <= limit and limit else "no room"
    figures = f"{amount(unit, spent)} spent + {amount(unit, held)} held + {amount(unit, asked)} asked of {amount(unit, limit)}"
    return f"   {name} ({scope}): {figures} {unit_name(unit)}: {room}"


def heading(text: str, *, good: bool) -> None:
    """One slot's headline, in colour on a terminal."""
    if on_terminal():
        typer.secho(text, fg="green" if good else "yellow", bold=True)
    else:
        typer.echo(text)
