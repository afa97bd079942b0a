"""Which process an owner is, so that one on the same machine sees at once that it is dead and need not wait for its lease.

Linux tells it by /proc: the boot, the process namespace, the process id and the tick at which that process started.
Elsewhere an owner has no such mark, nobody is surely dead, and the lease decides alone.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

PROC = Path("/proc")


def mark() -> str:
    """This process, as `machine-pid-start`; "" where the system does not tell."""
    try:
        _, start = _stat(os.getpid())
        return f"{_machine()}-{os.getpid()}-{start}"
    except (OSError, ValueError, IndexError):
        return ""


def surely_dead(marked: str) -> bool:
    """True when the process of `mark` ran on this machine since its boot and has ended. False when in doubt."""
    try:
        machine, pid, start = marked.split("-")
        if machine != _machine():
            return False
    except (OSError, ValueError):
        return False
    try:
        state, started = _stat(int(pid))
    except (FileNotFoundError, ProcessLookupError):
        return True
    except (OSError, ValueError, IndexError):
        return False
    return started != start or state in ("Z", "X")


def _machine() -> str:
    boot = (PROC / "sys/kernel/random/boot_id").read_text().strip()
    namespace = os.readlink(PROC / "self/ns/pid")
    return hashlib.sha256(f"{boot} {namespace}".encode()).hexdigest()[:12]


def _stat(pid: int) -> tuple[str, str]:
    """A process's state and start. The name before them may hold anything, so it is cut off at its last bracket."""
    fields = (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    return fields[0], fields[19]
