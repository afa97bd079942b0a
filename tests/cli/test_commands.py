"""The commands' names, help and usage errors."""

import re
import resource
from pathlib import Path

import pytest

from tests.cli.program import run

COMMANDS = [
    "init",
    "serve",
    "demo",
    "check",
    "chat",
    "budgets",
    "why",
    "explain",
    "usage",
    "ledger",
    "keys",
    "db",
    "workflows",
    "run",
    "runs",
]


def test_help_names_every_command_and_comes_at_once(tmp_path: Path) -> None:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    ran = run(tmp_path, "--help")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert ran.code == 0
    assert set(COMMANDS) <= set(re.findall(r"^  (\w+)", ran.out, re.MULTILINE))
    # Processor time, since other work on the machine makes every clock run faster.
    assert after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime < 0.3


@pytest.mark.parametrize("module", ["rich", "sqlalchemy", "aiohttp", "structlog", "telegram", "uvloop"])
def test_help_imports_nothing_heavy(tmp_path: Path, module: str) -> None:
    ran = run(tmp_path, "--help", PYTHONPROFILEIMPORTTIME="1")
    assert not re.search(rf"\|\s+{module}$", ran.err, re.MULTILINE)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(tmp_path: Path, command: str) -> None:
    ran = run(tmp_path, command, "--help")
    assert ran.code == 0
    assert ran.out.startswith(f"Usage: sluicegate {command}")


@pytest.mark.parametrize(
    "arguments",
    [
        ["frobnicate"],
        ["chat", "--nonsense"],
        ["why"],
        ["budgets", "raise", "name"],
        ["budgets", "raise", "name", "+5"],
        ["ledger", "adjust", "x", "--spent", "5"],
        ["keys", "create"],
    ],
)
def test_wrong_usage_ends_with_2(tmp_path: Path, arguments: list[str]) -> None:
    ran = run(tmp_path, *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert "Traceback" not in ran.err


@pytest.mark.parametrize(
    "arguments",
    [["serve"], ["check"], ["chat", "hi"], ["budgets"], ["ledger", "check"], ["keys", "list"], ["db", "upgrade"], ["usage"]],
)
def test_without_a_configuration_it_says_what_to_do(tmp_path: Path, arguments: list[str]) -> None:
    ran = run(tmp_path, *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert "sluicegate.toml" in ran.err
    assert "sluicegate init" in ran.err
    assert "Traceback" not in ran.err
