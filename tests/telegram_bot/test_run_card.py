"""The message that shows a run."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from gateway.notice import Reader
from gateway.runs import Run, RunState, Starter, Step, StepState
from gateway.telegram_bot.markup import plain_parts
from gateway.telegram_bot.runs.card import STEPS_MAX, card, heading
from gateway.workflow.failures import NEVER_FITS, OWN_CAP

NOW = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
READER = Reader("en", ZoneInfo("UTC"))
ADMIN = replace(READER, admin=True)
RUN = Run("r1", "digest", RunState.RUNNING, {}, Starter("telegram", "42", chat="42"), NOW)


def steps(*said: str) -> list[Step]:
    """Steps from `name state`, numbered in that order."""
    return [
        Step("r1", name, number, "map" if name.startswith("each") and "/" not in name else "ask", StepState(state), 1, NOW)
        for number, (name, state) in enumerate((line.split() for line in said), 1)
    ]


def test_case_52_a_run_that_waits_for_budget_says_until_when() -> None:
    waits = replace(
        RUN, state=RunState.WAITING_BUDGET, waiting_until=NOW + timedelta(hours=2, minutes=20), waiting_for="secret-hour"
    )
    lines = card(waits, steps("fetch succeeded", "summary waiting"), READER, NOW).splitlines()
    assert lines == ["⏳ digest · waiting for budget until 14:20", "✅ fetch", "⏳ summary"]
    assert card(waits, [], replace(READER, language="es-MX"), NOW) == "⏳ digest · esperando presupuesto hasta las 14:20"
    assert "secret-hour" not in card(waits, steps("summary waiting"), READER, NOW)


@pytest.mark.parametrize("state", list(RunState))
@pytest.mark.parametrize("until", [None, NOW + timedelta(days=9)])
@pytest.mark.parametrize("language", ["en", "es"])
def test_every_state_has_words(state: RunState, until: datetime | None, language: str) -> None:
    said = heading(replace(RUN, state=state, waiting_until=until), replace(READER, language=language), NOW)
    assert "digest · " in said
    assert "{" not in said


def test_a_run_that_is_being_cancelled_says_so() -> None:
    assert "being cancelled" in card(replace(RUN, wanted="cancel"), [], READER, NOW)


def test_cost_and_what_a_step_says_of_itself_are_for_admins() -> None:
    run = replace(RUN, tokens=1234, cost_micro_usd=20_000)
    done = [replace(step, detail="moonshot, 3 s") for step in steps("summary succeeded")]
    assert "moonshot" not in card(run, done, READER, NOW)
    assert "$" not in card(run, done, READER, NOW)
    assert "1,234 tokens, $0.02" in card(run, done, ADMIN, NOW)
    assert "✅ summary · moonshot, 3 s" in card(run, done, ADMIN, NOW)


def test_why_a_run_failed_is_said() -> None:
    run = replace(RUN, state=RunState.FAILED, error="build: exit 1")
    failed = [replace(step, kind="shell", detail="exit 1") for step in steps("build failed")]
    assert card(run, failed, READER, NOW).splitlines() == ["❌ digest · failed", "❌ build · exit 1", "", "build: exit 1"]


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        (f"{NEVER_FITS}: 900 tokens asked, the whole limit of budget team-hour is 100", "asks for more than its allowance"),
        (f"{OWN_CAP} team-hour is reached: 900 tokens asked", "asks for more than its allowance"),
        ("no provider answered after 6 rounds: team-hour", "got no answer from a model"),
    ],
)
def test_budgets_providers_and_amounts_are_named_to_admins_only(reason: str, said: str) -> None:
    run = replace(RUN, state=RunState.FAILED, error=f"why: {reason}")
    failed = [replace(step, detail=reason) for step in steps("why failed")]
    told = card(run, failed, READER, NOW)
    assert said in told
    assert "team-hour" not in told
    assert "900" not in told
    assert reason in card(run, failed, ADMIN, NOW)


def test_a_maps_items_are_counted_in_its_line() -> None:
    listed = steps("each running", "each/0/ask succeeded", "each/1/ask failed", "each/1/note failed", "each/2/ask running")
    assert card(RUN, listed, READER, NOW).splitlines()[1:] == ["▶️ each · items: 3 · failed: 1"]


def test_many_steps_are_counted_and_what_goes_on_is_shown() -> None:
    said = card(RUN, steps(*(f"step{n} succeeded" for n in range(40)), "last running"), READER, NOW).splitlines()
    assert len(said) == STEPS_MAX + 2
    assert said[1] == "✅ 27 earlier"
    assert said[-1] == "▶️ last"
    waits = card(RUN, steps(*(f"step{n} running" for n in range(40))), READER, NOW).splitlines()
    assert len(waits) == STEPS_MAX + 2
    assert waits[-1] == "… and 26 more"


def test_hostile_names_and_errors_stay_in_their_place() -> None:
    evil = [replace(step, name="a\n✅ approved by admin\u202e", detail="x\n" * 9000) for step in steps("x failed")]
    run = replace(RUN, state=RunState.FAILED, error="boom " * 5000)
    said = card(run, evil, ADMIN, NOW)
    assert said.splitlines()[1].startswith("❌ a ✅ approved by admin · x x")
    assert len(plain_parts(said)) == 1


def test_the_largest_card_fits_one_message() -> None:
    evil = [
        replace(step, name=f"{step.number}" + "é" * 300, detail="d" * 500) for step in steps(*(f"s{n} failed" for n in range(40)))
    ]
    run = replace(RUN, workflow="w" * 100, state=RunState.SUCCEEDED, result="r " * 5000, tokens=10**9, cost_micro_usd=10**12)
    assert len(plain_parts(card(run, evil, ADMIN, NOW))) == 1
