"""What steps give, as JSON: a value is brought into that form at once, so that a replay gives exactly the same."""

from __future__ import annotations

from collections.abc import Set
from decimal import Decimal
from pathlib import PurePath
from typing import Any

import orjson

from gateway.runs import JSON

VALUE_MAX = 4 << 20
"""The most bytes of a step's value. More belongs into a file of the run's folder."""


class NotKept(TypeError):
    """A value that cannot be kept, with what to do about it."""


def as_json(value: Any, what: str) -> JSON:
    """The value as JSON holds it: paths, decimals and dates as text, dataclasses as objects. Raises NotKept."""
    try:
        data = orjson.dumps(value, default=_plain, option=orjson.OPT_NON_STR_KEYS)
    except TypeError as error:
        raise NotKept(f"{what} gives a value that cannot be kept ({error}): give text, numbers, lists, dicts or None") from None
    if len(data) > VALUE_MAX:
        size = f"{len(data) / (1 << 20):.1f} MiB"
        raise NotKept(f"{what} gives {size}, more than can be kept: write it into a file of ctx.folder and give the path")
    return orjson.loads(data)


def _plain(value: Any) -> Any:
    if isinstance(value, PurePath | Decimal):
        return str(value)
    if isinstance(value, Set):
        return sorted(value)
    raise TypeError(f"a {type(value).__name__}")
