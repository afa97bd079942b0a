"""A dead process is told from a living one by its mark, without waiting for a lease."""

import os
import subprocess
import sys

import pytest

from gateway.store.process import mark, surely_dead

PRINT_MARK = "from gateway.store.process import mark; print(mark(), flush=True); input()"


def start() -> tuple["subprocess.Popen[str]", str]:
    process = subprocess.Popen([sys.executable, "-c", PRINT_MARK], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, process.stdout.readline().strip()


def test_a_killed_process_is_dead_at_once_even_before_its_parent_looks() -> None:
    process, marked = start()
    assert marked
    assert not surely_dead(marked)
    process.kill()
    assert process.stdout is not None
    # It has ended and nobody has asked for its end yet.
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert surely_dead(marked)
    process.wait()
    assert surely_dead(marked)
    process.communicate()


def test_a_process_that_has_the_same_number_later_is_another() -> None:
    machine, pid, start = mark().split("-")
    assert not surely_dead(mark())
    assert surely_dead(f"{machine}-{pid}-{int(start) - 1}")


@pytest.mark.parametrize("marked", ["", "other-1-2", "nonsense", "a-b-c", "--"])
def test_in_doubt_nobody_is_dead(marked: str) -> None:
    assert not surely_dead(marked)


def test_on_another_machine_nobody_is_surely_dead() -> None:
    _, pid, start = mark().split("-")
    assert not surely_dead(f"000000000000-{pid}-{int(start) - 1}")
