"""Prices by grade, from a file with one `grade price` on a line."""

from decimal import Decimal
from pathlib import Path


def load(file: Path) -> dict[str, Decimal]:
    """The prices in USD per barrel. Raises ValueError for a line that is none."""
    prices = {}
    for line in file.read_text().splitlines():
        if line.strip():
            grade, price = line.split()
            prices[grade.lower()] = Decimal(price)
    return prices
