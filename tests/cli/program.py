"""The real program as an operating-system process: piped, and on a terminal."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from gateway.cli.commands import app

COMMAND = [sys.executable, "-m", "gateway"]
ROOT = Path(__file__).parents[2]
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[=>]")


def environment(**more: str) -> dict[str, str]:
    """A small environment without anything that would reach the program by accident."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
    return {**kept, "PYTHONPATH": str(ROOT), "LANG": "C.UTF-8", "COLUMNS": "200", **more}


class Ran:
    """A run that has ended."""

    def __init__(self, process: subprocess.CompletedProcess[str]) -> None:
        self.code, self.out, self.err = process.returncode, process.stdout, process.stderr

    @property
    def document(self) -> Any:
        """Standard output as the one JSON document that it must be."""
        return json.loads(self.out)


def run(folder: Path, *arguments: str, stdin: str = "", timeout_s: float = 100, **env: str) -> Ran:
    """Runs `sluicegate …` in a folder, piped."""
    return Ran(
        subprocess.run(
            [*COMMAND, *arguments],
            cwd=folder,
            env=environment(**env),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
    )


class Inside:
    """The program in the test's own process: much quicker, for commands that neither serve nor log."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        monkeypatch.chdir(folder)
        # It would leave the process's logging on a stream that is gone after the test.
        monkeypatch.setattr("gateway.logs.configure", lambda *_: None)

    def __call__(self, *arguments: str) -> Ran:
        """Runs `sluicegate …`."""
        self._capsys.readouterr()
        with capture_logs(), pytest.raises(SystemExit) as ended:
            app(arguments, prog_name="sluicegate")
        said = self._capsys.readouterr()
        return Ran(subprocess.CompletedProcess(arguments, int(ended.value.code or 0), said.out, said.err))


class Terminal:
    """The program on a terminal of its own. Use as a context manager: the process is ended at the end."""

    def __init__(self, folder: Path, *arguments: str, **env: str) -> None:
        self.screen = ""
        self._seen = 0
        self.pid, self._descriptor = pty.fork()
        if self.pid == 0:
            os.chdir(folder)
            os.execvpe(COMMAND[0], [*COMMAND, *arguments], environment(TERM="xterm-256color", **env))
        self._code: int | None = None

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        if self._code is None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self._descriptor)

    def expect(self, text: str, timeout_s: float = 60) -> str:
        """Waits until `text` appears after what was expected before; returns what came up to and with it."""
        ends = time.monotonic() + timeout_s
        while (place := self.screen.find(text, self._seen)) < 0:
            if time.monotonic() > ends or not self._read(ends - time.monotonic()):
                raise AssertionError(f"{text!r} did not appear; the screen says:\n{self.screen[self._seen :]}")
        found = self.screen[self._seen : place + len(text)]
        self._seen = place + len(text)
        return found

    def expect_prompt(self, end: str = ": ", timeout_s: float = 60) -> str:
        """Waits until the program has stopped after `end`: it asks. Returns what came up to and with it."""
        ends = time.monotonic() + timeout_s
        while not self.screen[self._seen :].endswith(end):
            if time.monotonic() > ends or not self._read(ends - time.monotonic()):
                raise AssertionError(f"no prompt; the screen says:\n{self.screen[self._seen :]}")
        found = self.screen[self._seen :]
        self._seen = len(self.screen)
        return found

    def type(self, line: str, end: str = "\n") -> None:
        """Types a line."""
        os.write(self._descriptor, (line + end).encode())

    def press(self, key: str) -> None:
        """Presses Ctrl and a letter, as slowly as a person: readline misses a signal just between its prompt and its wait."""
        time.sleep(0.2)
        ends = time.monotonic() + 20
        while not self._waits() and time.monotonic() < ends:
            time.sleep(0.02)
        os.write(self._descriptor, bytes([ord(key.upper()) - 64]))

    def ended(self, timeout_s: float = 60) -> int:
        """Waits for the program's end; returns its exit code."""
        ends = time.monotonic() + timeout_s
        while self._read(max(0.0, ends - time.monotonic())):
            pass
        while time.monotonic() < ends:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self._code = os.waitstatus_to_exitcode(status)
                return self._code
            time.sleep(0.02)
        raise AssertionError(f"the program goes on; the screen says:\n{self.screen}")

    def _waits(self) -> bool:
        """True when the program has nothing to do; on a busy machine it may still be on its way there."""
        stat = Path(f"/proc/{self.pid}/stat")
        return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "S"

    def _read(self, timeout_s: float) -> bool:
        """Adds what the program wrote to the screen; False at its end or when nothing came."""
        if not select.select([self._descriptor], [], [], max(0.0, timeout_s))[0]:
            return False
        try:
            data = os.read(self._descriptor, 65_536)
        except OSError:  # Linux says so when the other side is closed.
            return False
        self.screen += ESCAPES.sub("", data.decode("utf-8", "replace")).replace("\r\n", "\n")
        return bool(data)
