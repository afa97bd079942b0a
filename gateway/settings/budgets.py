"""`[[budgets]]`: limits with their scopes and windows."""

from __future__ import annotations

import re
from datetime import time
from decimal import Decimal
from zoneinfo import ZoneInfo

from gateway.budget import CAP, PAUSE, SCOPE_KINDS, Budget, Budgets, Calendar, Lifetime, Rolling, Unit, Window, is_cap
from gateway.settings.providers import Names
from gateway.settings.table import LARGEST, Table, as_decimal, did_you_mean

SURFACES = ("telegram", "http", "cli", "schedule")
CALENDAR = ("minute", "hour", "day", "week", "month")
UNITS = {"tokens": Unit.TOKENS, "usd": Unit.MICRO_USD, "requests": Unit.REQUESTS}
GUESTS = "guests"
MICRO = 1_000_000

_ROLLING = re.compile(r"rolling\s+([0-9]{1,6})\s*([mhd])")
_SECONDS = {"m": 60, "h": 3600, "d": 86_400}
_LONGEST_S = 366 * 86_400


def read_budgets(root: Table, names: Names, zone: ZoneInfo) -> Budgets:
    """Reads every `[[budgets]]`, noting problems."""
    found: dict[str, Budget] = {}
    for table in root.tables("budgets"):
        budget = _budget(table, names, zone)
        if budget.name and budget.name in found:
            table.wrong("name", "is used by an earlier budget")
        found[budget.name] = budget
    return Budgets(found.values())


def _budget(table: Table, names: Names, zone: ZoneInfo) -> Budget:
    name = table.text("name", required=True)
    if name == PAUSE:
        table.wrong("name", f'must not be "{PAUSE}"')
    if is_cap(name):
        table.wrong("name", f'must not begin with "{CAP}": the caps of workflows are named so')
    scope = _scope(table, names)
    unit, limit = _limit(table)
    budget = Budget(
        name=name,
        unit=UNITS[unit],
        limit=limit,
        window=_window(table, zone),
        scope=scope,
        label=table.text("label"),
        warn_at=_warn_at(table),
        exceptions=_exceptions(table, unit, scope, names),
    )
    table.finish()
    return budget


def _limit(table: Table) -> tuple[str, int]:
    """The unit's key and the limit in the budget's unit (money in micro-USD)."""
    given = [key for key in UNITS if table.has(key)]
    for key in UNITS:
        table.get(key)
    if len(given) != 1:
        said = "none is given" if not given else f"{' and '.join(given)} are given"
        table.problems.key(table.path, f"needs exactly one of tokens, usd, requests: {said}")
        return "tokens", 0
    return given[0], _amount(table, given[0], given[0])


def _amount(table: Table, key: str, unit: str) -> int:
    """An amount of a unit: whole for tokens and requests, to a micro-USD for money. 0 means nothing allowed."""
    if unit != "usd":
        return table.integer(key, 0)
    value = as_decimal(table.get(key))
    if value is None:
        table.wrong(key, "must be a number of US dollars")
        return 0
    if value < 0:
        table.wrong(key, "must not be negative")
        return 0
    micro = value * MICRO
    if micro != micro.to_integral_value():
        table.wrong(key, "must not be finer than a millionth of a dollar")
    if micro > LARGEST:
        table.wrong(key, f"must be at most {LARGEST // MICRO:_}")
        return 0
    return int(micro)


def _scope(table: Table, names: Names) -> dict[str, str]:
    scope: dict[str, str] = {}
    for kind in SCOPE_KINDS:
        value = table.get(kind)
        if value is None:
            continue
        if isinstance(value, int) and not isinstance(value, bool) and kind in ("user", "chat"):
            value = str(value)
        if not isinstance(value, str) or not value:
            table.wrong(kind, 'must be a name or "*" (one counter for each)')
        elif value == "*":
            scope.setdefault(kind, value)
        else:
            _fixed(table, kind, value, scope, names)
    return scope


