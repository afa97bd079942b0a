"""Who is told what the dispatcher does: metrics count, operators are alerted, the log keeps events with fields."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from gateway.chat import Slot
from gateway.errors import SlotRefusal
from gateway.ledger import Closing, Reservation

Alert = Callable[[str, Mapping[str, object]], None]
"""Tells the operator of an event once, with its fields."""


class Observer(Protocol):
    """Counts what the dispatcher does, for metrics. Each method returns at once and raises nothing."""

    def settled(self, reservation: Reservation, closing: Closing) -> None:
        """An attempt ended."""
        ...

    def refused(self, slot: Slot, error: SlotRefusal) -> None:
        """A slot was passed over without a call."""
        ...

    def breaker(self, slot: Slot, is_open: bool) -> None:
        """A slot's breaker opened or closed."""
        ...


class Unobserved:
    """Counts nothing."""

    def settled(self, reservation: Reservation, closing: Closing) -> None:
        """Nothing."""

    def refused(self, slot: Slot, error: SlotRefusal) -> None:
        """Nothing."""

    def breaker(self, slot: Slot, is_open: bool) -> None:
        """Nothing."""
