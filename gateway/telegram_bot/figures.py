"""/budget and /usage: bars and sums, without amounts or names of budgets for people who are not admins."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from gateway.notice import allowance, amount, money, percent, whole
from gateway.store.budgets import Balance
from gateway.telegram_bot.admin import tell
from gateway.telegram_bot.desk import Desk, Work

BAR = 10
LINES_MAX = 30
APART = ("key", "workflow", "run")
"""Scopes that no question in a chat ever counts in."""


async def budget(desk: Desk, work: Work) -> None:
    """How full the budgets are that concern the person; admins see all, with amounts, in private."""
    balances = await desk.books.balances()
    mine = balances if work.reader.admin else [one for one in balances if concerns(one, work)]
    lines = [line(desk, work, one) for one in mine[:LINES_MAX]]
    await tell(desk, work, "\n".join(lines) if lines else work.say("no_budgets"))


def concerns(balance: Balance, work: Work) -> bool:
    """True for a budget that the person's own questions can count in."""
    if any(kind in balance.scope for kind in APART):
        return False
    here = {"user": str(work.letter.user_id), "chat": str(work.lane.chat_id), "surface": "telegram"}
    return all(here.get(kind, value) == value for kind, value in balance.scope.items())


def line(desk: Desk, work: Work, balance: Balance) -> str:
    """One budget: a bar of what is spent and held, when it opens, and when it is gone at its present pace."""
    used, language = balance.spent + balance.held, work.reader.language
    share = 1.0 if balance.limit <= 0 else min(used / balance.limit, 1.0)
    full = int(share * BAR + 0.5)
    said = f"{'▓' * full}{'░' * (BAR - full)} {percent(language, share)} {_name(work, balance)}"
    if work.reader.admin:
        said += f" {amount(language, balance.unit, balance.spent)} / {amount(language, balance.unit, balance.limit)}"
        said += f" (+{amount(language, balance.unit, balance.held)})" if balance.held else ""
    opens = balance.opens_at or balance.resets_at
    if used and opens is not None and opens > desk.clock.now():
        when = desk.when(work.reader, opens)
        # A calendar window begins anew as a whole; a rolling one gives room back bit by bit.
        key = "budget_frees" if balance.window.startswith("rolling") else "budget_renews"
        said += " · " + work.say(key, when=when)
    if balance.left and balance.runs_out_at is not None:
        said += " · " + work.say("budget_runs_out", when=desk.when(work.reader, balance.runs_out_at))
    return said


def _name(work: Work, balance: Balance) -> str:
    if work.reader.admin:
        scope = ", ".join(f"{kind} {value}" for kind, value in balance.scope.items() if kind in ("user", "chat", "key"))
        return f"{balance.name} ({scope})" if scope else balance.name
    return allowance(balance.label, tuple(balance.scope), balance.window, work.reader.language)


async def usage(desk: Desk, work: Work) -> None:
    """The person's own month to date; admins see everybody's, in private."""
    now = desk.clock.now()
    begin = now.astimezone(desk.settings.zone).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    sums = await desk.books.usage(["user"], begin, now + timedelta(seconds=1))
    mine = next((one for one in sums if one["user"] == str(work.letter.user_id)), None)
    lines = [_sum(work, mine) if mine is not None else work.say("usage_none")]
    if work.reader.admin:
        most = sorted(sums, key=lambda one: -one["tokens"])[:LINES_MAX]
        lines += [f"{one['user'] or '-'}: {_sum(work, one, 'usage_row')}" for one in most]
    await tell(desk, work, "\n".join(lines))


def _sum(work: Work, sums: dict[str, Any], key: str = "usage_sum") -> str:
    language = work.reader.language
    fields = {name: whole(language, sums[name]) for name in ("requests", "tokens")}
    if not work.reader.admin:
        return work.say(key, **fields)
    return work.say(f"{key}_cost", cost=money(language, sums["cost_micro_usd"]), **fields)
