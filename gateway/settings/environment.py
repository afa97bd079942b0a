"""The environment, with `.env` beside the configuration file under it: where every secret comes from."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from gateway.settings.table import Problems, did_you_mean

OWN_NAMES = frozenset({"SLUICEGATE_CONFIG"})
"""Every name of ours that begins with SLUICEGATE_; any other is a misspelling that would silently do nothing."""

_LINE = re.compile(r"(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=\s*(.*)")


class Environment:
    """Looks names up in the process's environment first, then in `.env`. An empty value is no value."""

    def __init__(self, environ: Mapping[str, str], dotenv: Mapping[str, str], problems: Problems) -> None:
        self._environ = environ
        self._dotenv = dotenv
        self._problems = problems
        self._asked: set[str] = set()

    def get(self, name: str) -> str:
        """The value, "" when it is not set."""
        self._asked.add(name)
        return self._environ.get(name, "") or self._dotenv.get(name, "")

    def finish(self) -> None:
        """Names every SLUICEGATE_ variable that is not ours and that the configuration does not ask for."""
        known = OWN_NAMES | self._asked
        for name in {**self._dotenv, **self._environ}:
            if name.startswith("SLUICEGATE_") and name not in known:
                self._problems.elsewhere(f"environment: {name}", f"unknown name{did_you_mean(name, sorted(known))}")


def read_dotenv(folder: Path, problems: Problems) -> dict[str, str]:
    """The variables of `folder/.env`, {} without one. Lines are NAME=value; quotes and `export` are understood."""
    try:
        text = (folder / ".env").read_text("utf-8-sig")
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        problems.elsewhere(".env", f"cannot be read: {type(error).__name__}")
        return {}
    found = {}
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        matched = _LINE.fullmatch(stripped)
        value = None if matched is None else _value(matched[2])
        if matched is None or value is None:
            problems.elsewhere(f".env: line {number}", "must be NAME=value, with quotes in pairs")
        else:
            found[matched[1]] = value
    return found


def _value(text: str) -> str | None:
    """A value without its quotes and comment; None for an unclosed quote. What a line holds is never shown."""
    if text[:1] in ("'", '"'):
        quote = text[0]
        end = text.find(quote, 1)
        rest = text[end + 1 :].strip()
        return None if end < 0 or (rest and not rest.startswith("#")) else text[1:end]
    return re.split(r"\s#", text, maxsplit=1)[0].strip()
