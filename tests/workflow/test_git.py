"""git on hostile repositories: nothing of them runs, nothing leads out, nobody is asked."""

import asyncio
import os
from pathlib import Path

import pytest

from gateway.effects import ShellResult, run
from gateway.workflow import checkout_command, clone_command, git_environment
from tests.workflow.repositories import commit, git, repository

FILES = {"README.md": "hello", "src/main.py": "x = 1\n"}


async def clone(source: Path | str, into: Path, *, submodules: bool = False) -> ShellResult:
    """Clones and checks out as a workflow does."""
    into.parent.mkdir(parents=True, exist_ok=True)
    commands = [clone_command(source, into.name, submodules=submodules), checkout_command(into.name)]
    for command in commands:
        environment = git_environment(str(source))
        ran = await run(command, cwd=into.parent, label=f"{into}/clone", timeout_s=60, env=environment)
        if ran.code != 0:
            break
    return ran


def trap(folder: Path, name: str) -> tuple[Path, Path]:
    """A program that leaves a mark when it runs, and the mark."""
    program, mark = folder / f"{name}.sh", folder / f"{name}.ran"
    program.write_text(f"#!/bin/sh\ntouch {mark}\ncat\n")
    program.chmod(0o755)
    return program, mark


async def test_a_clone_is_shallow_and_has_neither_hooks_nor_links_to_its_source(tmp_path: Path) -> None:
    source = repository(tmp_path / "it's here", FILES)
    commit(source, {"README.md": "newer"})
    ran = await clone(source, tmp_path / "run/clone")
    assert ran.code == 0, ran.output
    made = tmp_path / "run/clone"
    assert (made / "README.md").read_text() == "newer"
    assert git(made, "rev-list", "--count", "HEAD") == "1"
    assert not (made / ".git/hooks").exists()
    assert not (made / ".git/objects/info/alternates").exists()


async def test_hooks_filters_and_monitors_of_the_machine_and_the_source_do_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, mark = trap(tmp_path, "trap")
    home, templates = tmp_path / "home", tmp_path / "templates/hooks"
    home.mkdir()
    templates.mkdir(parents=True)
    (templates / "post-checkout").symlink_to(program)
    settings = (
        f"[core]\nfsmonitor = {program}\nhooksPath = {templates}\n[init]\ntemplateDir = {templates.parent}\n"
        f'[filter "lfs"]\nsmudge = {program}\nrequired = true\n[uploadpack]\npackObjectsHook = {program}\n'
    )
    (home / ".gitconfig").write_text(settings)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("GIT_TEMPLATE_DIR", str(templates.parent))
    monkeypatch.setenv("GIT_CONFIG_PARAMETERS", f"'core.fsmonitor={program}'")
    source = repository(tmp_path / "source", {**FILES, ".gitattributes": "* filter=lfs\n"})
    (source / ".git/config").write_text((source / ".git/config").read_text() + settings)
    ran = await clone(source, tmp_path / "run/clone")
    assert ran.code == 0, ran.output
    assert (tmp_path / "run/clone/README.md").read_text() == "hello"
    assert not mark.exists()


async def test_links_are_written_out_as_text(tmp_path: Path) -> None:
    source = repository(tmp_path / "source", FILES)
    (source / "out").symlink_to("/etc")
    (source / "passwd").symlink_to("/etc/passwd")
    commit(source, {})
    ran = await clone(source, tmp_path / "run/clone")
    assert ran.code == 0, ran.output
    made = tmp_path / "run/clone"
    assert not any(path.is_symlink() for path in made.rglob("*"))
    assert (made / "passwd").read_text() == "/etc/passwd"


