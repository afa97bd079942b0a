"""Windows cut time into buckets without gap or overlap, on the days when clocks change too; scopes pick counters."""

from datetime import UTC, datetime, time, timedelta
from functools import cache
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from gateway.budget import Amounts, Budget, Budgets, Calendar, Lifetime, Raise, Rolling, Unit, Window, limit_at
from gateway.chat import Origin, Slot
from gateway.clock import from_ms, to_ms
from gateway.errors import Exhausted
from gateway.ledger import Counter, CounterId, Draft, match, reserve

MADRID = ZoneInfo("Europe/Madrid")
LORD_HOWE = ZoneInfo("Australia/Lord_Howe")
ZONES = [
    "UTC", "Europe/Madrid", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", "America/St_Johns", "Africa/Casablanca",
    "Pacific/Apia", "Pacific/Chatham", "America/Sao_Paulo", "Asia/Gaza", "Antarctica/Troll",
]  # fmt: skip
KINDS = ["minute", "hour", "day", "week", "month"]
LENGTHS_H = {"minute": (0, 1 / 60), "hour": (0, 1), "day": (0, 49), "week": (143, 193), "month": (648, 768)}
"""Above and up to how many hours: clocks change by up to three hours, and a whole day was once skipped."""
HOUR_MS = 3_600_000


def ms(*parts: int, zone: ZoneInfo | None = None) -> int:
    """An instant from its local parts (UTC without a zone)."""
    return to_ms(datetime(*parts, tzinfo=zone or UTC))  # type: ignore[misc, arg-type]


def span(window: Window, at_ms: int) -> tuple[datetime, datetime]:
    """The bucket around an instant, in UTC."""
    start = window.bucket(at_ms)
    end = window.leaves_at(start)
    assert end is not None
    return from_ms(start), from_ms(end)


def local(window: Calendar, at_ms: int) -> tuple[str, str]:
    """The bucket around an instant, in the window's zone."""
    start, end = span(window, at_ms)
    return f"{start.astimezone(window.zone):%m-%d %H:%M}", f"{end.astimezone(window.zone):%m-%d %H:%M}"


