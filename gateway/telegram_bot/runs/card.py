"""The one message that shows a run, as text: where it stands, its steps, what it waits for and until when. Pure.

Everybody sees states, names of steps and times. Tokens, money and what a step says of itself are for admins, in private.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from gateway.notice import Reader, money, text, until, whole
from gateway.runs import Run, RunState, Step, StepState
from gateway.telegram_bot.runs.words import one_line, some_lines
from gateway.workflow.failures import NEVER_FITS, OWN_CAP

STEPS_MAX = 14
"""Steps that are listed; earlier ones that ended are counted."""
NAME_MAX = 40
DETAIL_MAX = 60
ERROR_MAX = 600
RESULT_MAX = 600

MODEL = "ask"
"""The kind of the steps that ask models."""
TOO_LARGE = (NEVER_FITS, OWN_CAP)

STATE_SIGNS = {
    RunState.QUEUED: "🕓",
    RunState.RUNNING: "▶️",
    RunState.WAITING_BUDGET: "⏳",
    RunState.WAITING_APPROVAL: "✋",
    RunState.WAITING: "📨",
    RunState.SLEEPING: "😴",
    RunState.SUCCEEDED: "✅",
    RunState.FAILED: "❌",
    RunState.CANCELLED: "🚫",
}
WAITS = (RunState.WAITING_BUDGET, RunState.WAITING_APPROVAL, RunState.WAITING, RunState.SLEEPING)
STEP_SIGNS = {
    StepState.RUNNING: "▶️",
    StepState.WAITING: "⏳",
    StepState.SUCCEEDED: "✅",
    StepState.FAILED: "❌",
    StepState.CANCELLED: "🚫",
}


def card(run: Run, steps: Sequence[Step], reader: Reader, now: datetime) -> str:
    """The whole message."""
    parts = [heading(run, reader, now), *_steps(steps, reader, now)]
    if run.state is RunState.FAILED and run.error:
        parts += ["", _reason(run, steps, reader)]
    if run.state is RunState.SUCCEEDED and isinstance(run.result, str) and run.result.strip():
        parts += ["", some_lines(run.result, RESULT_MAX)]
    if reader.admin and run.tokens:
        language = reader.language
        spent = {"tokens": whole(language, run.tokens), "cost": money(language, run.cost_micro_usd)}
        parts += ["", text(language, "run_cost", **spent)]
    return "\n".join(parts)


def heading(run: Run, reader: Reader, now: datetime) -> str:
    """A run's first line: its workflow, where it stands, and until when."""
    return f"{STATE_SIGNS[run.state]} {one_line(run.workflow, NAME_MAX)} · {standing(run, reader, now)}"


def standing(run: Run, reader: Reader, now: datetime) -> str:
    """Where a run stands, in words."""
    if run.wanted == "cancel" and not run.state.ended:
        return text(reader.language, "run_cancelling")
    if run.waiting_until is not None and run.state in WAITS:
        return text(reader.language, f"run_{run.state}_until", until=until(run.waiting_until, reader, now))
    return text(reader.language, f"run_{run.state}")


def _reason(run: Run, steps: Sequence[Step], reader: Reader) -> str:
    """Why a run failed. What a model's step says of that names budgets, providers and amounts: it is for admins."""
    name = run.error.partition(": ")[0]
    if not reader.admin and any(step.name == name and step.kind == MODEL for step in steps):
        key = "run_too_large" if any(mark in run.error for mark in TOO_LARGE) else "run_no_answer"
        return text(reader.language, key, step=one_line(name, NAME_MAX))
    return some_lines(run.error, ERROR_MAX)


@dataclass(slots=True)
class _Line:
    """A step as it is listed; of a map, with its children in it."""

    step: Step
    items: dict[str, bool] = field(default_factory=dict)
    """The map's items by number: whether one of their steps failed."""


def _steps(steps: Sequence[Step], reader: Reader, now: datetime) -> list[str]:
    lines = _grouped(steps)
    hidden = 0
    while len(lines) - hidden > STEPS_MAX and lines[hidden].step.state.ended:
        hidden += 1
    shown = [_line(line, reader, now) for line in lines[hidden : hidden + STEPS_MAX]]
    if hidden:
        shown.insert(0, text(reader.language, "run_earlier", n=hidden))
    if (more := len(lines) - hidden - STEPS_MAX) > 0:
        shown.append(text(reader.language, "run_more", n=more))
    return shown


def _grouped(steps: Iterable[Step]) -> list[_Line]:
    """One line per step of the run itself; a map's children are counted in its line. Log entries are no steps to wait for."""
    lines: dict[str, _Line] = {}
    for step in sorted(steps, key=lambda step: step.number):
        name, slash, rest = step.name.partition("/")
        if slash and name in lines:
            item = rest.partition("/")[0]
            items = lines[name].items
            items[item] = items.get(item, False) or step.state is StepState.FAILED
        elif step.kind != "log":
            lines[step.name] = _Line(step)
    return list(lines.values())


def _line(line: _Line, reader: Reader, now: datetime) -> str:
    step, language = line.step, reader.language
    said = f"{STEP_SIGNS[step.state]} {one_line(step.name, NAME_MAX)}"
    if line.items:
        said += " · " + text(language, "run_items", n=len(line.items))
    if failed := sum(line.items.values()):
        said += " · " + text(language, "run_items_failed", n=failed)
    if step.attempts > 1 and not step.state.ended:
        said += " · " + text(language, "run_attempt", n=step.attempts)
    if step.state is StepState.WAITING and step.waiting_until is not None:
        said += " · " + until(step.waiting_until, reader, now)
    if step.detail and (reader.admin or (step.state is StepState.FAILED and step.kind != MODEL)):
        said += " · " + one_line(step.detail, DETAIL_MAX)
    return said
