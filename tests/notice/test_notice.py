"""What people read when there is no answer."""

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from gateway.chat import Slot
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
    Refused,
    RequestConflict,
    Unanswered,
    UnknownPrice,
    UnknownTarget,
)
from gateway.notice import Action, Notice, Reader, notice

MADRID = ZoneInfo("Europe/Madrid")
NOW = datetime(2026, 3, 2, 21, 48, tzinfo=UTC)
SIX = datetime(2026, 3, 3, 5, 0, tzinfo=UTC)
EN, ES = Reader("en", MADRID), Reader("es-MX", MADRID)
ADMIN = Reader("en", MADRID, admin=True)
GROUP = Reader("en", MADRID, group=True)
FIRST, SECOND = Slot("moonshot", "kimi-k2.6"), Slot("groq", "llama")
SECRETS = ("person-day", "moonshot", "groq", "kimi", "tokens", "40", "16924", "$")


def block(**changes: Any) -> Block:
    facts: dict[str, Any] = {
        "budget": "person-day",
        "label": "",
        "scope_kinds": ("user",),
        "unit": "tokens",
        "limit": 40_000,
        "spent": 39_000,
        "held": 500,
        "asked": 16_924,
        "resets_at": SIX,
        "window": "day",
    }
    return Block(**(facts | changes))


def exhausted(*errors: GatewayError, at: datetime | None = SIX) -> ChainExhausted:
    slots = [FIRST, SECOND]
    return ChainExhausted("r", "default", tuple(Cause(slots[n % 2], error) for n, error in enumerate(errors)), at)


def said(error: GatewayError, reader: Reader = EN, **flags: bool) -> Notice:
    return notice(error, reader, NOW, **flags)


def test_the_notice_of_the_design_word_for_word() -> None:
    error = exhausted(Exhausted((block(),)), Exhausted((block(),)))
    got = said(error, saved=True, other_models=True)
    assert got.text == "⏳ Your allowance for today is used up. It opens at 06:00 (in 7 h 12 min). Your question is saved."
    assert got.actions == (Action.ANSWER_LATER, Action.OTHER_MODEL, Action.ASK_ADMIN, Action.CANCEL)
    assert got.opens_at == SIX


def test_the_group_notice_of_the_design_word_for_word() -> None:
    at = datetime(2026, 3, 2, 22, 10, 30, tzinfo=UTC)
    error = exhausted(Exhausted((block(scope_kinds=("provider",), window="hour", resets_at=at),)), at=at)
    assert said(error, GROUP, saved=True).text == "⏳ The team's allowance for this hour is used up. Back at 23:11 (in 23 min)."


def test_in_spanish() -> None:
    error = exhausted(Exhausted((block(),)))
    assert said(error, ES, saved=True).text == (
        "⏳ Tu cupo de hoy se ha agotado. Se abre a las 06:00 (en 7 h 12 min). Tu pregunta queda guardada."
    )


@pytest.mark.parametrize(
    ("changes", "begins"),
    [
        ({"scope_kinds": ("chat",), "window": "week"}, "This chat's allowance for this week"),
        ({"scope_kinds": ("provider", "user"), "window": "month"}, "Your allowance for this month"),
        ({"scope_kinds": (), "window": "rolling 1h"}, "The team's allowance for the last hour"),
        ({"scope_kinds": ("workflow",), "window": "rolling 5m"}, "This workflow's allowance for the last 5 minutes"),
        ({"scope_kinds": ("key",), "window": "rolling 30d"}, "This key's allowance for the last 30 days"),
        ({"scope_kinds": ("model", "surface"), "window": "minute"}, "The team's allowance for this minute"),
        ({"label": "the reading room's share"}, "The reading room's share for today"),
    ],
)
def test_whose_allowance_and_of_which_window(changes: dict[str, Any], begins: str) -> None:
    assert said(exhausted(Exhausted((block(**changes),)))).text.startswith(f"⏳ {begins} is used up.")


def test_a_label_that_is_our_english_word_is_translated() -> None:
    assert said(exhausted(Exhausted((block(label="your allowance"),))), ES).text.startswith("⏳ Tu cupo de hoy")


def test_case_11_of_two_windows_the_later_reset_is_named() -> None:
    hour = block(scope_kinds=("provider",), window="hour", resets_at=NOW + timedelta(minutes=12))
    day = block(scope_kinds=("provider",), window="day")
    got = said(exhausted(Exhausted((hour, day))))
    assert "for today is used up. It opens at 06:00" in got.text


def test_the_slot_that_opens_first_is_the_one_spoken_of() -> None:
    soon = NOW + timedelta(minutes=22)
    day, hour = block(scope_kinds=("provider",)), block(scope_kinds=("provider",), window="hour", resets_at=soon)
    got = said(exhausted(Exhausted((day,)), Exhausted((hour,)), at=soon))
    assert "for this hour is used up. It opens at 23:10 (in 22 min)." in got.text
    assert got.opens_at == soon


def test_case_64_room_taken_by_holds_only_is_not_called_used_up() -> None:
    held = block(spent=1000, held=39_000, asked=500)
    got = said(exhausted(Exhausted((held,)), Exhausted((block(),))), saved=True)
    assert got.text == (
        "⏳ Other answers are being written just now and hold what is left. Try again in a moment. Your question is saved."
    )


