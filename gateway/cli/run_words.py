"""Runs and steps in words, and what people type about them: `--set`, `--set-budget`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from gateway.amounts import parse_amount
from gateway.budget import CAP
from gateway.cli.outcome import USAGE, CommandError
from gateway.cli.render import amount, moment, span, tame
from gateway.cli.typed import typed
from gateway.runs import Approval, Caps, Run, RunEvent, RunState, Step, StepState
from gateway.settings import Settings
from gateway.workflow.caps import UNITS

MARKS = {
    StepState.RUNNING: "…",
    StepState.WAITING: "◔",
    StepState.SUCCEEDED: "✓",
    StepState.FAILED: "✗",
    StepState.CANCELLED: "-",
}
_WAITS = {
    RunState.WAITING_BUDGET: "waiting for budget",
    RunState.WAITING_APPROVAL: "waiting for an answer to",
    RunState.WAITING: "waiting for the signal",
    RunState.SLEEPING: "sleeping",
}


def parse_values(given: Sequence[str]) -> dict[str, Any]:
    """`name=value` as parameters; a name that comes again makes a list. Raises CommandError."""
    values: dict[str, Any] = {}
    for text in given:
        name, equals, value = text.partition("=")
        name = name.strip()
        if not equals or not name:
            raise CommandError(f"--set {text}: write it as parameter=value", USAGE)
        if name in values:
            before = values[name]
            values[name] = [*(before if isinstance(before, list) else [before]), value]
        else:
            values[name] = value
    return values


def parse_caps(given: Sequence[str]) -> Caps | None:
    """`tokens=500k` and the like as caps; None when nothing is given. Raises CommandError."""
    found: dict[str, int] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or name not in UNITS:
            raise CommandError(f"--set-budget {text}: write it as tokens=500k, usd=1.50 or requests=20", USAGE)
        if name in found:
            raise CommandError(f"--set-budget {name} is given twice", USAGE)
        try:
            found[name] = parse_amount(value, UNITS[name])
        except ValueError as error:
            raise CommandError(f"--set-budget {text}: {error}", USAGE)
    try:
        return Caps.of_amounts(found)
    except ValueError as error:
        raise CommandError(f"--set-budget: {error}", USAGE)


def state_text(run: Run, zone: ZoneInfo, now: datetime) -> str:
    """Where a run stands: `waiting for budget moonshot-hour until 14:20 (in 23 min)`."""
    if run.state not in _WAITS:
        return f"{run.state}, to be cancelled" if run.wanted == "cancel" and not run.state.ended else str(run.state)
    what = f"{_WAITS[run.state]} {run.waiting_for}".strip()
    until = "" if run.waiting_until is None else f" until {moment(run.waiting_until, zone, now)}"
    return f"{what}{until}"


def lacks_cap(run: Run) -> bool:
    """True for a run that failed because a cap of its own is reached: a larger one lets it go on."""
    return run.state is RunState.FAILED and f" {CAP}{run.workflow}:" in run.error


def step_text(step: Step, zone: ZoneInfo, now: datetime) -> str:
    """What a person should know of a step beside its state."""
    waits = step.state is StepState.WAITING
    parts = [
        f"waits for {step.detail}" if waits and step.detail else step.detail,
        f"until {moment(step.waiting_until, zone, now)}" if waits and step.waiting_until is not None else "",
        f"attempt {step.attempts}" if step.attempts > 1 else "",
    ]
    return tame(", ".join(part for part in parts if part)) or ("waits" if waits else "")


def event_line(event: RunEvent, run: Run, zone: ZoneInfo, now: datetime) -> str:
    """What an event says in one line; "" for one that is said otherwise."""
    data = event.data
    until = data.get("waiting_until")
    instant = None if until is None else datetime.fromisoformat(until)
    if event.kind == "log":
        return tame(f"  log: {data.get('text', '')}")
    if event.kind == "state":
        waits_for, wanted = data.get("waiting_for", ""), data.get("wanted", "")
        then = replace(run, state=RunState(data["state"]), waiting_until=instant, waiting_for=waits_for, wanted=wanted)
        return state_text(then, zone, now)
    if event.kind != "step":
        return ""
    state, detail = StepState(data["state"]), tame(data.get("detail", ""))
    if state is StepState.WAITING:
        for_what = f" for {detail}" if detail else ""
        detail = f"until {moment(instant, zone, now)}" if instant is not None else ""
        return f"  {MARKS[state]} {data['name']} ({data['kind']}): waiting{for_what}{f' {detail}' if detail else ''}"
    return f"  {MARKS[state]} {data['name']} ({data['kind']}): {state}{f', {detail}' if detail else ''}"


def spent_text(tokens: int, cost_micro_usd: int) -> str:
    """`1,234 tokens, $0.02`; "" for nothing."""
    parts = [f"{tokens:,} tokens" if tokens else "", amount("micro_usd", cost_micro_usd) if cost_micro_usd else ""]
    return ", ".join(part for part in parts if part)


def took(started: datetime | None, ended: datetime | None, now: datetime) -> str:
    """How long something took, or has taken until now."""
    return "" if started is None else span(max(0.0, ((ended or now) - started).total_seconds()))


def question_lines(approval: Approval, settings: Settings, now: datetime) -> list[str]:
    """A question with how to answer it."""
    zone = settings.zone
    until = "" if approval.expires is None else f" (until {moment(approval.expires, zone, now)}, then: {approval.otherwise})"
    return [
        tame(f"{approval.step} asks {', '.join(approval.who)}: {approval.question}{until}"),
        f"  yes: {typed(settings, f'runs approve {approval.id}')}",
        f"  no:  {typed(settings, f'runs reject {approval.id}')}",
    ]
