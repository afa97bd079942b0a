"""A ledger, its books and the reports made of them, on a clock that a test sets."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

from gateway.budget import Budget, Budgets, Calendar, Rolling, Unit
from gateway.chat import Origin, Slot
from gateway.cron import Cron
from gateway.errors import GatewayError
from gateway.ledger import Closing
from gateway.reports import Reports
from gateway.settings import ReportSettings, Settings, demo
from gateway.store.books import Books
from gateway.store.database import Database
from gateway.store.ledger_store import LedgerStore
from gateway.store.outbox import Outbox
from tests.contract.world import RELEASED, draft, settled
from tests.doubles.clock import SettableClock

MADRID = ZoneInfo("Europe/Madrid")
BUDGETS = Budgets(
    [
        Budget("moonshot-hour", Unit.TOKENS, 250_000, Rolling(3600, "rolling 1h"), {"provider": "moonshot"}),
        Budget("person-day", Unit.TOKENS, 40_000, Calendar("day", MADRID), {"user": "*"}, "your allowance"),
        Budget("money-day", Unit.MICRO_USD, 2_000_000, Calendar("day", MADRID)),
        Budget("run-cap", Unit.TOKENS, 10, Calendar("day", MADRID), {"run": "*", "workflow": "digest"}),
    ]
)


def settings(folder: Path, reports: tuple[ReportSettings, ...] = (), budgets: Budgets = BUDGETS) -> Settings:
    """The demo's, in Madrid, with these budgets."""
    from dataclasses import replace

    return replace(demo(folder, False, {}), zone=MADRID, budgets=budgets, reports=reports)


def setting(to: str, *, cron: str = "0 9 * * *", period: str = "day", language: str = "en", csv: bool = False) -> ReportSettings:
    """A report named daily."""
    return ReportSettings("daily", Cron(cron, MADRID), to, period, language, csv)


class Office:
    """One process's view; several may share a database."""

    def __init__(self, database: Database, folder: Path, clock: SettableClock | None = None) -> None:
        self.database = database
        self.clock = clock or SettableClock(datetime(2026, 11, 28, 11, tzinfo=UTC))
        self.store = LedgerStore(database, BUDGETS, self.clock)
        self.books = Books(database, BUDGETS, self.clock)
        self.outbox = Outbox(database, self.clock)
        self.reports = Reports(self.books, self.outbox, settings(folder), self.clock)

    async def spend(self, tokens: int, micro_usd: int = 0, closing: Closing | None = None, **attributes: str) -> str:
        """One call that is answered; its request."""
        reservation = await self.store.reserve(draft(tokens, micro_usd=micro_usd, **attributes))  # type: ignore[arg-type]
        await self.store.close(reservation, closing or settled(tokens, micro_usd))
        return reservation.draft.origin.request_id

    async def refuse(self, request_id: str, provider: str, error: GatewayError) -> None:
        """A slot is passed over."""
        await self.store.note_refusal(Origin(request_id, "http"), "default", Slot(provider, "m-1"), error)

    async def three_days(self) -> None:
        """The day before yesterday, yesterday with all that can happen, and today until noon in Madrid."""
        await self.spend(30_000, 600_000, user="ada")
        self.clock.advance(days=1)
        await self.spend(30_000, 600_000, user="ada")
        await self.spend(9_000, 300_000, user="bob", provider="groq", workflow="digest")
        await self.spend(1_000, 0, provider="home", user="_weird*[name](x)\n=1")
        estimated = settled(1_500, 60_000, estimated=True, uncertain=True)
        await self.spend(1_000, 50_000, estimated, user="bob")
        # One that its second slot answers at once, one that is answered in an hour, one that is not.
        failed = await self.spend(100, 10, RELEASED)
        await self.spend(10, 0, request_id=failed, provider="groq", attempt=2)  # type: ignore[arg-type]
        for request_id in ("late", "never"):
            await self.refuse(request_id, "moonshot", GatewayError("no room"))
        self.clock.advance(hours=1)
        await self.spend(10, 0, request_id="late", user="bob")
        self.clock.set(datetime(2026, 11, 30, 11, tzinfo=UTC))
        await self.spend(36_000, 900_000, user="ada")
        await self.spend(1_000, 10_000, user="bob")
