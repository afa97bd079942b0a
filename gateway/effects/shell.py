"""Runs a program: an argument list, never a text for a shell. Everything that it started ends with it.

The program leads a session of its own and is killed as a group: when it ends (what it left in the background), when its time
is up, when the step is cancelled. What left the group is found by the label in its environment, on systems with /proc; so
is what a killed server left running, before the same step begins again.
"""

from __future__ import annotations

import asyncio
import os
import signal
from asyncio.subprocess import DEVNULL, PIPE, STDOUT
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from gateway.effects.values import EffectError

OUTPUT_MAX = 200_000
"""The most bytes of output that are kept, unless the step says otherwise."""
TIMEOUT_S = 600.0
LABEL = "SLUICEGATE_STEP"
"""The variable by which everything that a step started is known."""
_PASSED_ON = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "TZ", "TMPDIR")
"""All that a program gets of our own environment, beside LC_*: keys, tokens and the database's address stay here."""
_SLACK = 262_144
"""How much more of the end is held before it is cut again."""
_DRAIN_S = 2.0
"""How long an output may stay open after everything was killed."""


@dataclass(frozen=True, slots=True)
class ShellResult:
    """How a program ended."""

    code: int | None
    """Its exit code, minus the signal that ended it; None when its time was up."""
    output: str
    """What it wrote on both outputs, as it came; of a long one the beginning and the end, with what is left out said between."""
    truncated: bool = False
    timed_out: bool = False


async def run(
    args: Sequence[str],
    *,
    cwd: Path,
    label: str,
    timeout_s: float = TIMEOUT_S,
    output_max: int = OUTPUT_MAX,
    env: Mapping[str, str] | None = None,
    first: Callable[[], Awaitable[object]] | None = None,
) -> ShellResult:
    """Runs a program to its end, or for `timeout_s` seconds at most; output beyond `output_max` bytes is counted and dropped.

    `label` names the step (`<run>/<step>`): what runs under the same label is killed first. `env` is added to the few
    variables that are passed on. `first` is awaited once nothing of an earlier try runs any more. A cancelled caller leaves
    nothing running. Raises EffectError when it cannot be started.
    """
    _check(args, env or {})
    await asyncio.to_thread(_kill_labelled, label)
    if first is not None:
        await first()
    program = _Program(output_max)
    try:
        transport, _ = await asyncio.get_running_loop().subprocess_exec(
            lambda: program, *args,
            cwd=cwd, env=_environment(env or {}, label), stdin=DEVNULL, stdout=PIPE, stderr=STDOUT, start_new_session=True,
        )  # fmt: skip
    except (OSError, ValueError) as error:
        raise EffectError(f"{args[0]} cannot be started: {_why(error, args[0], cwd)}") from None
    except asyncio.CancelledError:
        _kill_labelled(label)
        raise
    timed_out = False
    try:
        async with asyncio.timeout(timeout_s):
            await program.exited.wait()
    except TimeoutError:
        timed_out = True
    finally:
        # Before anything is awaited: a second cancel must find nothing left to kill.
        _kill_group(transport.get_pid())
        await asyncio.shield(_end(transport, program, label))
    code = None if timed_out else transport.get_returncode()
    return ShellResult(code, program.output.text(), program.output.dropped > 0, timed_out)


def _check(args: Sequence[str], env: Mapping[str, str]) -> None:
    if isinstance(args, str | bytes) or not all(isinstance(one, str) for one in args):
        raise EffectError('a command is a list of texts, such as ["git", "status"]: no shell reads it')
    if not args or not args[0]:
        raise EffectError("a command needs at least the program's name")
    if any("\0" in one for one in args):
        raise EffectError(f"{args[0]!r}: an argument holds a NUL, which no program can be given")
    if any(not name or "=" in name or "\0" in name + value for name, value in env.items()):
        raise EffectError(f"{args[0]!r}: a variable's name is empty or holds =, or one holds a NUL")


def _environment(env: Mapping[str, str], label: str) -> dict[str, str]:
    ours = {name: value for name, value in os.environ.items() if name in _PASSED_ON or name.startswith("LC_")}
    return {"PATH": os.defpath, **ours, **env, LABEL: label}


def _why(error: Exception, program: str, cwd: Path) -> str:
    if isinstance(error, FileNotFoundError):
        return "there is no such program on PATH" if cwd.is_dir() else "its working folder does not exist"
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


class _Program(asyncio.SubprocessProtocol):
    """Hears what a program writes and that it has ended. Its end does not wait for the output's: a child may hold that open."""

    def __init__(self, output_max: int) -> None:
        self.output = _Output(output_max)
        self.exited = asyncio.Event()
        self.silent = asyncio.Event()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        self.output.add(data)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        self.silent.set()

    def process_exited(self) -> None:
        self.exited.set()


async def _end(transport: asyncio.SubprocessTransport, program: _Program, label: str) -> None:
    """Waits for what was killed, and for the rest of the output; whoever still holds the output open is not waited for."""
    await asyncio.to_thread(_kill_labelled, label)
    await program.exited.wait()
    with suppress(TimeoutError):
        async with asyncio.timeout(_DRAIN_S):
            await program.silent.wait()
    transport.close()


def _kill_group(leader: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)


def _kill_labelled(label: str) -> None:
    """Kills every process that carries the label, and looks again: they may be forking."""
    mark = f"{LABEL}={label}".encode()
    for _ in range(10):
        found = [pid for pid in _processes() if pid != os.getpid() and mark in _environ(pid)]
        for pid in found:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if not found:
            return


def _processes() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []


def _environ(pid: int) -> list[bytes]:
    """What the process was started with; [] for one that is gone, dead, or somebody else's."""
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


class _Output:
    """The beginning and the end of an output, in at most `most` bytes."""

    def __init__(self, most: int) -> None:
        self._head_max = most - most // 2
        self._tail_max = most // 2
        self._head = bytearray()
        self._tail = bytearray()
        self.dropped = 0

    def add(self, block: bytes) -> None:
        room = self._head_max - len(self._head)
        self._head += block[:room]
        self._tail += block[room:]
        if len(self._tail) > self._tail_max + _SLACK:
            self._trim()

    def _trim(self) -> None:
        over = len(self._tail) - self._tail_max
        if over > 0:
            del self._tail[:over]
            self.dropped += over

    def text(self) -> str:
        self._trim()
        # What no database's text can hold is shown as a letter that could not be read.
        head, tail = (bytes(part).decode(errors="replace").replace("\0", "\ufffd") for part in (self._head, self._tail))
        return f"{head}\n… {self.dropped:,} bytes left out …\n{tail}" if self.dropped else head + tail