@cache
def changes(zone: str) -> list[int]:
    """The instants at which this zone's offset changes, to the second, found by halving every week."""
    found, week, info = [], 7 * 86_400, ZoneInfo(zone)

    def offset(second: int) -> timedelta | None:
        return datetime.fromtimestamp(second, info).utcoffset()

    for start in range(ms(1995, 1, 1) // 1000, ms(2038, 1, 1) // 1000, week):
        low, high = start, start + week
        if offset(low) != offset(high):
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (low, middle) if offset(middle) == offset(high) else (middle, high)
            found.append(high * 1000)
    return found


@st.composite
def near_a_change(draw: st.DrawFn) -> tuple[Calendar, int]:
    """A window and an instant within two days of a change of its zone's clocks, mostly within an hour."""
    zone = draw(st.sampled_from(ZONES[1:]).filter(changes))
    away = draw(st.one_of(st.integers(-HOUR_MS, HOUR_MS), st.integers(-48 * HOUR_MS, 48 * HOUR_MS)))
    at = draw(st.sampled_from(changes(zone))) + away
    resets = draw(st.times())
    return Calendar(draw(st.sampled_from(KINDS)), ZoneInfo(zone), time(resets.hour, resets.minute)), at


instants = st.integers(ms(1995, 1, 1), ms(2037, 12, 31))
calendars = st.builds(
    Calendar, st.sampled_from(KINDS), st.sampled_from(ZONES).map(ZoneInfo), st.times().map(lambda t: time(t.hour, t.minute))
)


@hypothesis_settings(max_examples=600, deadline=None)
@given(calendars, instants, st.floats(0, 1, exclude_max=True))
def test_calendar_buckets_partition_time(window: Calendar, at: int, part: float) -> None:
    check_partition(window, at, part)


@hypothesis_settings(max_examples=600, deadline=None)
@given(near_a_change(), st.floats(0, 1, exclude_max=True))
def test_case_10_buckets_partition_time_where_clocks_change(drawn: tuple[Calendar, int], part: float) -> None:
    check_partition(*drawn, part)


def check_partition(window: Calendar, at: int, part: float) -> None:
    """The bucket has this instant in it, and begins where the one before ends."""
    fresh = Calendar(window.kind, window.zone, window.resets)
    start, end = window.bucket(at), window.leaves_at(window.bucket(at))
    assert start <= at < end
    inside = start + int((end - start) * part)
    assert (fresh.bucket(inside), fresh.leaves_at(start)) == (start, end)
    assert fresh.bucket(end) == end
    assert fresh.leaves_at(fresh.bucket(start - 1)) == start
    assert window.live_from(start) == start


@hypothesis_settings(max_examples=300, deadline=None)
@given(calendars, instants)
def test_a_calendar_bucket_has_a_length_of_its_kind(window: Calendar, at: int) -> None:
    start, end = span(window, at)
    hours = (end - start) / timedelta(hours=1)
    least, most = LENGTHS_H[window.kind]
    assert least < hours <= most


@hypothesis_settings(max_examples=400, deadline=None)
@given(st.integers(1, 600), st.sampled_from([60, 3600, 86_400]), instants, st.integers(0, 10**10))
def test_a_rolling_window_gives_room_back_never_early_and_at_most_a_sixtieth_late(n: int, unit: int, at: int, later: int) -> None:
    window = Rolling(n * unit, "rolling")
    length = n * unit * 1000
    start = window.bucket(at)
    leaves = window.leaves_at(start)
    assert start <= at < start + window.bucket_ms
    assert at + length < leaves <= at + length + length // 60
    assert window.bucket(start) == start
    still_counts = start >= window.live_from(window.bucket(at + later))
    assert still_counts == (at + later < leaves)


def test_a_lifetime_has_one_bucket_for_ever() -> None:
    window = Lifetime()
    assert (window.bucket(0), window.bucket(ms(2036, 1, 1)), window.leaves_at(0), window.live_from(0)) == (0, 0, None, 0)


def test_case_10_days_of_23_and_25_hours() -> None:
    window = Calendar("day", MADRID)
    for day, hours in ((ms(2026, 3, 29, 12), 23), (ms(2026, 10, 25, 12), 25), (ms(2026, 6, 1, 12), 24)):
        start, end = span(window, day)
        assert (end - start) == timedelta(hours=hours)
        assert start.astimezone(MADRID).time() == end.astimezone(MADRID).time() == time(0)


def test_case_10_a_reset_hour_that_does_not_exist_is_the_end_of_the_gap() -> None:
    window = Calendar("day", MADRID, time(2, 30))
    assert local(window, ms(2026, 3, 28, 12)) == ("03-28 02:30", "03-29 03:00")
    assert local(window, ms(2026, 3, 29, 1)) == ("03-29 03:00", "03-30 02:30")
    assert from_ms(window.bucket(ms(2026, 3, 29, 1))) == datetime(2026, 3, 29, 1, tzinfo=UTC)


def test_case_10_a_reset_hour_that_comes_twice_is_the_first() -> None:
    window = Calendar("day", MADRID, time(2, 30))
    assert from_ms(window.bucket(ms(2026, 10, 25, 12))) == datetime(2026, 10, 25, 0, 30, tzinfo=UTC)
    between = ms(2026, 10, 25, 1, 15)  # 02:15 for the second time.
    assert from_ms(window.bucket(between)) == datetime(2026, 10, 25, 0, 30, tzinfo=UTC)


def test_case_10_a_day_that_was_skipped_has_no_bucket_of_its_own() -> None:
    window = Calendar("day", ZoneInfo("Pacific/Apia"))
    assert local(window, ms(2011, 12, 30, 9, 59)) == ("12-29 00:00", "12-31 00:00")
    assert local(window, ms(2011, 12, 30, 10)) == ("12-31 00:00", "01-01 00:00")


def test_case_10_midnight_that_does_not_exist() -> None:
    window = Calendar("day", ZoneInfo("America/Sao_Paulo"))
    assert local(window, ms(2018, 11, 4, 12)) == ("11-04 01:00", "11-05 00:00")


@pytest.mark.parametrize(
    ("at", "bucket"),
    [
        ((2026, 2, 28, 22, 30), ("02-01 00:00", "03-01 00:00")),
        ((2024, 2, 29, 12), ("02-01 00:00", "03-01 00:00")),
        ((2026, 12, 31, 22, 59), ("12-01 00:00", "01-01 00:00")),
        ((2026, 1, 31, 23, 30), ("02-01 00:00", "03-01 00:00")),  # 00:30 on the first in Madrid.
    ],
)
def test_case_10_month_ends(at: tuple[int, ...], bucket: tuple[str, str]) -> None:
    assert local(Calendar("month", MADRID), ms(*at)) == bucket


def test_case_10_a_month_that_resets_at_six_still_belongs_to_the_month_before_at_five() -> None:
    window = Calendar("month", MADRID, time(6))
    assert local(window, ms(2026, 3, 1, 5, 59, zone=MADRID)) == ("02-01 06:00", "03-01 06:00")
    assert local(window, ms(2026, 3, 1, 6, zone=MADRID)) == ("03-01 06:00", "04-01 06:00")


def test_case_10_a_week_starts_on_monday() -> None:
    window = Calendar("week", MADRID, time(6))
    assert local(window, ms(2026, 3, 2, 5, 59, zone=MADRID)) == ("02-23 06:00", "03-02 06:00")
    assert local(window, ms(2026, 3, 2, 6, zone=MADRID)) == ("03-02 06:00", "03-09 06:00")
    start, end = span(window, ms(2026, 3, 29, 12))
    assert (end - start) == timedelta(days=7) - timedelta(hours=1)


def test_hours_follow_an_offset_of_half_an_hour_and_are_cut_where_it_changes() -> None:
    window = Calendar("hour", LORD_HOWE)
    assert span(window, ms(2026, 1, 1, 12, 40)) == (datetime(2026, 1, 1, 12, tzinfo=UTC), datetime(2026, 1, 1, 13, tzinfo=UTC))
    assert span(window, ms(2026, 6, 1, 12, 40)) == (
        datetime(2026, 6, 1, 12, 30, tzinfo=UTC),
        datetime(2026, 6, 1, 13, 30, tzinfo=UTC),
    )
    # On 5 April 2026 02:00 becomes 01:30: the second half of that hour comes again, as a bucket of its own.
    assert span(window, ms(2026, 4, 4, 14, 59)) == (datetime(2026, 4, 4, 14, tzinfo=UTC), datetime(2026, 4, 4, 15, tzinfo=UTC))
    assert span(window, ms(2026, 4, 4, 15)) == (datetime(2026, 4, 4, 15, tzinfo=UTC), datetime(2026, 4, 4, 15, 30, tzinfo=UTC))
    # On 4 October 2026 02:00 becomes 02:30: half of that hour does not exist.
    assert span(window, ms(2026, 10, 3, 15, 40)) == (
        datetime(2026, 10, 3, 15, 30, tzinfo=UTC),
        datetime(2026, 10, 3, 16, tzinfo=UTC),
    )


def test_an_hour_is_cut_where_clocks_change_in_its_midst() -> None:
    window = Calendar("hour", ZoneInfo("America/St_Johns"))
    # On 14 March 2010 00:01 became 01:01: an hour of one minute, and one of 59.
    assert local(window, ms(2010, 3, 14, 3, 30)) == ("03-14 00:00", "03-14 01:01")
    assert span(window, ms(2010, 3, 14, 3, 30))[1] == datetime(2010, 3, 14, 3, 31, tzinfo=UTC)
    assert local(window, ms(2010, 3, 14, 3, 31)) == ("03-14 01:01", "03-14 02:00")


def test_an_hour_that_comes_twice_is_two_windows() -> None:
    window = Calendar("hour", MADRID)
    first, second = ms(2026, 10, 25, 0, 30), ms(2026, 10, 25, 1, 30)
    assert window.bucket(second) - window.bucket(first) == HOUR_MS


def test_signatures_change_with_the_edges_and_not_with_the_words() -> None:
    assert Rolling(3600, "rolling 1h").signature == Rolling(3600, "rolling 60m").signature
    different = {
        Calendar("day", MADRID).signature,
        Calendar("day", MADRID, time(6)).signature,
        Calendar("day", LORD_HOWE).signature,
        Calendar("week", MADRID).signature,
        Rolling(3600, "rolling 1h").signature,
        Lifetime().signature,
    }
    assert len(different) == 6


# Scopes and limits


def budget(**changes: object) -> Budget:
    facts: dict[str, object] = {"name": "b", "unit": Unit.TOKENS, "limit": 100, "window": Calendar("hour", MADRID)}
    return Budget(**(facts | changes))  # type: ignore[arg-type]


CALL = {"provider": "moonshot", "model": "kimi", "user": "7,x=y", "surface": "http", "chain": "default"}


def test_a_scope_picks_a_counter_or_passes_the_call_over() -> None:
    assert budget().key(CALL) == ""
    assert budget(scope={"provider": "moonshot", "model": "kimi"}).key(CALL) == ""
    assert budget(scope={"provider": "groq"}).key(CALL) is None
    assert budget(scope={"chat": "*"}).key(CALL) is None
    each = budget(scope={"user": "*", "provider": "*", "surface": "http"})
    key = each.key(CALL)
    assert key is not None
    assert each.scope_of(key) == {"provider": "moonshot", "user": "7,x=y", "surface": "http"}
    assert each.scope_kinds == ("provider", "user", "surface")
    assert key != each.key({**CALL, "user": "7"})


texts = st.text(st.characters(codec="utf-8"), max_size=12)


@given(st.dictionaries(st.sampled_from(["provider", "model", "user", "chat", "key"]), texts, min_size=1))
def test_any_values_come_back_out_of_a_counters_key(values: dict[str, str]) -> None:
    each = budget(scope=dict.fromkeys(values, "*"))
    key = each.key(values)
    assert key is not None
    assert each.scope_of(key) == values


def test_exceptions_and_guests_have_their_own_limit() -> None:
    each = budget(scope={"user": "*"}, exceptions={"1002": 500, "guests": 0})
    assert each.base_limit("user=1002") == 500
    assert each.base_limit("user=1002", guest=True) == 500
    assert each.base_limit("user=7") == 100
    assert each.base_limit("user=7", guest=True) == 0


def test_raises_apply_in_order_while_they_are_in_force_and_never_below_nought() -> None:
    raises = [Raise(1, "b", "+", 50, 0, 1000), Raise(2, "b", "%", 20, 0, None), Raise(3, "b", "=", 300, 500, 600)]
    assert limit_at(100, raises, 0) == 170
    assert limit_at(100, raises, 500) == 300
    assert limit_at(100, raises, 600) == 170
    assert limit_at(100, raises, 1000) == 120
    assert limit_at(100, [Raise(1, "b", "+", -500, 0, None)], 0) == 0
    assert limit_at(1, [Raise(1, "b", "%", 20, 0, None)], 0) == 2, "a raise of a small limit raises it"


@given(st.lists(st.dictionaries(st.sampled_from(sorted(CALL)), st.sampled_from([*CALL.values(), "*", "other"])), max_size=12))
def test_the_index_finds_exactly_the_budgets_that_match(scopes: list[dict[str, str]]) -> None:
    all_of_them = [budget(name=f"b{number:02}", scope=scope) for number, scope in enumerate(scopes)]
    expected = tuple((each, each.key(CALL)) for each in all_of_them if each.key(CALL) is not None)
    assert Budgets(all_of_them).matching(CALL) == expected


def ask(
    budgets: Budgets,
    tokens: int,
    at: int,
    counters: dict[CounterId, Counter],
    provider: str = "moonshot",
    user: str | None = None,
) -> None:
    """One reservation by the ledger's rules."""
    draft = Draft(
        "d", Origin("r", "http", user=user), 1, "default", Slot(provider, "kimi"), Amounts(1, tokens, 0), 1, 1, at + 1000
    )
    matches = match(budgets.matching(draft.scope_values()), {}, False, at)
    for found in matches:
        counters.setdefault(found.id, Counter())
    reserve(counters, draft, matches, "owner", at)


NOON = ms(2026, 3, 2, 12)


def test_case_06_a_limit_of_nought_allows_nothing_not_even_an_empty_call() -> None:
    for tokens in (0, 1):
        with pytest.raises(Exhausted) as caught:
            ask(Budgets([budget(limit=0)]), tokens, NOON, {})
        assert caught.value.resets_at is None


def test_case_07_exactly_the_limit_is_allowed_and_one_more_token_is_not() -> None:
    counters: dict[CounterId, Counter] = {}
    budgets = Budgets([budget(limit=100)])
    ask(budgets, 60, NOON, counters)
    ask(budgets, 40, NOON, counters)
    with pytest.raises(Exhausted):
        ask(budgets, 1, NOON, counters)
    ask(budgets, 0, NOON, counters)


def test_case_10_the_reset_that_is_named_is_the_first_instant_with_room() -> None:
    for window in (Calendar("day", MADRID, time(2, 30)), Calendar("month", LORD_HOWE), Rolling(3600, "rolling 1h")):
        at = ms(2026, 3, 28, 12)
        counter = Counter([[window.bucket(at), 100, 0]])
        counters: dict[CounterId, Counter] = {("b", ""): counter}
        with pytest.raises(Exhausted) as caught:
            ask(Budgets([budget(window=window)]), 1, at, counters)
        assert caught.value.resets_at is not None
        opens = to_ms(caught.value.resets_at)
        with pytest.raises(Exhausted):
            ask(Budgets([budget(window=window)]), 1, opens - 1, counters)
        ask(Budgets([budget(window=window)]), 1, opens, counters)