def _fixed(table: Table, kind: str, value: str, scope: dict[str, str], names: Names) -> None:
    """Adds one attribute with a given value. A misspelt value would be a budget that never counts: it is refused."""
    if kind == "provider":
        if value in names.canonical:
            scope["provider"] = names.canonical[value]
        else:
            table.wrong(kind, f'unknown provider "{value}"{did_you_mean(value, names.canonical)}')
    elif kind == "chain":
        slot = names.slot(value)
        if value in names.chains:
            scope["chain"] = value
        elif slot is not None:
            scope["chain"] = slot.provider if ":" not in value else str(slot)
        else:
            table.wrong(kind, f'unknown chain "{value}"{did_you_mean(value, names.chains)}')
    elif kind == "model":
        _model(table, value, scope, names)
    elif kind == "surface" and value not in SURFACES:
        table.wrong(kind, f"must be * or one of {', '.join(SURFACES)}{did_you_mean(value, SURFACES)}")
    else:
        scope[kind] = value


def _model(table: Table, value: str, scope: dict[str, str], names: Names) -> None:
    """A model's name, or `provider:model`, which names the provider too."""
    slot = names.slot(value) if ":" in value else None
    models = [model for provider in names.providers.values() for model in provider.models]
    if slot is not None:
        if scope.get("provider", slot.provider) not in (slot.provider, "*"):
            table.wrong("model", f'names the provider {slot.provider}, but provider is "{scope["provider"]}"')
        scope["provider"], scope["model"] = slot.provider, slot.model
    elif value in models:
        scope["model"] = value
    else:
        table.wrong("model", f'no provider has a model "{value}"{did_you_mean(value, [*models, *names.known])}')


def _window(table: Table, zone: ZoneInfo) -> Window:
    per = table.text("per", required=True)
    resets = _resets(table, per)
    if per in CALENDAR:
        return Calendar(per, zone, resets)
    matched = _ROLLING.fullmatch(per)
    if matched:
        length_s = int(matched[1]) * _SECONDS[matched[2]]
        if 0 < length_s <= _LONGEST_S:
            return Rolling(length_s, f"rolling {int(matched[1])}{matched[2]}")
        table.wrong("per", "a rolling window is at least 1m and at most 366d long")
    elif per and per != "lifetime":
        known = (*CALENDAR, "lifetime", "rolling 1h")
        table.wrong("per", f"must be one of {', '.join(CALENDAR)}, lifetime, or rolling <n>m|h|d{did_you_mean(per, known)}")
    return Lifetime()


def _resets(table: Table, per: str) -> time:
    value = table.get("resets")
    if value is None:
        return time(0)
    if isinstance(value, time) and value.second == 0 and value.microsecond == 0:
        value = value.strftime("%H:%M")
    if not isinstance(value, str) or not re.fullmatch(r"([01][0-9]|2[0-3]):[0-5][0-9]", value):
        table.wrong("resets", 'must be a local time such as "06:00"')
        return time(0)
    if per in ("minute", "hour", "lifetime") or per.startswith("rolling"):
        table.wrong("resets", f'has no meaning with per = "{per}": it is for day, week and month')
    return time.fromisoformat(value)


def _warn_at(table: Table) -> tuple[float, ...]:
    value = table.get("warn_at")
    if value is None:
        return ()
    numbers = [as_decimal(item) for item in value] if isinstance(value, list) else [None]
    good = [number for number in numbers if number is not None and 0 < number <= 1]
    if len(good) != len(numbers):
        table.wrong("warn_at", "must be a list of parts of the limit, such as [0.8, 0.95]")
    return tuple(float(number) for number in sorted(set(good), key=Decimal))


def _exceptions(table: Table, unit: str, scope: dict[str, str], names: Names) -> dict[str, int]:
    section = table.table("limits")
    stars = [kind for kind, value in scope.items() if value == "*"]
    if section.raw and not stars:
        table.wrong("limits", 'is for budgets with a "*" in their scope: there is one counter only, write its limit')
        return {}
    exceptions = {}
    for key in section.raw:
        amount = _amount(section, key, unit)
        if key == GUESTS and "user" not in stars:
            section.wrong(key, 'is for budgets with user = "*"')
        if stars == ["provider"] and key not in names.canonical:
            section.wrong(key, f"unknown provider{did_you_mean(key, names.canonical)}")
        exceptions[names.canonical.get(key, key) if stars == ["provider"] else key] = amount
    return exceptions