def test_case_62_a_question_larger_than_the_whole_limit_never_opens() -> None:
    got = said(exhausted(Exhausted((block(asked=50_000, resets_at=None),)), at=None), saved=True)
    assert got.text == "✂️ This is too long: your allowance would never be enough for it. Shorten it, or begin anew with /new."
    assert got.actions == (Action.ASK_ADMIN,)


def test_a_lifetime_budget_and_a_limit_of_nought_promise_no_time() -> None:
    for_good = said(exhausted(Exhausted((block(resets_at=None, window="lifetime"),)), at=None), saved=True)
    assert for_good.text == "⏳ Your allowance is used up, and it does not renew by itself."
    nothing = said(exhausted(Exhausted((block(limit=0, resets_at=None),)), at=None), saved=True)
    assert nothing.text == "⏳ Your allowance is set to nothing, so no question can be answered."
    assert for_good.opens_at is nothing.opens_at is None
    assert Action.ANSWER_LATER not in (*for_good.actions, *nothing.actions)


def test_a_slot_that_never_could_does_not_hide_the_one_that_opens() -> None:
    got = said(exhausted(CannotServe(FIRST, "images are refused"), Exhausted((block(),))))
    assert "Your allowance for today is used up. It opens at 06:00" in got.text


def test_paused_outage_and_mixed_causes_are_called_by_their_names() -> None:
    down = Unanswered("moonshot", "kimi-k2.6", "timed out")
    cooling = BreakerOpen("groq", SIX)
    cases = {
        "⏸ An admin has paused all answers until further notice.": exhausted(Paused(None), at=None),
        "⏸ An admin has paused all answers. They go on at 06:00 (in 7 h 12 min).": exhausted(Paused(SIX), Paused(SIX)),
        "⚠️ No model answers at the moment. Try again in a few minutes.": exhausted(down, at=None),
        "⚠️ No model answers at the moment. The next try is possible at 06:00 (in 7 h 12 min).": exhausted(down, cooling),
        "⚠️ No model can answer now: for some the allowance is used up, others do not respond. "
        "The earliest is at 06:00 (in 7 h 12 min).": exhausted(down, Exhausted((block(),))),
        "⚠️ This model's price is not known, so it is not used. An admin can add it.": exhausted(
            UnknownPrice("moonshot", "kimi-k2.6"), at=None
        ),
        "✂️ This is too long for the models here. Shorten it, or begin anew with /new.": exhausted(
            ContextTooLong("groq", "llama", "too long"), at=None
        ),
    }
    for expected, error in cases.items():
        assert said(error).text == expected


def test_only_buttons_that_work_are_offered() -> None:
    error = exhausted(Exhausted((block(),)))
    assert said(error).actions == (Action.ASK_ADMIN,)
    assert said(error, ADMIN, saved=True).actions == (Action.ANSWER_LATER, Action.CANCEL)
    assert said(exhausted(Unanswered("p", "m", "x"), at=None), saved=True).actions == (Action.ANSWER_LATER, Action.CANCEL)
    assert said(LedgerUnavailable("gone")).actions == ()


EVERY = [
    exhausted(Exhausted((block(),)), Exhausted((block(unit="micro_usd"),))),
    exhausted(UnknownPrice("moonshot", "kimi-k2.6"), Unanswered("groq", "llama", "16924 tokens, $40")),
    exhausted(CannotServe(FIRST, "a prompt of up to 16924 tokens does not fit its context of 40")),
    Exhausted((block(),)),
    Paused(SIX),
    LedgerUnavailable("moonshot"),
    Refused("moonshot", "kimi", "16924 tokens"),
    ContentRefused("moonshot", "kimi", "$40"),
    RequestConflict("person-day"),
    GatewayError("moonshot"),
]


@pytest.mark.parametrize("error", EVERY, ids=lambda error: type(error).__name__)
def test_nobody_but_an_admin_reads_names_amounts_or_money(error: GatewayError) -> None:
    for reader in (EN, ES, GROUP, Reader("en", MADRID, admin=True, group=True)):
        shown = said(error, reader, saved=True).text
        assert shown.endswith((".", ")", "new."))
        assert not [word for word in SECRETS if word in shown], shown


def test_an_admin_reads_the_budgets_and_the_causes() -> None:
    money = block(budget="money", unit="micro_usd", limit=1_250_000, spent=1_250_000, held=0, asked=123)
    error = exhausted(Exhausted((block(), money)), Unanswered("groq", "llama", "timed out after 20 s"))
    lines = said(error, ADMIN).text.splitlines()
    assert lines[1] == (
        "moonshot:kimi-k2.6: budget person-day: 39\u202f000 spent and 500 held of 40\u202f000 tokens, 16\u202f924 asked; "
        "opens at 06:00"
    )
    assert lines[2] == "moonshot:kimi-k2.6: budget money: $1.25 spent and $0.00 held of $1.25, $0.000123 asked; opens at 06:00"
    assert lines[3] == "groq:llama: groq: timed out after 20 s"
    assert "disk full" not in said(LedgerUnavailable("disk full"), EN).text
    assert said(LedgerUnavailable("disk full"), ADMIN).text.endswith("the ledger is unavailable: disk full")


def test_what_the_asker_did_is_told_to_the_asker() -> None:
    assert said(InvalidRequest("n must be at least 1", "n")).text == "⚠️ This cannot be asked like that: n must be at least 1"
    assert said(UnknownTarget("kimmi", ("kimi",))).text == "There is no model or chain called kimmi."
