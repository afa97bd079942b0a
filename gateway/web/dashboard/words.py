"""The console's words for amounts, times and scopes. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from gateway.amounts import amount, span, unit_name
from gateway.budget import Budget
from gateway.store.budgets import Balance

CENT, SMALLEST = 10_000, 100
"""Micro-USD: a cent, and the smallest part of money that lists show."""


def short(value: int, unit: object) -> str:
    """An amount for lists: money in whole cents from a dollar on and in hundredths of a cent below, always rounded down.

    So what is spent never looks like its limit before it has come there. What is less than all that is said as that.
    """
    if str(unit) != "micro_usd":
        return f"{value:,}"
    step = CENT if abs(value) >= 1_000_000 else SMALLEST
    return f"<{amount('micro_usd', SMALLEST)}" if 0 < value < SMALLEST else amount("micro_usd", int(value / step) * step)


def cost(micro_usd: int) -> str:
    """Money for a column: always with four decimals, so that they stand below each other."""
    return "<$0.0001" if 0 < micro_usd < SMALLEST else f"${micro_usd / 1_000_000:,.4f}"


def scope(of: Mapping[str, str]) -> str:
    """Which calls count: "every call", "provider groq", "each user"."""
    return ", ".join(f"each {kind}" if value == "*" else f"{kind} {value}" for kind, value in of.items()) or "every call"


def counts(budget: Budget) -> str:
    """What a budget counts: "provider groq · tokens per day"."""
    per, unit = budget.window.text, unit_name(str(budget.unit))
    often = f"{unit}, {per}" if per.startswith("rolling") else f"{unit} for good" if per == "lifetime" else f"{unit} per {per}"
    return f"{scope(budget.scope)} · {often}"


def counter(balance: Balance) -> str:
    """Whose counter of a `*` budget it is: the values of its `*`, not in the form of keys."""
    kinds = [part.partition("=")[0] for part in balance.key.split(",")]
    return ", ".join(balance.scope[kind] for kind in kinds)


def when(instant: datetime, zone: ZoneInfo, today: str = "", *, seconds: bool = False, ahead: bool = False) -> str:
    """An instant in a zone: the time of day, with the date if it is not today, with the year if it is not this one.

    `ahead`: it is still to come, and is said a little late rather than too early, as in notices and on the command line.
    """
    if ahead and not seconds:
        instant += (instant.replace(second=0, microsecond=0) - instant) % timedelta(minutes=1)
    local = instant.astimezone(zone)
    clock = local.strftime("%H:%M:%S" if seconds else "%H:%M")
    if f"{local:%Y-%m-%d}" == today:
        return clock
    return f"{local.day} {local:%b} {clock}" if f"{local:%Y}" == today[:4] else f"{local.day} {local:%b %Y} {clock}"


def took(milliseconds: int | None) -> str:
    """ "420 ms", "1.4 s", "3 min 5 s"."""
    if milliseconds is None:
        return "–"
    if milliseconds < 1000:
        return f"{milliseconds} ms"
    return f"{milliseconds / 1000:.1f} s" if milliseconds < 60_000 else span(milliseconds / 1000)
