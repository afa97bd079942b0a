"""The clients that come from npm, installed as their lock says into a folder that is kept: `python -m tests.clients.install`."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from pathlib import Path

HERE = Path(__file__).parent
KEPT = HERE.parent.parent / "build" / "clients"
MANIFESTS = ("package.json", "package-lock.json")
INSTALL = ("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
INSTALL_S = 240


class Unavailable(Exception):
    """The clients cannot be had here: `str` says why."""


def installed() -> Path:
    """The folder in which the scripts find the clients; made where this lock was not installed yet. Raises Unavailable."""
    for program in ("node", "npm"):
        if shutil.which(program) is None:
            raise Unavailable(f"{program} is not installed")
    digest = hashlib.sha256(b"".join((HERE / name).read_bytes() for name in MANIFESTS))
    folder = KEPT / digest.hexdigest()[:16]
    done = folder / ".installed"
    if not done.exists():
        folder.mkdir(parents=True, exist_ok=True)
        for name in MANIFESTS:
            shutil.copy(HERE / name, folder)
        try:
            ended = subprocess.run(INSTALL, cwd=folder, capture_output=True, text=True, timeout=INSTALL_S, check=False)
        except subprocess.TimeoutExpired:
            raise Unavailable(f"{' '.join(INSTALL)} took longer than {INSTALL_S} s") from None
        if ended.returncode:
            raise Unavailable(f"{' '.join(INSTALL)} failed: {ended.stderr.strip()[-500:]}")
        done.touch()
    for script in HERE.glob("*.mjs"):
        # A module is looked for beside the script that wants it.
        shutil.copy(script, folder)
    return folder


if __name__ == "__main__":
    try:
        print(f"Clients from npm: {installed().relative_to(Path.cwd())}")
    except Unavailable as error:
        print(f"The clients from npm cannot be tested here: {error}")
