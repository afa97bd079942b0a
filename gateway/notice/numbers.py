"""Amounts and shares as people write them in their language. Pure."""

from __future__ import annotations

from decimal import Decimal

from gateway.budget import Unit
from gateway.notice.catalogue import best, text

CENT = 10_000
"""In micro-USD."""


def money(language: str, micro_usd: int) -> str:
    """Dollars and cents; under a cent with as many places as are needed for two figures."""
    from babel.numbers import format_currency

    dollars = Decimal(micro_usd) / 1_000_000
    places = 2 if not micro_usd or abs(micro_usd) >= CENT else 1 - dollars.adjusted()
    pattern = {"es": "#,##0.{} ¤"}.get(best(language), "¤#,##0.{}").format("0" * places)
    return format_currency(dollars, "USD", pattern, locale=best(language), currency_digits=False)


def whole(language: str, number: int) -> str:
    """Every digit."""
    from babel.numbers import format_decimal

    return format_decimal(number, locale=best(language))


def amount(language: str, unit: Unit, value: int) -> str:
    """An amount of a budget's unit, every digit of it, without the unit's name."""
    return money(language, value) if unit is Unit.MICRO_USD else whole(language, value)


def percent(language: str, share: float) -> str:
    """A share; one that is not nought never reads as nought, and what is less than the whole never as the whole."""
    from babel.numbers import format_percent

    if 0 < share < 0.001:
        return f"<{percent(language, 0.001)}"
    if 0.99 < share < 1:
        share = 0.99
    pattern = "#,##0.0%" if 0 < share < 0.01 else "#,##0%"
    return format_percent(share, pattern if best(language) != "es" else pattern.replace("%", " %"), locale=best(language))


def per(language: str, window: str) -> str:
    """A budget's window, as `Window.text` has it: "per day", "in 1h"."""
    kind, _, length = window.partition(" ")
    return text(language, f"report_window_{kind}", **({"length": length} if length else {}))
