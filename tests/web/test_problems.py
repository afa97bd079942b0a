"""Every error as HTTP: status, code, our fields, and whether a client may try again by itself."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from gateway.chat import Slot
from gateway.dispatcher import StreamBroken
from gateway.errors import (
    Block,
    BreakerOpen,
    CallerFault,
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
    Refused,
    RequestConflict,
    Unanswered,
    UnknownPrice,
    UnknownTarget,
)
from gateway.web.problems import INTERNAL, Problem, problem, timestamp

NOW = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
A, B = Slot("moonshot", "kimi"), Slot("groq", "llama")


def block(**changed: object) -> Block:
    plain = Block("moonshot-hour", "", ("provider",), "tokens", 1000, 990, 0, 100, NOW + timedelta(hours=1), "rolling 1h")
    return replace(plain, **changed)  # type: ignore[arg-type]


def chain(*errors: GatewayError, available_at: datetime | None = None) -> ChainExhausted:
    slots = (A, B, Slot("home", "qwen"))
    return ChainExhausted("req_1", "default", tuple(map(Cause, slots, errors)), available_at)


def said(error: GatewayError, admin: bool = False) -> Problem:
    return problem(error, NOW, admin=admin)


def test_an_exhausted_budget_names_the_kind_of_scope_and_when_it_opens() -> None:
    found = said(chain(Exhausted((block(),)), available_at=NOW + timedelta(hours=1)))
    assert (found.status, found.code) == (429, "budget_exhausted")
    assert dict(found.fields) == {"scope": "provider", "unit": "tokens", "resets_at": "2026-03-02T13:00:00Z"}
    assert found.headers == {"x-should-retry": "false"}
    assert "moonshot-hour" not in str(found)
    assert "990" not in str(found)


def test_an_admin_key_sees_which_budget_and_its_amounts() -> None:
    fields = said(chain(Exhausted((block(),)), available_at=NOW + timedelta(hours=1)), admin=True).fields
    seen = {name: fields[name] for name in ("budget", "limit", "spent", "held", "asked")}
    assert seen == {"budget": "moonshot-hour", "limit": 1000, "spent": 990, "held": 0, "asked": 100}


@pytest.mark.parametrize(("wait_s", "retry_after"), [(0.2, "1"), (60, "60"), (60.5, None), (61, None)])
def test_a_short_wait_may_be_retried_and_a_long_one_may_not(wait_s: float, retry_after: str | None) -> None:
    opens = NOW + timedelta(seconds=wait_s)
    headers = said(chain(Exhausted((block(resets_at=opens),)), available_at=opens)).headers
    assert headers == ({"Retry-After": retry_after} if retry_after else {"x-should-retry": "false"})


def test_a_budget_that_never_opens_is_not_retried() -> None:
    found = said(chain(Exhausted((block(resets_at=None),))))
    assert found.fields["resets_at"] is None
    assert found.headers == {"x-should-retry": "false"}


def test_case_64_room_taken_by_holds_only_means_try_again_in_a_second() -> None:
    held = block(spent=100, held=890, resets_at=NOW)
    found = said(chain(Exhausted((held,)), Exhausted((block(),)), available_at=NOW))
    assert found.headers == {"Retry-After": "1"}
    assert "used up" not in found.message


def test_case_11_the_later_of_two_windows_decides() -> None:
    hour, day = block(), block(budget="moonshot-day", resets_at=NOW + timedelta(hours=9))
    found = said(chain(Exhausted((hour, day)), available_at=NOW + timedelta(hours=9)), admin=True)
    assert found.fields["budget"] == "moonshot-day"
    assert found.fields["resets_at"] == "2026-03-02T21:00:00Z"


def test_the_slot_that_opens_first_is_the_one_spoken_of() -> None:
    late, soon = block(resets_at=None), block(budget="groq-hour", scope_kinds=("user",))
    found = said(chain(Exhausted((late,)), Exhausted((soon,)), available_at=soon.resets_at), admin=True)
    assert found.fields["budget"] == "groq-hour"
    assert found.fields["scope"] == "user"


def test_case_62_larger_than_the_whole_limit_is_another_code() -> None:
    huge = Exhausted((block(asked=1001, resets_at=None),))
    assert said(chain(huge, huge)).code == "prompt_too_large_for_budget"
    assert said(chain(huge, huge)).status == 429
    assert said(chain(huge, Exhausted((block(),)))).code == "budget_exhausted"


def test_case_6_a_limit_of_nought_is_exhausted_not_too_large() -> None:
    nought = Exhausted((block(limit=0, spent=0, resets_at=None),))
    assert said(chain(nought)).code == "budget_exhausted"


def test_a_pause_is_a_refusal_with_its_end() -> None:
    found = said(chain(Paused(NOW + timedelta(hours=2)), available_at=NOW + timedelta(hours=2)))
    assert (found.status, found.code) == (429, "budget_exhausted")
    assert found.fields["resets_at"] == "2026-03-02T14:00:00Z"


def test_case_33_all_cooling_down_says_the_soonest_time() -> None:
    waits = [BreakerOpen(name, NOW + timedelta(seconds=s)) for name, s in (("moonshot", 90), ("groq", 40))]
    found = said(chain(*waits, available_at=NOW + timedelta(seconds=40)))
    assert (found.status, found.code) == (503, "providers_unavailable")
    assert found.headers == {"Retry-After": "40"}
    long = said(chain(waits[0], available_at=NOW + timedelta(seconds=90)))
    assert long.headers == {"Retry-After": "90", "x-should-retry": "false"}


def test_mixed_causes_are_an_outage_not_a_budget() -> None:
    found = said(chain(Exhausted((block(),)), Unanswered("groq", "llama", "timed out"), available_at=NOW))
    assert (found.status, found.code) == (503, "providers_unavailable")
    assert "moonshot-hour" not in found.message


def test_case_27_an_unpriced_model_is_refused_with_the_lines_that_fix_it() -> None:
    found = said(chain(UnknownPrice("moonshot", "kimi")))
    assert (found.status, found.code) == (402, "unpriced_model")
    assert "price = " in found.message
    assert "[providers.moonshot]" in found.message


def test_a_request_that_no_slot_can_serve_is_the_callers() -> None:
    found = said(chain(CannotServe(A, "images are refused"), CannotServe(B, "no tools")))
    assert (found.status, found.code) == (400, "invalid_request")
    assert "images are refused" in found.message


def test_a_prompt_that_is_too_long_everywhere_says_so() -> None:
    fault = ContextTooLong("groq", "llama", "prompt is too long", status=400)
    found = said(chain(CannotServe(A, "context too small"), fault))
    assert (found.status, found.code, found.message) == (400, "context_length_exceeded", "prompt is too long")


def test_case_30_the_callers_fault_is_passed_on_in_the_providers_words() -> None:
    body: dict[str, object] = {"message": "bad tool", "type": "invalid_request_error", "param": "tools", "code": "bad_tool"}
    for shape in (body, {"error": body}):
        found = said(CallerFault("groq", "llama", "bad tool", status=422, body=shape))
        assert (found.status, found.code, found.param, found.message) == (422, "bad_tool", "tools", "bad tool")
        assert found.headers["x-sluicegate-provider"] == "groq"


@pytest.mark.parametrize("status", [None, 200, 401, 403, 407, 500])
def test_a_callers_fault_never_looks_like_a_bad_key_of_ours(status: int | None) -> None:
    assert said(CallerFault("groq", "llama", "no", status=status)).status == 400


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (InvalidRequest("n must be an integer", "n"), 400, "invalid_request"),
        (InvalidRequest("no", "x", 422), 422, "invalid_request"),
        (UnknownTarget("nobody", ("default",)), 404, "model_not_found"),
        (RequestConflict("key:a:b"), 409, "idempotency_conflict"),
        (LedgerUnavailable("disk full"), 503, "ledger_unavailable"),
        (ContentRefused("groq", "llama", "policy", status=400), 400, "invalid_request"),
        (Refused("groq", "llama", "down", status=503), 502, "providers_unavailable"),
        (StreamBroken(A, "Hel", Unanswered("moonshot", "kimi", "cut")), 502, "providers_unavailable"),
        (GatewayError(), 500, "internal_error"),
    ],
)
def test_the_rest_has_its_status_and_code(error: GatewayError, status: int, code: str) -> None:
    found = said(error)
    assert (found.status, found.code) == (status, code)


def test_a_stream_that_broke_does_not_repeat_what_was_shown() -> None:
    assert "Hel" not in said(StreamBroken(A, "Hel", Unanswered("moonshot", "kimi", "cut"))).message


def test_the_body_has_openais_shape_with_our_fields_inside() -> None:
    error = said(chain(Exhausted((block(),)), available_at=NOW)).error("req_9")
    assert list(error)[:4] == ["message", "type", "code", "param"]
    assert error["request_id"] == "req_9"
    assert INTERNAL.error("x")["code"] == "internal_error"


def test_a_timestamp_is_never_before_the_instant() -> None:
    assert timestamp(NOW) == "2026-03-02T12:00:00Z"
    assert timestamp(NOW + timedelta(milliseconds=1)) == "2026-03-02T12:00:01Z"
    assert timestamp(None) is None
