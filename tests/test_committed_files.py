"""What must not be in any committed file: a package registry's host, a path of the machine it was written on."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

# Put together from parts, so that this file passes its own test.
REGISTRY_HOSTS = re.compile(
    r"|".join((r"pypi\." + "org", "python" + "hosted", r"registry\.npm" + "js", r"deb\.debian" + r"\.org"))
)
MACHINE_PATHS = re.compile(r"""(^|[\s"'=(`])/(""" + "|".join(("work", "root", "Users", r"home/\w+")) + r")/", re.MULTILINE)
BINARY = {".ttf", ".png", ".gguf", ".ico", ".woff2"}


def committed_files() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False)
    if listed.returncode:
        pytest.skip("not a git checkout")
    names = listed.stdout.decode().split("\0")
    return [path for name in names if name and (path := ROOT / name).is_file() and path.suffix not in BINARY]


@pytest.mark.parametrize("pattern", [REGISTRY_HOSTS, MACHINE_PATHS], ids=["registry hosts", "machine paths"])
def test_no_committed_file_names_a_registry_or_a_machine(pattern: re.Pattern[str]) -> None:
    found = []
    for path in committed_files():
        for match in pattern.finditer(path.read_text()):
            found.append(f"{path.relative_to(ROOT)}: {match.group().strip()}")
    assert not found


def test_every_locked_package_has_a_hash_and_an_exact_version() -> None:
    for lock in ROOT.glob("requirements*.lock"):
        entries = re.split(r"\n(?=\S)", lock.read_text().strip())
        assert entries
        for entry in entries:
            assert re.match(r"[a-z0-9-]+==[\w.]+( ; .*)? \\\n    --hash=sha256:", entry), f"{lock.name}: {entry[:60]}"
