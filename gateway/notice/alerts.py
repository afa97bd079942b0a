"""What an alert says: from its kind and facts to text for an admin, with the way to mend it where there is one."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from gateway.budget import Unit
from gateway.clock import from_ms
from gateway.notice.catalogue import best, text
from gateway.notice.numbers import amount, money, per, percent, whole
from gateway.notice.times import when
from gateway.notice.values import Reader

NAMED = ("user", "chat", "key", "provider", "chain", "model", "workflow", "run", "surface")
VALUE_MAX = 80


def alert_text(kind: str, facts: Mapping[str, Any], reader: Reader, now: datetime) -> str:
    """One alert in full. `facts` are those with which it was made."""
    fields: dict[str, Any] = {name: _short(value) for name, value in facts.items()}
    key = f"alert_{kind}"
    fields.pop("key", None)
    if "budget" in facts:
        unit, language = Unit(facts["unit"]), reader.language
        fields["spent"], limit = (amount(language, unit, int(facts[name])) for name in ("spent", "limit"))
        fields["limit"] = limit if unit is Unit.MICRO_USD else text(language, f"unit_{unit}", amount=limit)
        fields["budget"] = _called(facts)
        fields["share"] = percent(language, int(facts["spent"]) / max(int(facts["limit"]), 1))
        fields["window"] = per(language, str(facts["window"]))
        if "asked" in facts:
            key, fields["asked"] = f"{key}_for_a_call", amount(language, unit, int(facts["asked"]))
    if "micro_usd" in facts:
        for name in ("micro_usd", "held_micro_usd"):
            fields[name] = money(reader.language, int(facts[name]))
        for name in ("tokens", "held_tokens"):
            fields[name] = whole(reader.language, int(facts[name]))
    if "until_ms" in facts:
        key = f"{key}_over"
    if kind == "stuck_delivery":
        key, fields["count"] = f"{key}_{facts['where']}", whole(reader.language, int(facts["count"]))
    for name in ("since", "until"):
        if f"{name}_ms" in facts:
            fields[name] = _clock(facts[f"{name}_ms"], reader, now)
    said = text(reader.language, key, **fields)
    leaves_ms = facts.get("leaves_ms")
    if leaves_ms is not None and from_ms(leaves_ms) > now:
        said += " " + text(reader.language, "alert_opens", when=when(from_ms(leaves_ms), reader, now))
    return "⚠️ " + said


def acknowledged_text(by: str, at: datetime, reader: Reader) -> str:
    """Who has taken note, and when."""
    return text(reader.language, "alert_acknowledged", name=_short(by), time=f"{at.astimezone(reader.zone):%H:%M}")


def _called(facts: Mapping[str, Any]) -> str:
    """The budget's name, and which of its counters where it has one for each."""
    which = ", ".join(f"{kind} {_short(facts['scope'][kind])}" for kind in NAMED if facts["key"] and kind in facts["scope"])
    return f"{facts['budget']} ({which})" if which else str(facts["budget"])


def _clock(at_ms: int, reader: Reader, now: datetime) -> str:
    """A time of today, or a day with its time."""
    from babel.dates import format_skeleton

    local = from_ms(at_ms).astimezone(reader.zone)
    if local.date() == now.astimezone(reader.zone).date():
        return f"{local:%H:%M}"
    return f"{format_skeleton('MMMd', local, locale=best(reader.language))}, {local:%H:%M}"


def _short(value: object) -> object:
    """A value on one line and bounded: provider's words and people's names may be anything."""
    if not isinstance(value, str):
        return value
    line = " ".join(value.split())
    return line if len(line) <= VALUE_MAX else line[: VALUE_MAX - 1] + "…"
