"""How the console says amounts, times and scopes."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from gateway.web.dashboard.words import cost, scope, short, took, when

MADRID = ZoneInfo("Europe/Madrid")


@pytest.mark.parametrize(
    ("value", "unit", "said"),
    [
        (1_234_567, "tokens", "1,234,567"),
        (3_319_999, "micro_usd", "$3.31"),
        (249_999, "micro_usd", "$0.2499"),
        (250_000, "micro_usd", "$0.25"),
        (100, "micro_usd", "$0.0001"),
        (99, "micro_usd", "<$0.0001"),
        (0, "micro_usd", "$0.00"),
    ],
)
def test_money_is_rounded_down_so_that_no_budget_looks_used_up_before_it_is(value: int, unit: str, said: str) -> None:
    assert short(value, unit) == said


def test_money_in_a_column_has_four_decimals() -> None:
    assert [cost(value) for value in (1_234_567, 18_000, 99, 0)] == ["$1.2346", "$0.0180", "<$0.0001", "$0.0000"]


def test_a_time_says_no_more_of_its_date_than_one_has_to_know() -> None:
    at = datetime(2026, 5, 19, 22, 30, 5, tzinfo=UTC)
    assert when(at, MADRID, "2026-05-20") == "00:30"
    assert when(at, MADRID, "2026-05-19", seconds=True) == "20 May 00:30:05"
    assert when(at, MADRID, "2025-12-31") == "20 May 2026 00:30"
    assert when(at, MADRID) == "20 May 2026 00:30"


def test_a_scope_is_said_in_words() -> None:
    assert scope({}) == "every call"
    assert scope({"provider": "groq", "user": "*"}) == "provider groq, each user"


def test_lengths_of_answers() -> None:
    assert [took(value) for value in (None, 420, 1_440, 185_000)] == ["–", "420 ms", "1.4 s", "3 min 5 s"]
