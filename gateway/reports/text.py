"""A report as text that reads well on a phone: short lines, the sum first, no line that needs the one before it. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from gateway.notice import Reader, text, when
from gateway.reports.figures import BudgetFigures, Report, Share, Sums, fullness
from gateway.reports.words import (
    amount,
    calls,
    change,
    moment,
    money,
    percent,
    period,
    period_before,
    period_short,
    whole,
    with_unit,
)

BAR = 10
BUDGETS_MAX = 8
TOP = 5
NAME_MAX = 40


def text_of(report: Report, language: str, now: datetime) -> str:
    """The whole report; `now` is when it is made, for what is said of budgets."""
    reader = Reader(language, report.periods.zone, admin=True)
    blocks = [
        _head(report, language),
        _budgets(report, reader, now),
        *(
            _top(report, language, f"report_{name}", shares)
            for name, shares in (("users", report.users), ("workflows", report.workflows), ("models", report.models))
        ),
        _turned(report, language),
        _doubts(report, language),
    ]
    return "\n\n".join("\n".join(lines) for block in blocks if (lines := list(block)))


def _head(report: Report, language: str) -> Iterator[str]:
    periods, unit, previous = report.periods, report.unit, report.previous
    yield f"{text(language, f'report_title_{periods.kind}')} · {period(language, periods)}"
    if previous.attempts:
        tokens = text(language, "report_tokens", amount=whole(language, previous.tokens))
        cost = f"💸 {money(language, previous.cost_micro_usd)} · {tokens}" if report.money else f"💬 {tokens}"
        yield f"{cost} · {calls(language, previous.requests)}"
    else:
        yield text(language, "report_nothing")
    span, then = period_before(language, periods), _in(report, report.before)
    if then:
        fields = {"change": change(language, _in(report, previous), then), "amount": with_unit(language, unit, then)}
        yield text(language, "report_against", span=span, **fields)
    elif previous.attempts:
        yield text(language, "report_first", span=span)
    if periods.until > periods.start:
        yield text(language, "report_since", time=moment(language, periods, periods.until))
        yield f"{with_unit(language, unit, _in(report, report.present))} · {calls(language, report.present.requests)}"
        if same := change(language, _in(report, report.present), _in(report, report.same)):
            yield text(language, "report_same", change=same)


def _in(report: Report, sums: Sums) -> int:
    return sums.cost_micro_usd if report.money else sums.tokens


def _budgets(report: Report, reader: Reader, now: datetime) -> Iterator[str]:
    """The fullest first."""
    language = reader.language
    if not report.budgets:
        yield text(language, "report_no_budgets")
        return
    yield text(language, "report_budgets")
    ranked = sorted(report.budgets, key=lambda one: -fullness(one.fullest))
    for line in ranked[:BUDGETS_MAX]:
        yield from _budget(report, line, reader, now)
    if len(ranked) > BUDGETS_MAX:
        yield text(language, "report_more", count=len(ranked) - BUDGETS_MAX)


def _budget(report: Report, line: BudgetFigures, reader: Reader, now: datetime) -> Iterator[str]:
    language, balance, unit = reader.language, line.fullest, line.budget.unit
    share = fullness(balance)
    full = min(int(share * BAR + 0.5), BAR)
    stars = ", ".join(balance.scope[kind] for kind, value in line.budget.scope.items() if value == "*")
    name = f"{balance.name} · {_name(stars)}" if stars else balance.name
    yield f"{'▓' * full}{'░' * (BAR - full)} {percent(language, share)} {name}"
    said = {"spent": amount(language, unit, balance.spent), "limit": with_unit(language, unit, balance.limit)}
    standing = [text(language, "report_of", window=_window(language, balance.window), **said)]
    if line.counters > 1:
        standing.append(text(language, "report_fullest", count=line.counters))
    yield " · ".join(standing)
    spent = f"{period_short(language, report.periods)}: {amount(language, unit, line.previous)}"
    yield f"{spent} {change(language, line.previous, line.before)}".rstrip()
    if ends := _ends(line, reader, now):
        yield f"⏳ {ends}"


def _ends(line: BudgetFigures, reader: Reader, now: datetime) -> str:
    """When it is gone, or opens again."""
    balance, language = line.fullest, reader.language
    if not balance.left:
        opens = balance.resets_at
        if opens is None or balance.limit <= 0:
            return text(language, "report_used_up")
        return text(language, "report_used_up_until", when=when(opens, reader, now))
    gone = balance.runs_out_at
    return "" if gone is None else text(language, "report_runs_out", when=when(gone, reader, now))


def _window(language: str, window: str) -> str:
    kind, _, length = window.partition(" ")
    return text(language, f"report_window_{kind}", **({"length": length} if length else {}))


def _top(report: Report, language: str, key: str, shares: Sequence[Share]) -> Iterator[str]:
    if not shares:
        return
    yield text(language, key)
    for number, share in enumerate(shares[:TOP], 1):
        taken = amount(language, report.unit, _in(report, share.sums))
        yield f"{number}. {_name(share.name)} · {taken} · {percent(language, share.share)}"
    if len(shares) > TOP:
        yield text(language, "report_more", count=len(shares) - TOP)


def _name(name: str) -> str:
    """A name as it stands in one line: it may have come from anywhere."""
    plain = "".join(letter if letter.isprintable() else " " for letter in name)
    return plain if len(plain) <= NAME_MAX else f"{plain[: NAME_MAX - 1]}…"


def _turned(report: Report, language: str) -> Iterator[str]:
    turned = report.turned
    count = turned.refused + turned.failed
    if count:
        yield text(language, "report_turned", count=whole(language, count))
        yield text(language, "report_turned_refused", refused=turned.refused, failed=turned.failed)
        yield text(language, "report_turned_saved", saved=turned.saved)
        yield text(language, "report_turned_rest", later=turned.later, never=turned.never)


def _doubts(report: Report, language: str) -> Iterator[str]:
    sums = report.previous
    if sums.overrun or sums.overrun_micro_usd:
        beyond = {"tokens": whole(language, sums.overrun), "cost": money(language, sums.overrun_micro_usd)}
        yield text(language, "report_overrun", **beyond)
    if sums.estimated or sums.uncertain:
        counts = {"estimated": whole(language, sums.estimated), "attempts": whole(language, sums.attempts)}
        share = percent(language, sums.estimated / sums.attempts)
        yield text(language, "report_estimated", share=share, uncertain=whole(language, sums.uncertain), **counts)
