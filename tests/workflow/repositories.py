"""Real repositories for tests: an ordinary one, and whatever a hostile one can hold."""

import subprocess
from pathlib import Path

ENVIRONMENT = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "HOME": "/nonexistent",
    "GIT_CONFIG_NOSYSTEM": "1",
    **{f"GIT_{who}_NAME": "a" for who in ("AUTHOR", "COMMITTER")},
    **{f"GIT_{who}_EMAIL": "a@example.org" for who in ("AUTHOR", "COMMITTER")},
}


def git(folder: Path, *args: str, feed: bytes | None = None) -> str:
    """What git says in a folder; the test fails with its words if it fails."""
    ran = subprocess.run(["git", *args], cwd=folder, input=feed, capture_output=True, timeout=100, check=False, env=ENVIRONMENT)
    assert ran.returncode == 0, ran.stderr.decode(errors="replace")
    return ran.stdout.decode(errors="replace").strip()


def repository(folder: Path, files: dict[str, str]) -> Path:
    """A repository with one commit of these files."""
    folder.mkdir(parents=True)
    git(folder, "init", "-q", "-b", "main")
    return commit(folder, files)


def commit(folder: Path, files: dict[str, str]) -> Path:
    """One more commit, with these files."""
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    git(folder, "add", "-A", "-f")
    git(folder, "commit", "-q", "--allow-empty", "-m", "more")
    return folder


def crowd(folder: Path, count: int) -> Path:
    """A repository with `count` files that were never on a disk, some with names that no terminal should be shown."""
    folder.mkdir(parents=True)
    git(folder, "init", "-q", "--bare", "-b", "main")
    lines = [b"blob\nmark :1\ndata 3\nx=1\ncommit refs/heads/main\ncommitter a <a@example.org> 0 +0000\ndata 1\nx\n"]
    lines += [b'M 100644 :1 "many/%d/f%d.py"\n' % (number % 100, number) for number in range(count)]
    lines.append(b'M 100644 :1 "evil\\n# heading\\033[31m`code`.toml"\n')
    git(folder, "fast-import", "--quiet", feed=b"".join(lines))
    return folder
