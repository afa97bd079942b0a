"""What is said of runs and approvals, and which buttons stand under it. Pure.

A button of a run carries a verb and the run's or approval's id. It needs no row of its own, so it works as long as the run
is kept; whoever taps is checked against the run, and doing a thing twice does it once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from gateway.notice import Reader, text, until
from gateway.runs import Approval, Decision, Detail, Run, RunState
from gateway.telegram_bot.delivery import Keyboard
from gateway.telegram_bot.markup import Entity, Part, units, well_formed
from gateway.telegram_bot.runs.card import NAME_MAX, card, heading
from gateway.telegram_bot.runs.words import one_line, some_lines

SHOW, LIST, CANCEL, RETRY, APPROVE, REJECT = "show", "list", "halt", "again", "yes", "no"
VERBS = (SHOW, LIST, CANCEL, RETRY, APPROVE, REJECT)
QUESTION_MAX = 2000
GLIMPSE_MAX = 300


def data(verb: str, subject: str = "") -> str:
    """What a button carries: at most 64 bytes."""
    return f"{verb}:{subject}"


def read_data(carried: str) -> tuple[str, str] | None:
    """The verb and the run's or approval's id; None for a button that is none of a run's."""
    verb, colon, subject = carried.partition(":")
    return (verb, subject) if colon and verb in VERBS else None


def listing(runs: Sequence[Run], reader: Reader, now: datetime) -> tuple[str, Keyboard]:
    """Runs, each with its button for details."""
    if not runs:
        return text(reader.language, "runs_none"), ()
    lines, keyboard = [], []
    for number, run in enumerate(runs, 1):
        who = f" · {one_line(run.starter.name, NAME_MAX)}" if reader.admin else ""
        lines.append(f"{number}. {heading(run, reader, now)}{who}\n     {run.id}")
        keyboard.append([(f"{number}. {one_line(run.workflow, NAME_MAX)}", data(SHOW, run.id))])
    return "\n".join(lines), keyboard


def choosing(runs: Iterable[Run]) -> Keyboard:
    """A button to cancel each of several runs."""
    return [[(f"✖️ {one_line(run.workflow, NAME_MAX)} · {run.id[-6:]}", data(CANCEL, run.id))] for run in runs]


def details(found: Detail, reader: Reader, now: datetime, user_id: int) -> tuple[str, Keyboard]:
    """One run in full, and what can be done with it; the way back to the list is for the one who looks."""
    said = [card(found.run, found.steps, reader, now), "", found.run.id]
    keyboard: list[Sequence[tuple[str, str]]] = []
    for approval in found.approvals:
        said += ["", "✋ " + one_line(approval.question, GLIMPSE_MAX)]
        keyboard += approval_keyboard(approval, reader)
    back = [(text(reader.language, "button_runs"), data(LIST, str(user_id)))]
    return "\n".join(said), [*keyboard, *run_keyboard(found.run, reader), back]


def run_keyboard(run: Run, reader: Reader) -> Keyboard:
    """What works on a run now."""
    if run.state is RunState.FAILED:
        return [[(text(reader.language, "button_run_retry"), data(RETRY, run.id))]]
    if run.state.ended or run.wanted:
        return ()
    return [[(text(reader.language, "button_run_cancel"), data(CANCEL, run.id))]]


def approval_keyboard(approval: Approval, reader: Reader) -> Keyboard:
    """The two answers."""
    yes, no = text(reader.language, "button_approve"), text(reader.language, "button_reject")
    return [[(yes, data(APPROVE, approval.id)), (no, data(REJECT, approval.id))]]


def approval_part(approval: Approval, run: Run, reader: Reader, now: datetime, by: str) -> Part:
    """The message that asks, and later says what was decided. The question stands in a quote: it may pretend to be ours."""
    language = reader.language
    head = text(language, "approval_asks", workflow=one_line(run.workflow, NAME_MAX)) + "\n"
    asked = well_formed(some_lines(approval.question, QUESTION_MAX)) or "?"
    lines = [_outcome(approval, language, by)] if approval.decision is not Decision.OPEN else []
    if approval.decision is Decision.OPEN and approval.expires is not None:
        lines.append(text(language, "approval_until", until=until(approval.expires, reader, now)))
    quote = Entity("blockquote", units(head), units(asked))
    return Part("\n".join([head + asked, *lines]), (quote,))


def _outcome(approval: Approval, language: str, by: str) -> str:
    if approval.decision is Decision.EXPIRED:
        return text(language, "approval_expired")
    return text(language, f"approval_{approval.decision}", name=one_line(by, NAME_MAX))
