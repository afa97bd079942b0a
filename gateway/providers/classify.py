"""What a provider's error means: one table per wire format, each row with its reason. Pure.

The first row that matches decides. A row's conditions are all to be met; an absent condition always is. `words` are
looked for in the lower-case message. An error inside an answer of status 200 goes through the same table with the
status that its own code or type names.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import orjson

from gateway.chat import Usage
from gateway.errors import (
    CallerFault,
    ContentRefused,
    ContextTooLong,
    OutputParameterRefused,
    ProviderError,
    Refused,
    Unanswered,
)

MESSAGE_CHARS_MAX = 300
RETRY_AFTER_MAX_S = 31 * 86_400.0
_GATEWAY_STATUSES = frozenset({502, 504, *range(520, 531)}) - {529}
_SECRET = re.compile(r"\b(?:sk|gsk|xai|pplx|r8|hf|key)[-_][\w*-]{6,}|\bAIza[\w-]{10,}|(?i:bearer\s+)[\w.~+/=-]{6,}")


@dataclass(frozen=True, slots=True)
class Fault:
    """A provider's error, taken apart. `status` is None for an error inside a 200 that names none."""

    status: int | None
    message: str
    codes: frozenset[str] = frozenset()
    """Its code and type, lower-case."""
    param: str | None = None
    body: dict[str, object] | None = None
    """The provider's own error object; None when there was none."""
    retry_after_s: float | None = None

    def refuses(self, limit_name: str) -> bool:
        """True when the error says that the model does not know the output limit by this name."""
        text = self.message.lower()
        if not limit_name:
            return False
        if self.param == limit_name and "unsupported_parameter" in self.codes:
            return True
        named = re.search(rf"(?<!\w){limit_name}(?!\w)", text) is not None
        unknown = ("unsupported", "not supported", "not permitted", "extra_forbidden", "unrecognized", "unknown", "unexpected")
        return named and any(word in text for word in unknown)


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a table: conditions, what the error becomes, the code it carries, and why."""

    kind: type[ProviderError]
    why: str
    statuses: tuple[range, ...] = ()
    codes: frozenset[str] = frozenset()
    words: tuple[str, ...] = ()
    own_body: bool | None = None
    names_limit: bool = False
    code: str | None = None

    def matches(self, fault: Fault, limit_name: str) -> bool:
        """True when every condition of the row is met."""
        return (
            (not self.statuses or (fault.status is not None and any(fault.status in each for each in self.statuses)))
            and (not self.codes or not self.codes.isdisjoint(fault.codes))
            and (not self.words or any(word in fault.message.lower() for word in self.words))
            and (self.own_body is None or self.own_body == (fault.body is not None))
            and (not self.names_limit or fault.refuses(limit_name))
        )


def _codes(*codes: str) -> frozenset[str]:
    return frozenset(codes)


def _only(*statuses: int) -> tuple[range, ...]:
    return tuple(range(status, status + 1) for status in statuses)


_FAULTS_4XX = (range(400, 500),)
_UNREAD = (
    Row(Refused, "a redirect: nothing was done, base_url points elsewhere", (range(300, 400),), code="redirected"),
    Row(Unanswered, "a time-out in between, without the provider's word: it may be at work", _only(408, 499), own_body=False),
    Row(Unanswered, "a gateway's or proxy's page: the provider behind it may have answered", (range(500, 600),), own_body=False),
)
"""Rows about answers that are not the provider's own."""

