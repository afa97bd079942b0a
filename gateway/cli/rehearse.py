"""`sluicegate run --dry-run`: a run's steps as far as they can be known, the worst case of each call, and whether it fits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import typer

from gateway.cli.outcome import DONE, EXHAUSTED
from gateway.cli.render import amount, document
from gateway.cli.words import starter
from gateway.cli.workflows import caps_text
from gateway.runs import Caps, Run, RunState

if TYPE_CHECKING:
    from gateway.app import App
    from gateway.workflow.fitting import Fit
    from gateway.workflow.rehearsal import Plan, Planned

ID = "rehearsal"
"""Instead of a run's id: there is no run."""


async def rehearse(app: App, name: str, values: Mapping[str, Any], caps: Caps | None, *, as_json: bool) -> int:
    """Prints the plan; exit code 3 when a call of it has no room now."""
    from gateway.workflow import rehearsal

    definition, person = app.catalogue.get(name), starter()
    params = app.desk.parse(name, values, person)
    own = None if caps is None else caps.over(definition.caps)
    run = Run(ID, name, RunState.QUEUED, params, person, app.clock.now(), version=definition.version, caps=own)
    plan = await rehearsal.rehearse(app.parts(), definition, run)
    if as_json:
        document(_document(name, plan))
    else:
        _print(name, plan, own or definition.caps)
    return DONE if plan.fits else EXHAUSTED


def _print(name: str, plan: Plan, caps: Caps | None) -> None:
    typer.echo(f"{name} would make these steps (nothing is started):")
    for number, step in enumerate(plan.steps, 1):
        typer.echo(f"  {number}. {step.name} ({step.kind}){_about(step)}")
    typer.echo(f"  and then: {plan.reason}" if plan.reason else "  and then it ends.")
    if plan.assumed:
        typer.echo(f"Assumed as usual, another run may go another way: {', '.join(plan.assumed)}.")
    calls = plan.calls
    if calls:
        tokens = sum(fit.prompt_tokens + fit.output_tokens for fit in calls)
        cost = amount("micro_usd", sum(fit.cost_micro_usd for fit in calls))
        least = "" if all(step.known for step in plan.steps) else ", more where a prompt holds what earlier steps give"
        typer.echo(f"All calls together: at most {tokens:,} tokens and {cost}{least}. A run may spend {caps_text(caps)}.")
    waits = [step for step in plan.steps if step.fit is not None and step.fit.slot is None]
    typer.echo("It fits now." if not waits else f"It does not fit now: {waits[0].name} would wait.")


def _about(step: Planned) -> str:
    if step.fit is None:
        answer = "; a yes is assumed" if step.kind == "approve" else ""
        return f": {step.detail}{answer}" if step.detail else answer
    fit, prompt = step.fit, "prompt" if step.known else "and more prompt"
    cost = amount("micro_usd", fit.cost_micro_usd)
    worst = f"at most {fit.prompt_tokens:,} {prompt} and {fit.output_tokens:,} output tokens, {cost}"
    return f": {worst}; {f'{fit.slot} has room' if fit.slot is not None else f'no room: {fit.reason}'}"


def _document(name: str, plan: Plan) -> dict[str, Any]:
    return {
        "workflow": name,
        "fits": plan.fits,
        "complete": not plan.reason,
        "reason": plan.reason or None,
        "assumed": list(plan.assumed),
        "steps": [
            {
                "name": step.name,
                "kind": step.kind,
                "detail": step.detail,
                "known": step.known,
                "worst_case": _worst(step.fit),
            }
            for step in plan.steps
        ],
    }


def _worst(fit: Fit | None) -> dict[str, Any] | None:
    if fit is None:
        return None
    return {
        "slot": None if fit.slot is None else str(fit.slot),
        "prompt_tokens": fit.prompt_tokens,
        "output_tokens": fit.output_tokens,
        "cost_micro_usd": fit.cost_micro_usd,
        "reason": fit.reason or None,
    }
