"""`init` on a terminal: what it writes passes `check`, and it overwrites nothing unasked."""

import os
import shutil
import sys
from pathlib import Path

import pytest

from gateway.budget import Unit
from gateway.cli.init import PRESETS, Answers, configuration, secrets
from gateway.settings import load
from tests.cli.program import Terminal, run

TOKEN = "123456789:" + "A" * 35


def answer(terminal: Terminal, *answers: str) -> None:
    for number, text in enumerate(answers, 1):
        terminal.expect(f"{number}. ")
        terminal.expect_prompt()
        terminal.type(text)


def test_five_answers_make_files_that_pass_check(tmp_path: Path) -> None:
    with Terminal(tmp_path, "init") as terminal:
        answer(terminal, "moonshot", "mk-12345678", "$2.50", TOKEN, "1001")
        assert terminal.ended() == 0
        assert TOKEN not in terminal.screen
    settings = load(tmp_path / "sluicegate.toml", {})
    assert settings.providers["moonshot"].api_key == "mk-12345678"
    assert settings.telegram.admins == (1001,)
    assert settings.telegram.token == TOKEN
    assert [(budget.unit, budget.limit) for budget in settings.budgets.all] == [(Unit.MICRO_USD, 2_500_000)]
    assert (tmp_path / ".env").stat().st_mode & 0o777 == 0o600
    checked = run(tmp_path, "check")
    assert checked.code == 0, checked.err
    assert "mk-12345678" not in checked.out + checked.err


def test_the_next_steps_can_be_typed_as_they_are_shown(tmp_path: Path) -> None:
    with Terminal(tmp_path, "init", PATH="/usr/bin:/bin") as terminal:
        answer(terminal, "ollama")
        for number in (3, 4):
            terminal.expect(f"{number}. ")
            terminal.expect_prompt()
            terminal.type("")
        assert terminal.ended() == 0
    step = next(line for line in terminal.screen.splitlines() if line.endswith("sluicegate check"))
    program = step.split()[0]
    assert (
        shutil.which(program, path="/usr/bin:/bin")
        or (tmp_path / program).resolve().parent == Path(sys.executable).parent.resolve()
    )


def test_nothing_is_overwritten_unasked(tmp_path: Path) -> None:
    (tmp_path / "sluicegate.toml").write_text("# mine\n")
    with Terminal(tmp_path, "init") as terminal:
        terminal.expect("exists")
        terminal.expect_prompt()
        terminal.type("")
        assert terminal.ended() == 0
    assert (tmp_path / "sluicegate.toml").read_text() == "# mine\n"
    assert not (tmp_path / ".env").exists()


def test_other_lines_of_an_env_file_stay(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("OTHER=1\nGROQ_API_KEY=old-key\n")
    with Terminal(tmp_path, "init") as terminal:
        answer(terminal, "groq", "new-key", "10k", "")
        terminal.expect("another GROQ_API_KEY")
        terminal.expect_prompt()
        terminal.type("n")
        assert terminal.ended() == 0
    assert (tmp_path / ".env").read_text() == "OTHER=1\nGROQ_API_KEY=old-key\n"


def test_a_wrong_answer_is_asked_again(tmp_path: Path) -> None:
    with Terminal(tmp_path, "init") as terminal:
        answer(terminal, "skynet")
        for before, text in (("is not one of", "ollama"), ("3. ", "lots"), ("is not an amount", "5k"), ("4. ", "")):
            terminal.expect(before)
            terminal.expect_prompt()
            terminal.type(text)
        assert terminal.ended() == 0
    assert load(tmp_path / "sluicegate.toml", {}).budgets.by_name["ollama-day"].limit == 5000


def test_ctrl_c_writes_nothing(tmp_path: Path) -> None:
    with Terminal(tmp_path, "init") as terminal:
        terminal.expect("1. ")
        terminal.expect_prompt()
        terminal.press("c")
        assert terminal.ended() == 1
    assert not os.listdir(tmp_path)


def test_without_a_terminal_it_says_what_to_do(tmp_path: Path) -> None:
    ran = run(tmp_path, "init")
    assert (ran.code, ran.out) == (2, "")
    assert "terminal" in ran.err
    assert "sluicegate.example.toml" in ran.err
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize("provider", sorted(PRESETS))
@pytest.mark.parametrize(("unit", "limit"), [(Unit.TOKENS, 0), (Unit.MICRO_USD, 1)])
def test_every_preset_makes_a_right_configuration(tmp_path: Path, provider: str, unit: Unit, limit: int) -> None:
    answers = Answers(provider, "k-1234", unit, limit, "", None, "Europe/Madrid")
    (tmp_path / "sluicegate.toml").write_text(configuration(answers))
    settings = load(tmp_path / "sluicegate.toml", secrets(answers))
    assert settings.zone.key == "Europe/Madrid"
    assert settings.budgets.by_name[f"{provider}-day"].limit == limit
