"""The run's folder: nothing is read or written outside it, whatever the path or the links in it say."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.effects import EffectError, Folder
from gateway.effects.folder import WRITE_MAX


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "outside.txt").write_text("secret")
    (tmp_path / "run").mkdir()
    return tmp_path / "run"


def names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


def run_python(code: str, *args: object) -> int:
    return subprocess.run([sys.executable, "-c", code, *map(str, args)], timeout=60, check=False).returncode


ESCAPES = ["../outside.txt", "a/../../outside.txt", "/etc/passwd", "..", "", ".", "a\0b", "./../outside.txt"]


@pytest.mark.parametrize("path", ESCAPES)
async def test_case_56_a_path_that_leads_out_is_refused(root: Path, path: str) -> None:
    with pytest.raises(EffectError):
        await Folder(root).read(path)
    with pytest.raises(EffectError):
        await Folder(root).write(path, b"x")
    with pytest.raises(EffectError):
        Folder(root).inside(path)
    assert (root.parent / "outside.txt").read_text() == "secret"
    assert names(root) == []


async def test_what_is_written_is_read_again(root: Path) -> None:
    folder = Folder(root / "made" / "late")
    written = await folder.write("a/b/REPORT.md", "héllo".encode())
    assert written == root / "made/late/a/b/REPORT.md"
    assert await folder.read("a/b/REPORT.md") == "héllo".encode()
    assert await folder.read(Path("a//./b/REPORT.md")) == "héllo".encode()
    await folder.write("a/b/REPORT.md", b"")
    assert await folder.read("a/b/REPORT.md") == b""
    assert names(root / "made/late/a/b") == ["REPORT.md"]
    assert (root / "made/late/a/b/REPORT.md").stat().st_mode & 0o077 == 0


async def test_case_56_links_are_never_followed(root: Path) -> None:
    folder = Folder(root)
    (root / "file").symlink_to(root.parent / "outside.txt")
    (root / "folder").symlink_to(root.parent)
    for path in ("file", "folder/outside.txt"):
        with pytest.raises(EffectError, match="not followed"):
            await folder.read(path)
    with pytest.raises(EffectError, match="not followed"):
        await folder.write("folder/outside.txt", b"x")
    # A link in the file's own place gives way to the file.
    await folder.write("file", b"new")
    assert (root / "file").read_bytes() == b"new"
    assert not (root / "file").is_symlink()
    assert (root.parent / "outside.txt").read_text() == "secret"


async def test_what_is_no_ordinary_file_is_not_waited_for(root: Path) -> None:
    os.mkfifo(root / "pipe")
    (root / "folder").mkdir()
    for path in ("pipe", "folder"):
        with pytest.raises(EffectError, match="no ordinary file"):
            await Folder(root).read(path)


async def test_errors_say_what_and_why(root: Path) -> None:
    with pytest.raises(EffectError, match=r"there is no file 'gone\.txt' in the run's folder"):
        await Folder(root).read("gone.txt")
    (root / "file").write_text("x")
    with pytest.raises(EffectError, match="not followed"):
        await Folder(root).write("file/below", b"x")
    (root / "folder/full").mkdir(parents=True)
    with pytest.raises(EffectError, match="folder"):
        await Folder(root).write("folder", b"x")
    assert names(root) == ["file", "folder"]


async def test_sizes_are_bounded(root: Path) -> None:
    folder = Folder(root)
    await folder.write("big", b"x" * 1001)
    with pytest.raises(EffectError, match="larger than 1,000 bytes"):
        await folder.read("big", most=1000)
    assert len(await folder.read("big", most=1001)) == 1001
    with pytest.raises(EffectError, match="would be larger"):
        await folder.write("huge", bytes(WRITE_MAX + 1))
    assert not (root / "huge").exists()


async def test_what_is_removed_is_gone_and_what_links_lead_to_is_not(root: Path) -> None:
    folder = Folder(root)
    await folder.write("clone/a/b", b"x")
    (root / "clone/a/link").symlink_to(root.parent)
    await folder.write("clone/lock", b"")
    (root / "link").symlink_to(root.parent)
    await folder.remove("clone/lock")
    assert names(root / "clone") == ["a"]
    with pytest.raises(EffectError, match="not followed"):
        await folder.remove("link/outside.txt")
    for path in ("clone", "link", "gone", "gone/deeper"):
        await folder.remove(path)
    assert names(root) == []
    assert (root.parent / "outside.txt").read_text() == "secret"
    await Folder(root / "never made").remove("x")
    with pytest.raises(EffectError, match="leads out"):
        await folder.remove("..")


async def test_a_write_that_is_killed_leaves_the_old_file_whole(root: Path) -> None:
    await Folder(root).write("report", b"old")
    code = (
        "import asyncio, os, sys\n"
        "from pathlib import Path\n"
        "from gateway.effects import Folder\n"
        "os.fsync = lambda handle: os._exit(9)\n"
        "asyncio.run(Folder(Path(sys.argv[1])).write('report', b'new' * 100000))\n"
    )
    assert run_python(code, root) == 9
    assert await Folder(root).read("report") == b"old"
