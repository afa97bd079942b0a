"""The story of one request as people read it: slot by slot what the gate decided, and how each attempt ended. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from gateway.budget import Budgets

ENDED = {
    "pending": "under way",
    "answered": "answered",
    "clamped": "answered, shortened to what the budget had left",
    "refused": "refused by the provider, not billed",
    "caller_fault": "the request was wrong, not billed",
    "content_refused": "refused by the provider's content policy",
    "unanswered": "no answer, may have been billed",
    "cancelled": "stopped by who asked",
    "cut_off": "the provider ignored its limit and was cut off",
    "not_sent": "nothing was sent",
    "expired": "the process died; charged at the worst case",
}
"""How an attempt ended, in words."""


def slots_of(
    attempts: Sequence[Mapping[str, Any]], refusals: Sequence[Mapping[str, Any]], budgets: Budgets
) -> list[dict[str, Any]]:
    """What became of each slot, in the order in which it was decided, from what the books know of a request.

    Each has `at`, `provider`, `model`, `verdict` (admitted, refused), `reason`, `budgets`, `worst_case` and `outcome`;
    one that was admitted also `state`, `spent`, `estimated`, `uncertain`, `attempt` and `ended`.
    """
    slots = [_refused(refusal, budgets) for refusal in refusals]
    slots += [_attempted(attempt, budgets) for attempt in attempts]
    return _decisive(sorted(slots, key=lambda slot: slot["at"]))


def _decisive(slots: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without refusals that another of the same slot follows.

    The gate asks again for a shorter answer, and a patient request asks whenever room comes back.
    """
    kept: list[dict[str, Any]] = []
    for slot in slots:
        if (
            kept
            and all(kept[-1][name] == slot[name] for name in ("provider", "model", "verdict"))
            and slot["verdict"] == "refused"
        ):
            kept.pop()
        kept.append(slot)
    return kept


def _refused(refusal: Mapping[str, Any], budgets: Budgets) -> dict[str, Any]:
    blocks = refusal["detail"].get("blocks", [])
    return {
        "at": refusal["at"],
        "provider": refusal["provider"],
        "model": refusal["model"],
        "verdict": "refused",
        "reason": refusal["message"],
        "budgets": [
            {
                "name": block["budget"],
                "scope": _scope(budgets, block["budget"], None),
                "unit": block["unit"],
                "limit": block["limit"],
                "spent": block["spent"],
                "held": block["held"],
                "asked": block["asked"],
                "resets_at": block["resets_at"] and datetime.fromisoformat(block["resets_at"]),
            }
            for block in blocks
        ],
        "worst_case": None,
        "outcome": "not called",
    }


def _attempted(attempt: Mapping[str, Any], budgets: Budgets) -> dict[str, Any]:
    return {
        "at": attempt["started"],
        "provider": attempt["provider"],
        "model": attempt["model_asked"],
        "verdict": "admitted",
        "reason": attempt["detail"] or None,
        "budgets": [
            {
                "name": line["budget"],
                "scope": _scope(budgets, line["budget"], line["key"]),
                "unit": line["unit"],
                "limit": line["limit"],
                "spent": line["spent"],
                "held": line["held"],
                "asked": line["amount"],
                "resets_at": None,
            }
            for line in attempt["lines"]
        ],
        "worst_case": {
            "requests": attempt["held_requests"],
            "tokens": attempt["held_tokens"],
            "micro_usd": attempt["held_micro_usd"],
            "output_tokens": attempt["output_limit"],
        },
        "outcome": attempt["outcome"],
        "state": attempt["state"],
        "spent": {
            "requests": attempt["spent_requests"],
            "tokens": attempt["spent_tokens"],
            "micro_usd": attempt["cost_micro_usd"],
        },
        "estimated": attempt["estimated"],
        "uncertain": attempt["uncertain"],
        "attempt": attempt["attempt"],
        "ended": attempt["ended"],
    }


def _scope(budgets: Budgets, name: str, key: str | None) -> dict[str, str]:
    """The scope of a counter, as far as the configuration still knows the budget."""
    budget = budgets.by_name.get(name)
    if budget is None:
        return {}
    return dict(budget.scope) if key is None else budget.scope_of(key)
