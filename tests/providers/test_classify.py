"""Every row of both tables over real HTTP: what an error becomes, and what of it the dispatcher reads."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest

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
from gateway.providers import Provider, classify
from tests.doubles.clock import SettableClock
from tests.doubles.upstream import Script, Upstream
from tests.providers.calls import ASK, ask, collect, reservation, text

Make = Callable[..., Provider]
PAGE = "<html><head><title>502 Bad Gateway</title></head><body>cloudflare</body></html>"


def error(message: str, kind: str | None = None, code: Any = None, **more: Any) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "code": code, **more}}


OPENAI: list[tuple[int, Any, type[ProviderError], str | None]] = [
    # Not the provider's own words.
    (307, "", Refused, "redirected"),
    (408, "", Unanswered, None),
    (502, PAGE, Unanswered, None),
    (504, PAGE, Unanswered, None),
    (524, PAGE, Unanswered, None),
    (502, {"message": "Endpoint request timed out"}, Unanswered, None),
    (504, {"detail": "timed out in between"}, Unanswered, None),
    (502, {"error": "Bad Gateway"}, Unanswered, None),
    (500, "Internal Server Error", Unanswered, None),
    (503, PAGE, Unanswered, None),
    (504, "", Unanswered, None),
    # Money and keys.
    (429, error("You exceeded your current quota", "insufficient_quota", "insufficient_quota"), Refused, "insufficient_quota"),
    (429, error("account suspended, check your plan", "exceeded_current_quota_error"), Refused, "insufficient_quota"),
    (402, error("Insufficient Balance", "unknown_error"), Refused, "insufficient_quota"),
    (403, error("Insufficient credits to run this"), Refused, "insufficient_quota"),
    (401, error("Incorrect API key provided", "invalid_request_error", "invalid_api_key"), Refused, "unauthorized"),
    (401, "", Refused, "unauthorized"),
    (403, error("Your key may not use this model", "permission_error"), Refused, "forbidden"),
    (403, PAGE, Refused, "forbidden"),
    # Content.
    (400, error("The response was filtered", code="content_filter"), ContentRefused, "content_refused"),
    (
        400,
        error("The request was rejected because it was considered high risk", "content_filter"),
        ContentRefused,
        "content_refused",
    ),
    (403, error("google/x requires moderation. Your input was flagged", code=403), ContentRefused, "content_refused"),
    # Rates.
    (429, error("Rate limit reached for requests", "requests", "rate_limit_exceeded"), Refused, "rate_limited"),
    (429, error("max RPM: 3", "rate_limit_reached_error"), Refused, "rate_limited"),
    (429, [error("Resource exhausted", code=429, status="RESOURCE_EXHAUSTED")], Refused, "rate_limited"),
    (429, "slow down", Refused, "rate_limited"),
    (413, error("Request too large on tokens per minute (TPM)", "tokens", "rate_limit_exceeded"), Refused, "rate_limited"),
    # The output limit's name, and the context.
    (
        400,
        error("Use 'max_completion_tokens' instead.", code="unsupported_parameter", param="max_tokens"),
        OutputParameterRefused,
        "unsupported_parameter",
    ),
    (422, error("max_tokens: Extra inputs are not permitted"), OutputParameterRefused, None),
    (400, error("max_tokens is too large: 9999"), CallerFault, None),
    (
        400,
        error("maximum context length is 8192 tokens", code="context_length_exceeded"),
        ContextTooLong,
        "context_length_exceeded",
    ),
    (400, error("Invalid request: Your request exceeded model token limit: 8192"), ContextTooLong, None),
    (
        400,
        error("the request exceeds the available context size", "exceed_context_size_error", 400),
        ContextTooLong,
        "exceed_context_size_error",
    ),
    (400, error("The input token count (9) exceeds the maximum number of tokens allowed (8)."), ContextTooLong, None),
    (400, error("prompt is too long: 209000 tokens > 200000 maximum"), ContextTooLong, None),
    # The caller, and the rest.
    (404, error("The model `x` does not exist", "invalid_request_error", "model_not_found"), CallerFault, "model_not_found"),
    (404, error("model 'x' not found, try pulling it first"), CallerFault, "model_not_found"),
    (404, "404 page not found", Refused, "not_found"),
    (404, {"detail": "Not Found"}, Refused, "not_found"),
    (400, error("'messages' must have a user turn", "invalid_request_error"), CallerFault, "invalid_request_error"),
    (422, {"detail": [{"loc": ["body", "n"], "msg": "must be 1"}]}, CallerFault, None),
    (413, PAGE, Refused, None),
    (500, error("The server had an error", "server_error"), Refused, "server_error"),
    (503, error("overloaded", "service_unavailable"), Refused, "service_unavailable"),
    (502, error("Provider returned error", code=502), Refused, None),
    (529, error("overloaded"), Refused, None),
]
ANTHROPIC: list[tuple[int, Any, type[ProviderError], str | None]] = [
    (302, "", Refused, "redirected"),
    (499, "", Unanswered, None),
    (502, PAGE, Unanswered, None),
    (402, error("pay", "billing_error"), Refused, "insufficient_quota"),
    (400, error("Your credit balance is too low to access the API", "invalid_request_error"), Refused, "insufficient_quota"),
    (401, error("invalid x-api-key", "authentication_error"), Refused, "unauthorized"),
    (400, error("Output blocked by content filtering policy", "invalid_request_error"), ContentRefused, "content_refused"),
    (403, error("no", "permission_error"), Refused, "forbidden"),
    (
        400,
        error("prompt is too long: 209000 tokens > 200000 maximum", "invalid_request_error"),
        ContextTooLong,
        "invalid_request_error",
    ),
    (400, error("input length and `max_tokens` exceed context limit: 1 + 2 > 2"), ContextTooLong, None),
    (429, error("this would exceed your rate limit", "rate_limit_error"), Refused, "rate_limited"),
    (404, error("model: x", "not_found_error"), CallerFault, "model_not_found"),
    (404, PAGE, Refused, "not_found"),
    (413, error("Request exceeds the maximum size", "request_too_large"), CallerFault, "request_too_large"),
    (413, PAGE, Refused, None),
    (400, error("max_tokens: Field required", "invalid_request_error"), CallerFault, "invalid_request_error"),
    (500, error("Internal server error", "api_error"), Refused, "api_error"),
    (529, error("Overloaded", "overloaded_error"), Refused, "overloaded_error"),
    (529, PAGE, Unanswered, None),
]
ROWS = [("openai", *row) for row in OPENAI] + [("anthropic", *row) for row in ANTHROPIC]


@pytest.mark.parametrize(("wire", "status", "body", "kind", "code"), ROWS)
async def test_case_25_every_row(
    upstream: Upstream, make: Make, wire: str, status: int, body: Any, kind: type[ProviderError], code: str | None
) -> None:
    for streamed in (False, True):
        upstream.queue.append(Script(status=status, body=body))
        provider = make(wire)
        with pytest.raises(ProviderError) as caught:
            await ask(provider, streamed)
        assert type(caught.value) is kind
        assert (caught.value.status, caught.value.code) == (status, code)
        assert caught.value.sent
        assert caught.value.message
        assert len(caught.value.message) <= classify.MESSAGE_CHARS_MAX


def test_every_row_of_the_tables_is_met_by_a_case() -> None:
    """No row is dead: each of them but the last decides some case above."""
    for wire, table in (("openai", classify.OPENAI), ("anthropic", classify.ANTHROPIC)):
        met = set()
        for case_wire, status, body, _, _ in ROWS:
            if case_wire == wire:
                own = classify.own_error(status, body if not isinstance(body, str) else None)
                fault = classify.read_fault(status, own, body if isinstance(body, str) else "")
                met.add(classify.row_for(table, fault, "max_tokens").why)
        assert [row.why for row in table[:-1] if row.why not in met] == []


@pytest.mark.parametrize("wire", ["openai", "anthropic"])
@pytest.mark.parametrize("at", [0, 1])
async def test_case_31_an_error_inside_a_200_before_any_content(upstream: Upstream, make: Make, wire: str, at: int) -> None:
    for said, kind in (
        ({"message": "overloaded", "type": "overloaded_error"}, Refused),
        ({"message": "Provider disconnected", "code": 503}, Refused),
        ({"message": "slow down", "type": "rate_limit_error", "code": 429}, Refused),
        ({"message": "something else", "type": "mystery"}, Unanswered),
    ):
        upstream.queue.append(Script(error_at=at, error=said))
        got: list[Any] = []
        with pytest.raises(ProviderError) as caught:
            await collect(make(wire).stream(ASK, reservation()), got)
        assert type(caught.value) is kind
        assert caught.value.message == said["message"]
        assert not any(chunk.visible for chunk in got)


@pytest.mark.parametrize("wire", ["openai", "anthropic"])
async def test_an_error_after_content_may_have_been_billed(upstream: Upstream, make: Make, wire: str) -> None:
    upstream.default = Script(error_at=5, error={"message": "overloaded", "type": "overloaded_error"})
    got: list[Any] = []
    with pytest.raises(Unanswered, match="overloaded"):
        await collect(make(wire).stream(ASK, reservation()), got)
    assert text(got)


@pytest.mark.parametrize("wire", ["openai", "anthropic"])
async def test_a_200_whose_body_is_an_error(upstream: Upstream, make: Make, wire: str) -> None:
    for streamed in (False, True):
        upstream.queue.append(Script(body=error("overloaded", "overloaded_error")))
        with pytest.raises(Refused, match="overloaded"):
            await ask(make(wire), streamed)


async def test_an_error_in_the_choice_as_openrouter_puts_it(upstream: Upstream, make: Make) -> None:
    choice = {"index": 0, "message": {"content": ""}, "finish_reason": "error", "error": {"code": 502, "message": "went away"}}
    upstream.default = Script(body={"choices": [choice], "usage": {"prompt_tokens": 3, "completion_tokens": 0}})
    with pytest.raises(Refused, match="went away") as caught:
        await make().complete(ASK, reservation())
    assert caught.value.usage == Usage(3, 0)
    choice["message"] = {"content": "half an ans"}
    with pytest.raises(Unanswered, match="went away"):
        await make().complete(ASK, reservation())


async def test_a_content_refusal_keeps_the_usage_that_is_billed(upstream: Upstream, make: Make) -> None:
    body = {**error("no", code="content_filter"), "usage": {"prompt_tokens": 812, "completion_tokens": 0}}
    upstream.default = Script(status=400, body=body)
    with pytest.raises(ContentRefused) as caught:
        await make().complete(ASK, reservation())
    assert caught.value.usage == Usage(812, 0)


async def test_the_callers_fault_carries_the_providers_own_words(upstream: Upstream, make: Make) -> None:
    said = error("bad tool", "invalid_request_error", "bad", param="tools[0]")
    upstream.default = Script(status=400, body=said)
    with pytest.raises(CallerFault) as caught:
        await make().complete(ASK, reservation())
    assert caught.value.body == said


async def test_the_router_names_what_the_provider_behind_it_said(upstream: Upstream, make: Make) -> None:
    said = error("Provider returned error", code=400, metadata={"raw": "prompt is too long"})
    upstream.default = Script(status=400, body=said)
    with pytest.raises(ContextTooLong, match="prompt is too long"):
        await make().complete(ASK, reservation())


async def test_case_65_the_output_limit_is_renamed_once_per_model(upstream: Upstream, make: Make) -> None:
    upstream.default = Script(refuse_max_tokens=True)
    provider = make()
    with pytest.raises(OutputParameterRefused):
        await provider.complete(ASK, reservation())
    assert (await provider.complete(ASK, reservation(output_tokens=9))).text
    assert await collect(provider.stream(ASK, reservation(output_tokens=9)))
    assert [seen.body.get("max_completion_tokens") for seen in upstream.seen] == [None, 9, 9]
    with pytest.raises(OutputParameterRefused):
        await provider.complete(ASK, reservation(model="other"))


async def test_case_65_a_second_refusal_is_the_callers(upstream: Upstream, make: Make) -> None:
    provider = make()
    for name, kind in (("max_tokens", OutputParameterRefused), ("max_completion_tokens", CallerFault)):
        upstream.queue.append(Script(status=400, body=error("unknown", code="unsupported_parameter", param=name)))
        with pytest.raises(CallerFault) as caught:
            await provider.complete(ASK, reservation())
        assert type(caught.value) is kind


@pytest.mark.parametrize(
    ("model", "name"), [("o3-mini", True), ("gpt-5", True), ("gpt-5.1-codex", True), ("gpt-4o", False), ("gpt-oss-20b", False)]
)
async def test_case_65_known_models_start_with_the_right_name(upstream: Upstream, make: Make, model: str, name: bool) -> None:
    await make().complete(ASK, reservation(model=model))
    assert ("max_completion_tokens" in upstream.seen[0].body) is name
    assert ("max_tokens" in upstream.seen[0].body) is not name


NOW = SettableClock().now()


@pytest.mark.parametrize(
    ("headers", "wait_s"),
    [
        ({}, None),
        ({"Retry-After": "1"}, 1.0),
        ({"Retry-After": "10"}, 10.0),
        ({"Retry-After": "2.5"}, 2.5),
        ({"Retry-After": "-5"}, 0.0),
        ({"Retry-After": "soon"}, None),
        ({"Retry-After": "nan"}, None),
        ({"Retry-After": "1e300"}, classify.RETRY_AFTER_MAX_S),
        ({"Retry-After": format_datetime(NOW + timedelta(seconds=90), usegmt=True)}, 90.0),
        ({"Retry-After": format_datetime(NOW - timedelta(days=1), usegmt=True)}, 0.0),
        ({"retry-after-ms": "1500", "Retry-After": "60"}, 1.5),
        ({"retry-after-ms": "-1"}, 0.0),
        ({"retry-after-ms": "x", "Retry-After": "60"}, 60.0),
    ],
)
async def test_case_28_retry_after(
    upstream: Upstream, make: Make, api: str, headers: dict[str, str], wait_s: float | None
) -> None:
    upstream.default = Script(status=429, headers=headers, body=error("slow down", "rate_limit_error"))
    with pytest.raises(Refused) as caught:
        await make(api).complete(ASK, reservation())
    assert caught.value.retry_after_s == wait_s


async def test_case_28_gemini_says_it_in_the_body(upstream: Upstream, make: Make) -> None:
    details = [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "37s"}]
    upstream.default = Script(status=429, body=[error("quota", code=429, details=details)])
    with pytest.raises(Refused) as caught:
        await make().complete(ASK, reservation())
    assert caught.value.retry_after_s == 37.0


def test_dates_without_a_zone_are_utc() -> None:
    now = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
    assert classify.retry_after_s({"retry-after": "Mon, 02 Mar 2026 12:00:07 -0000"}, now) == 7.0


def test_a_page_is_told_by_its_title() -> None:
    assert classify.bounded(PAGE) == "502 Bad Gateway"
    assert classify.bounded("<p>no <b>title</b></p>") == "no title"
    assert len(classify.bounded("x" * 10_000)) == classify.MESSAGE_CHARS_MAX
