"""`sluicegate why`: what the gate decided about a request, slot by slot, and how each attempt ended."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import typer

from gateway.cli.explain import budget_line, heading
from gateway.cli.outcome import DONE, FAILED, complain
from gateway.cli.render import amount, document, moment, scope_text, stamp
from gateway.cli.session import load_settings, opened
from gateway.story import ENDED, slots_of


async def why(config: Path | None, request_id: str, *, as_json: bool) -> int:
    """Tells the story of one request; exit code 1 when nothing is known of it."""
    settings = load_settings(config)
    async with opened(settings) as app:
        story = await app.books.story(request_id)
        now = app.clock.now()
    slots = slots_of(story.attempts, story.refusals, settings.budgets)
    if as_json:
        document({"request_id": request_id, "slots": [_plain(slot) for slot in slots]})
    if not slots:
        complain(f"nothing is known of request {request_id!r}: refusals are kept for 90 days")
        return FAILED
    if not as_json:
        for number, slot in enumerate(slots, 1):
            _print(number, slot, settings.zone, now)
    return DONE


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
