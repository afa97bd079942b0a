"""The figures of a report, from sums, balances and refusals. Pure: what is told and drawn is made of these alone.

Every total is the sum of the usage rows of its period, and of the groups beneath it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gateway.budget import Amounts, Budget, Unit
from gateway.reports.periods import Periods
from gateway.store.books import Statement
from gateway.store.budgets import Balance
from gateway.store.spans import ADDED, Group, Turned

NAMES = ("provider", "model", "user", "workflow")
"""What a report always groups by."""
BEFORE, SAME, REST, PRESENT = range(4)
"""The spans between the edges of Periods."""
PREVIOUS = (SAME, REST)


@dataclass(frozen=True, slots=True)
class Sums:
    """What attempts add up to; the names of `spans.ADDED`."""

    attempts: int = 0
    requests: int = 0
    tokens: int = 0
    cost_micro_usd: int = 0
    estimated: int = 0
    uncertain: int = 0
    overrun: int = 0
    overrun_micro_usd: int = 0

    @classmethod
    def of(cls, groups: Iterable[Group]) -> Sums:
        """The sum of groups."""
        found = list(groups)
        return cls(**{name: sum(group.sums[name] for group in found) for name in ADDED})

    def weight(self) -> tuple[int, int]:
        """By what things are ranked: money first."""
        return self.cost_micro_usd, self.tokens


@dataclass(frozen=True, slots=True)
class Share:
    """One name of a ranking, and what it takes of the whole."""

    name: str
    sums: Sums
    share: float
    """Of the money, or of the tokens where nothing costs anything; 0 to 1."""


@dataclass(frozen=True, slots=True)
class BudgetFigures:
    """One budget: where its fullest counter stands now, and what was spent in the periods over all its counters."""

    budget: Budget
    fullest: Balance
    counters: int
    before: int
    previous: int
    present: int


@dataclass(frozen=True, slots=True)
class Report:
    """Everything that a report says."""

    periods: Periods
    before: Sums
    previous: Sums
    same: Sums
    """The previous period up to the same point as the present one."""
    present: Sums
    budgets: tuple[BudgetFigures, ...]
    users: tuple[Share, ...]
    workflows: tuple[Share, ...]
    models: tuple[Share, ...]
    turned: Turned
    """Of the previous period."""
    turned_present: Turned
    groups: tuple[Group, ...]
    """What all of it was added up from, for tables; grouped by `by`."""
    by: tuple[str, ...]
    bars: tuple[Mapping[str, Amounts], ...]
    """Per hour or day of `periods.bars()`, what each provider took."""

    @property
    def money(self) -> bool:
        """False where nothing costs anything: then tokens are told instead."""
        return any(sums.cost_micro_usd for sums in (self.before, self.previous, self.present))

    @property
    def unit(self) -> Unit:
        """In what the report measures and draws."""
        return Unit.MICRO_USD if self.money else Unit.TOKENS


def kinds(budgets: Sequence[Budget]) -> tuple[str, ...]:
    """By what the rows must be grouped, so that each of these budgets finds its own."""
    return (*NAMES, *dict.fromkeys(kind for budget in budgets for kind in budget.scope_kinds if kind not in NAMES))


def told(budgets: Iterable[Budget]) -> list[Budget]:
    """The budgets that a report tells of: what a single run may spend is the run's own matter."""
    return [budget for budget in budgets if "run" not in budget.scope]


def figures(periods: Periods, budgets: Sequence[Budget], said: Statement) -> Report:
    """Puts a report together from what the books say, whose groups are by `kinds(budgets)`."""
    groups, turned = said.groups, said.turned
    by = kinds(budgets)
    spent = _spent(budgets, groups, by)
    previous = [group for group in groups if group.span in PREVIOUS]
    before, whole, same, present = (
        Sums.of(group for group in groups if group.span in spans) for spans in ((BEFORE,), PREVIOUS, (SAME,), (PRESENT,))
    )
    values = [dict(zip(by, group.values, strict=True)) for group in previous]

    def rank(name: Callable[[Mapping[str, str | None]], str | None]) -> tuple[Share, ...]:
        return _rank(zip(map(name, values), previous, strict=True), whole)

    return Report(
        periods=periods,
        before=before,
        previous=whole,
        same=same,
        present=present,
        budgets=tuple(found for one in budgets if (found := _budget(one, said.balances, spent[one.name])) is not None),
        users=rank(lambda of: of["user"]),
        workflows=rank(lambda of: of["workflow"]),
        models=rank(lambda of: f"{of['provider']}:{of['model']}"),
        turned=_both(turned[SAME], turned[REST]),
        turned_present=turned[PRESENT],
        groups=tuple(groups),
        by=by,
        bars=_bars(periods, said.bars),
    )


