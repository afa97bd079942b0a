"""Reading TOML tables without stopping at the first fault.

A Table hands out its keys by type. What is wrong is noted with its place and a default is returned, so that reading
goes on; `finish` names the keys that nobody asked for. No message repeats a value that might be a secret.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

from gateway.errors import Problem

LARGEST = 10**15
"""The largest amount a key may hold: far above any real limit, far below what a database integer holds."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`, did you mean "timeout_s"?` where something known is close, else nothing."""
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f', did you mean "{close[0]}"?' if close else ""


class Problems:
    """What is wrong so far, in the order in which it was met."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.found: list[Problem] = []

    def key(self, path: str, message: str) -> None:
        """Notes a fault of a key in the file."""
        self.found.append(Problem(f"{self.file}: {path}", message))

    def elsewhere(self, place: str, message: str) -> None:
        """Notes a fault of the environment or of `.env`."""
        self.found.append(Problem(place, message))


class Table:
    """One TOML table at `path` ("providers.groq"; "" is the whole file)."""

    def __init__(self, raw: Mapping[str, Any], path: str, problems: Problems) -> None:
        self.raw = raw
        self.path = path
        self.problems = problems
        self._asked: set[str] = set()

    def place(self, key: str) -> str:
        """The full path of a key."""
        shown = key if key and all(char.isalnum() or char in "_-" for char in key) else f'"{key}"'
        return f"{self.path}.{shown}" if self.path else shown

    def wrong(self, key: str, message: str) -> None:
        """Notes a fault of one key."""
        self.problems.key(self.place(key), message)

    def has(self, key: str) -> bool:
        """True when the key is there, whatever its value."""
        return key in self.raw

    def get(self, key: str) -> Any:
        """The raw value, None when it is not there (TOML has no null). The key counts as known."""
        self._asked.add(key)
        return self.raw.get(key)

    def text(self, key: str, default: str = "", *, choices: tuple[str, ...] = (), required: bool = False) -> str:
        """A text; of `choices` where there are any."""
        value = self.get(key)
        if value is None:
            if required:
                self.wrong(key, "is required")
            return default
        if not isinstance(value, str):
            self.wrong(key, f"must be text, not {_kind(value)}")
            return default
        if choices and value not in choices:
            self.wrong(key, f"must be one of {', '.join(choices)}{did_you_mean(value, choices)}")
            return default
        if required and not value.strip():
            self.wrong(key, "must not be empty")
        return value

    def integer(self, key: str, default: int, *, least: int = 0) -> int:
        """A whole number, at least `least`."""
        value = self.optional_integer(key, least=least)
        return default if value is None else value

    def optional_integer(self, key: str, *, least: int = 0) -> int | None:
        """A whole number, at least `least`; None when it is not there."""
        value = self.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int):
            self.wrong(key, f"must be a whole number, not {_kind(value)}")
            return None
        if value < least:
            self.wrong(key, "must not be negative" if least == 0 else f"must be at least {least}")
            return None
        if value > LARGEST:
            self.wrong(key, f"must be at most {LARGEST:_}")
            return None
        return value

    def seconds(self, key: str, default: float, *, least: float | None = None) -> float:
        """A span of time in seconds, at most a day, and at least `least` (None: above 0)."""
        value = self.get(key)
        if value is None:
            return default
        number = as_decimal(value)
        if number is None:
            self.wrong(key, f"must be a number of seconds, not {_kind(value)}")
            return default
        if number > 86_400 or (number <= 0 if least is None else number < least):
            self.wrong(key, f"must be {'above 0' if least is None else f'at least {least:g}'} and at most 86400 seconds")
            return default
        return float(number)

    def flag(self, key: str, default: bool) -> bool:
        """true or false."""
        value = self.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            self.wrong(key, f"must be true or false, not {_kind(value)}")
            return default
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of texts, none of them empty."""
        value = self.get(key)
        if value is None:
            return ()
        if not isinstance(value, list) or not all(isinstance(item, str) and item for item in value):
            self.wrong(key, "must be a list of texts")
            return ()
        return tuple(value)

    def ids(self, key: str) -> tuple[int, ...]:
        """A list of Telegram's numeric ids."""
        value = self.get(key)
        if value is None:
            return ()
        if not isinstance(value, list) or not all(isinstance(item, int) and not isinstance(item, bool) for item in value):
            self.wrong(key, "must be a list of numeric Telegram ids, such as [1001] (/id tells them)")
            return ()
        return tuple(dict.fromkeys(value))

    def table(self, key: str) -> Table:
        """The table under a key; an empty one when it is not there."""
        value = self.get(key)
        if value is not None and not isinstance(value, Mapping):
            self.wrong(key, f"must be a table, not {_kind(value)}")
            value = None
        return Table(value or {}, self.place(key), self.problems)

    def tables(self, key: str) -> list[Table]:
        """The tables under `[[key]]`; each one's path has its `name`, or its place counted from 1."""
        value = self.get(key)
        if value is None:
            return []
        if not isinstance(value, list) or not all(isinstance(item, Mapping) for item in value):
            self.wrong(key, f"must be written as [[{key}]], once for each")
            return []
        found = []
        for number, item in enumerate(value, 1):
            name = item.get("name")
            path = f"{key}.{name}" if isinstance(name, str) and name else f"{key}[{number}]"
            found.append(Table(item, path, self.problems))
        return found

    def finish(self, hints: Mapping[str, str] | None = None) -> None:
        """Names every key that nobody asked for; `hints` says more about some of them."""
        for key in self.raw:
            if key not in self._asked:
                hint = (hints or {}).get(key)
                self.wrong(key, hint or f"unknown key{did_you_mean(key, self._asked)}")


def as_decimal(value: object) -> Decimal | None:
    """A finite TOML number as a Decimal, None for anything else. Floats are read as Decimal, so 0.59 stays 0.59."""
    if isinstance(value, int) and not isinstance(value, bool):
        return Decimal(value)
    return value if isinstance(value, Decimal) and value.is_finite() else None


def _kind(value: object) -> str:
    if isinstance(value, bool):
        return "true or false"
    names = {str: "text", int: "a whole number", Decimal: "a decimal number", list: "a list", dict: "a table"}
    return names.get(type(value), "a date or time")
