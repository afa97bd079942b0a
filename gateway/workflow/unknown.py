"""What a rehearsal gives in the place of a step's result: a stand-in, of which the usual is assumed.

It is text that names where it comes from, so that a prompt can be written with it. Parts of it, and what is reckoned from it,
are stand-ins too; a loop over it sees one item. A condition on it is taken as the usual case: it is there, it is equal, it is
within bounds. What was assumed is noted, so that it can be said.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, SupportsIndex

OPEN, CLOSE = "⟨", "⟩"
LOOKS_MAX = 2_000
"""After so many looks a rehearsal ends: a loop until something is otherwise would have no end."""
SAID_MAX = 80


class Unknowable(BaseException):
    """The rehearsal cannot go on; `said` says why. No workflow's `except Exception` may catch it."""

    def __init__(self, said: str) -> None:
        super().__init__(said)
        self.said = said


class Looks:
    """What was assumed of stand-ins, each once, in its order."""

    def __init__(self) -> None:
        self.assumed: dict[str, None] = {}
        self._count = 0

    def note(self, said: str) -> None:
        """Something was assumed of this."""
        self._count += 1
        if self._count > LOOKS_MAX:
            raise Unknowable(f"a loop that ends with {said}")
        self.assumed[said] = None


class Unknown(str):
    """A stand-in for what `said` will give. `known` are the attributes that are certain."""

    said: str
    looks: Looks
    known: dict[str, Any]

    def __new__(cls, said: str, looks: Looks, **known: Any) -> Unknown:
        said = said if len(said) <= SAID_MAX else f"{said[: SAID_MAX - 1]}…"
        made = super().__new__(cls, f"{OPEN}{said}{CLOSE}")
        made.said, made.looks, made.known = said, looks, known
        return made

    def of(self, said: str) -> Unknown:
        """Another stand-in of the same rehearsal."""
        return Unknown(said, self.looks)

    def items(self) -> list[tuple[Unknown, Unknown]]:
        """As a dictionary's: one pair."""
        return [(self.of(f"a key of {self.said}"), self.of(f"a value of {self.said}"))]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self.known[name] if name in self.known else self.of(f"{self.said}.{name}")

    def __getitem__(self, key: SupportsIndex | slice | str) -> Unknown:
        if isinstance(key, slice):
            return self
        return self.of(f"{self.said}.{key}" if isinstance(key, str) else f"an item of {self.said}")

    def __iter__(self) -> Iterator[Unknown]:
        yield self.of(f"an item of {self.said}")

    def __call__(self, *_: Any, **__: Any) -> Unknown:
        return self

    def __format__(self, _: str) -> str:
        return str(self)

    def __bool__(self) -> bool:
        self.looks.note(self.said)
        return True

    def __ne__(self, _: object) -> bool:
        return not self

    def __eq__(self, _: object) -> bool:
        return bool(self)

    def __int__(self) -> int:
        return int(bool(self))

    def __add__(self, other: Any) -> Any:
        return self.of(self.said) if isinstance(other, Unknown) or not isinstance(other, str) else str(self) + other

    def __radd__(self, other: Any) -> Any:
        return other + str(self) if isinstance(other, str) else self

    def _same(self, *_: object) -> Unknown:
        return self

    def _one(self) -> int:
        # A list, a tuple or a `*` asks for it too: of each there is one item, so nothing is assumed by that.
        return 1

    def _true(self, _: object) -> bool:
        return bool(self)

    __hash__ = str.__hash__
    __len__ = _one
    __index__ = __int__
    __float__ = __int__
    __lt__ = __le__ = __gt__ = __ge__ = __contains__ = _true
    __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = __floordiv__ = __rfloordiv__ = _same
    __mod__ = __rmod__ = __pow__ = __neg__ = __abs__ = __round__ = _same


def is_made_of(text: str) -> bool:
    """True for a text with a stand-in in it."""
    return re.search(f"{OPEN}[^{CLOSE}]+{CLOSE}", text) is not None
