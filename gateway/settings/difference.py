"""What a configuration says, place by place, as texts without secrets, and what differs between two.

A secret is shown as a fingerprint: that it changed is seen, what it is is not.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import Field, dataclass, fields, is_dataclass, replace
from typing import Any

from gateway.budget import Calendar, Lifetime, Rolling, is_cap
from gateway.cron import Cron
from gateway.settings.values import Settings

APART = ("path", "resting")
"""Where the file lies, and what is not run."""
NEEDS_RESTART = (
    "database_url", "host", "port", "telegram.token", "telegram.mode", "telegram.public_url", "telegram.webhook_secret",
    "telegram.api_root", "workflows.path",
)  # fmt: skip
"""What a running program cannot change: connections, listeners and imported files."""
SUMMARY_MAX = 200


@dataclass(frozen=True, slots=True)
class Change:
    """One place that differs; None where it is not there."""

    place: str
    before: str | None
    after: str | None

    @property
    def needs_restart(self) -> bool:
        """True when a running program keeps what it has."""
        return self.place in NEEDS_RESTART

    def __str__(self) -> str:
        return (
            f"{self.place}: {'(none)' if self.before is None else self.before} → {'(none)' if self.after is None else self.after}"
        )


def outline(settings: Settings) -> dict[str, str]:
    """Every setting by its place, in the order of the file. Without secrets, and without what workflows say themselves."""
    shown: dict[str, str] = {}
    for field in fields(settings):
        value = getattr(settings, field.name)
        if field.name == "budgets":
            value = tuple(budget for budget in value.all if not is_cap(budget.name))
        if field.name not in APART:
            shown.update(_places(field.name, value, secret=not field.repr))
    return shown


def differences(before: Mapping[str, str], after: Mapping[str, str]) -> list[Change]:
    """What differs between two outlines, sorted by place. A provider, budget … that is new or gone is one change."""
    found = []
    whole = {_item(place) for outline in (before, after) for place in outline}
    came, went = whole - set(map(_item, before)), whole - set(map(_item, after))
    for item in sorted(came | went):
        there = _summary(item, after if item in came else before)
        found.append(Change(item, None, there) if item in came else Change(item, there, None))
    for place in before.keys() | after.keys():
        if _item(place) not in came | went and before.get(place) != after.get(place):
            found.append(Change(place, before.get(place), after.get(place)))
    return sorted(found, key=lambda change: change.place)


def _item(place: str) -> str:
    """Of a place inside a provider, budget and so on: that one."""
    return ".".join(place.split(".")[:2])


def _summary(item: str, outline: Mapping[str, str]) -> str:
    said = (f"{place[len(item) + 1 :]} {text}".strip() for place, text in outline.items() if _item(place) == item and text)
    text = ", ".join(said)
    return text if len(text) <= SUMMARY_MAX else text[: SUMMARY_MAX - 1] + "…"


def kept_until_restart(running: Settings, wanted: Settings) -> Settings:
    """The wanted configuration with what a running program cannot change as it is."""
    names = [place.partition(".")[2] for place in NEEDS_RESTART if place.startswith("telegram.")]
    telegram = replace(wanted.telegram, **{name: getattr(running.telegram, name) for name in names})
    workflows = replace(wanted.workflows, path=running.workflows.path)
    return replace(
        wanted, database_url=running.database_url, host=running.host, port=running.port, telegram=telegram, workflows=workflows
    )


def _places(place: str, value: Any, *, secret: bool = False) -> Iterator[tuple[str, str]]:
    if secret:
        yield place, f"#{hashlib.sha256(str(value).encode()).hexdigest()[:8]}" if value else ""
    elif isinstance(value, Calendar | Rolling | Lifetime):
        yield place, value.signature
    elif isinstance(value, Cron):
        yield place, f"{value.text} ({value.zone.key})"
    elif is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            if _says(field):
                yield from _places(f"{place}.{field.name}", getattr(value, field.name), secret=not field.repr)
    elif isinstance(value, Mapping):
        for name, item in value.items():
            yield from _places(f"{place}.{name}", item)
    elif isinstance(value, tuple) and value and all(is_dataclass(item) for item in value):
        for item in value:
            yield from _places(f"{place}.{item.name}", item)
    elif isinstance(value, tuple):
        yield place, ", ".join(map(str, value))
    else:
        yield place, str(value)


def _says(field: Field[Any]) -> bool:
    """False for a name that is in the place already, and for what is only remembered."""
    return field.compare and field.name != "name"
