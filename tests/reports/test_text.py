"""The text of a report, whole, in both languages; what came from outside stands in it as it is and breaks no line."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from gateway.budget import Unit
from gateway.errors import GatewayError
from gateway.notice import money, percent
from gateway.reports import words
from gateway.store.database import Database
from tests.contract.world import draft, settled
from tests.reports.office import Office

ENGLISH = """\
📊 Daily report · Sunday, November 29, 2026
💸 $0.96 · 41,520 tokens · 6 calls
▲ 60% against Sat, Nov 28 ($0.60)
⏱ Since then, until 12:01
$0.91 · 2 calls
▼ 5% against the same point before

🎯 Budgets now
▓▓▓▓▓▓▓▓▓░ 90% person-day · ada
36K of 40K tokens · per day · the fullest of 3
Sun, Nov 29: 42K ▲ 38%
⏳ at this pace gone at 13:22
▓▓▓▓▓░░░░░ 46% money-day
$0.91 of $2.00 · per day
Sun, Nov 29: $0.96 ▲ 60%
▓░░░░░░░░░ 15% moonshot-hour
37K of 250K tokens · in 1h
Sun, Nov 29: 32K ▲ 5%

👤 Who
1. ada · $0.60 · 62%
2. bob · $0.36 · 38%
3. _weird*[name](x) =1 · $0.00 · 0%

⚙️ Workflows
1. digest · $0.30 · 31%

🤖 Models
1. moonshot:m-1 · $0.66 · 69%
2. groq:m-1 · $0.30 · 31%
3. home:m-1 · $0.00 · 0%

🚧 Closed or failing models: 3 requests
no room or not allowed: 2 · failing: 1
answered by the next one: 1
answered later: 1 · never: 1

⚠️ Beyond what was held
500 tokens, $0.01
≈ Estimated: 1 of 7 (14%)
uncertain: 1"""

SPANISH_HEAD = """\
📊 Informe diario · domingo, 29 de noviembre de 2026
💸 0,96 US$ · 41.520 tokens · 6 llamadas
▲ 60 % respecto a sáb, 28 nov (0,60 US$)
⏱ Desde entonces, hasta 12:01
0,91 US$ · 2 llamadas
▼ 5 % respecto al mismo punto anterior

🎯 Presupuestos ahora
▓▓▓▓▓▓▓▓▓░ 90 % person-day · ada"""


async def test_the_whole_text(sqlite_url: str, tmp_path: Path) -> None:
    office = Office(Database(sqlite_url), tmp_path)
    await office.store.start()
    await office.three_days()
    office.clock.advance(minutes=1)
    assert (await office.reports.make("day")).text() == ENGLISH
    spanish = (await office.reports.make("day", "es-MX")).text()
    assert spanish.startswith(SPANISH_HEAD)
    assert "🤖 Modelos" in spanish
    await office.store.stop()
    await office.database.close()


async def test_with_nothing_asked_it_says_so(sqlite_url: str, tmp_path: Path) -> None:
    office = Office(Database(sqlite_url), tmp_path)
    await office.store.start()
    for kind, title in (("day", "Daily"), ("week", "Weekly"), ("month", "Monthly")):
        lines = (await office.reports.make(kind)).text().splitlines()
        assert lines[0].startswith(f"📊 {title} report · ")
        assert lines[1] == "💤 No model was called."
        assert (await office.reports.make(kind)).png().startswith(b"\x89PNG")
    await office.spend(12_345, 0, user="ada")
    office.clock.advance(days=1)
    text = (await office.reports.make("day")).text()
    assert "💬 12,345 tokens · 1 call\n" in text
    assert "1. ada · 12K · 100%" in text
    await office.store.stop()
    await office.database.close()


@pytest.mark.parametrize(
    ("micro_usd", "english", "spanish"),
    [
        (0, "$0.00", "0,00 US$"),
        (1_234_567_890, "$1,234.57", "1.234,57 US$"),
        (10_000, "$0.01", "0,01 US$"),
        (4_200, "$0.0042", "0,0042 US$"),
        (7, "$0.0000070", "0,0000070 US$"),
    ],
)
def test_money_is_never_said_to_be_nothing_when_it_is_something(micro_usd: int, english: str, spanish: str) -> None:
    assert money("en", micro_usd) == english
    assert money("es", micro_usd).replace("\xa0", " ") == spanish


def test_numbers_are_short_where_all_digits_say_no_more() -> None:
    assert [words.short("en", number) for number in (0, 9_999, 10_000, 205_400, 1_234_567)] == [
        "0",
        "9,999",
        "10K",
        "205K",
        "1.2M",
    ]
    assert [percent("en", share) for share in (0, 0.0001, 0.001, 0.125, 1)] == ["0%", "<0.1%", "0.1%", "12%", "100%"]
    # A budget with some of it left never looks as if it were gone; what is beyond its limit is said as that.
    assert [percent("en", share) for share in (0.985, 0.9961, 0.99999, 1.004)] == ["98%", "99%", "99%", "100%"]
    assert (words.change("en", 5, 0), words.change("en", 112, 100), words.change("en", 88, 100)) == ("", "▲ 12%", "▼ 12%")
    assert words.amount("en", Unit.TOKENS, 41_520) == "42K"


async def test_a_rolling_budget_opens_when_something_fits_and_not_when_the_first_spend_leaves(
    sqlite_url: str, tmp_path: Path
) -> None:
    office = Office(Database(sqlite_url), tmp_path)
    await office.store.start()
    await office.spend(10_000)
    office.clock.advance(minutes=30)
    await office.spend(10_000, 0, settled(300_000))
    office.clock.advance(minutes=15)
    (hour,) = [one for one in await office.books.balances() if one.name == "moonshot-hour"]
    assert (hour.resets_at, hour.opens_at) == (
        office.clock.now() + timedelta(minutes=16),
        office.clock.now() + timedelta(minutes=46),
    )
    text = (await office.reports.make("day")).text()
    assert "▓▓▓▓▓▓▓▓▓▓ 124% moonshot-hour\n310K of 250K tokens · in 1h\n" in text
    assert "⏳ used up, opens at 13:31" in text
    await office.store.stop()
    await office.database.close()


async def test_what_is_only_held_is_not_used_up(sqlite_url: str, tmp_path: Path) -> None:
    office = Office(Database(sqlite_url), tmp_path)
    await office.store.start()
    await office.store.reserve(draft(250_000))
    text = (await office.reports.make("day")).text()
    assert "100% moonshot-hour" in text
    assert "used up" not in text
    await office.store.stop()
    await office.database.close()


async def test_a_day_on_which_all_was_refused_does_not_say_that_nothing_was_asked(sqlite_url: str, tmp_path: Path) -> None:
    office = Office(Database(sqlite_url), tmp_path)
    await office.store.start()
    await office.refuse("r", "moonshot", GatewayError("no room"))
    office.clock.advance(days=1)
    lines = (await office.reports.make("day")).text().splitlines()
    assert lines[1] == "💤 No model was called."
    assert "🚧 Closed or failing models: 1 request" in lines
    await office.store.stop()
    await office.database.close()