OPENAI = (
    *_UNREAD,
    Row(
        Refused,
        "the account has no money: waiting does not help",
        codes=_codes(
            "insufficient_quota",
            "exceeded_current_quota_error",
            "billing_hard_limit_reached",
            "billing_not_active",
            "insufficient_balance",
        ),
        code="insufficient_quota",
    ),
    Row(Refused, "payment required", _only(402), code="insufficient_quota"),
    Row(
        Refused,
        "the account has no money, in words",
        words=("insufficient balance", "insufficient credit", "insufficient fund"),
        code="insufficient_quota",
    ),
    Row(Refused, "the key is not accepted", _only(401), code="unauthorized"),
    Row(
        ContentRefused,
        "the vendor's content policy",
        codes=_codes(
            "content_filter",
            "content_policy_violation",
            "responsibleaipolicyviolation",
            "data_inspection_failed",
            "moderation_blocked",
        ),
        code="content_refused",
    ),
    Row(
        ContentRefused,
        "the vendor's content policy, in words",
        _only(400, 403, 422, 451),
        words=(
            "content policy",
            "content management policy",
            "considered high risk",
            "safety system",
            "requires moderation",
            "was flagged",
        ),
        code="content_refused",
    ),
    Row(Refused, "the key may not do this", _only(403), code="forbidden"),
    Row(
        Refused,
        "a rate limit, also as 413 when one request is over the minute's tokens",
        _only(413, 429),
        codes=_codes("rate_limit_exceeded", "rate_limit_reached_error", "rate_limit_error"),
        code="rate_limited",
    ),
    Row(OutputParameterRefused, "the model wants the output limit under its other name", _only(400, 422), names_limit=True),
    Row(
        ContextTooLong,
        "longer than the model's context",
        codes=_codes("context_length_exceeded", "exceed_context_size_error", "context_window_exceeded"),
    ),
    Row(
        ContextTooLong,
        "longer than the model's context, in words only (Moonshot, Gemini, llama.cpp, vLLM, Ollama)",
        _only(400, 413, 422, 500),
        words=(
            "context length",
            "context_length",
            "context window",
            "context size",
            "maximum context",
            "prompt is too long",
            "input is too long",
            "input too long",
            "prompt too long",
            "model token limit",
            "maximum number of tokens allowed",
            "reduce the length of the messages",
            "exceed context limit",
        ),
    ),
    Row(Refused, "a rate limit", _only(429), code="rate_limited"),
    Row(CallerFault, "no such model", _only(404), own_body=True, code="model_not_found"),
    Row(Refused, "no such page: base_url is wrong", _only(404, 405), own_body=False, code="not_found"),
    Row(CallerFault, "the request is wrong", _FAULTS_4XX, own_body=True),
    Row(Refused, "turned away before the provider read it", _FAULTS_4XX, own_body=False),
    Row(Refused, "the provider's own error, without content", (range(500, 600),), own_body=True),
    Row(Unanswered, "an error of no known kind inside a 200: it may have been billed"),
)

ANTHROPIC = (
    *_UNREAD,
    Row(Refused, "the account has no money", _only(402), code="insufficient_quota"),
    Row(
        Refused,
        "the account has no money: Anthropic says so in words, with status 400",
        words=("credit balance is too low",),
        code="insufficient_quota",
    ),
    Row(Refused, "the key is not accepted", _only(401), code="unauthorized"),
    Row(
        ContentRefused,
        "the vendor's content policy",
        _only(400, 403),
        words=("content filtering policy", "usage policy"),
        code="content_refused",
    ),
    Row(Refused, "the key may not do this", _only(403), code="forbidden"),
    Row(
        ContextTooLong,
        "longer than the model's context, in words only",
        _only(400, 413),
        words=("prompt is too long", "exceed context limit", "context window", "maximum context"),
    ),
    Row(Refused, "a rate limit", _only(429), code="rate_limited"),
    Row(CallerFault, "no such model", _only(404), own_body=True, code="model_not_found"),
    Row(Refused, "no such page: base_url is wrong", _only(404, 405), own_body=False, code="not_found"),
    Row(CallerFault, "the request is wrong", _FAULTS_4XX, own_body=True),
    Row(Refused, "turned away before the provider read it", _FAULTS_4XX, own_body=False),
    Row(Refused, "the provider's own error (500, overloaded 529), without content", (range(500, 600),), own_body=True),
    Row(Unanswered, "an error of no known kind inside a 200: it may have been billed"),
)

_STATUS_OF = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "invalid_api_key": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "model_not_found": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "insufficient_quota": 429,
    "api_error": 500,
    "server_error": 500,
    "internal_server_error": 500,
    "service_unavailable": 503,
    "timeout_error": 504,
    "overloaded_error": 529,
}
"""The status that an error's code or type stands for, where it comes inside a 200."""


def row_for(table: tuple[Row, ...], fault: Fault, limit_name: str = "") -> Row:
    """The first row that matches; the last of each table matches everything. `limit_name`: as the output limit was sent."""
    return next(row for row in table if row.matches(fault, limit_name))


def own_error(status: int, data: Any) -> Mapping[str, Any] | None:
    """The provider's own error object in a parsed body, in any of the shapes that vendors use; None if it is none.

    With the statuses that gateways answer by themselves only the wire format's own shape counts.
    """
    if isinstance(data, list) and len(data) == 1:
        data = data[0]
    if not isinstance(data, dict):
        return None
    error = data.get("error")
    if isinstance(error, dict) and any(error.get(key) for key in ("message", "code", "type", "status")):
        return error
    if status in _GATEWAY_STATUSES:
        return None
    if isinstance(error, str) and error:
        return {"message": error, "code": data.get("code")}
    if data.get("message") and (data.get("object") == "error" or "code" in data or "type" in data):
        return data
    if data.get("detail") and data["detail"] not in ("Not Found", "Method Not Allowed"):
        # Those two are what FastAPI says of a path that it does not have.
        return {"message": data["detail"]}
    return None