def _rank(named: Iterable[tuple[str | None, Group]], whole: Sums) -> tuple[Share, ...]:
    """The greatest first."""
    found: dict[str, list[Group]] = {}
    for name, group in named:
        if name is not None:
            found.setdefault(name, []).append(group)
    sums = sorted(((name, Sums.of(groups)) for name, groups in found.items()), key=lambda pair: (*pair[1].weight(), pair[0]))
    total = whole.cost_micro_usd or whole.tokens

    def share(of: Sums) -> float:
        return (of.cost_micro_usd if whole.cost_micro_usd else of.tokens) / total if total else 0.0

    return tuple(Share(name, each, share(each)) for name, each in reversed(sums))


def _spent(budgets: Sequence[Budget], groups: Sequence[Group], by: tuple[str, ...]) -> dict[str, list[int]]:
    """What each budget's own rows took in each span, in its unit, by its name.

    There may be ten thousands of groups: for what some scopes name alike they are gone through once, however many budgets.
    """
    found: dict[str, list[int]] = {}
    for kinds in {budget.scope_kinds for budget in budgets}:
        places = [by.index(kind) for kind in kinds]
        taken: dict[tuple[str | None, ...], list[Amounts]] = {}
        for group in groups:
            spans = taken.setdefault(tuple([group.values[place] for place in places]), [Amounts()] * 4)
            (requests, tokens, micro_usd), sums = spans[group.span], group.sums
            requests, tokens = requests + sums["requests"], tokens + sums["tokens"]
            spans[group.span] = Amounts(requests, tokens, micro_usd + sums["cost_micro_usd"])
        for budget in budgets:
            if budget.scope_kinds == kinds:
                mine = [spans for values, spans in taken.items() if _counts(budget, kinds, values)]
                found[budget.name] = [sum(spans[number].of(budget.unit) for spans in mine) for number in range(4)]
    return found


def _counts(budget: Budget, kinds: tuple[str, ...], values: tuple[str | None, ...]) -> bool:
    present = {kind: value for kind, value in zip(kinds, values, strict=True) if value is not None}
    return budget.key(present) is not None


def _budget(budget: Budget, balances: Sequence[Balance], spent: Sequence[int]) -> BudgetFigures | None:
    counters = [balance for balance in balances if balance.name == budget.name]
    if not counters:
        return None
    fullest = max(counters, key=fullness)
    return BudgetFigures(budget, fullest, len(counters), spent[BEFORE], spent[SAME] + spent[REST], spent[PRESENT])


def fullness(balance: Balance) -> float:
    """What is spent and held of the limit; a limit of 0 is full."""
    return (balance.spent + balance.held) / balance.limit if balance.limit > 0 else 1.0


def _both(first: Turned, second: Turned) -> Turned:
    return Turned(
        first.refused + second.refused,
        first.failed + second.failed,
        first.saved + second.saved,
        first.later + second.later,
        first.never + second.never,
    )


def _bars(periods: Periods, drawn: Sequence[Mapping[str, Any]]) -> tuple[Mapping[str, Amounts], ...]:
    found: dict[object, dict[str, Amounts]] = {}
    for row in drawn:
        amounts = Amounts(row["requests"], row["tokens"], row["cost_micro_usd"])
        found.setdefault(periods.bar_of(row[periods.bar]), {})[row["provider"]] = amounts
    return tuple(found.get(periods.bar_of(local), {}) for local in periods.bars())
