import tempfile
import unittest
from decimal import Decimal
from pathlib import Path

from petroserver.prices import load


class Prices(unittest.TestCase):
    def test_a_line_is_a_grade_and_a_price(self) -> None:
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
            file.write("Brent 82.40\n\nwti 78.15\n")
            file.flush()
            assert load(Path(file.name)) == {"brent": Decimal("82.40"), "wti": Decimal("78.15")}
