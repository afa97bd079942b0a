"""The caps of one run in forms: what each is unless one is given, and those that were."""

from __future__ import annotations

from typing import Any

from gateway.amounts import amount, parse_amount
from gateway.errors import InvalidRequest
from gateway.runs import Caps
from gateway.web.dashboard.visit import Visit
from gateway.workflow.caps import UNITS, limits

FIELD = "cap:"
"""How fields of a form are named that are caps."""
WORDS = {"tokens": "Tokens", "usd": "US dollars", "requests": "Requests"}
"""The caps as people read them."""


def given(visit: Visit) -> Caps | None:
    """The caps of the form; None where every field is left empty. Raises InvalidRequest."""
    found = {}
    for name, unit in UNITS.items():
        if text := visit.form.get(FIELD + name, "").strip():
            try:
                found[name] = parse_amount(text, unit)
            except ValueError as error:
                raise InvalidRequest(f"{WORDS[name]} at most: {error}"[:300], name) from None
    try:
        return Caps.of_amounts(found)
    except ValueError as error:
        raise InvalidRequest(str(error), "caps") from None


def fields(visit: Visit, caps: Caps | None) -> list[dict[str, Any]]:
    """A field for each cap that there is, with what it is now, and what the form had."""
    return [
        {"name": name, "said": WORDS[name], "now": amount(UNITS[name], limit), "value": visit.form.get(FIELD + name, "")}
        for name, limit in ({} if caps is None else limits(caps)).items()
    ]
