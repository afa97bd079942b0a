"""The notice for an error: whose allowance or what else is in the way, when it opens, and the buttons that work now.

A chain's causes are weighed as a person would: a slot that could never serve this question says nothing while another
one opens at 14:20. Of the budgets in the way the one is named that opens last on the slot that opens first.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal

from gateway.budget import Unit
from gateway.errors import (
    Block,
    BreakerOpen,
    CannotServe,
    Cause,
    ChainExhausted,
    ContentRefused,
    ContextTooLong,
    Exhausted,
    GatewayError,
    InvalidRequest,
    LedgerUnavailable,
    Paused,
    ProviderError,
    Refused,
    RequestConflict,
    UnknownPrice,
    UnknownTarget,
)
from gateway.notice.catalogue import read, text
from gateway.notice.times import wait, when
from gateway.notice.values import Action, Notice, Reader

WHOSE = (
    ("user", "whose_user"),
    ("chat", "whose_chat"),
    ("workflow", "whose_workflow"),
    ("run", "whose_workflow"),
    ("key", "whose_key"),
)
"""Whose allowance a budget is, by the first of these attributes in its scope; anything else is the team's."""

UNABLE = (CannotServe, ContextTooLong, ContentRefused, UnknownPrice)
"""What no waiting mends: this question, on this slot, never has an answer."""

DETAIL_CHARS_MAX = 200
_ROLLING = re.compile(r"rolling (\d+)([mhd])")


def notice(error: GatewayError, reader: Reader, now: datetime, *, saved: bool = False, other_models: bool = False) -> Notice:
    """The notice for any GatewayError. `saved`: the question is kept; `other_models`: another chain or model can be picked."""
    if isinstance(error, ChainExhausted):
        said = _chain(error, reader, now)
        details = _details(error.causes, reader, now)
    elif isinstance(error, Exhausted):
        said = _budgets([error], error.resets_at, reader, now)
        details = []
    elif isinstance(error, Paused):
        said = _timed("paused", error.until, reader, now)
        details = []
    else:
        return Notice("\n".join([_plain(error, reader), *_own_words(error, reader)]))
    lines = [said.text]
    waits = saved and said.waits
    if waits and not reader.group:
        lines[0] += " " + text(reader.language, "saved")
    actions = [
        (Action.ANSWER_LATER, waits),
        (Action.OTHER_MODEL, other_models),
        (Action.ASK_ADMIN, said.budget and not reader.admin),
        (Action.CANCEL, waits),
    ]
    return Notice("\n".join(lines + details), tuple(action for action, works in actions if works), said.opens_at)


@dataclass(frozen=True, slots=True)
class _Said:
    """The first line, the time named in it, whether waiting can help, and whether an admin's raise can."""

    text: str
    opens_at: datetime | None
    waits: bool
    budget: bool = False


def _chain(error: ChainExhausted, reader: Reader, now: datetime) -> _Said:
    errors = [cause.error for cause in error.causes]
    budgets = [one for one in errors if isinstance(one, Exhausted)]
    paused = [one for one in errors if isinstance(one, Paused)]
    unable = [one for one in errors if isinstance(one, UNABLE)]
    down = [one for one in errors if not isinstance(one, (Exhausted, Paused, *UNABLE))]
    if paused:
        return _timed("paused", paused[0].until, reader, now)
    if budgets and down:
        return replace(_timed("mixed", error.available_at, reader, now), budget=True)
    if budgets:
        return _budgets(budgets, error.available_at, reader, now)
    if down or not unable:
        return _timed("outage", error.available_at, reader, now)
    keys = {_unable_key(one) for one in unable}
    return _Said(text(reader.language, keys.pop() if len(keys) == 1 else "cannot_serve"), None, waits=False)


def _unable_key(error: GatewayError) -> str:
    if isinstance(error, UnknownPrice):
        return "unpriced"
    if isinstance(error, ContextTooLong):
        return "too_long"
    return "content_refused" if isinstance(error, ContentRefused) else "cannot_serve"


def _timed(key: str, at: datetime | None, reader: Reader, now: datetime) -> _Said:
    if at is None or at <= now:
        return _Said(text(reader.language, key), None, waits=True)
    fields = {"when": when(at, reader, now), "wait": wait(at, reader, now)}
    return _Said(text(reader.language, f"{key}_until", **fields), at, waits=True)