def read_fault(status: int | None, error: Mapping[str, Any] | None, text: str) -> Fault:
    """A fault from the provider's error object, or from the text of whatever came instead."""
    if error is None:
        return Fault(status, bounded(text))
    message = error.get("message") or error.get("type") or error.get("code") or ""
    words = message if isinstance(message, str) else orjson.dumps(message).decode()
    metadata = error.get("metadata")
    if isinstance(metadata, dict) and isinstance(metadata.get("raw"), str):
        # OpenRouter keeps the words of the provider behind it here; its own are only "Provider returned error".
        words = f"{words}: {metadata['raw']}"
    codes = frozenset(str(error[key]).lower() for key in ("code", "type", "status") if isinstance(error.get(key), str | int))
    param = error.get("param")
    return Fault(
        status=_inner_status(codes) if status is None else status,
        message=bounded(words),
        codes=codes,
        param=param if isinstance(param, str) else None,
        body={"error": dict(error)},
        retry_after_s=_retry_delay(error),
    )


def to_error(
    table: tuple[Row, ...],
    fault: Fault,
    provider: str,
    model: str,
    *,
    limit_name: str = "",
    retry_after_s: float | None = None,
    usage: Usage | None = None,
    content_came: bool = False,
) -> ProviderError:
    """The error to raise. Once content came it may have been billed, whatever the provider says.

    `retry_after_s` is what the headers asked for; it goes before what the body asks for.
    """
    row = row_for(table, fault, limit_name)
    kind = Unanswered if content_came else row.kind
    own_code = next((code for code in sorted(fault.codes) if not code.isdigit()), None)
    return kind(
        provider=provider,
        model=model,
        message=fault.message or row.why,
        status=fault.status,
        usage=usage,
        retry_after_s=fault.retry_after_s if retry_after_s is None else retry_after_s,
        code=row.code or own_code,
        body=fault.body,
    )


def bounded(text: str) -> str:
    """One line of at most MESSAGE_CHARS_MAX characters; of a page only its title or first words."""
    if text.lstrip().startswith("<"):
        title = re.search(r"<title[^>]*>(.*?)</title>", text, re.IGNORECASE | re.DOTALL)
        text = title.group(1) if title else re.sub(r"<[^>]*>", " ", text)
    line = " ".join(text.split())
    return line if len(line) <= MESSAGE_CHARS_MAX else line[: MESSAGE_CHARS_MAX - 1] + "…"


def redacted(text: str, key: str) -> str:
    """The text without the provider's key, and without anything that looks like one."""
    if key:
        text = text.replace(key, "[key]")
    return _SECRET.sub("[key]", text)


def retry_after_s(headers: Mapping[str, str], now: datetime) -> float | None:
    """Seconds to wait by `retry-after-ms` or `Retry-After` (seconds or an HTTP date); 0 for the past, None if absent."""
    for name, scale in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        value = headers.get(name)
        if value is None:
            continue
        try:
            wait = float(value) / scale
        except ValueError:
            wait = _seconds_until(value, now)
        if math.isfinite(wait):
            return min(max(0.0, wait), RETRY_AFTER_MAX_S)
    return None


def _seconds_until(date: str, now: datetime) -> float:
    try:
        instant = parsedate_to_datetime(date)
        if instant.tzinfo is None:
            instant = instant.replace(tzinfo=UTC)
        return (instant - now).total_seconds()
    except (ValueError, TypeError, OverflowError):
        return math.nan


def _retry_delay(error: Mapping[str, Any]) -> float | None:
    """Gemini says how long to wait inside the error: `details[].retryDelay = "37s"`."""
    details = error.get("details")
    for detail in details if isinstance(details, list) else ():
        delay = detail.get("retryDelay") if isinstance(detail, dict) else None
        if isinstance(delay, str) and re.fullmatch(r"\d{1,7}(\.\d+)?s", delay):
            return min(float(delay[:-1]), RETRY_AFTER_MAX_S)
    return None


def _inner_status(codes: frozenset[str]) -> int | None:
    for code in codes:
        if code.isdigit() and 400 <= int(code) < 600:
            return int(code)
    return min((_STATUS_OF[code] for code in codes if code in _STATUS_OF), default=None)
