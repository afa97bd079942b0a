"""git on repositories that nobody vouches for: no hooks, no filters, no prompts, no other protocol than the address's own.

What a repository brings along is data. Configuration of the machine and of its user is left out, since that is where filters,
helpers and templates would come from; links are checked out as the text that they hold.
"""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import quote

from gateway.workflow.addresses import is_local

CONFIGURATION = Path(__file__).with_name("gitconfig")
"""Takes the place of the user's configuration. It holds in submodules too, where what a command line says does not."""


def git_environment(repository: str) -> dict[str, str]:
    """The variables for a git command that speaks to this repository. They allow its protocol and no other."""
    return {
        "GIT_ALLOW_PROTOCOL": _protocol(repository),
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": str(CONFIGURATION),
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_LFS_SKIP_SMUDGE": "1",
        # Asks nobody for a password or a host key.
        "GIT_SSH_COMMAND": "ssh -oBatchMode=yes",
        "LC_ALL": "C.UTF-8",
    }


def clone_command(repository: str | Path, into: str, *, submodules: bool = False) -> list[str]:
    """Clones the newest commit of the default branch into a folder that is not there yet.

    Nothing is checked out until somebody has seen how much it is (`checkout_command`); with `submodules` all is, at once.
    """
    asked = ["--recurse-submodules", "--shallow-submodules"] if submodules else ["--no-checkout", "--no-recurse-submodules"]
    shallow = ["--depth=1", "--single-branch", "--no-tags", "--no-local", "--template="]
    return ["git", "clone", "--quiet", *shallow, *asked, "--", address(repository), into]


def checkout_command(folder: str) -> list[str]:
    """Writes the files of a clone out; also over what an earlier try has left."""
    return ["git", "-C", folder, "reset", "--quiet", "--hard", "HEAD"]


def address(repository: str | Path) -> str:
    """The repository as git is told it: of a local path a URL, since git would link and copy a plain path's files."""
    text = str(repository)
    if not is_local(text):
        return text
    return "file://" + quote(str(Path(text.removeprefix("file://")).expanduser().absolute()))


def _protocol(repository: str) -> str:
    if is_local(repository):
        return "file"
    matched = re.match(r"([a-z]+)://", repository)
    return matched[1] if matched else "ssh"
