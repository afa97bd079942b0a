"""Programs: bounded in time and output, without our secrets, and nothing of them is left behind."""

import asyncio
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from gateway.effects import EffectError, run
from gateway.effects.shell import LABEL

LONG_S = 30.0

TREE = """
import os, subprocess, sys, time
marker, depth = sys.argv[1], int(sys.argv[2])
print("begun", flush=True)
if depth:
    # The deepest one leaves the group: a new session, as a daemon has it.
    subprocess.Popen([sys.executable, __file__, marker, str(depth - 1)], start_new_session=depth == 1)
    time.sleep(1000)
open(marker, "w").write(str(os.getpid()))
time.sleep(1000)
"""


@pytest.fixture
def label() -> str:
    return f"{uuid.uuid4().hex}/step"


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(LONG_S):
        while not true():  # noqa: ASYNC110 the processes that are waited for set no event
            await asyncio.sleep(0.02)


def alive(pid: int) -> bool:
    """True for a process that runs; a dead one that nobody has asked about yet does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def tree(folder: Path) -> tuple[list[str], Path]:
    script, marker = folder / "tree.py", folder / "deepest"
    script.write_text(TREE)
    return [sys.executable, str(script), str(marker), "2"], marker


def sleeper(label: str) -> subprocess.Popen[bytes]:
    """A process that carries a label and that nobody waits for."""
    return subprocess.Popen([*python("import time; time.sleep(1000)")], env={LABEL: label}, start_new_session=True)


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


async def test_a_program_gives_its_code_and_both_outputs(tmp_path: Path, label: str) -> None:
    result = await run(
        python("import sys; print('one', flush=True); print('two', file=sys.stderr); sys.exit(3)"), cwd=tmp_path, label=label
    )
    assert (result.code, result.output, result.truncated, result.timed_out) == (3, "one\ntwo\n", False, False)


async def test_case_56_arguments_are_never_read_by_a_shell(tmp_path: Path, label: str) -> None:
    hostile = ["; touch owned", "$(touch owned)", "`touch owned`", "a b", "it's", '"', "*", "\n", "--upload-pack=x"]
    result = await run([*python("import sys; print(sys.argv[1:])"), *hostile], cwd=tmp_path, label=label)
    assert result.output == f"{hostile}\n"
    assert not (tmp_path / "owned").exists()


@pytest.mark.parametrize("args", ["git status", [], [""], ["git", 1], ["git", "a\0b"], ["no-such-program-anywhere"]])
async def test_what_is_no_command_is_refused_in_words(args: object, tmp_path: Path, label: str) -> None:
    with pytest.raises(EffectError):
        await run(args, cwd=tmp_path, label=label)  # type: ignore[arg-type]


async def test_a_folder_that_is_not_there_is_named(tmp_path: Path, label: str) -> None:
    with pytest.raises(EffectError, match="working folder does not exist"):
        await run(["true"], cwd=tmp_path / "gone", label=label)


async def test_a_program_gets_none_of_our_secrets(tmp_path: Path, label: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DATABASE_URL", "TELEGRAM_BOT_TOKEN", "MOONSHOT_API_KEY", "AWS_SECRET_ACCESS_KEY", "PYTHONPATH", "GIT_DIR"):
        monkeypatch.setenv(name, "secret-value")
    monkeypatch.setenv("LC_TIME", "C")
    result = await run(
        python("import os; print(sorted(os.environ.items()))"), cwd=tmp_path, label=label, env={"GIT_TERMINAL_PROMPT": "0"}
    )
    assert "secret-value" not in result.output
    names = set(dict(eval(result.output)))
    assert {"PATH", "LC_TIME", "GIT_TERMINAL_PROMPT", LABEL} <= names
    assert names <= {"PATH", "HOME", "USER", "LOGNAME", "LANG", "TZ", "TMPDIR", "GIT_TERMINAL_PROMPT", LABEL} | {
        name for name in names if name.startswith("LC_")
    }


async def test_a_program_finds_no_standard_input(tmp_path: Path, label: str) -> None:
    result = await run(python("import sys; print(repr(sys.stdin.read()))"), cwd=tmp_path, label=label, timeout_s=LONG_S)
    assert result.output == "''\n"


async def test_case_55_a_hanging_tree_is_gone_at_the_time_out_and_its_output_is_kept(tmp_path: Path, label: str) -> None:
    command, marker = tree(tmp_path)
    # Long enough for three interpreters to start, which a busy machine may need more time for.
    for timeout_s in (3, 15, 60):
        result = await asyncio.wait_for(run(command, cwd=tmp_path, label=label, timeout_s=timeout_s), timeout_s + LONG_S)
        if marker.exists() and marker.read_text():
            break
    deepest = int(marker.read_text())
    assert (result.code, result.timed_out) == (None, True)
    assert result.output.count("begun") == 3
    await until(lambda: not alive(deepest))


async def test_case_55_a_cancelled_step_leaves_nothing_running(tmp_path: Path, label: str) -> None:
    command, marker = tree(tmp_path)
    started = asyncio.create_task(run(command, cwd=tmp_path, label=label))
    await until(lambda: marker.exists() and marker.read_text() != "")
    deepest = int(marker.read_text())
    started.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(started, LONG_S)
    await until(lambda: not alive(deepest))


async def test_case_55_a_child_that_has_thrown_the_label_away_is_ended_with_its_group(tmp_path: Path, label: str) -> None:
    marker = tmp_path / "child"
    code = (
        "import subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(1000)'], env={})\n"
        "open(sys.argv[1], 'w').write(str(child.pid)); sys.stdout.close(); time.sleep(1000)"
    )
    started = asyncio.create_task(run([*python(code), str(marker)], cwd=tmp_path, label=label))
    await until(lambda: marker.exists() and marker.read_text() != "")
    started.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(started, LONG_S)
    await until(lambda: not alive(int(marker.read_text())))


async def test_a_program_that_will_not_hear_of_its_end_is_ended(tmp_path: Path, label: str) -> None:
    code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(1000)"
    result = await run(python(code), cwd=tmp_path, label=label, timeout_s=1)
    assert result.timed_out


async def test_a_program_that_ends_takes_what_it_left_in_the_background_with_it(tmp_path: Path, label: str) -> None:
    code = (
        "import subprocess, sys\n"
        "left = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(1000)'])\n"
        "print(left.pid, flush=True)"
    )
    # What was left holds the output open: the step ends all the same.
    result = await asyncio.wait_for(run(python(code), cwd=tmp_path, label=label), LONG_S)
    assert result.code == 0
    await until(lambda: not alive(int(result.output)))


async def test_a_step_that_begins_again_ends_what_a_killed_server_left(tmp_path: Path, label: str) -> None:
    orphan, other = sleeper(label), sleeper(f"{label}2")
    try:
        seen: list[int | None] = []

        async def look() -> None:
            seen.append(await asyncio.to_thread(orphan.wait, LONG_S))

        await run(["true"], cwd=tmp_path, label=label, first=look)
        assert seen == [-signal.SIGKILL]
        assert other.poll() is None
    finally:
        for process in (orphan, other):
            with suppress(ProcessLookupError):
                process.kill()
            process.wait(LONG_S)


async def test_case_55_fifty_megabytes_of_output_are_capped_and_said_so(tmp_path: Path, label: str) -> None:
    code = "import sys\nfor n in range(800): sys.stdout.write(f'{n:05}' + 'x' * 65531 + '\\n')\nprint('the last line')"
    before = memory()
    result = await run(python(code), cwd=tmp_path, label=label, output_max=10_000)
    assert result.code == 0
    assert result.truncated
    assert len(result.output) < 10_100
    assert result.output.startswith("00000xxx")
    assert result.output.endswith("the last line\n")
    assert "bytes left out" in result.output
    assert memory() - before < 20_000_000


def memory() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def test_output_that_is_no_text_is_still_shown(tmp_path: Path, label: str) -> None:
    result = await run(python("import sys; sys.stdout.buffer.write(b'a\\xff\\0b')"), cwd=tmp_path, label=label)
    assert result.output == "a\ufffd\ufffdb"


async def test_a_signal_shows_in_the_code(tmp_path: Path, label: str) -> None:
    result = await run(python("import os; os.kill(os.getpid(), 9)"), cwd=tmp_path, label=label)
    assert result.code == -9


async def test_many_programs_run_at_once(tmp_path: Path, label: str) -> None:
    begun = time.monotonic()
    results = await asyncio.gather(*(run(["echo", str(n)], cwd=tmp_path, label=f"{label}{n}") for n in range(20)))
    assert [result.output for result in results] == [f"{n}\n" for n in range(20)]
    assert time.monotonic() - begun < LONG_S
