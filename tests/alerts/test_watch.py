"""What operators are told of without asking: once per threshold and window, whatever restarts and however many look."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from sqlalchemy import Connection, Engine, event, insert, select, text
from sqlalchemy.exc import DBAPIError

from gateway.alerts import AlertWatch
from gateway.budget import Budget, Budgets, Calendar, Lifetime, Rolling, Unit
from gateway.chat import Origin, Slot
from gateway.clock import to_ms
from gateway.errors import Exhausted, LedgerUnavailable, UnknownPrice
from gateway.store.alerts import Alert, Alerts
from gateway.store.database import Database
from gateway.store.ledger_store import LedgerStore
from gateway.store.run_tables import outbox
from gateway.store.standings import Standings
from gateway.store.tables import audit, counters
from tests.contract.world import draft, settled
from tests.doubles.clock import SettableClock

UTC_DAY = Calendar("day", ZoneInfo("UTC"))


class Office:
    """One process that spends and one that looks, on one database."""

    def __init__(self, database: Database, *budgets: Budget) -> None:
        self.clock, self.database = SettableClock(), database
        self.store = LedgerStore(database, Budgets(budgets), self.clock)
        self.alerts = Alerts(database, self.clock)
        self.lookers = [self.looker()]
        self.trouble = ""

    def looker(self) -> AlertWatch:
        """Another process that looks, or the same one after a restart."""
        standings = Standings(self.database, self.clock)

        def limits() -> tuple[Budgets, object]:
            if self.trouble:
                raise LedgerUnavailable(self.trouble)
            return self.store.budgets, self.store.raises

        return AlertWatch(self.alerts, standings, limits, self.clock, looks=True)  # type: ignore[arg-type]

    async def spend(self, tokens: int, **fields: object) -> None:
        reservation = await self.store.reserve(draft(tokens, **fields))
        await self.store.close(reservation, settled(tokens))

    async def told(self) -> list[str]:
        """Everybody looks at once; the subjects of all alerts so far, oldest first."""
        await asyncio.gather(*(looker.watch() for looker in self.lookers))
        return [alert.subject for alert in await self.newest()]

    def soon(self) -> int:
        """In an hour, in milliseconds."""
        return to_ms(self.clock.now()) + 3_600_000

    async def newest(self) -> list[Alert]:
        return sorted(await self.alerts.newest(), key=lambda alert: alert.id)


def office(
    database: Database, *, limit: int = 1000, window: object = UTC_DAY, warn_at: tuple[float, ...] = (0.8, 0.95)
) -> Office:
    return Office(database, Budget("b", Unit.TOKENS, limit, window, warn_at=warn_at))  # type: ignore[arg-type]


async def test_case_14_a_threshold_is_told_once_per_window_also_after_a_restart_and_with_two_replicas(database: Database) -> None:
    here = office(database)
    here.lookers.append(here.looker())
    await here.store.start()
    await here.spend(799)
    assert await here.told() == []
    await here.spend(1)
    assert await here.told() == ["budget_warn:b:0.8@1772409600000:"]
    await here.spend(50)
    here.lookers.append(here.looker())
    assert len(await here.told()) == 1, "neither more of the same nor a restart tells it again"
    await here.spend(100)
    assert (await here.told())[1:] == ["budget_warn:b:0.95@1772409600000:"]
    await here.spend(50)
    assert (await here.told())[2:] == ["budget_exhausted:b:@1772409600000:"]
    here.clock.advance(days=1)
    assert len(await here.told()) == 3
    assert all(alert.ended_at is not None for alert in await here.newest()), "a new window ends them"
    await here.spend(800)
    assert (await here.told())[3:] == ["budget_warn:b:0.8@1772496000000:"]


async def test_a_rolling_window_tells_again_only_after_its_length_and_once_it_has_sunk(database: Database) -> None:
    here = office(database, window=Rolling(3600, "rolling 1h"), warn_at=(0.5,))
    await here.store.start()
    await here.spend(600)
    assert len(await here.told()) == 1
    here.clock.advance(minutes=30)
    await here.spend(100)
    here.clock.advance(minutes=32)
    assert len(await here.told()) == 1
    assert [alert.ended_at is None for alert in await here.newest()] == [False], "the first 600 have left"
    await here.spend(500)
    assert len(await here.told()) == 2
    here.clock.advance(minutes=10)
    await here.spend(100)
    assert len(await here.told()) == 2


async def test_a_raise_ends_an_alert_and_reaching_the_higher_limit_is_told_too(database: Database) -> None:
    here = office(database, warn_at=(0.8,), window=Lifetime())
    await here.store.start()
    await here.spend(1000)
    kinds = ["budget_warn:b:0.8@0:", "budget_exhausted:b:@0:"]
    assert await here.told() == kinds
    # A raise that leaves it above the threshold tells nothing again.
    await here.store.raise_limit("b", "=", 1100, None, "test")
    assert await here.told() == kinds
    assert [alert.ended_at is None for alert in await here.newest()] == [True, False]
    await here.store.raise_limit("b", "=", 2000, here.soon(), "test")
    assert await here.told() == kinds
    assert all(alert.ended_at is not None for alert in await here.newest())
    await here.spend(600)
    assert await here.told() == [*kinds, kinds[0]]
    await here.spend(400)
    assert await here.told() == [*kinds, kinds[0], kinds[1]]
    # The raise ends: more is spent than the old limit, which was told. Then all this is over, and under it nothing is news.
    here.clock.advance(hours=2)
    await here.store.refresh()
    assert len(await here.told()) == 4
    await here.store.raise_limit("b", "=", 5000, here.soon(), "test")
    assert len(await here.told()) == 4
    assert all(alert.ended_at is not None for alert in await here.newest())
    here.clock.advance(hours=2)
    await here.store.refresh()
    assert len(await here.told()) == 4


async def test_a_call_that_finds_no_room_tells_that_a_budget_is_used_up_and_a_giant_does_not(database: Database) -> None:
    here = office(database, warn_at=())
    await here.store.start()
    await here.told()
    await here.spend(600)
    for asked in (1001, 400):
        if asked == 1001:
            with pytest.raises(Exhausted):
                await here.store.reserve(draft(asked))
            assert await here.told() == [], "more than the whole limit says nothing of what is left"
    held = await here.store.reserve(draft(300))
    with pytest.raises(Exhausted):
        await here.store.reserve(draft(200))
    assert await here.told() == [], "only a hold is in the way"
    await here.store.close(held, settled(300))
    with pytest.raises(Exhausted):
        await here.store.reserve(draft(200))
    assert await here.told() == ["budget_exhausted:b:@1772409600000:"]
    assert (await here.newest())[0].facts["asked"] == 200


async def test_a_limit_of_nought_and_people_without_warn_at_tell_nothing(database: Database) -> None:
    none = Budget("none", Unit.TOKENS, 0, UTC_DAY, {"user": "guest"}, warn_at=(0.5,))
    people = Budget("people", Unit.TOKENS, 100, UTC_DAY, {"user": "*"})
    asked = Budget("asked", Unit.TOKENS, 100, UTC_DAY, {"user": "*"}, warn_at=(1.0,), exceptions={"ana": 0, "bob": 50})
    here = Office(database, none, people, asked)
    await here.store.start()
    for user, tokens in (("bob", 50), ("eve", 99)):
        await here.spend(tokens, user=user)
    assert await here.told() == ["budget_warn:asked:1.0@1772409600000:user=bob", "budget_exhausted:asked:@1772409600000:user=bob"]


async def test_what_providers_do_is_told_once_until_they_answer_again(database: Database) -> None:
    here = Office(database, Budget("b", Unit.TOKENS, 10_000, Lifetime()))
    here.lookers.append(here.looker())
    await here.store.start()
    refused = {"provider": "p", "status": 401, "code": "invalid_api_key", "message": "no"}
    for looker in here.lookers:
        looker.hear("provider_key_refused", refused)
        looker.hear("no_alert", {})
    assert await here.told() == ["provider_key_refused:p"]
    here.clock.advance(hours=1)
    here.lookers[0].hear("provider_key_refused", refused)
    assert len(await here.told()) == 1
    here.clock.advance(1)
    await here.spend(10, provider="p")
    here.clock.advance(hours=1)
    here.lookers[0].hear("provider_key_refused", refused)
    assert len(await here.told()) == 2, "it has answered meanwhile"
    first, second = await here.newest()
    assert first.ended_at is not None
    assert second.ended_at is None


async def test_what_lasts_is_told_again_a_day_later_unless_somebody_has_acknowledged_it(database: Database) -> None:
    here = Office(database, Budget("b", Unit.TOKENS, 1000, Lifetime(), warn_at=(0.5, 0.6)))
    here.lookers.append(here.looker())
    await here.store.start()
    await here.spend(700)
    await here.told()
    first, second = await here.newest()
    here.clock.advance(hours=23)
    assert await here.alerts.acknowledge(first.id, "telegram:1") is not None
    again = await here.alerts.acknowledge(first.id, "telegram:2")
    assert again is not None
    assert again.by == "telegram:1", "the first counts"
    assert await here.alerts.acknowledge(999, "telegram:1") is None
    here.clock.advance(hours=2)
    await here.told()
    acknowledged, other = await here.newest()
    assert acknowledged.told_at == first.told_at
    assert other.told_at == here.clock.now() > second.told_at
    kept = await here.database.read(lambda connection: connection.execute(select(audit)).all())
    assert [(row.actor, row.action, row.subject) for row in kept] == [("telegram:1", "acknowledge", first.subject)]


async def test_an_unknown_price_and_a_stuck_message_are_told_and_the_latter_ends(database: Database) -> None:
    here = Office(database)
    await here.store.start()
    await here.told()
    slot = Slot("p", "new")
    for _ in range(2):
        await here.store.note_refusal(Origin("r", "http"), "c", slot, UnknownPrice("p", "new", 'providers.p.models."new"'))
    early = to_ms(here.clock.now())
    row = {"run": "r", "step": "s", "to": "telegram:1", "text": "hi", "created": early, "state": "pending", "detail": ""}
    await here.database.write(lambda connection: connection.execute(insert(outbox).values(row)))
    assert await here.told() == ["price_unknown:p:new"]
    here.clock.advance(minutes=11)
    assert (await here.told())[1:] == ["stuck_delivery:outbox"]
    await here.database.write(lambda connection: connection.execute(outbox.update().values(state="sent")))
    here.clock.advance(minutes=1)
    await here.told()
    assert [alert.ended_at is None for alert in await here.newest()] == [True, False]


async def test_a_ledger_that_is_gone_is_told_directly_once_and_entered_when_it_is_back(database: Database) -> None:
    here = Office(database)
    await here.store.start()
    said = []

    async def directly(kind: str, facts: object) -> None:
        said.append((kind, facts))

    looker = here.lookers[0]
    looker.directly = directly
    here.trouble = "disk full"
    looker.hear("overrun", {"slot": "p:m", "tokens": 9, "held_tokens": 5, "micro_usd": 0, "held_micro_usd": 0})
    await looker.watch()
    here.clock.advance(3)
    await looker.watch()
    assert said == [], "it may be back at once"
    here.clock.advance(3)
    await looker.watch()
    await looker.watch()
    assert said == [("ledger_unavailable", {"reason": "disk full"})]
    here.trouble = ""
    here.clock.advance(60)
    await looker.watch()
    assert [alert.kind for alert in await here.newest()] == ["overrun", "ledger_unavailable"], "what was heard is not lost"
    assert all(alert.ended_at is not None for alert in await here.newest())
    await looker.watch()
    assert len(await here.newest()) == 2


async def test_the_audit_is_only_ever_added_to(database: Database) -> None:
    here = office(database)
    await here.store.start()
    await here.store.pause(None, "test")
    columns = "(id, at, actor, action, subject) VALUES (1, 1, 'nobody', 'x', 'y')"
    replacing = {
        "sqlite": [f"INSERT OR REPLACE INTO audit {columns}", f"REPLACE INTO audit {columns}"],
        "postgresql": [f"INSERT INTO audit {columns} ON CONFLICT (id) DO UPDATE SET actor = 'nobody'", "TRUNCATE audit"],
    }
    statements = [
        "UPDATE audit SET actor = 'nobody'",
        "DELETE FROM audit",
        *replacing["sqlite" if database.is_sqlite else "postgresql"],
    ]
    for statement in statements:
        with pytest.raises(DBAPIError, match="only ever added to"):
            await database.write(lambda connection, statement=statement: connection.execute(text(statement)))  # type: ignore[misc]
    kept = await database.read(lambda connection: connection.execute(select(audit)).all())
    assert [(row.actor, row.action) for row in kept] == [("test", "pause")]


async def test_thousands_of_people_who_reach_a_threshold_at_once_are_told_a_few_at_a_time(sqlite_url: str) -> None:
    here = Office(Database(sqlite_url), Budget("b", Unit.TOKENS, 100, UTC_DAY, {"user": "*"}, warn_at=(0.5,)))
    await here.store.start()
    people = 1234
    bucket = to_ms(here.clock.now().replace(hour=0))
    rows = [
        {"budget": "b", "key": f"user={number}", "signature": here.store.budgets.all[0].signature, "spent": 60, "held": 0}
        | {"buckets": f"[[{bucket},60,0]]"}
        for number in range(people)
    ]
    await here.database.write(lambda connection: connection.execute(insert(counters), rows))
    written: list[int] = []

    def counted(connection: Connection) -> None:
        written.append(connection.exec_driver_sql("SELECT count(*) FROM alerts").scalar_one())

    event.listen(Engine, "commit", counted)
    try:
        await here.told()
    finally:
        event.remove(Engine, "commit", counted)
    assert written[-1] == people
    assert max(after - before for before, after in pairwise([0, *written])) <= 100, "between them calls go on"
    # All are over with the day, whose looks take them part by part.
    here.clock.advance(days=1)
    for _ in range(4):
        await here.told()
    assert await here.alerts.lasting(["budget_warn"]) == []
    await here.store.stop()
    await here.database.close()
