"""What alerts say, and that no text of a provider or a person makes them say anything else."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from gateway.notice import Reader, alert_text

NOW = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
WARNING = {
    "budget": "team", "key": "", "scope": {}, "unit": "tokens", "limit": 1000, "spent": 812, "window": "day", "part": 0.8,
    "leaves_ms": None,
}  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "facts", "said"),
    [
        (
            "overrun",
            {"slot": "p:m", "tokens": 9, "held_tokens": 5, "micro_usd": 30_000, "held_micro_usd": 20_000},
            "⚠️ p:m billed more than was held: 9 tokens for 5, $0.03 for $0.02. It counts in full.",
        ),
        (
            "stuck_delivery",
            {"where": "outbox", "count": 3, "since_ms": 1_772_452_800_000},
            "⚠️ Messages that wait to be delivered, since 12:00: 3. The log says why.",
        ),
        (
            "price_unknown",
            {"slot": "p:m", "section": "providers.p"},
            "⚠️ No price is known for p:m, so its calls are refused. Add under [providers.p]: "
            'price = { input = …, output = … } (USD per million tokens) or price = "free".',
        ),
        (
            "breaker_open",
            {"slot": "p:m", "message": "<b>x\n" + "y" * 200},
            "⚠️ p:m has failed again and again and is left alone for a while; others answer where they can. "
            "It last said: <b>x " + "y" * 74 + "…",
        ),
        (
            "budget_exhausted",
            WARNING | {"key": "user=42", "scope": {"user": "42"}, "unit": "micro_usd", "limit": 2_000_000, "asked": 1_500_000},
            "⚠️ Budget team (user 42) has no room: $0.00081 of $2.00 (per day), and a call that may take $1.50 was refused.",
        ),
    ],
)
def test_each_says_what_it_is_and_how_to_mend_it(kind: str, facts: dict[str, object], said: str) -> None:
    assert alert_text(kind, facts, Reader("en", ZoneInfo("UTC"), admin=True), NOW) == said


def test_it_says_when_a_calendar_window_ends() -> None:
    facts = WARNING | {"leaves_ms": 1_772_496_000_000}
    said = alert_text("budget_warn", facts, Reader("es-MX", ZoneInfo("UTC"), admin=True), NOW)
    assert said == "⚠️ El presupuesto team va por el 81 %: 812 de 1.000 tokens (por día). Se abre a las 00:00."


def test_what_has_waited_since_another_day_says_which() -> None:
    facts = {"where": "inbox", "count": 1200, "since_ms": 1_772_366_400_000}
    said = alert_text("stuck_delivery", facts, Reader("es", ZoneInfo("UTC"), admin=True), NOW)
    assert said == "⚠️ Mensajes que esperan su respuesta, desde 1 mar, 12:00: 1.200. El registro dice por qué."