async def test_submodules_come_only_when_asked_for_and_only_by_the_same_protocol(tmp_path: Path) -> None:
    inner = repository(tmp_path / "inner", {"inside": "x"})
    (inner / "out").symlink_to("/etc")
    commit(inner, {})
    source = repository(tmp_path / "source", FILES)
    git(source, "-c", "protocol.file.allow=always", "submodule", "add", "-q", f"file://{inner}", "part")
    commit(source, {})
    assert (await clone(source, tmp_path / "a/clone")).code == 0
    assert os.listdir(tmp_path / "a/clone/part") == []
    ran = await clone(source, tmp_path / "b/clone", submodules=True)
    assert ran.code == 0, ran.output
    assert (tmp_path / "b/clone/part/inside").read_text() == "x"
    assert not (tmp_path / "b/clone/part/out").is_symlink()
    text = (source / ".gitmodules").read_text().replace(f"file://{inner}", "ext::sh -c 'touch owned'")
    commit(source, {".gitmodules": text})
    ran = await clone(source, tmp_path / "c/clone", submodules=True)
    assert ran.code != 0
    assert "not allowed" in ran.output


@pytest.mark.parametrize("source", ["--upload-pack=touch owned", "ext::sh -c 'touch owned'", "-oProxyCommand=touch owned"])
async def test_case_56_an_address_that_came_past_every_check_still_runs_nothing(tmp_path: Path, source: str) -> None:
    ran = await clone(source, tmp_path / "run/clone")
    assert ran.code != 0
    assert not any("owned" in files for _, _, files in os.walk(tmp_path))


async def test_case_56_nothing_before_the_address_is_read_as_an_option_of_git(tmp_path: Path) -> None:
    repository(tmp_path / "deep/clone", FILES)
    command = clone_command("--upload-pack=touch owned; false", "deep/clone")
    ran = await run(command, cwd=tmp_path, label=f"{tmp_path}/clone", env=git_environment("/x"))
    assert ran.code != 0
    assert sorted(os.listdir(tmp_path)) == ["deep"]


async def test_nobody_is_asked_for_a_password_and_no_redirect_is_followed(tmp_path: Path) -> None:
    answers = {
        b"/locked": b"401 No\r\nWWW-Authenticate: Basic realm=x",
        b"/moved": b"302 Found\r\nLocation: /elsewhere/info/refs?service=git-upload-pack",
    }
    asked: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        path = (await reader.readline()).split()[1]
        asked.append(path)
        head = next((answer for prefix, answer in answers.items() if path.startswith(prefix)), b"404 No")
        writer.write(b"HTTP/1.1 " + head + b"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        for number, path in enumerate(("locked", "moved")):
            ran = await clone(f"http://127.0.0.1:{port}/{path}/x", tmp_path / str(number) / "clone")
            assert ran.code == 128
            assert not ran.timed_out
    assert [path.split(b"/")[1] for path in asked] == [b"locked", b"moved"]


async def test_what_an_earlier_try_left_is_written_over(tmp_path: Path) -> None:
    source = repository(tmp_path / "source", FILES)
    made = tmp_path / "run/clone"
    assert (await clone(source, made)).code == 0
    (made / "README.md").write_text("half")
    (made / "src/main.py").unlink()
    (made / ".git/index").unlink()
    ran = await run(checkout_command("clone"), cwd=made.parent, label="again", env=git_environment(str(source)))
    assert ran.code == 0, ran.output
    assert (made / "README.md").read_text() == "hello"
    assert (made / "src/main.py").exists()


@pytest.mark.parametrize(
    ("source", "protocol"),
    [
        ("https://a.example/b", "https"),
        ("ssh://git@a.example/b", "ssh"),
        ("git@a.example:b", "ssh"),
        ("/srv/b", "file"),
        ("file:///srv/b", "file"),
    ],
)
def test_the_addresss_own_protocol_is_the_only_one(source: str, protocol: str) -> None:
    assert git_environment(source)["GIT_ALLOW_PROTOCOL"] == protocol


def test_no_variable_of_ours_is_a_secret() -> None:
    environment = git_environment("https://a.example/b")
    assert not set(environment) & {"HOME", "DATABASE_URL"}
    assert environment["GIT_TERMINAL_PROMPT"] == "0"
