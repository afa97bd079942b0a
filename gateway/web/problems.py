"""Errors as HTTP: the status, the code and the OpenAI-shaped body of everything that can go wrong.

Our own fields stand inside `error`. What a budget is called and how much is left is for admin keys only. A short wait
is a `Retry-After`; a long one is `x-should-retry: false`, so that SDKs do not hammer by themselves.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from gateway.dispatcher import StreamBroken
from gateway.errors import (
    BadParameters,
    Block,
    CallerFault,
    CannotServe,
    ChainExhausted,
    ContentRefused,
    ContextTooLong,
    Exhausted,
    GatewayError,
    InvalidRequest,
    LedgerUnavailable,
    NotAllowed,
    Paused,
    ProviderError,
    RequestConflict,
    TargetNotAllowed,
    UnknownPrice,
    UnknownRun,
    UnknownTarget,
    UnknownWorkflow,
    WorkflowError,
    WrongState,
)
from gateway.store.keys import May

SHORT_WAIT_S = 60
REQUEST_ID = "x-sluicegate-request-id"
PROVIDER = "x-sluicegate-provider"
COST = "x-sluicegate-cost-micro-usd"
NO_RETRY = ("x-should-retry", "false")


@dataclass(frozen=True, slots=True)
class Problem:
    """One refusal or failure, ready to be sent. `fields` are ours, beside `message`, `type`, `code` and `param`."""

    status: int
    code: str
    message: str
    param: str | None = None
    kind: str = "invalid_request_error"
    """OpenAI's `type`."""
    fields: Mapping[str, object] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)

    def error(self, request_id: str) -> dict[str, object]:
        """The `error` object of the body."""
        return {
            "message": self.message,
            "type": self.kind,
            "code": self.code,
            "param": self.param,
            **self.fields,
            "request_id": request_id,
        }


UNAUTHORIZED = Problem(
    401,
    "unauthorized",
    "A valid key is needed: send it as `Authorization: Bearer <key>`.",
    headers={"WWW-Authenticate": "Bearer", **dict([NO_RETRY])},
)
FORBIDDEN = Problem(403, "forbidden", "This needs an admin key.", kind="permission_error", headers=dict([NO_RETRY]))
_LACKING = {
    May.ASK: "ask models",
    May.RUN: "start workflows or look at runs",
    May.READ: "read budgets and usage",
}
INTERNAL = Problem(500, "internal_error", "Something went wrong inside the gateway. No details leave it.", kind="server_error")


def lacking(needed: May) -> Problem:
    """The refusal of a key that is not allowed something."""
    message = f"This key may not {_LACKING[needed]}; an admin can make one that may."
    fields, headers = {"needs": needed.value}, dict([NO_RETRY])
    return Problem(403, "forbidden", message, kind="permission_error", fields=fields, headers=headers)


def problem(error: GatewayError, now: datetime, *, admin: bool) -> Problem:
    """The HTTP form of any error that the dispatcher or the store raises."""
    match error:
        case ChainExhausted():
            return _chain_exhausted(error, now, admin)
        case InvalidRequest():
            return Problem(error.status, "invalid_request", error.message, error.param)
        case UnknownTarget():
            return Problem(404, "model_not_found", str(error), "model")
        case TargetNotAllowed():
            said = str(error)
            return Problem(
                403, "forbidden", said[0].upper() + said[1:] + ".", "model", "permission_error", headers=dict([NO_RETRY])
            )
        case RequestConflict():
            message = "This Idempotency-Key was used before with another body."
            return Problem(409, "idempotency_conflict", message, "Idempotency-Key", headers=dict([NO_RETRY]))
        case WorkflowError():
            return _workflow(error)
        case LedgerUnavailable():
            message = "The ledger cannot be reached, so no call was made. Nothing was spent."
            return Problem(503, "ledger_unavailable", message, kind="server_error", headers={"Retry-After": "1"})
        case StreamBroken():
            message = f"The answer broke off: {_said(error.error)}"
            return Problem(502, "providers_unavailable", message, kind="server_error")
        case CallerFault() | ContentRefused():
            return _callers_fault(error)
        case ProviderError():
            return Problem(502, "providers_unavailable", _said(error), kind="server_error")
        case _:
            return INTERNAL


def _workflow(error: WorkflowError) -> Problem:
    headers = dict([NO_RETRY])
    match error:
        case BadParameters():
            wrong = [{"param": name, "message": message} for name, message in error.problems]
            fields = {"problems": wrong}
            return Problem(422, "invalid_request", str(error), error.problems[0][0], fields=fields, headers=headers)
        case NotAllowed():
            return Problem(403, "forbidden", str(error), kind="permission_error", headers=headers)
        case UnknownWorkflow():
            return Problem(404, "not_found", str(error), "name", headers=headers)
        case UnknownRun():
            return Problem(404, "not_found", str(error), "id", headers=headers)
        case WrongState():
            return Problem(409, "wrong_state", str(error), "id", fields={"state": error.state}, headers=headers)
        case _:
            return INTERNAL


def timestamp(instant: datetime | None) -> str | None:
    """RFC 3339 in UTC, to the second (rounded up: never a time at which there is no room yet); None stays None."""
    if instant is None:
        return None
    whole = datetime.fromtimestamp(math.ceil(instant.timestamp()), UTC)
    return whole.strftime("%Y-%m-%dT%H:%M:%SZ")


