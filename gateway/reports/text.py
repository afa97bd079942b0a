"""A report as text that reads well on a phone: short lines, the sum first, no line that needs the one before it. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from gateway.reports.figures import Report
from gateway.reports.sections import Section, sections

BAR = 10
SIGNS = {
    "head": "📊", "since": "⏱", "budgets": "🎯", "users": "👤", "workflows": "⚙️", "models": "🤖", "turned": "🚧", "overrun": "⚠️",
    "estimated": "≈",
}  # fmt: skip
TOGETHER = {("head", "since"), ("overrun", "estimated")}
"""Between these is no empty line."""


def text_of(report: Report, language: str, now: datetime) -> str:
    """The whole report; `now` is when it is made, for what is said of budgets."""
    said, before = "", ""
    for section in sections(report, language, now):
        between = "" if not before else "\n" if (before, section.key) in TOGETHER else "\n\n"
        said += between + "\n".join(_lines(report, section))
        before = section.key
    return said


def _lines(report: Report, section: Section) -> Iterator[str]:
    yield f"{SIGNS[section.key]} {section.title}"
    lines = iter(section.lines)
    if section.key == "head":
        yield f"{_sign_of_sum(report)} {next(lines)}"
    yield from lines
    for number, item in enumerate(section.items, 1):
        if section.key == "budgets":
            full = min(int(item.share * BAR + 0.5), BAR)
            yield f"{'▓' * full}{'░' * (BAR - full)} {item.said} {item.name}"
        else:
            yield f"{number}. {item.name} · {item.said}"
        yield from item.lines
        if item.ends:
            yield f"⏳ {item.ends}"
    if section.more:
        yield section.more


def _sign_of_sum(report: Report) -> str:
    if not report.previous.attempts:
        return "💤"
    return "💸" if report.money else "💬"
