"""What people type about runs, and what they read of them."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from gateway import settings
from gateway.cli.outcome import CommandError
from gateway.cli.run_words import event_line, lacks_cap, parse_caps, parse_values, question_lines, state_text, step_text
from gateway.cli.runs import end_lines
from gateway.runs import Approval, Caps, Run, RunEvent, RunState, Starter, Step, StepState

SETTINGS = settings.demo(Path("/srv/bot"), False, {})
NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)
MADRID = ZoneInfo("Europe/Madrid")
RUN = Run("r1", "greet", RunState.RUNNING, {}, Starter("cli", "ann"), NOW)
UNTIL = NOW + timedelta(minutes=23)
HOSTILE = "a\x1b]0;owned\x07b\x9bc\nd"
TAMED = "a\ufffd]0;owned\ufffdb\ufffdc\nd"


def test_values_are_texts_and_a_name_that_comes_again_is_a_list() -> None:
    assert parse_values(["a=1", "b = x=y z", "c=", "d=1", "d=2", "d=3"]) == {
        "a": "1",
        "b": " x=y z",
        "c": "",
        "d": ["1", "2", "3"],
    }
    for wrong in ("a", "=1", " =1"):
        with pytest.raises(CommandError, match="write it as parameter=value"):
            parse_values([wrong])


def test_caps_are_amounts_of_their_units() -> None:
    assert parse_caps([]) is None
    assert parse_caps(["tokens=500k", "usd=1.50", "requests=20"]) == Caps(500_000, Decimal("1.5"), 20)
    assert parse_caps(["tokens=0"]) == Caps(tokens=0)
    for wrong in ("tokens", "token=5", "tokens=x", "tokens=1.5", "usd=0.0000001", "tokens=9999999999k"):
        with pytest.raises(CommandError, match="--set-budget"):
            parse_caps([wrong])
    with pytest.raises(CommandError, match="given twice"):
        parse_caps(["tokens=1", "tokens=2"])


@pytest.mark.parametrize(
    ("state", "more", "expected"),
    [
        (RunState.QUEUED, {}, "queued"),
        (RunState.RUNNING, {"wanted": "cancel"}, "running, to be cancelled"),
        (RunState.WAITING_BUDGET, {"waiting_for": "x", "waiting_until": UNTIL}, "waiting for budget x until 14:23 (in 23 min)"),
        (RunState.WAITING_BUDGET, {"waiting_for": "ever"}, "waiting for budget ever"),
        (RunState.WAITING_APPROVAL, {"waiting_for": "keep it"}, "waiting for an answer to keep it"),
        (RunState.WAITING, {"waiting_for": "go"}, "waiting for the signal go"),
        (RunState.SLEEPING, {"waiting_until": UNTIL}, "sleeping until 14:23 (in 23 min)"),
        (RunState.CANCELLED, {"wanted": "cancel"}, "cancelled"),
    ],
)  # fmt: skip
def test_a_state_says_what_is_waited_for_and_until_when(state: RunState, more: dict[str, object], expected: str) -> None:
    assert state_text(replace(RUN, state=state, **more), MADRID, NOW) == expected  # type: ignore[arg-type]


def test_an_event_is_a_line() -> None:
    def line(event: str, /, **data: object) -> str:
        return event_line(RunEvent("r1", 1, NOW, event, data), RUN, MADRID, NOW)

    assert line("state", state="sleeping", waiting_until="2026-06-01T12:23:00Z") == "sleeping until 14:23 (in 23 min)"
    assert line("step", name="greet", kind="ask", state="running") == "  … greet (ask): running"
    assert line("step", name="clone", kind="shell", state="failed", detail="code 3") == "  ✗ clone (shell): failed, code 3"
    waiting = {"name": "greet", "kind": "ask", "state": "waiting", "detail": "hour", "waiting_until": "2026-06-01T12:23:00Z"}
    assert line("step", **waiting) == "  ◔ greet (ask): waiting for hour until 14:23 (in 23 min)"
    assert line("approval", id="q", step="approve", question="Go on?") == ""


def test_nothing_that_a_terminal_would_obey_comes_out_of_a_run() -> None:
    step = Step("r1", "s", 1, "shell", StepState.FAILED, 1, NOW, detail=HOSTILE)
    said = [
        event_line(RunEvent("r1", 1, NOW, "log", {"text": HOSTILE}), RUN, MADRID, NOW),
        event_line(RunEvent("r1", 1, NOW, "step", {**step.as_json(), "detail": HOSTILE}), RUN, MADRID, NOW),
        step_text(step, MADRID, NOW),
        question_lines(Approval("q", "r1", "s", HOSTILE, ("admins",), NOW), SETTINGS, NOW)[0],
        end_lines(replace(RUN, state=RunState.FAILED, error=HOSTILE), SETTINGS)[0],
        end_lines(replace(RUN, state=RunState.SUCCEEDED, result=HOSTILE), SETTINGS)[0],
    ]
    assert [TAMED in one for one in said] == [True] * len(said)
    assert not any("\x1b" in one or "\x9b" in one for one in said)


def test_a_failed_run_says_how_to_go_on() -> None:
    failed = replace(RUN, state=RunState.FAILED, error="greet 2: the run's own cap run:greet:tokens is reached: 5 asked")
    assert lacks_cap(failed)
    assert not lacks_cap(replace(failed, error="git ended with code 3"))
    assert end_lines(failed, SETTINGS)[1].endswith("runs retry r1 --config demo --set-budget UNIT=AMOUNT (a larger cap)")
    assert end_lines(replace(RUN, state=RunState.SUCCEEDED, result={"a": 1}), SETTINGS) == ['{\n  "a": 1\n}']
    assert end_lines(replace(RUN, state=RunState.CANCELLED), SETTINGS) == []
