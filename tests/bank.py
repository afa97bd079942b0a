"""A bank: counters, reservations and a clock under the ledger's rules, and statements that say what happens in it."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from datetime import time
from zoneinfo import ZoneInfo

from gateway import ledger
from gateway.budget import PAUSE, Amounts, Budget, Budgets, Calendar, Lifetime, Raise, Rolling, Unit, Window
from gateway.chat import Origin, Slot
from gateway.errors import Exhausted, Paused
from gateway.ledger import Closing, Counter, CounterId, Draft, Outcome, Reservation, State

HOUR, MINUTE = 3_600_000, 60_000
NOON = 1_772_452_800_000  # 2026-03-02 12:00 UTC
UTC = ZoneInfo("UTC")
WINDOWS: dict[str, Window] = {
    "minute": Calendar("minute", UTC),
    "hour": Calendar("hour", UTC),
    "day": Calendar("day", UTC, time(6)),
    "rolling": Rolling(3600, "rolling 1h"),
    "lifetime": Lifetime(),
}


@dataclass
class Bank:
    """Counters, rows and a clock: what a store would keep."""

    budgets: dict[str, Budget] = field(default_factory=dict)
    counters: dict[CounterId, Counter] = field(default_factory=dict)
    raises: dict[str, list[Raise]] = field(default_factory=dict)
    reservations: dict[str, Reservation] = field(default_factory=dict)
    standing: dict[str, tuple[State, Amounts]] = field(default_factory=dict)
    now_ms: int = NOON

    def reserve(self, name: str, amount: int, provider: str = "p", guest: bool = False) -> Reservation:
        origin = Origin(name, "http", user="ada", guest=guest)
        held = Amounts(1, amount, amount)
        draft = Draft(name, origin, 1, "default", Slot(provider, "m"), held, amount, 0, self.now_ms + HOUR)
        found = Budgets(self.budgets.values()).matching(draft.scope_values())
        matches = ledger.match(found, self.raises, guest, self.now_ms)
        for each in matches:
            self.counters.setdefault(each.id, Counter())
        reservation = ledger.reserve(self.counters, draft, matches, "owner", self.now_ms)
        self.reservations[name] = reservation
        self.standing[name] = State.PENDING, Amounts()
        return reservation

    def end(self, name: str, closing: Closing) -> bool:
        state, spent = self.standing[name]
        ended = ledger.close(self.counters, self.reservations[name].lines, state, spent, closing)
        if ended is not None:
            self.standing[name] = ended
        return ended is not None

    def balance(self, budget: str) -> tuple[int, int]:
        found = self.budgets[budget]
        return self.counters.get((budget, ""), Counter()).balance(found.window, self.now_ms)


def settling(amount: int) -> Closing:
    return Closing(State.SETTLED, Amounts(1, amount, amount), Outcome.ANSWERED)


def check(statement: str) -> None:
    """Plays a bank statement, line by line; each says what it does and what comes of it.

    budget NAME LIMIT per WINDOW [unit=…] [provider=…] · reserve R N [provider=…] RESULT · settle/release/expire R [N] RESULT
    · raise NAME ±N for SPAN · pause SPAN · clock ±SPAN · balance NAME pending=N spent=N. RESULT is `ok`, `NotPending`,
    or `Exhausted` with any of budget= used= held= asked= resets=+SPAN.
    """
    bank = Bank()
    for line in filter(None, map(str.strip, statement.splitlines())):
        verb, *words = shlex.split(line)
        plain = [word for word in words if "=" not in word[1:]]
        facts = dict(word.split("=", 1) for word in words if "=" in word[1:])
        try:
            _play(bank, verb, plain, facts)
        except AssertionError as error:
            raise AssertionError(f"{line}: {error}") from None


def _play(bank: Bank, verb: str, plain: list[str], facts: dict[str, str]) -> None:
    if verb == "budget":
        name, limit, _, window = plain
        scope = {"provider": facts["provider"]} if "provider" in facts else {}
        bank.budgets[name] = Budget(name, Unit(facts.get("unit", "tokens")), int(limit), WINDOWS[window], scope)
    elif verb == "reserve":
        _reserve(bank, plain, facts)
    elif verb in ("settle", "release", "expire"):
        name, *amount, result = plain
        worst = bank.reservations[name].draft.held
        closings = {"release": Closing(State.RELEASED, Amounts(), Outcome.REFUSED), "expire": ledger.expiry(worst)}
        closing = settling(int(amount[0])) if verb == "settle" else closings[verb]
        assert bank.end(name, closing) == (result == "ok"), "ended otherwise"
    elif verb == "raise":
        name, change, _, span = plain
        made = Raise(1, name, change[0], int(change[1:]), bank.now_ms, bank.now_ms + _span(span))
        bank.raises.setdefault(name, []).append(made)
    elif verb == "pause":
        bank.raises[PAUSE] = [Raise(1, PAUSE, "=", 0, bank.now_ms, bank.now_ms + _span(plain[0]))]
    elif verb == "clock":
        bank.now_ms += _span(plain[0])
    else:
        assert verb == "balance", f"unknown verb {verb}"
        spent, pending = bank.balance(plain[0])
        assert (pending, spent) == (int(facts["pending"]), int(facts["spent"])), f"pending={pending} spent={spent}"


def _reserve(bank: Bank, plain: list[str], facts: dict[str, str]) -> None:
    name, amount, result = plain
    before, refused = dumps(bank), None
    try:
        bank.reserve(name, int(amount), facts.get("provider", "p"))
    except (Exhausted, Paused) as error:
        refused = error
    assert (type(refused).__name__ if refused else "ok") == result, repr(refused)
    if refused is not None:
        assert dumps(bank) == before, "a refusal changed something"
    if isinstance(refused, Exhausted):
        block = refused.blocks[0]
        resets = None if block.resets_at is None else int(block.resets_at.timestamp() * 1000) - bank.now_ms
        said = {"budget": block.budget, "used": block.spent, "held": block.held, "asked": block.asked, "resets": resets}
        for fact in said.keys() & facts.keys():
            value: object = facts[fact]
            if fact == "resets":
                value = None if value == "never" else _span(facts[fact])
            assert str(said[fact]) == str(value), f"{fact} is {said[fact]}"


def dumps(bank: Bank) -> dict[CounterId, list[list[int]]]:
    """Every counter that holds something, as it is kept."""
    return {counter_id: dump for counter_id, counter in bank.counters.items() if (dump := counter.dump())}


def _span(text: str) -> int:
    return int(text[:-1]) * {"s": 1000, "m": MINUTE, "h": HOUR}[text[-1]]
