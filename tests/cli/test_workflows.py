"""Which workflows there are and when schedules start them, through the real program."""

import re
import subprocess
from pathlib import Path

import pytest

from tests.cli.program import COMMAND, Inside, environment, run
from tests.cli.test_program import good

HELLO = '''
from typing import Any

from gateway.workflow import Caps, workflow


@workflow(budget=Caps(tokens=1_000, usd=0.5))
async def hello(ctx: Any, name: str, times: int = 3, tags: list[str] = []) -> str:
    """Says hello.

    Args:
        name: whom to greet
        times: how often
    """
    return name
'''
SCHEDULE = """
[workflows.hello]
who = ["admins"]
[[schedules]]
name = "morning"
cron = "0 8 * * 1-5"
workflow = "hello"
params = { name = "you" }
to = "telegram:1001"
"""


@pytest.fixture
def greeting(folder: Path) -> Path:
    """The folder with a workflow of its own and a schedule for it."""
    (folder / "workflows").mkdir()
    (folder / "workflows" / "hello.py").write_text(HELLO)
    file = folder / "sluicegate.toml"
    file.write_text(file.read_text() + SCHEDULE)
    return folder


@pytest.fixture
def inside(greeting: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Inside:
    """The program in this process, in that folder."""
    return Inside(greeting, monkeypatch, capsys)


def test_workflows_are_listed_with_their_parameters(inside: Inside) -> None:
    listed = good(inside("workflows")).out
    hello = listed[listed.index("hello: ") :]
    assert hello.startswith("hello: Says hello.\n  who: admins; a run may spend 1,000 tokens and $0.5\n")
    lines = [line.split(maxsplit=3) for line in hello.splitlines()[2:6]]
    assert lines[1:3] == [["name", "str", "(required)", "whom to greet"], ["times", "int", "3", "how often"]]
    found = good(inside("workflows", "--json")).document["workflows"]
    (entry,) = [one for one in found if one["name"] == "hello"]
    assert (entry["help"], entry["who"], entry["caps"]) == ("Says hello.", ["admins"], {"tokens": 1000, "usd": "0.5"})
    assert entry["schema"]["required"] == ["name"]
    assert [field["kind"] for field in entry["parameters"]] == ["str", "int", "list"]


def test_check_names_workflows_who_may_start_them_and_when_schedules_fire_next(inside: Inside) -> None:
    said = good(inside("check")).out
    assert [line.split() for line in said.splitlines() if line.startswith("hello")] == [
        ["hello", "admins", "1,000", "tokens", "and", "$0.5"]
    ]
    (line,) = [line for line in said.splitlines() if line.startswith("morning")]
    assert line.startswith("morning   0 8 * * 1-5  hello   telegram:1001  ")
    assert "08:00 (in " in line
    document = good(inside("check", "--json")).document
    (schedule,) = document["schedules"]
    # Eight in Madrid.
    assert schedule.pop("next")[11:] in ("06:00:00Z", "07:00:00Z")
    assert schedule == {
        "name": "morning",
        "cron": "0 8 * * 1-5",
        "workflow": "hello",
        "params": {"name": "you"},
        "to": "telegram:1001",
    }
    assert {"hello"} <= {one["name"] for one in document["workflows"]}


@pytest.mark.parametrize("command", ["check", "serve", "workflows"])
def test_what_does_not_fit_the_workflows_is_named_before_anything_starts(greeting: Path, command: str) -> None:
    file = greeting / "sluicegate.toml"
    file.write_text(file.read_text().replace("[workflows.hello]", "[workflows.helo]").replace("{ name =", "{ nam ="))
    ran = run(greeting, command)
    assert (ran.code, ran.out) == (2, "")
    assert 'sluicegate.toml: workflows.helo: there is no workflow of this name, did you mean "hello"?\n' in ran.err
    assert "sluicegate.toml: schedules.morning.params.nam: is unknown here" in ran.err
    assert "sluicegate.toml: schedules.morning.params.name: is missing\n" in ran.err


def test_a_broken_workflow_is_named_with_its_line(greeting: Path, inside: Inside) -> None:
    (greeting / "workflows" / "hello.py").write_text(HELLO.replace("name: str", "name"))
    ran = inside("check")
    assert ran.code == 2
    assert "hello.py:8: the parameter name has no type: write `name: str`" in ran.err


@pytest.mark.parametrize(
    ("role", "said"),
    [("worker", "The worker is on: "), ("scheduler", "Schedules: 1; the next is morning at ")],
)
def test_a_process_with_one_role_says_what_it_does(greeting: Path, role: str, said: str) -> None:
    command = [*COMMAND, "serve", "--only", role]
    with subprocess.Popen(command, cwd=greeting, env=environment(), stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        told = ""
        while said not in told:
            line = process.stderr.readline()
            assert line, told
            told += line
        process.terminate()
        process.communicate(timeout=60)
    # Today without the day, later with it.
    assert role == "worker" or re.search(r"morning at (\d{4}-\d\d-\d\d )?08:00 \(in ", told), told
    assert "listens on" not in told
