"""The books: where budgets stand, what was used, why a request ended as it did, and the proof that it all agrees."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import orjson
import pytest
from sqlalchemy import update

from gateway.budget import Amounts, Budget, Budgets, Calendar, Lifetime, Rolling, Unit, Window
from gateway.errors import Exhausted, InvalidRequest
from gateway.ledger import Closing, Outcome, State
from gateway.store.books import Books
from gateway.store.budgets import Difference
from gateway.store.database import Database
from gateway.store.export import FORMATS
from gateway.store.ledger_store import LedgerStore
from gateway.store.tables import counters, usage
from tests.contract.world import draft, settled
from tests.doubles.clock import SettableClock

UTC_ZONE = ZoneInfo("UTC")
EVERY = (
    Budget("hour", Unit.TOKENS, 1000, Rolling(3600, "rolling 1h"), {"provider": "moonshot"}),
    Budget("day", Unit.MICRO_USD, 500, Calendar("day", UTC_ZONE)),
    Budget("person", Unit.TOKENS, 400, Calendar("day", UTC_ZONE), {"user": "*", "surface": "*"}, exceptions={"bob": 40}),
    Budget("ever", Unit.REQUESTS, 10, Lifetime()),
)


class Office:
    """A store, its books and the clock they share."""

    def __init__(self, database: Database) -> None:
        self.database, self.clock = database, SettableClock()
        self.store = LedgerStore(database, Budgets(EVERY), self.clock)
        self.books = Books(database, Budgets(EVERY), self.clock)

    async def spend(self, tokens: int, micro_usd: int = 0, **attributes: str) -> str:
        reservation = await self.store.reserve(draft(tokens, micro_usd=micro_usd, **attributes))
        await self.store.close(reservation, settled(tokens, micro_usd))
        return reservation.draft.origin.request_id


@pytest.fixture
async def office(database: Database) -> AsyncIterator[Office]:
    made = Office(database)
    await made.store.start()
    yield made
    assert await made.books.check() == []


async def test_every_budget_is_listed_and_one_entry_per_counter(office: Office) -> None:
    await office.spend(100, 7, user="ada")
    office.clock.advance(minutes=30)
    await office.spend(30, 0, user="bob")
    await office.store.reserve(draft(50, user="ada"))
    listed = [balance.as_json() for balance in await office.books.balances()]
    assert listed == [
        {"name": "hour", "scope": {"provider": "moonshot"}, "unit": "tokens", "limit": 1000, "spent": 130, "held": 50,
         "left": 820, "resets_at": "2026-03-02T13:01:00Z", "runs_out_at": None},
        {"name": "day", "scope": {}, "unit": "micro_usd", "limit": 500, "spent": 7, "held": 0, "left": 493,
         "resets_at": "2026-03-03T00:00:00Z", "runs_out_at": None},
        {"name": "person", "scope": {"user": "ada", "surface": "http"}, "unit": "tokens", "limit": 400, "spent": 100,
         "held": 50, "left": 250, "resets_at": "2026-03-03T00:00:00Z", "runs_out_at": None},
        {"name": "person", "scope": {"user": "bob", "surface": "http"}, "unit": "tokens", "limit": 40, "spent": 30, "held": 0,
         "left": 10, "resets_at": "2026-03-03T00:00:00Z", "runs_out_at": "2026-03-02T16:40:00Z"},
        {"name": "ever", "scope": {}, "unit": "requests", "limit": 10, "spent": 2, "held": 1, "left": 7, "resets_at": None,
         "runs_out_at": "2026-03-02T16:00:00Z"},
    ]  # fmt: skip
    assert [balance.as_json() for balance in await office.store.balances()] == listed


async def test_an_empty_rolling_budget_has_nothing_that_leaves_and_a_raise_shows(office: Office) -> None:
    await office.store.raise_limit("hour", "%", 50, None, "cli:root")
    hour = (await office.books.balances())[0]
    assert (hour.limit, hour.left, hour.resets_at) == (1500, 1500, None)
    assert [(change.operation, change.amount, change.actor) for change in await office.books.history("hour")] == [
        ("%", 50, "cli:root")
    ]
    (entry,) = await office.books.audit("hour")
    assert (entry.actor, entry.action, entry.detail["amount"]) == ("cli:root", "raise", 50)
    with pytest.raises(InvalidRequest):
        await office.books.history("nothing")


async def test_a_balance_says_when_it_is_used_up_at_its_present_pace(office: Office) -> None:
    await office.spend(300, 150, user="ada")
    await office.spend(300, 150, user="cid")
    noon = office.clock.now()
    hour, day, ada, _, ever = await office.books.balances()
    # 600 tokens of 1,000 in a quarter of an hour, 300 micro-USD of 500 in half a day, two requests of ten just now.
    assert (hour.runs_out_at, day.runs_out_at) == (noon + timedelta(minutes=10), noon + timedelta(hours=8))
    assert (ada.runs_out_at, ever.runs_out_at) == (noon + timedelta(hours=4), noon + timedelta(hours=4))
    office.clock.advance(hours=2)
    await office.spend(1, 200, user="ada")
    _, day, _, _, ever = await office.books.balances()
    assert (day.left, day.runs_out_at) == (0, office.clock.now())
    assert ever.runs_out_at == office.clock.now() + timedelta(hours=4, minutes=40)
    office.clock.advance(days=8)
    assert [one.runs_out_at for one in await office.books.balances() if one.name != "person"] == [None, None, None]


async def test_usage_is_added_up_by_any_attribute_and_by_local_days(office: Office) -> None:
    since = office.clock.now()
    await office.spend(100, 7, user="ada", chat="1")
    await office.spend(20, 3, user="bob")
    office.clock.set(datetime(2026, 3, 2, 23, 10, tzinfo=UTC))
    await office.spend(5, 0, user="ada")
    await office.store.reserve(draft(60))
    until = since + timedelta(days=1)
    by_user = await office.books.usage(["user"], since, until)
    assert [(row["user"], row["tokens"], row["cost_micro_usd"], row["attempts"]) for row in by_user] == [
        ("ada", 105, 7, 2),
        ("bob", 20, 3, 1),
    ]
    days = await office.books.usage(["day", "provider"], since, until, ZoneInfo("Europe/Madrid"))
    assert [(row["day"].isoformat(), row["provider"], row["tokens"]) for row in days] == [
        ("2026-03-02T00:00:00+01:00", "moonshot", 120),
        ("2026-03-03T00:00:00+01:00", "moonshot", 5),
    ]
    hours = await office.books.usage(["hour"], since, until)
    assert [row["hour"].isoformat() for row in hours] == ["2026-03-02T12:00:00+00:00", "2026-03-02T23:00:00+00:00"]
    (everything,) = await office.books.usage([], since, until)
    assert (everything["tokens"], everything["requests"], everything["prompt_tokens"] + everything["output_tokens"]) == (
        125,
        3,
        125,
    )
    assert await office.books.usage(["user"], until, until + timedelta(days=1)) == []
    only = {"user": "ada", "provider": "moonshot"}
    assert [row["tokens"] for row in await office.books.usage(["hour"], since, until, only=only)] == [100, 5]
    pages = [orjson.loads(page) async for page in office.books.pages(FORMATS["jsonl"], since, until, 1, only)]
    assert [row["output_tokens"] + row["prompt_tokens"] for row in pages] == [100, 5]
    assert await office.books.usage(["user"], since, until, only=only | {"key": "ada"}) == []
    with pytest.raises(InvalidRequest):
        await office.books.usage(["secret"], since, until)


@pytest.mark.parametrize(
    ("zone", "first", "hours", "days"),
    [
        # The hour that comes twice is two hours, and the day has all of both.
        ("Europe/Madrid", "2026-10-25T00:30Z", {"00:00": 1, "01:00": 2, "02:00": 2}, {"2026-10-25": 5}),
        # The clocks go back by half an hour: one hour lasts one and a half.
        ("Australia/Lord_Howe", "2026-04-04T14:00Z", {"14:00": 3, "15:30": 2}, {"2026-04-05": 5}),
        # This day begins at one o'clock: there is no midnight.
        ("Africa/Cairo", "2026-04-23T21:00Z", {"21:00": 2, "22:00": 2, "23:00": 1}, {"2026-04-23": 2, "2026-04-24": 3}),
        ("Asia/Kolkata", "2026-05-01T18:00Z", {"17:30": 1, "18:30": 2, "19:30": 2}, {"2026-05-01": 1, "2026-05-02": 4}),
        ("Asia/Kathmandu", "2026-05-01T18:00Z", {"17:15": 1, "18:15": 2, "19:15": 2}, {"2026-05-01": 1, "2026-05-02": 4}),
    ],
)
async def test_hours_and_days_are_those_of_the_zone_also_when_its_clocks_change(
    office: Office, zone: str, first: str, hours: dict[str, int], days: dict[str, int]
) -> None:
    office.clock.set(datetime.fromisoformat(first))
    since = office.clock.now()
    for _ in range(5):
        await office.spend(1)
        office.clock.advance(minutes=30)
    by_hour = await office.books.usage(["hour"], since, office.clock.now(), ZoneInfo(zone))
    assert {f"{row['hour'].astimezone(UTC):%H:%M}": row["attempts"] for row in by_hour} == hours
    assert [row["hour"].timestamp() for row in by_hour] == sorted(row["hour"].timestamp() for row in by_hour)
    by_day = await office.books.usage(["day"], since, office.clock.now(), ZoneInfo(zone))
    assert {f"{row['day']:%Y-%m-%d}": row["attempts"] for row in by_day} == days
    both = await office.books.usage(["day", "hour", "provider"], since, office.clock.now(), ZoneInfo(zone))
    assert [row["attempts"] for row in both if row["attempts"]] == [row["attempts"] for row in by_hour]


async def test_a_story_has_attempts_with_their_lines_and_refusals_with_their_blocks(office: Office) -> None:
    first = draft(300, user="ada", request_id="story")
    reservation = await office.store.reserve(first)
    failed = Closing(State.RELEASED, Amounts(), Outcome.REFUSED, detail="503 overloaded")
    await office.store.close(reservation, failed)
    with pytest.raises(Exhausted):
        await office.store.reserve(draft(500, user="ada", request_id="story", attempt=2))
    story = await office.books.story("story")
    (attempt,), (refusal,) = story.attempts, story.refusals
    assert (attempt["outcome"], attempt["detail"], attempt["held_tokens"]) == ("refused", "503 overloaded", 300)
    assert [(line["budget"], line["amount"], line["limit"]) for line in attempt["lines"]] == [
        ("day", 0, 500), ("ever", 1, 10), ("hour", 300, 1000), ("person", 300, 400),
    ]  # fmt: skip
    assert (refusal["kind"], refusal["detail"]["blocks"][0]["budget"]) == ("Exhausted", "person")
    nothing = await office.books.story("unknown")
    assert (list(nothing.attempts), list(nothing.refusals)) == ([], [])


async def test_one_altered_row_or_counter_is_found(office: Office) -> None:
    await office.spend(100, 7, user="ada")
    await office.store.reserve(draft(50, user="ada"))
    assert await office.books.check() == []
    spent = usage.c.state == "settled"
    await office.database.write(lambda connection: connection.execute(update(usage).where(spent).values(spent_tokens=99)))
    assert await office.books.check() == [
        Difference("hour", "", "spent", 100, 99),
        Difference("person", "user=ada,surface=http", "spent", 100, 99),
    ]
    await office.database.write(lambda connection: connection.execute(update(usage).where(spent).values(spent_tokens=100)))
    ever = counters.c.budget == "ever"
    await office.database.write(lambda connection: connection.execute(update(counters).where(ever).values(buckets="[[0, 5, 0]]")))
    assert await office.books.check() == [Difference("ever", "", "spent", 5, 1), Difference("ever", "", "held", 0, 1)]
    await office.database.write(lambda connection: connection.execute(update(counters).where(ever).values(buckets="[[0, 1, 1]]")))


async def test_an_adjustment_counts_at_once_is_audited_and_survives_a_rebuild(office: Office) -> None:
    await office.spend(100, user="ada")
    await office.books.adjust("hour", -40, "billed less", "cli:root")
    await office.books.adjust("person", 25, "billed more", "cli:root", {"user": "ada", "surface": "http"})
    assert [(balance.name, balance.spent) for balance in await office.books.balances()] == [
        ("hour", 60), ("day", 0), ("person", 125), ("ever", 1),
    ]  # fmt: skip
    assert await office.books.check() == []
    with pytest.raises(Exhausted):
        await office.store.reserve(draft(276, user="ada"))
    await office.store.reserve(draft(275, user="ada"))
    (entry,) = await office.books.audit("hour")
    assert (entry.action, entry.detail["spent"], entry.detail["reason"]) == ("adjust", -40, "billed less")


async def test_what_was_taken_back_leaves_with_the_spend_and_opens_no_room_beyond_the_limit(office: Office) -> None:
    await office.spend(300)
    office.clock.advance(minutes=10)
    await office.spend(200)
    office.clock.advance(minutes=20)
    await office.books.adjust("hour", -400, "billed less", "cli:root")
    for minutes, spent in ((0, 100), (32, 100), (10, 0)):
        office.clock.advance(minutes=minutes)
        assert (await office.books.balances())[0].spent == spent
        assert await office.books.check() == []
    with pytest.raises(Exhausted):
        await office.store.reserve(draft(1001))


@pytest.mark.parametrize("window", [Rolling(3600, "rolling 1h"), Rolling(60, "rolling 1m"), Calendar("hour", UTC_ZONE)])
async def test_what_was_taken_back_opens_no_room_in_another_window(database: Database, window: Window) -> None:
    clock = SettableClock()
    budgets = [Budgets([Budget("tokens", Unit.TOKENS, 1000, each)]) for each in (Lifetime(), window)]
    first, second = (LedgerStore(database, each, clock) for each in budgets)
    await first.start()
    await first.close(await first.reserve(draft(500)), settled(500))
    clock.advance(hours=3)
    await Books(database, budgets[0], clock).adjust("tokens", -400, "billed less", "cli:root")
    await second.start()
    with pytest.raises(Exhausted):
        await second.reserve(draft(1001))
    assert await Books(database, budgets[1], clock).check() == []


@pytest.mark.parametrize(
    ("budget", "amount", "scope"),
    [
        ("nothing", 1, {}),
        ("hour", -1, {}),
        ("hour", 0, {}),
        ("person", 1, {}),
        ("person", 1, {"user": "a"}),
        ("hour", 1, {"user": "a"}),
    ],
)
async def test_an_adjustment_that_cannot_be_is_refused(office: Office, budget: str, amount: int, scope: dict[str, str]) -> None:
    with pytest.raises(InvalidRequest):
        await office.books.adjust(budget, amount, "why", "cli:root", scope)
    assert await office.books.audit() == []


async def test_the_proof_holds_and_counters_can_be_made_again_after_the_clock_went_back(office: Office) -> None:
    await office.spend(10, 1, user="ada")
    office.clock.advance(days=1)
    await office.spend(20, 2, user="ada")
    held = await office.store.reserve(draft(5, user="ada"))
    office.clock.advance(days=-1)
    await office.spend(40, 4, user="bob")
    before = await office.books.balances()
    assert [(each.name, each.spent, each.held) for each in before] == [
        ("hour", 60, 5), ("day", 6, 0), ("person", 20, 5), ("person", 40, 0), ("ever", 3, 1),
    ]  # fmt: skip
    assert await office.books.check() == []
    await LedgerStore(office.database, Budgets([]), office.clock).start()
    await LedgerStore(office.database, Budgets(EVERY), office.clock).start()
    assert await office.books.balances() == before
    await office.store.close(held, settled(5))
