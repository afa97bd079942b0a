"""A small team's gateway as an operator would find it: a month of calls, budgets in every state, runs in every state.

Everything is written as the program itself writes it: calls go through the ledger in the order of their time, and the last
ones through the whole dispatcher, in front of a scripted upstream. The clock of dates stands still between them, so that
two visits see the same.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from gateway.chat import Origin, Slot, Usage
from gateway.clock import to_ms
from gateway.errors import BreakerOpen, SlotRefusal
from gateway.ledger import Amounts, Closing, Draft, Outcome, Reservation, State
from gateway.store.telegram_talk import Role
from tests.doubles.botapi import TOKEN
from tests.doubles.clock import SettableClock
from tests.doubles.upstream import Upstream
from tests.e2e.rig import Gateway

NOW = datetime(2026, 5, 19, 12, 37, 12, tzinfo=UTC)
"""A Tuesday, 14:37 in Madrid."""
DAYS = 30
LONG = "evangelina-kosmopoulou-vandenberghe-notebook"

TEXT = """
[gateway]
listen = "127.0.0.1:0"
timezone = "Europe/Madrid"

[telegram]
admins = [1001]
allowed_users = [1002, 1003, 1004]
allowed_chats = [-1001984453120]

[providers.moonshot]
api = "openai"
base_url = "{url}"
model = "kimi-k2.6"
price = {{ input = 0.60, output = 2.50 }}

[providers.groq]
api = "openai"
base_url = "{url}"
model = "llama-3.3-70b-versatile"
price = {{ input = 0.59, output = 0.79 }}
max_attempts = 1

[providers.openai]
api = "openai"
base_url = "{url}"
model = "gpt-5-mini"
price = {{ input = 0.25, output = 2.00 }}

[providers.home]
api = "openai"
base_url = "{url}"
model = "qwen3"
price = "free"

[chains]
default = ["groq", "moonshot", "home"]
thorough = ["moonshot", "openai"]
night = ["openai", "home"]

[[budgets]]
name = "money-month"
usd = 5.00
per = "month"

[[budgets]]
name = "moonshot-hour"
provider = "moonshot"
tokens = 200_000
per = "rolling 1h"

[[budgets]]
name = "openai-day"
provider = "openai"
usd = 0.25
per = "day"

[[budgets]]
name = "groq-day"
label = "the fast model"
provider = "groq"
tokens = 400_000
per = "day"

[[budgets]]
name = "person-day"
label = "your allowance"
user = "*"
tokens = 60_000
per = "day"
resets = "06:00"
limits = {{ "ci-nightly" = 900_000, "laptop-ana" = 250_000, guests = 0 }}

[[budgets]]
name = "groq-minute"
provider = "groq"
requests = 30
per = "minute"

[[budgets]]
name = "repositories-week"
workflow = "clone_petroserver"
tokens = 150_000
per = "week"

[[budgets]]
name = "trial-credit"
chain = "night"
usd = 5.00
per = "lifetime"

[[schedules]]
name = "morning-digest"
cron = "0 8 * * 1-5"
workflow = "digest"
params = {{ topic = "oil prices" }}

[[schedules]]
name = "guard"
cron = "0 * * * *"
workflow = "budget_guard"

