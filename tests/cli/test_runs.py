"""Runs from the command line, through the real program: start, follow, look, act; alone and beside a server."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.cli.program import COMMAND, Inside, Ran, Terminal, environment, run
from tests.cli.test_program import good

GREET = '''
from gateway.workflow import Caps, Context, workflow


@workflow(budget=Caps(tokens=5_000))
async def greet(ctx: Context, name: str, times: int = 1, ask_first: bool = False) -> str:
    """Greets somebody.

    Args:
        name: whom to greet
        times: how often
    """
    await ctx.write("began.txt", name)
    if ask_first and not await ctx.approve("Shall I go on?"):
        return "was told not to"
    for number in range(times):
        await ctx.ask(f"Greet {name}.", name=f"greeting {number}", max_tokens=40)
    await ctx.log("all is said")
    return f"greeted {name}"
'''
PATIENCE_S = 60


@pytest.fixture
def greeting(folder: Path) -> Path:
    """The folder with a workflow of its own."""
    (folder / "workflows").mkdir()
    (folder / "workflows" / "greet.py").write_text(GREET)
    return folder


@pytest.fixture
def inside(greeting: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Inside:
    """The program in this process, in that folder."""
    return Inside(greeting, monkeypatch, capsys)


def sluicegate(folder: Path, *arguments: str) -> Ran:
    return run(folder, *arguments, timeout_s=PATIENCE_S)


def listed(inside: Inside, *more: str) -> list[Any]:
    return list(good(inside("runs", *more, "--json")).document["runs"])


def shown(inside: Inside, id: str) -> Any:
    return good(inside("runs", "show", id, "--json")).document


def until(inside: Inside, id: str, state: str) -> Any:
    """The run once it is in this state."""
    deadline = time.monotonic() + PATIENCE_S
    while (found := shown(inside, id))["state"] != state:
        assert time.monotonic() < deadline, found
        time.sleep(0.1)
    return found


@contextmanager
def serving(folder: Path) -> Iterator[None]:
    """A server with every role, up."""
    command = [*COMMAND, "serve"]
    with subprocess.Popen(command, cwd=folder, env=environment(), stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        said = ""
        try:
            while "The worker is on" not in said:
                line = process.stderr.readline()
                assert line, said
                said += line
            yield
        finally:
            process.terminate()
            process.communicate(timeout=PATIENCE_S)


def test_case_56_wrong_parameters_are_named_with_their_help_and_nothing_is_started(greeting: Path, inside: Inside) -> None:
    ran = inside("run", "greet", "--set", "times=often", "--set", "nam=x")
    assert (ran.code, ran.out) == (2, "")
    lines = ran.err.splitlines()
    assert lines[0] == "sluicegate: greet: these parameters are wrong:"
    assert '  nam: is unknown here; there are: name, times, ask_first, did you mean "name"?' in lines
    assert "  name: is missing (str: whom to greet)" in lines
    assert "  times: must be a whole number (int: how often)" in lines
    for arguments, said in (
        (["run", "gret", "--set", "name=x"], "there is no workflow 'gret', did you mean \"greet\"?"),
        (["run", "greet", "--set", "name"], "--set name: write it as parameter=value"),
        (["run", "greet", "--set", "name=x", "--set-budget", "token=5"], "write it as tokens=500k, usd=1.50 or requests=20"),
        (["run", "greet", "--set", "name=x", "--set-budget", "tokens=-5"], "is not an amount"),
        (["runs", "gret"], "there is no workflow 'gret'"),
        (["runs", "--state", "dead"], "--state dead: there are queued, running"),
        (["runs", "show", "nosuch"], "there is no run 'nosuch'"),
        (["runs", "signal", "nosuch", "go", "--data", "{"], "--data is not JSON"),
    ):
        ran = inside(*arguments)
        assert (ran.code, ran.out) == (2, ""), arguments
        assert said in ran.err
    assert inside("runs").out == "There are no runs.\n"


def test_case_53_a_key_is_one_run_also_from_three_processes_and_without_a_worker_it_is_queued(
    greeting: Path, inside: Inside
) -> None:
    arguments = [*COMMAND, "run", "greet", "--set", "name=Ann", "--key", "k"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    processes = [subprocess.Popen(arguments, cwd=greeting, env=environment(), **pipes) for _ in range(3)]  # type: ignore[call-overload]
    said = [process.communicate(timeout=PATIENCE_S) for process in processes]
    (id,) = {out.strip() for out, _ in said}
    assert all("no worker is running: `" in err and " serve` " in err for _, err in said)
    assert good(inside(*arguments[3:], "--json")).document == {"id": id, "workflow": "greet", "state": "queued"}
    other = inside("run", "greet", "--set", "name=Ben", "--key", "k")
    assert (other.code, other.out) == (1, "")
    assert "--key k: there is a run with this key that was started differently" in other.err

    (entry,) = listed(inside, "greet", "--state", "queued")
    assert entry["params"] == {"name": "Ann", "times": 1, "ask_first": False}
    table = good(inside("runs")).out.splitlines()
    assert table[1].split()[:3] == [id, "greet", "queued"]
    assert good(inside("runs", "cancel", id)).out == f"{id}: cancelled\n"
    for verb, said_of in (("retry", "retried"), ("approve", "approved"), ("reject", "rejected")):
        ran = inside("runs", verb, id)
        assert (ran.code, ran.err) == (1, f"sluicegate: {id} is cancelled: it cannot be {said_of}\n")


def test_follow_without_a_server_does_the_work_and_prints_a_line_for_whatever_happens(greeting: Path, inside: Inside) -> None:
    ran = good(sluicegate(greeting, "run", "greet", "--set", "name=Ann", "--follow"))
    assert "no worker is running: this command does the work" in ran.err
    lines = ran.out.splitlines()
    assert lines[0].endswith(" of greet")
    order = [
        "queued",
        "running",
        "  ✓ write (write): succeeded, began.txt",
        "  … greeting 0 (ask): running",
        "  log: all is said",
        "succeeded",
        "greeted Ann",
    ]
    assert [line for line in lines if line in order] == order
    assert any(line.startswith("  ✓ greeting 0 (ask): succeeded, first:scripted, ") for line in lines)
    (entry,) = listed(inside)
    whole = good(inside("runs", "show", entry["id"])).out
    assert whole.startswith(f"{entry['id']}: greet, succeeded; ")
    assert "  name = Ann\n" in whole
    assert "log: all is said\ngreeted Ann\n" in whole
    steps = shown(inside, entry["id"])["steps"]
    assert [(step["name"], step["kind"], step["state"]) for step in steps] == [
        ("write", "write", "succeeded"),
        ("greeting 0", "ask", "succeeded"),
    ]
    assert steps[1]["tokens"] > 0


def test_case_12_a_run_that_waits_for_a_budget_is_exit_code_3_and_goes_on_after_a_raise(greeting: Path, inside: Inside) -> None:
    # Three requests a window are allowed, two of the first provider and one of the second.
    started = ["run", "greet", "--set", "name=Ann", "--set", "times=4", "--key", "k", "--follow"]
    planned = inside(*started[:-3], "--dry-run")
    assert (planned.code, "greeting 3 would wait" in planned.out) == (3, True)
    ran = sluicegate(greeting, *started)
    assert ran.code == 3
    assert "waiting for budget first-requests until " in ran.out
    assert "waits for budget first-requests: it goes on " in ran.err
    (entry,) = listed(inside)
    assert (entry["state"], entry["waiting_for"]) == ("waiting_budget", "first-requests")
    assert entry["waiting_until"].endswith("Z")
    good(inside("budgets", "raise", "first-requests", "+1", "--for", "1h"))
    # The same key is the same run: it is followed further.
    ran = good(sluicegate(greeting, *started, "--json"))
    assert (ran.document["id"], ran.document["state"]) == (entry["id"], "succeeded")
    assert [step["attempts"] for step in ran.document["steps"]][:4] == [1, 1, 1, 1]
    assert good(inside("usage", "--by", "workflow", "--json")).document["usage"][0]["attempts"] == 4


def test_case_59_a_run_whose_cap_is_reached_goes_on_with_a_larger_one(greeting: Path, inside: Inside) -> None:
    ran = sluicegate(greeting, "run", "greet", "--set", "name=Ann", "--set", "times=2", "--set-budget", "tokens=120", "--follow")
    assert ran.code == 3
    assert "cap run:greet:tokens is reached" in ran.err
    (entry,) = listed(inside, "--state", "failed")
    assert entry["caps"] == {"tokens": 120}
    whole = good(inside("runs", "show", entry["id"])).out
    assert f"runs retry {entry['id']} --set-budget UNIT=AMOUNT (a larger cap)\n" in whole
    again = good(sluicegate(greeting, "runs", "retry", entry["id"], "--set-budget", "tokens=1k", "--follow", "--json")).document
    assert (again["state"], again["generation"], again["result"]) == ("succeeded", 1, "greeted Ann")
    assert good(inside("usage", "--by", "workflow", "--json")).document["usage"][0]["attempts"] == 2


def test_a_dry_run_shows_the_steps_and_the_worst_case_and_starts_nothing(greeting: Path, inside: Inside) -> None:
    ran = good(inside("run", "greet", "--set", "name=Ann", "--set", "ask_first=yes", "--dry-run"))
    lines = ran.out.splitlines()
    assert lines[:3] == [
        "greet would make these steps (nothing is started):",
        "  1. write (write): began.txt",
        "  2. approve (approve): Shall I go on? (starter, admins); a yes is assumed",
    ]
    assert lines[3].startswith("  3. greeting 0 (ask): at most ")
    assert lines[3].endswith("and 40 output tokens, $0.00; first:scripted has room")
    assert lines[4] == "  and then it ends."
    assert lines[5].endswith("A run may spend 5,000 tokens.")
    assert lines[6] == "It fits now."
    small = inside("run", "greet", "--set", "name=Ann", "--dry-run", "--set-budget", "tokens=50", "--json")
    assert (small.code, small.document["fits"], small.document["complete"]) == (3, False, True)
    assert "budget run:greet:tokens has no room" in small.document["steps"][1]["worst_case"]["reason"]
    assert listed(inside) == []


def test_case_57_beside_a_server_a_run_is_drawn_left_alone_by_ctrl_c_and_answered_from_elsewhere(
    greeting: Path, inside: Inside
) -> None:
    with serving(greeting):
        with Terminal(greeting, "run", "greet", "--set", "name=Ann", "--set", "ask_first=yes", "--follow") as terminal:
            terminal.expect("Shall I go on?", PATIENCE_S)
            terminal.expect(" runs approve ", PATIENCE_S)
            terminal.press("c")
            terminal.expect("is not stopped: a worker goes on with it", PATIENCE_S)
            assert terminal.ended(PATIENCE_S) == 1
            assert "✓ write" in terminal.screen
            assert "no worker" not in terminal.screen
        (entry,) = listed(inside, "--state", "waiting_approval")
        whole = good(inside("runs", "show", entry["id"])).out
        assert "approve asks starter, admins: Shall I go on?\n  yes: " in whole
        (question,) = shown(inside, entry["id"])["approvals"]
        approved = good(inside("runs", "approve", question["id"]))
        assert (approved.out, approved.err) == (f"{entry['id']}: approve approved\n", "")
        until(inside, entry["id"], "succeeded")
        second = inside("runs", "reject", question["id"])
        assert (second.code, second.out) == (1, "")
        assert "approved" in second.err


def test_a_run_in_work_is_cancelled(greeting: Path, inside: Inside) -> None:
    with serving(greeting):
        id = good(inside("run", "greet", "--set", "name=Ann", "--set", "ask_first=yes")).out.strip()
        until(inside, id, "waiting_approval")
        assert good(inside("runs", "cancel", id)).out == f"{id}: cancelled\n"
        assert [step["state"] for step in shown(inside, id)["steps"]] == ["succeeded", "cancelled"]


def test_ctrl_c_in_a_command_that_does_the_work_leaves_the_run_to_the_next_worker(greeting: Path, inside: Inside) -> None:
    command = [*COMMAND, "run", "greet", "--set", "name=Ann", "--set", "ask_first=yes", "--key", "k", "--follow"]
    with subprocess.Popen(
        command, cwd=greeting, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        said = ""
        while "runs reject" not in said:
            line = process.stdout.readline()
            assert line, said
            said += line
        os.kill(process.pid, signal.SIGINT)
        _, err = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 1
    assert "is not stopped: `" in err
    (entry,) = listed(inside)
    assert entry["state"] == "waiting_approval"
    told = good(inside("runs", "approve", entry["id"], "--json"))
    assert told.document["approval"]["decision"] == "approved"
    assert "no worker is running" in told.err
    # The same key is the same run: it is taken over, with the answer that came meanwhile.
    assert "greeted Ann\n" in good(sluicegate(greeting, *command[3:])).out