def _chain_exhausted(error: ChainExhausted, now: datetime, admin: bool) -> Problem:
    causes = [cause.error for cause in error.causes]
    if error.budgets_only:
        return _no_budget(error, now, admin)
    if causes and all(isinstance(cause, UnknownPrice) for cause in causes):
        return Problem(402, "unpriced_model", "; ".join(dict.fromkeys(map(str, causes))), "model", headers=dict([NO_RETRY]))
    if causes and all(isinstance(cause, CannotServe | CallerFault | ContentRefused) for cause in causes):
        for cause in causes:
            if isinstance(cause, CallerFault | ContentRefused):
                return _callers_fault(cause)
        return Problem(400, "invalid_request", "No provider can serve this request: " + _reasons(error))
    wait_s = _wait_s(error, now)
    headers = {"Retry-After": str(1 if wait_s is None else wait_s)}
    if wait_s is not None and wait_s > SHORT_WAIT_S:
        headers.update([NO_RETRY])
    return Problem(
        503,
        "providers_unavailable",
        "No provider can answer now: " + _reasons(error),
        kind="server_error",
        fields={"resets_at": timestamp(error.available_at)},
        headers=headers,
    )


def _no_budget(error: ChainExhausted, now: datetime, admin: bool) -> Problem:
    refusals = [cause.error for cause in error.causes if isinstance(cause.error, Exhausted)]
    headers = _budget_headers(error, refusals, now)
    if not refusals:
        fields: dict[str, object] = {"resets_at": timestamp(error.available_at)}
        return Problem(429, "budget_exhausted", "An admin paused all calls.", kind="budget_error", fields=fields, headers=headers)
    block = _deciding(refusals)
    fields = {
        "scope": "+".join(block.scope_kinds) or "all",
        "unit": block.unit,
        "resets_at": timestamp(error.available_at),
    }
    if admin:
        fields |= {
            "budget": block.budget,
            "limit": block.limit,
            "spent": block.spent,
            "held": block.held,
            "asked": block.asked,
        }
    if all(refusal.too_large for refusal in refusals) and len(refusals) == len(error.causes):
        message = f"The request is larger than the whole {_whose(block)} allowance. Shorten it, or ask for less output."
        return Problem(429, "prompt_too_large_for_budget", message, kind="budget_error", fields=fields, headers=headers)
    return Problem(429, "budget_exhausted", _used_up(error, block), kind="budget_error", fields=fields, headers=headers)


def _used_up(error: ChainExhausted, block: Block) -> str:
    if block.held_only:
        return f"The {_whose(block)} allowance is held by calls under way. Try again in a moment."
    opens = timestamp(error.available_at)
    return f"The {_whose(block)} allowance is used up. " + (f"It opens at {opens}." if opens else "It does not open by itself.")


def _whose(block: Block) -> str:
    """The kind of the scope in words, never the budget's name: "user", "provider", "shared"."""
    return " and ".join(block.scope_kinds) or "shared"


def _deciding(refusals: list[Exhausted]) -> Block:
    """The block that decides when the request can be made: the last to open of the refusal that opens first."""

    def opens(instant: datetime | None) -> tuple[bool, float]:
        return (True, 0.0) if instant is None else (False, instant.timestamp())

    first = min(refusals, key=lambda refusal: (not refusal.held_only, opens(refusal.resets_at)))
    return max(first.blocks, key=lambda block: (not block.held_only, opens(block.resets_at)))


def _budget_headers(error: ChainExhausted, refusals: list[Exhausted], now: datetime) -> dict[str, str]:
    if any(refusal.held_only for refusal in refusals):
        return {"Retry-After": "1"}
    wait_s = _wait_s(error, now)
    if wait_s is not None and wait_s <= SHORT_WAIT_S:
        return {"Retry-After": str(wait_s)}
    return dict([NO_RETRY])


def _wait_s(error: ChainExhausted, now: datetime) -> int | None:
    if error.available_at is None:
        return None
    return max(1, math.ceil((error.available_at - now).total_seconds()))


def _reasons(error: ChainExhausted) -> str:
    return "; ".join(f"{cause.slot.provider}: {_reason(cause.error)}" for cause in error.causes) or "none is configured"


def _reason(error: GatewayError) -> str:
    """One cause in words that name no budget and no amount."""
    match error:
        case Exhausted():
            return "no allowance left"
        case Paused():
            return "paused by an admin"
        case CannotServe():
            return error.reason
        case ProviderError():
            return _said(error)
        case UnknownPrice():
            return str(error)
        case _:
            return "left alone after failures"


def _said(error: GatewayError) -> str:
    """What a provider said, in one bounded line."""
    if isinstance(error, ProviderError):
        status = f" ({error.status})" if error.status else ""
        return f"{error.message}{status}"[:500]
    return type(error).__name__


def _callers_fault(error: ProviderError) -> Problem:
    """The provider's own words and status, in OpenAI's shape.

    A status that would speak of the caller's own key to us (401, 403, 407), or of no fault of the caller, becomes 400.
    """
    inner: Any = error.body or {}
    said = inner.get("error", inner)
    if not isinstance(said, dict):
        said = {}
    status = error.status if error.status in (400, 404, 405, 406, 409, 410, 411, 413, 414, 415, 422) else 400
    code = "context_length_exceeded" if isinstance(error, ContextTooLong) else said.get("code") or error.code
    message, kind, param = said.get("message"), said.get("type"), said.get("param")
    return Problem(
        status,
        str(code) if code else "invalid_request",
        message if isinstance(message, str) else error.message,
        param if isinstance(param, str) else None,
        kind=kind if isinstance(kind, str) else "invalid_request_error",
        headers={PROVIDER: error.provider, **dict([NO_RETRY])},
    )