def _budgets(refusals: Sequence[Exhausted], available_at: datetime | None, reader: Reader, now: datetime) -> _Said:
    """The sentence for slots that all lack budget: the slot that opens first, and on it the budget that opens last."""
    if any(refusal.held_only for refusal in refusals):
        return _Said(text(reader.language, "busy"), None, waits=True, budget=True)
    opening = [refusal for refusal in refusals if refusal.resets_at is not None]
    first = min(opening, key=lambda refusal: refusal.resets_at or now) if opening else refusals[0]
    block = _deciding(first, now)
    at = available_at or first.resets_at
    whose = _whose(block.label, block.scope_kinds, reader.language)
    if not opening:
        key = "nothing_allowed" if block.limit == 0 else "too_large" if first.too_large else "used_up_for_good"
        if key == "too_large":
            whose = whose[:1].lower() + whose[1:]
        return _Said(text(reader.language, key, whose=whose), None, waits=False, budget=True)
    line = text(reader.language, "used_up", whose=whose, window=_window(block.window, reader.language))
    if at is not None and at > now:
        fields = {"when": when(at, reader, now), "wait": wait(at, reader, now)}
        line += " " + text(reader.language, "back" if reader.group else "opens", **fields)
    return _Said(line, at, waits=True, budget=True)


def _deciding(refusal: Exhausted, now: datetime) -> Block:
    """The budget that keeps this slot shut longest; one that never opens before any that does."""
    never = [block for block in refusal.blocks if block.resets_at is None]
    return never[0] if never else max(refusal.blocks, key=lambda block: block.resets_at or now)


def allowance(label: str, scope_kinds: Sequence[str], window: str, language: str) -> str:
    """Whose allowance a budget is and of which window, without its name: "The team's allowance for this hour"."""
    whose = _whose(label, scope_kinds, language)
    return whose if window == "lifetime" else f"{whose} {_window(window, language)}"


def _whose(label: str, scope_kinds: Sequence[str], language: str) -> str:
    """Whose allowance it is. A label is the operator's own; one that is our English word for it is translated."""
    key = next((key for kind, key in WHOSE if kind in scope_kinds), "whose_team")
    if not label:
        return text(language, key)
    ours = next((key for _, key in WHOSE if read("en")[key].casefold() == label.casefold()), None)
    return text(language, ours) if ours else label[:1].upper() + label[1:]


def _window(window: str, language: str) -> str:
    """ "for today", "for the last 5 minutes"."""
    rolling = _ROLLING.fullmatch(window)
    if rolling is None:
        return text(language, f"window_{window}")
    n, unit = rolling[1], rolling[2]
    return text(language, f"window_last_{unit}_one") if n == "1" else text(language, f"window_last_{unit}", n=n)


def _plain(error: GatewayError, reader: Reader) -> str:
    """The sentence for an error that no waiting mends by a known time."""
    language = reader.language
    if isinstance(error, InvalidRequest):
        return text(language, "invalid_request", reason=error.message)
    if isinstance(error, UnknownTarget):
        return text(language, "unknown_target", name=error.name)
    if isinstance(error, UNABLE):
        return text(language, _unable_key(error))
    if isinstance(error, Refused):
        return text(language, "provider_refused")
    keys = {LedgerUnavailable: "ledger_unavailable", RequestConflict: "conflict", BreakerOpen: "outage"}
    return text(language, keys.get(type(error), "outage" if isinstance(error, ProviderError) else "failed"))


def _own_words(error: GatewayError, reader: Reader) -> list[str]:
    """What the error says of itself, for an admin alone."""
    if not reader.admin or reader.group or isinstance(error, InvalidRequest | UnknownTarget):
        return []
    return [str(error)[:DETAIL_CHARS_MAX]]


def _details(causes: Sequence[Cause], reader: Reader, now: datetime) -> list[str]:
    """One line per slot and budget, for an admin alone: names and amounts are nobody else's."""
    if not reader.admin or reader.group:
        return []
    lines = []
    for cause in causes:
        if isinstance(cause.error, Exhausted):
            lines += [_detail(str(cause.slot), block, reader, now) for block in cause.error.blocks]
        else:
            reason = str(cause.error).removeprefix(f"{cause.slot}: ")[:DETAIL_CHARS_MAX]
            lines.append(text(reader.language, "detail_other", slot=cause.slot, reason=reason))
    return lines


def _detail(slot: str, block: Block, reader: Reader, now: datetime) -> str:
    language = reader.language
    fields = {
        "slot": slot,
        "budget": block.budget,
        "spent": _number(block.spent, block.unit),
        "held": _number(block.held, block.unit),
        "asked": _number(block.asked, block.unit),
        "limit": _number(block.limit, block.unit),
    }
    if block.unit != Unit.MICRO_USD:
        fields["limit"] = text(language, f"unit_{block.unit}", amount=fields["limit"])
    if block.resets_at is None:
        return text(language, "detail_budget_never", **fields)
    return text(language, "detail_budget", when=when(block.resets_at, reader, now), **fields)


def _number(amount: int, unit: str) -> str:
    """ "16 924", or "$1.25" with as many places as are needed. A thin space divides in every language."""
    if unit != Unit.MICRO_USD:
        return f"{amount:,}".replace(",", "\u202f")
    places = f"{Decimal(amount) / 1_000_000:.6f}".rstrip("0")
    whole, _, part = places.partition(".")
    return f"${whole}.{part.ljust(2, '0')}"