[[reports]]
name = "daily"
cron = "0 9 * * *"
to = "file:var/reports"
period = "day"
"""

OFFER = '''
from typing import Literal

from gateway.workflow import Caps, Context, workflow

@workflow(title="Answer a tender", budget=Caps(tokens=40_000, usd=0.30))
async def answer_tender(ctx: Context, customer: str, pages: int, tone: Literal["formal", "plain", "warm"] = "plain",
                        parts: list[str] = [], attach: bool = True) -> str:
    """Drafts the answer to a call for tenders from the parts that you name, and asks before anything leaves the house.

    Args:
        customer: Who has sent it, as it should stand in the letter.
        pages: How long the answer may be, in pages.
        tone: How it should sound.
        parts: What it is made of.
        attach: Attach the price list.
    """
    text = await ctx.ask(f"A {tone} answer to {customer}, {pages} pages.", name="draft", max_tokens=2000)
    better = await ctx.ask(f"Read it again: {text}", name="read again", max_tokens=2000)
    await ctx.approve(f"Send the answer to {customer}?", who=("admins",), name="agree")
    return better
'''
SLOTS = {
    "groq": Slot("groq", "llama-3.3-70b-versatile"),
    "moonshot": Slot("moonshot", "kimi-k2.6"),
    "openai": Slot("openai", "gpt-5-mini"),
    "home": Slot("home", "qwen3"),
}
PRICES = {"groq": (0.59, 0.79), "moonshot": (0.60, 2.50), "openai": (0.25, 2.00), "home": (0.0, 0.0)}
PACE = {"groq": (180, 900), "moonshot": (720, 5200), "openai": (540, 3900), "home": (1400, 9800)}
"""Milliseconds until the first token, and until the last."""


@dataclass(frozen=True)
class Caller:
    """Somebody who asks, how often compared with others, how much at once, and by which chain."""

    surface: str
    user: str
    share: int
    tokens: int
    chain: str
    key: str | None = None
    chat: str | None = None


CALLERS = (
    Caller("telegram", "1001", 14, 1900, "default", chat="1001"),
    Caller("telegram", "1002", 22, 2600, "default", chat="1002"),
    Caller("telegram", "1003", 12, 1400, "default", chat="-1001984453120"),
    Caller("http", "laptop-ana", 16, 5200, "thorough", key="laptop-ana"),
    Caller("http", "ci-nightly", 8, 9800, "night", key="ci-nightly"),
    Caller("http", LONG, 5, 7400, "thorough", key=LONG),
)
CHAINS = {"default": ("groq", "moonshot", "home"), "thorough": ("moonshot", "openai"), "night": ("openai", "home")}
HOURS = (1, 1, 0, 0, 0, 0, 1, 3, 9, 14, 15, 13, 8, 7, 13, 15, 14, 11, 6, 3, 3, 3, 2, 1)
"""How busy each hour of the day is, in UTC."""


class TeamClock(SettableClock):
    """Dates stand still; what is measured goes on until `halt`, so that answers have a length and a breaker stays open."""

    def __init__(self, now: datetime) -> None:
        super().__init__(now)
        self._halted: float | None = None

    def monotonic(self) -> float:
        """Seconds that went by."""
        return time.monotonic() if self._halted is None else self._halted

    def halt(self) -> None:
        """From now on no time goes by."""
        self._halted = time.monotonic()


class Team:
    """Who asks, and what became of it. `fill` is to be called once."""

    def __init__(self, gateway: Gateway, upstream: Upstream, clock: TeamClock) -> None:
        self.gateway, self.app, self.upstream, self.clock = gateway, gateway.app, upstream, clock
        self._chance = random.Random(7)
        self._count = 0

    async def fill(self) -> None:
        """A month of calls, until three hours before NOW."""
        clock, shares = self.clock, [one.share for one in CALLERS]
        clock.set(NOW - timedelta(days=DAYS))
        await self._people_and_keys()
        for at in self._times(NOW - timedelta(days=DAYS), NOW - timedelta(hours=3)):
            clock.set(at)
            await self.asked(self._chance.choices(CALLERS, shares)[0])

    async def _people_and_keys(self) -> None:
        app = self.app
        await app.keys.create("laptop-ana", True, "cli:ana")
        for name, may in (("ci-nightly", ("run",)), (LONG, ("ask", "run")), ("old-phone", ("ask",)), ("sheet", ("read",))):
            await app.keys.create(name, False, "cli:ana", may=may, chains=("night",) if name == LONG else ())
            self.clock.advance(hours=5)
        await app.keys.revoke("old-phone", "console:laptop-ana")
        people = app._people()
        assert people is not None
        for subject, role in ((5390127744, Role.DENIED), (1005, Role.ALLOWED), (-1002077131999, Role.ALLOWED)):
            self.clock.advance(minutes=17)
            await people.set_role(subject, role, 1001, to_ms(self.clock.now()), "telegram:1001")

    def _times(self, start: datetime, end: datetime) -> Iterator[datetime]:
        """When calls are made: by the hour of the day, few on weekends, slowly more."""
        hour = start.replace(minute=0, second=0)
        while hour < end:
            busy = HOURS[hour.hour] * (0.15 if hour.weekday() > 4 else 0.45) * (0.7 + 0.6 * (hour - start) / (end - start))
            seconds = sorted(self._chance.uniform(0, 3600) for _ in range(round(busy * self._chance.uniform(0.5, 1.3))))
            yield from (at for each in seconds if start < (at := hour + timedelta(seconds=each)) < end)
            hour += timedelta(hours=1)

    def new_id(self) -> str:
        """The id of a run."""
        return f"{self._chance.getrandbits(48):012x}"

    def origin(self, caller: Caller, **more: Any) -> Origin:
        """A new request of somebody."""
        self._count += 1
        origin = Origin(f"req_{self._count:05d}{self._chance.getrandbits(40):010x}", caller.surface, user=caller.user)
        return replace(origin, chat=caller.chat, key=caller.key, **more)

    async def asked(self, caller: Caller, left_alone: str = "") -> None:
        """One request, slot by slot, as the dispatcher goes; one provider may be left alone."""
        origin = self.origin(caller)
        attempt = 1
        for name in CHAINS[caller.chain]:
            if name == left_alone:
                error = BreakerOpen(name, self.clock.now() + timedelta(seconds=24), "Service is over capacity")
                await self.app.store.note_refusal(origin, caller.chain, SLOTS[name], error)
                continue
            tokens = max(90, round(self._chance.lognormvariate(0, 0.6) * caller.tokens))
            held = await self.hold(origin, caller.chain, name, tokens, attempt)
            if held is None:
                continue
            if await self.closed(held, name, tokens):
                return
            attempt += 1

    async def hold(self, origin: Origin, chain: str, name: str, tokens: int, attempt: int = 1) -> Reservation | None:
        """A reservation of half as much again, None where there is no room."""
        worst = tokens * 3 // 2
        held = Amounts(1, worst, round(worst * PRICES[name][1]))
        deadline = to_ms(self.clock.now() + timedelta(minutes=30))
        id = f"{origin.request_id}-{attempt}-{name}"
        try:
            draft = Draft(id, origin, attempt, chain, SLOTS[name], held, worst // 3, worst * 2 // 3, deadline)
            return await self.app.store.reserve(draft)
        except SlotRefusal as error:
            await self.app.store.note_refusal(origin, chain, SLOTS[name], error)
            return None

    async def closed(self, held: Reservation, name: str, tokens: int) -> bool:
        """How it ended; False where the next provider is asked."""
        chance, (first, total) = self._chance, PACE[name]
        way = chance.random()
        output = round(tokens * chance.uniform(0.12, 0.4))
        usage = Usage(tokens - output, output, cached=(tokens - output) // 4)
        price = PRICES[name]
        spent = Amounts(1, tokens, round((tokens - output) * price[0] + output * price[1]))
        slow = chance.lognormvariate(0, 0.4)
        closing = Closing(State.SETTLED, spent, Outcome.ANSWERED, usage, held.draft.slot.model, "configured")
        closing = closing._replace(first_token_ms=round(first * slow), total_ms=round(total * slow))
        if way > 0.985:
            closing = closing._replace(outcome=Outcome.CLAMPED)
        elif way > 0.975:
            closing = closing._replace(outcome=Outcome.CANCELLED, estimated=True)
        elif way > 0.962:
            closing = closing._replace(
                outcome=Outcome.UNANSWERED, uncertain=True, estimated=True, spent=held.draft.held, first_token_ms=None
            )
        elif way > 0.93:
            said = "HTTP 503: the engine is overloaded, please try again later"
            closing = Closing(State.RELEASED, Amounts(0, 0, 0), Outcome.REFUSED, total_ms=round(first * slow), detail=said)
        await self.app.store.close(held, closing)
        return closing.outcome is not Outcome.REFUSED


def folder_of(folder: Path) -> Path:
    """A folder with the team's secrets and workflow."""
    (folder / "workflows").mkdir(parents=True, exist_ok=True)
    (folder / ".env").write_text(f"TELEGRAM_BOT_TOKEN={TOKEN}\n")
    (folder / "workflows" / "answer_tender.py").write_text(OFFER)
    return folder
