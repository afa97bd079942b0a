"""`sluicegate why`: what the gate decided about a request, slot by slot, and how each attempt ended."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import typer

from gateway.budget import Budgets
from gateway.cli.explain import budget_line, heading
from gateway.cli.outcome import DONE, FAILED, complain
from gateway.cli.render import amount, document, moment, scope_text, stamp
from gateway.cli.session import load_settings, opened

ENDED = {
    "pending": "under way",
    "answered": "answered",
    "clamped": "answered, shortened to what the budget had left",
    "refused": "refused by the provider, not billed",
    "caller_fault": "the request was wrong, not billed",
    "content_refused": "refused by the provider's content policy",
    "unanswered": "no answer, may have been billed",
    "cancelled": "stopped by who asked",
    "cut_off": "the provider ignored its limit and was cut off",
    "not_sent": "nothing was sent",
    "expired": "the process died; charged at the worst case",
}


async def why(config: Path | None, request_id: str, *, as_json: bool) -> int:
    """Tells the story of one request; exit code 1 when nothing is known of it."""
    settings = load_settings(config)
    async with opened(settings) as app:
        story = await app.books.story(request_id)
        now = app.clock.now()
    slots = [_refused(refusal, settings.budgets) for refusal in story.refusals]
    slots += [_attempted(attempt, settings.budgets) for attempt in story.attempts]
    slots = _decisive(sorted(slots, key=lambda slot: slot["at"]))
    if as_json:
        document({"request_id": request_id, "slots": [_plain(slot) for slot in slots]})
    if not slots:
        complain(f"nothing is known of request {request_id!r}: refusals are kept for 90 days")
        return FAILED
    if not as_json:
        for number, slot in enumerate(slots, 1):
            _print(number, slot, settings.zone, now)
    return DONE


def _decisive(slots: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without refusals that another of the same slot follows.

    The gate asks again for a shorter answer, and a patient request asks whenever room comes back.
    """
    kept: list[dict[str, Any]] = []
    for slot in slots:
        if (
            kept
            and all(kept[-1][name] == slot[name] for name in ("provider", "model", "verdict"))
            and slot["verdict"] == "refused"
        ):
            kept.pop()
        kept.append(slot)
    return kept


def _refused(refusal: dict[str, Any], budgets: Budgets) -> dict[str, Any]:
    blocks = refusal["detail"].get("blocks", [])
    return {
        "at": refusal["at"],
        "provider": refusal["provider"],
        "model": refusal["model"],
        "verdict": "refused",
        "reason": refusal["message"],
        "budgets": [
            {
                "name": block["budget"],
                "scope": _scope(budgets, block["budget"], None),
                "unit": block["unit"],
                "limit": block["limit"],
                "spent": block["spent"],
                "held": block["held"],
                "asked": block["asked"],
                "resets_at": block["resets_at"] and datetime.fromisoformat(block["resets_at"]),
            }
            for block in blocks
        ],
        "worst_case": None,
        "outcome": "not called",
    }


def _attempted(attempt: dict[str, Any], budgets: Budgets) -> dict[str, Any]:
    return {
        "at": attempt["started"],
        "provider": attempt["provider"],
        "model": attempt["model_asked"],
        "verdict": "admitted",
        "reason": attempt["detail"] or None,
        "budgets": [
            {
                "name": line["budget"],
                "scope": _scope(budgets, line["budget"], line["key"]),
                "unit": line["unit"],
                "limit": line["limit"],
                "spent": line["spent"],
                "held": line["held"],
                "asked": line["amount"],
                "resets_at": None,
            }
            for line in attempt["lines"]
        ],
        "worst_case": {
            "requests": attempt["held_requests"],
            "tokens": attempt["held_tokens"],
            "micro_usd": attempt["held_micro_usd"],
            "output_tokens": attempt["output_limit"],
        },
        "outcome": attempt["outcome"],
        "state": attempt["state"],
        "spent": {
            "requests": attempt["spent_requests"],
            "tokens": attempt["spent_tokens"],
            "micro_usd": attempt["cost_micro_usd"],
        },
        "estimated": attempt["estimated"],
        "uncertain": attempt["uncertain"],
        "attempt": attempt["attempt"],
        "ended": attempt["ended"],
    }


def _scope(budgets: Budgets, name: str, key: str | None) -> dict[str, str]:
    """The scope of a counter, as far as the configuration still knows the budget."""
    budget = budgets.by_name.get(name)
    if budget is None:
        return {}
    return dict(budget.scope) if key is None else budget.scope_of(key)


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return stamp(value)
    if isinstance(value, dict):
        return {key: _plain(entry) for key, entry in value.items()}
    return [_plain(entry) for entry in value] if isinstance(value, list) else value


def _print(number: int, slot: dict[str, Any], zone: ZoneInfo, now: datetime) -> None:
    admitted = slot["verdict"] == "admitted"
    at = slot["at"].astimezone(zone).strftime("%Y-%m-%d %H:%M:%S")
    heading(f"{number}. {slot['provider']}:{slot['model']}: {slot['verdict']} at {at}", good=admitted)
    if admitted:
        worst = slot["worst_case"]
        cost = f", {amount('micro_usd', worst['micro_usd'])}" if worst["micro_usd"] else ""
        typer.echo(f"   worst case: {worst['tokens']:,} tokens, {worst['output_tokens']:,} of them output{cost}")
    for budget in slot["budgets"]:
        line = budget_line(
            budget["name"],
            scope_text(budget["scope"]),
            budget["unit"],
            budget["limit"],
            budget["spent"],
            budget["held"],
            budget["asked"],
        )
        opens = f"; opens {moment(budget['resets_at'], zone, now)}" if budget["resets_at"] and budget["resets_at"] > now else ""
        typer.echo(line + opens)
    if not slot["budgets"] and slot["reason"]:
        typer.echo(f"   because: {slot['reason']}")
    if admitted:
        _print_outcome(slot)


def _print_outcome(slot: dict[str, Any]) -> None:
    spent = slot["spent"]
    notes = [name for name in ("estimated", "uncertain") if slot[name]]
    cost = f", {amount('micro_usd', spent['micro_usd'])}" if spent["micro_usd"] else ""
    figures = "" if slot["outcome"] == "pending" else f": {spent['tokens']:,} tokens{cost}"
    ended = ENDED.get(slot["outcome"], slot["outcome"])
    typer.echo(f"   outcome: {ended}{figures}" + (f" ({', '.join(notes)})" if notes else ""))
    if slot["budgets"] and slot["reason"]:
        typer.echo(f"   said: {slot['reason']}")
