"""What people write after /run, and text from outside made fit to be shown. Pure.

Names, errors and questions of runs may hold whatever a repository or a model wrote: on one line, without what moves or
hides other text, and bounded.
"""

from __future__ import annotations

import shlex
import unicodedata
from dataclasses import dataclass

JOINER = "\u200d"
"""Joins emoji; every other invisible mark is left out."""
NAME_MAX = 64
ASIDE = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
"""Categories of characters that show nothing or change how others are shown."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What stands after /run: a workflow's name and parameters as texts, or what is wrong with it.

    `stray` are words that are no `key=value`, `twice` keys that come again, `unclosed` a quote without its end.
    """

    name: str = ""
    given: tuple[tuple[str, str], ...] = ()
    stray: tuple[str, ...] = ()
    twice: tuple[str, ...] = ()
    unclosed: bool = False

    @property
    def wrong(self) -> bool:
        """True when it cannot be read as it stands."""
        return self.unclosed or bool(self.stray or self.twice)


def read_asked(text: str) -> Asked:
    """Reads `NAME key=value key="a b"`. Quotes and backslashes work as in a shell; nothing is ever run by one."""
    if '"' not in text:
        # Phones write curly quotes by themselves.
        text = text.translate({ord("“"): '"', ord("”"): '"', ord("„"): '"'})
    lexer = shlex.shlex(text, posix=True, punctuation_chars=False)
    lexer.whitespace_split, lexer.commenters = True, ""
    try:
        words = list(lexer)
    except ValueError:
        return Asked(name=text.split()[0][:NAME_MAX], unclosed=True)
    if not words:
        return Asked()
    given: dict[str, str] = {}
    stray, twice = [], []
    for word in words[1:]:
        key, equals, value = word.partition("=")
        if not equals or not key:
            stray.append(word)
        elif key in given:
            twice.append(key)
        else:
            given[key] = value
    return Asked(words[0][:NAME_MAX], tuple(given.items()), tuple(stray), tuple(twice))


def one_line(text: str, length_max: int) -> str:
    """Text from outside on one line: runs of white space are one space, invisible characters go, the rest is bounded."""
    return _bounded(" ".join(_visible(text).split()), length_max)


def some_lines(text: str, length_max: int) -> str:
    """The same with its lines kept."""
    lines = [" ".join(_visible(line).split()) for line in text[: 4 * length_max].splitlines()]
    return _bounded("\n".join(line for line in lines if line), length_max)


def _visible(text: str) -> str:
    kept = (" " if char.isspace() else char for char in text if char.isspace() or _shows(char))
    return "".join(kept)


def _shows(char: str) -> bool:
    return char == JOINER or unicodedata.category(char) not in ASIDE


def _bounded(text: str, length_max: int) -> str:
    return text if len(text) <= length_max else text[: length_max - 1].rstrip() + "…"
