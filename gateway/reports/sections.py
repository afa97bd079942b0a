"""What a report says, in sections: for a chat they are put one under the other, for a page side by side. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime

from gateway.notice import Reader, money, per, percent, text, when, whole
from gateway.reports.figures import BudgetFigures, Report, Share, Sums, fullness
from gateway.reports.words import (
    amount,
    calls,
    change,
    moment,
    period,
    period_before,
    period_short,
    shortened,
    with_unit,
)

BUDGETS_MAX = 8
TOP = 5
NAME_MAX = 40


@dataclass(frozen=True, slots=True)
class Item:
    """A budget, or a name of a ranking."""

    name: str
    said: str
    """In few words, what its bar shows."""
    share: float
    """Of the limit or of the whole; more than 1 where more is spent than the limit."""
    lines: tuple[str, ...] = ()
    ends: str = ""
    """When it is gone, or opens again."""


@dataclass(frozen=True, slots=True)
class Section:
    """One thing that a report tells, in short lines, each of which stands by itself."""

    key: str
    """head, since, budgets, users, workflows, models, turned, overrun or estimated."""
    title: str
    lines: tuple[str, ...] = ()
    items: tuple[Item, ...] = ()
    more: str = ""
    """How many items are left out."""


def sections(report: Report, language: str, now: datetime) -> list[Section]:
    """Everything, in its order; `now` is when it is made, for what is said of budgets."""
    reader = Reader(language, report.periods.zone, admin=True)
    ranked = {"users": report.users, "workflows": report.workflows, "models": report.models}
    return [
        _head(report, language),
        *_since(report, language),
        _budgets(report, reader, now),
        *(_top(report, language, key, shares) for key, shares in ranked.items() if shares),
        *_turned(report, language),
        *_doubts(report, language),
    ]


def _head(report: Report, language: str) -> Section:
    periods, previous = report.periods, report.previous
    title = f"{text(language, f'report_title_{periods.kind}')} · {period(language, periods)}"
    span, then = period_before(language, periods), _in(report, report.before)
    if not previous.attempts:
        lines = [text(language, "report_nothing")]
    else:
        tokens = text(language, "report_tokens", amount=whole(language, previous.tokens))
        cost = f"{money(language, previous.cost_micro_usd)} · {tokens}" if report.money else tokens
        lines = [f"{cost} · {calls(language, previous.requests)}"]
    if then:
        fields = {"change": change(language, _in(report, previous), then), "amount": with_unit(language, report.unit, then)}
        lines.append(text(language, "report_against", span=span, **fields))
    elif previous.attempts:
        lines.append(text(language, "report_first", span=span))
    return Section("head", title, tuple(lines))


def _since(report: Report, language: str) -> Iterator[Section]:
    """The period that is going on, as far as it has come."""
    periods, present = report.periods, report.present
    if periods.until > periods.start:
        lines = [f"{with_unit(language, report.unit, _in(report, present))} · {calls(language, present.requests)}"]
        if same := change(language, _in(report, present), _in(report, report.same)):
            lines.append(text(language, "report_same", change=same))
        title = text(language, "report_since", time=moment(language, periods, periods.until))
        yield Section("since", title, tuple(lines))


def _in(report: Report, sums: Sums) -> int:
    return sums.cost_micro_usd if report.money else sums.tokens


def _budgets(report: Report, reader: Reader, now: datetime) -> Section:
    """The fullest first."""
    language, ranked = reader.language, sorted(report.budgets, key=lambda one: -fullness(one.fullest))
    title = text(language, "report_budgets" if ranked else "report_no_budgets")
    items = tuple(_budget(report, line, reader, now) for line in ranked[:BUDGETS_MAX])
    return Section("budgets", title, (), items, _more(language, len(ranked) - BUDGETS_MAX))


def _budget(report: Report, line: BudgetFigures, reader: Reader, now: datetime) -> Item:
    language, balance, unit = reader.language, line.fullest, line.budget.unit
    share = fullness(balance)
    stars = ", ".join(balance.scope[kind] for kind, value in line.budget.scope.items() if value == "*")
    name = f"{balance.name} · {_name(stars)}" if stars else balance.name
    said = {"spent": amount(language, unit, balance.spent), "limit": with_unit(language, unit, balance.limit)}
    standing = [text(language, "report_of", window=per(language, balance.window), **said)]
    if line.counters > 1:
        standing.append(text(language, "report_fullest", count=whole(language, line.counters)))
    spent = f"{period_short(language, report.periods)}: {amount(language, unit, line.previous)}"
    spent = f"{spent} {change(language, line.previous, line.before)}".rstrip()
    return Item(name, percent(language, share), share, (" · ".join(standing), spent), _ends(line, reader, now))


def _ends(line: BudgetFigures, reader: Reader, now: datetime) -> str:
    balance, language = line.fullest, reader.language
    if balance.spent >= balance.limit:
        if balance.opens_at is None:
            return text(language, "report_used_up")
        return text(language, "report_used_up_until", when=when(balance.opens_at, reader, now))
    gone = balance.runs_out_at
    # Where only holds are in the way there is nothing to be said: they end by themselves.
    return "" if gone is None or not balance.left else text(language, "report_runs_out", when=when(gone, reader, now))


def _top(report: Report, language: str, key: str, shares: Sequence[Share]) -> Section:
    def item(share: Share) -> Item:
        taken = amount(language, report.unit, _in(report, share.sums))
        return Item(_name(share.name), f"{taken} · {percent(language, share.share)}", share.share)

    title, items = text(language, f"report_{key}"), tuple(item(share) for share in shares[:TOP])
    return Section(key, title, (), items, _more(language, len(shares) - TOP))


def _more(language: str, count: int) -> str:
    return text(language, "report_more", count=whole(language, count)) if count > 0 else ""


def _name(name: str) -> str:
    """A name as it stands in one line: it may have come from anywhere."""
    plain = "".join(letter if letter.isprintable() else " " for letter in name)
    return shortened(plain, NAME_MAX)


def _turned(report: Report, language: str) -> Iterator[Section]:
    turned = report.turned
    if count := turned.refused + turned.failed:
        counts = {name: whole(language, number) for name, number in asdict(turned).items()}
        lines = tuple(text(language, f"report_turned_{name}", **counts) for name in ("refused", "saved", "rest"))
        key = "report_turned_one" if count == 1 else "report_turned"
        yield Section("turned", text(language, key, count=whole(language, count)), lines)


def _doubts(report: Report, language: str) -> Iterator[Section]:
    sums = report.previous
    if sums.overrun or sums.overrun_micro_usd:
        beyond = {"tokens": whole(language, sums.overrun), "cost": money(language, sums.overrun_micro_usd)}
        title, *lines = text(language, "report_overrun", **beyond).split("\n")
        yield Section("overrun", title, tuple(lines))
    if sums.estimated or sums.uncertain:
        counts = {"estimated": whole(language, sums.estimated), "attempts": whole(language, sums.attempts)}
        share = percent(language, sums.estimated / sums.attempts)
        title, *lines = text(
            language, "report_estimated", share=share, uncertain=whole(language, sums.uncertain), **counts
        ).split("\n")
        yield Section("estimated", title, tuple(lines))
