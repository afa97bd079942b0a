"""From facts to signs: which thresholds are reached, what a refusal or an event says, and what is over. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gateway.budget import Budget, Budgets, Rolling
from gateway.store.alerts import Alert, Sign
from gateway.store.standings import Passed, Standing, is_watched

WARN, EXHAUSTED, PRICE, STUCK, LEDGER = "budget_warn", "budget_exhausted", "price_unknown", "stuck_delivery", "ledger_unavailable"
BUDGET_KINDS = (WARN, EXHAUSTED)
PROVIDER_EVENTS = ("provider_key_refused", "provider_account_empty", "breaker_open")
"""Over once the provider has answered again."""
OVERRUN = "overrun"
SOON_MS = 600_000
"""A provider that comes and goes is told of this often at most."""
DAY_MS = 86_400_000
SUBJECT_MAX = 500


def of_standing(standing: Standing) -> list[Sign]:
    """The thresholds that a counter has reached, and whether it is used up. A limit of 0 is a decision, not a state."""
    budget, limit = standing.budget, standing.limit
    if limit <= 0:
        return []
    signs = [_warning(standing, part) for part in budget.warn_at if standing.spent >= part * limit]
    if standing.spent >= limit:
        signs.append(_used_up(standing, 0))
    return signs


def of_passed(passed: Iterable[Passed], budgets: Budgets) -> tuple[list[Sign], dict[tuple[str, str], int]]:
    """What refusals say: prices that are not known; and budgets without a `*` that lacked room, with what was asked."""
    signs: dict[str, Sign] = {}
    lacking: dict[tuple[str, str], int] = {}
    for one in passed:
        if one.kind == "UnknownPrice":
            slot = f"{one.provider}:{one.model}"
            facts = {"slot": slot, "section": one.detail.get("section") or f"providers.{one.provider}"}
            subject = f"{PRICE}:{slot}"[:SUBJECT_MAX]
            signs[slot] = Sign(subject, PRICE, facts, DAY_MS, provider=one.provider, model=one.model)
            continue
        for block in one.detail.get("blocks", ()):
            budget = budgets.by_name.get(str(block.get("budget")))
            if budget is not None and is_watched(budget) and "*" not in budget.scope.values() and _lacks_room(block):
                lacking[budget.name, ""] = int(block["asked"])
    return list(signs.values()), lacking


def of_refusal(standing: Standing, asked: int) -> list[Sign]:
    """A budget that refused a call of `asked`, if it still would."""
    lacks = standing.spent + asked > standing.limit >= asked
    return [_used_up(standing, asked)] if lacks and standing.limit > 0 else []


def of_event(event: str, fields: Mapping[str, object]) -> Sign | None:
    """What the dispatcher told; None for what only belongs in the log."""
    facts = {name: value if isinstance(value, int | float) else str(value) for name, value in fields.items() if value is not None}
    if event in PROVIDER_EVENTS:
        provider, slot = str(fields.get("provider", "")), str(fields.get("slot", ""))
        model = slot.partition(":")[2]
        return Sign(f"{event}:{slot or provider}"[:SUBJECT_MAX], event, facts, SOON_MS, provider=provider, model=model)
    if event == OVERRUN:
        return Sign(f"{event}:{fields.get('slot')}"[:SUBJECT_MAX], event, facts, DAY_MS, lasts=False)
    return None


def of_stuck(stuck: Mapping[str, tuple[int, int]]) -> list[Sign]:
    """Messages that wait for long."""
    return [
        Sign(f"{STUCK}:{name}", STUCK, {"where": name, "count": count, "since_ms": since}, SOON_MS)
        for name, (count, since) in stuck.items()
    ]


def of_outage(since_ms: int, until_ms: int, reason: str) -> Sign:
    """The ledger could not be used for a while, and can again."""
    return Sign(LEDGER, LEDGER, {"since_ms": since_ms, "until_ms": until_ms, "reason": reason}, SOON_MS // 2, lasts=False)


def over(open_: Sequence[Alert], standings: Iterable[Standing]) -> list[str]:
    """The subjects of open budget alerts that no longer hold: the window is another, or less is spent than the threshold."""
    now = {(one.budget.name, one.key): one for one in standings}
    ended = []
    for alert in open_:
        standing = now.get((str(alert.facts["budget"]), str(alert.facts["key"])))
        part = float(alert.facts.get("part", 1.0))
        asked = int(alert.facts.get("asked", 0))
        holds = standing is not None and standing.spent + asked >= part * standing.limit > 0
        if standing is None or not holds or alert.subject != _subject(alert.kind, standing, alert.facts.get("part")):
            ended.append(alert.subject)
    return ended


def _warning(standing: Standing, part: float) -> Sign:
    facts = _facts(standing) | {"part": part}
    return Sign(_subject(WARN, standing, part), WARN, facts, _again_ms(standing.budget))


def _used_up(standing: Standing, asked: int) -> Sign:
    facts = _facts(standing) | ({"asked": asked} if asked else {})
    return Sign(_subject(EXHAUSTED, standing, None), EXHAUSTED, facts, _again_ms(standing.budget))


def _subject(kind: str, standing: Standing, part: object) -> str:
    """The same for the same threshold and window; a rolling window has no edges, so its serial counts."""
    budget = standing.budget
    window = "" if isinstance(budget.window, Rolling) else f"@{standing.bucket}"
    return f"{kind}:{budget.name}:{part or ''}{window}:{standing.key}"[:SUBJECT_MAX]


def _again_ms(budget: Budget) -> int | None:
    return budget.window.length_s * 1000 if isinstance(budget.window, Rolling) else None


def _facts(standing: Standing) -> dict[str, Any]:
    budget = standing.budget
    return {
        "budget": budget.name, "key": standing.key, "scope": budget.scope_of(standing.key), "unit": str(budget.unit),
        "limit": standing.limit, "spent": standing.spent, "window": budget.window.text,
        "leaves_ms": None if isinstance(budget.window, Rolling) else standing.leaves_ms,
    }  # fmt: skip


def _lacks_room(block: Mapping[str, Any]) -> bool:
    """True when the budget is used up for this call: not only holds are in the way, and the call is no giant."""
    limit, spent, asked = int(block["limit"]), int(block["spent"]), int(block["asked"])
    return 0 < asked <= limit < spent + asked
