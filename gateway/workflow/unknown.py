"""What a rehearsal gives in the place of a step's result: a stand-in that can be passed on, but not looked into.

It is text that names where it comes from, so that a prompt can be written with it. Parts of it are stand-ins too, and
a loop over it sees one item. Whoever must know what it is to go on (a comparison, a length, a condition) ends the rehearsal.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NoReturn, SupportsIndex

OPEN, CLOSE = "⟨", "⟩"


class Unknowable(BaseException):
    """What comes next depends on something that only a run can know. No workflow's `except Exception` may catch it."""

    def __init__(self, said: str) -> None:
        super().__init__(said)
        self.said = said


class NoLength(Unknowable, TypeError):
    """How many there are is not known. A TypeError, since `list` and `*` ask for a length first and go on without one."""


class Unknown(str):
    """A stand-in for what `said` will give. `known` are the attributes that are certain."""

    said: str
    known: dict[str, Any]

    def __new__(cls, said: str, **known: Any) -> Unknown:
        made = super().__new__(cls, f"{OPEN}{said}{CLOSE}")
        made.said, made.known = said, known
        return made

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self.known[name] if name in self.known else Unknown(f"{self.said}.{name}")

    def __getitem__(self, key: SupportsIndex | slice | str) -> Unknown:
        if isinstance(key, slice):
            return self
        return Unknown(f"{self.said}.{key}" if isinstance(key, str) else f"an item of {self.said}")

    def __iter__(self) -> Iterator[Unknown]:
        yield Unknown(f"an item of {self.said}")

    def __call__(self, *_: Any, **__: Any) -> Unknown:
        return self

    def _depends(self, *_: object) -> NoReturn:
        raise Unknowable(self.said)

    def __len__(self) -> int:
        raise NoLength(self.said)

    __bool__ = __contains__ = __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __hash__ = _depends
    __int__ = __float__ = __index__ = __mul__ = __rmul__ = __mod__ = _depends
