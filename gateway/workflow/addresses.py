"""The parameters that name something outside: repositories, paths, web addresses. What each may look like, and from whom.

Whoever starts a workflow may be hostile: a text becomes an argument of git, a file's name or an address only after these
checks. They are pure: nothing is resolved or opened here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import translate
from functools import cache
from pathlib import Path, PurePosixPath, PureWindowsPath
from urllib.parse import urlsplit

TEXT_MAX = 20_000
"""The most characters of a text parameter."""
ADDRESS_MAX = 2_000
"""The most characters of an address or a path."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f\u0080-\u009f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\]")
_SCP = re.compile(r"(?:(?P<user>[A-Za-z0-9_][A-Za-z0-9_.-]*)@)?(?P<host>[A-Za-z0-9][A-Za-z0-9.-]*):(?P<path>[^:].*)")
_REMOTE = ("https", "http", "ssh", "git")


class URL(str):
    """A web address, http or https. A parameter of this type is checked before the run exists."""

    __slots__ = ()


class Repository(str):
    """A git repository: a URL (https, http, ssh, git, user@host:path) or, from admins and the command line, a local path.

    The parameter's own default is taken as it is: it is the author's word, not the starter's.
    """

    __slots__ = ()

    @property
    def local(self) -> bool:
        """True for a path on this machine."""
        return is_local(self)


@dataclass(frozen=True, slots=True)
class Trust:
    """What the one who starts may name: local paths or not, and the patterns of repositories for those who may not."""

    local: bool
    allow_repos: tuple[str, ...] = ()


@dataclass
class Refusal(ValueError):
    """A value that is not taken. `key` is its text in the catalogues, `fields` what the text has in it."""

    key: str
    fields: dict[str, str]

    def __init__(self, key: str, **fields: str) -> None:
        super().__init__(key)
        self.key = key
        self.fields = fields


def check_text(value: str) -> str:
    """A text that a database and a terminal can hold: no NUL, no half of a letter, at most TEXT_MAX characters."""
    if len(value) > TEXT_MAX:
        raise Refusal("param_long", most=str(TEXT_MAX))
    if "\0" in value or not _encodes(value):
        raise Refusal("param_control")
    return value


def check_url(value: str) -> str:
    """An http or https address without a user or password in it."""
    _short_and_plain(value)
    try:
        parts = urlsplit(value)
        port = parts.port
    except ValueError:
        raise Refusal("param_url") from None
    if parts.scheme not in ("http", "https") or not _is_host(parts.hostname):
        raise Refusal("param_url")
    if "@" in parts.netloc:
        raise Refusal("param_credentials")
    if port == 0 or re.search(r"[\s\"'<>\\^`{|}]", value):
        raise Refusal("param_url")
    return value


def check_path(value: str, trust: Trust) -> str:
    """A path. Whoever may not name local paths stays inside the run's folder: relative, without `..`."""
    _short_and_plain(value)
    if not value.strip():
        raise Refusal("param_empty")
    if value.startswith("-"):
        raise Refusal("param_dash")
    windows = PureWindowsPath(value)
    outside = (
        PurePosixPath(value).is_absolute() or windows.drive or windows.root or ".." in windows.parts or value.startswith("~")
    )
    if outside and not trust.local:
        raise Refusal("param_path")
    return value


def check_repository(value: str, trust: Trust) -> str:
    """A repository that git may be handed, and that this starter may name. A local path comes back absolute."""
    _short_and_plain(value)
    if not value.strip():
        raise Refusal("param_empty")
    if value.startswith("-"):
        raise Refusal("param_dash")
    # `ext::sh -c …` and its like run commands: a transport by name is never taken.
    if re.match(r"[A-Za-z0-9+.-]*::", value):
        raise Refusal("param_transport")
    if is_local(value):
        if not trust.local:
            raise Refusal("param_repo_local")
        return str(Path(value.removeprefix("file://")).expanduser().absolute())
    _check_remote(value)
    if trust.local:
        return value
    if not trust.allow_repos:
        raise Refusal("param_repo_default_only")
    if not allowed(value, trust.allow_repos):
        raise Refusal("param_repo_unlisted")
    return value


def is_local(value: str) -> bool:
    """True for what git takes for a path of this machine."""
    return value.startswith(("/", "./", "../", "~", "file:")) or value in (".", "..")


def allowed(repository: str, patterns: tuple[str, ...]) -> bool:
    """True when a pattern covers the repository: `*` is anything but a slash, `**` anything.

    An address that a server could read in another way than it looks (dot segments, escapes, a query) is never covered.
    """
    if re.search(r"[%?#\\]", repository) or any(part in (".", "..") for part in re.split(r"[/:]", repository)):
        return False
    return any(_pattern(pattern).fullmatch(_plain(repository)) for pattern in patterns)


@cache
def _pattern(text: str) -> re.Pattern[str]:
    # fnmatch lets `*` cross a slash: https://host/acme/* must not cover another host's path.
    whole = "".join(
        ".*" if part == "**" else "[^/]*" if part == "*" else translate(part).removeprefix("(?s:").removesuffix(")\\Z")
        for part in re.split(r"(\*\*|\*)", _plain(text))
        if part
    )
    return re.compile(whole)


def _plain(address: str) -> str:
    """The address in the form in which it is compared: host in small letters, without `.git` and a slash at its end."""
    scheme, mark, rest = address.partition("://")
    if mark:
        host, slash, path = rest.partition("/")
        address = f"{scheme.lower()}://{host.lower()}{slash}{path}"
    return address.rstrip("/").removesuffix(".git")


def _check_remote(value: str) -> None:
    """Refuses what is neither a URL that git speaks nor user@host:path, and anything that a tool could take for an option."""
    if re.search(r"[\s\"'`<>|;&$(){}^]", value):
        raise Refusal("param_repo_letters")
    if "://" not in value:
        scp = _SCP.fullmatch(value)
        if scp is None or scp["path"].startswith("-"):
            raise Refusal("param_repo")
        return
    try:
        parts = urlsplit(value)
        port = parts.port
    except ValueError:
        raise Refusal("param_repo") from None
    if parts.scheme not in _REMOTE or not _is_host(parts.hostname) or port == 0:
        raise Refusal("param_repo")
    # `ssh://git@host/…` names a person, `https://token@host/…` is a secret that would be kept and shown.
    if parts.password is not None or (parts.username is not None and parts.scheme != "ssh"):
        raise Refusal("param_credentials")
    if parts.username is not None and not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", parts.username):
        raise Refusal("param_repo")
    if not parts.path.strip("/"):
        raise Refusal("param_repo")


def _short_and_plain(value: str) -> None:
    if len(value) > ADDRESS_MAX:
        raise Refusal("param_long", most=str(ADDRESS_MAX))
    if _CONTROL.search(value) or not _encodes(value):
        raise Refusal("param_control")


def _encodes(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_host(host: str | None) -> bool:
    return host is not None and _HOST.fullmatch(f"[{host}]" if ":" in host else host) is not None
