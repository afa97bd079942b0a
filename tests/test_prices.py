"""Costs and worst cases in micro-USD, from the configuration and from the price list."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from genai_prices import Usage as ListUsage
from genai_prices import calc_price
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.chat import Slot, Usage
from gateway.errors import UnknownPrice
from gateway.prices import REMEMBERED_MAX, Prices
from gateway.settings import load

NOON = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
FILE = """
[providers.moonshot]
api = "openai"
base_url = "https://api.moonshot.ai/v1"
model = "kimi-k2.6"
[providers.moonshot.models."kimi-unheard-of"]
[providers.named-by-nothing]
api = "openai"
base_url = "http://127.0.0.1:1/v1"
model = "kimi-k2.6"
[providers.openai]
api = "openai"
base_url = "http://127.0.0.1:1/v1"
model = "gpt-4o-mini"
[providers.groq]
api = "openai"
base_url = "https://api.groq.com/openai/v1"
model = "llama-3.3-70b-versatile"
price = { input = 1, output = 2, cached_input = 0.1 }
[providers.home]
api = "openai"
base_url = "http://127.0.0.1:1/v1"
model = "qwen3"
price = "free"
[providers.deep]
api = "openai"
base_url = "https://api.deepseek.com"
model = "deepseek-chat"
[providers.gemini]
api = "openai"
base_url = "https://generativelanguage.googleapis.com/v1beta/openai"
model = "gemini-2.5-pro"
[providers.claude]
api = "anthropic"
base_url = "https://api.anthropic.com"
model = "claude-sonnet-4-5"
[providers.own]
api = "anthropic"
base_url = "https://api.anthropic.com"
model = "claude-sonnet-4-5"
price = { input = 4, output = 20 }
[providers.own.models."said"]
price = { input = 4, output = 20, cached_input = 1, cache_write = 7 }
[providers.router]
api = "openai"
base_url = "https://openrouter.ai/api/v1"
model = "deepseek/deepseek-r1:free"
[providers.tiny]
api = "local"
model = "smollm2"
"""
KIMI = Slot("moonshot", "kimi-k2.6")
GROQ = Slot("groq", "llama-3.3-70b-versatile")


@pytest.fixture
def prices(tmp_path: Path) -> Prices:
    (tmp_path / "sluicegate.toml").write_text(FILE)
    return Prices(load(tmp_path / "sluicegate.toml", {}))


@cache
def shared_prices() -> Prices:
    """One for all examples: the list is looked up once."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "sluicegate.toml"
        file.write_text(FILE)
        return Prices(load(file, {}))


def listed(usage: ListUsage, model: str, vendor: str, when: datetime = NOON) -> Decimal:
    """The library's own sum, in micro-USD."""
    return calc_price(usage, model, provider_id=vendor, genai_request_timestamp=when).total_price * 1_000_000


def test_the_configuration_wins_over_the_list(prices: Prices) -> None:
    assert prices.cost(GROQ, GROQ.model, Usage(1000, 500, cached=400), NOON) == (600 + 40 + 1000, "config")
    assert prices.worst_case(GROQ, 1000, 500, NOON) == 2000


def test_the_list_is_matched_by_address_and_else_by_name(prices: Prices) -> None:
    assert prices.source(KIMI) == "list"
    assert prices.source(Slot("openai", "gpt-4o-mini")) == "list"
    assert prices.source(Slot("named-by-nothing", "kimi-k2.6")) is None


def test_case_22_cached_tokens_are_priced_once_at_their_own_rate(prices: Prices) -> None:
    cost, source = prices.cost(KIMI, KIMI.model, Usage(262_960, 17, cached=257_955), NOON)
    exact = listed(ListUsage(input_tokens=262_960, cache_read_tokens=257_955, output_tokens=17), KIMI.model, "moonshotai")
    assert (source, Decimal(cost) - exact < 1, cost >= exact) == ("list", True, True)
    more_cached_than_prompt, _ = prices.cost(KIMI, KIMI.model, Usage(100, 0, cached=257_955), NOON)
    assert more_cached_than_prompt == prices.cost(KIMI, KIMI.model, Usage(100, 0, cached=100), NOON)[0]


def test_case_21_a_stated_nought_with_real_tokens_is_priced_from_tokens(prices: Prices) -> None:
    priced = prices.cost(KIMI, KIMI.model, Usage(1000, 100), NOON)
    assert prices.cost(KIMI, KIMI.model, Usage(1000, 100, stated_cost_micro_usd=0), NOON) == priced
    assert priced[0] > 0
    assert prices.cost(KIMI, KIMI.model, Usage(1000, 100, stated_cost_micro_usd=77), NOON) == (77, "stated")
    assert prices.cost(GROQ, None, Usage(1000, 100, stated_cost_micro_usd=77), NOON) == (77, "stated")


def test_case_23_reasoning_inside_the_output_is_priced_once(prices: Prices) -> None:
    assert prices.cost(KIMI, None, Usage(10, 90, reasoning=80), NOON) == prices.cost(KIMI, None, Usage(10, 90), NOON)


def test_the_model_served_is_priced_else_the_model_asked_and_it_says_so(prices: Prices) -> None:
    mini = Slot("openai", "gpt-4o-mini")
    usage = Usage(1_000_000, 0)
    assert prices.cost(mini, "gpt-4o-mini-2024-07-18", usage, NOON) == (150_000, "list")
    assert prices.cost(mini, "gpt-4o", usage, NOON) == (2_500_000, "list")
    assert prices.cost(mini, "nobody-knows", usage, NOON) == (150_000, "list:asked")
    assert prices.cost(Slot("moonshot", "kimi-unheard-of"), "kimi-k2.6", usage, NOON) == (950_000, "list")


def test_case_27_an_unknown_price_is_refused_with_the_two_lines_that_fix_it(prices: Prices) -> None:
    with pytest.raises(UnknownPrice) as caught:
        prices.worst_case(Slot("moonshot", "kimi-unheard-of"), 1, 1, NOON)
    assert '[providers.moonshot.models."kimi-unheard-of"]' in str(caught.value)
    assert "price = {" in str(caught.value)
    with pytest.raises(UnknownPrice) as caught:
        prices.worst_case(Slot("named-by-nothing", "kimi-k2.6"), 1, 1, NOON)
    assert "[providers.named-by-nothing]" in str(caught.value)
    assert prices.cost(Slot("named-by-nothing", "kimi-k2.6"), None, Usage(5, 5), NOON) == (0, "unknown")


def test_what_is_free_costs_nothing(prices: Prices) -> None:
    for slot in (Slot("home", "qwen3"), Slot("tiny", "smollm2")):
        assert prices.worst_case(slot, 10_000, 10_000, NOON) == 0
        assert prices.cost(slot, "other", Usage(10, 10), NOON) == (0, "free")
    assert prices.worst_case(Slot("router", "deepseek/deepseek-r1:free"), 10, 10, NOON) == 0


def test_a_price_by_the_hour_is_reserved_at_its_dearest_and_settled_at_the_calls_time(prices: Prices) -> None:
    deep, usage = Slot("deep", "deepseek-chat"), Usage(1_000_000, 1_000_000)
    cheap, dear = NOON.replace(hour=20), NOON
    worst = prices.worst_case(deep, 1_000_000, 1_000_000, cheap)
    assert worst == prices.worst_case(deep, 1_000_000, 1_000_000, dear) == prices.cost(deep, None, usage, dear)[0]
    assert prices.cost(deep, None, usage, cheap)[0] < worst
    for hour in range(24):
        when = NOON.replace(hour=hour, minute=31)
        exact = listed(ListUsage(input_tokens=1_000_000, output_tokens=1_000_000), "deepseek-chat", "deepseek", when)
        assert prices.cost(deep, None, usage, when)[0] == exact <= worst


def test_a_long_prompt_is_priced_by_its_step(prices: Prices) -> None:
    gemini = Slot("gemini", "gemini-2.5-pro")
    for prompt in (100_000, 200_000, 200_001, 400_000):
        exact = listed(ListUsage(input_tokens=prompt, output_tokens=10), gemini.model, "google")
        assert 0 <= prices.cost(gemini, None, Usage(prompt, 10), NOON)[0] - exact < 1
        assert prices.worst_case(gemini, prompt, 10, NOON) >= exact


def test_writing_the_vendors_cache_costs_more_and_is_in_the_worst_case(prices: Prices) -> None:
    claude = Slot("claude", "claude-sonnet-4-5")
    cost, _ = prices.cost(claude, None, Usage(1000, 100, cached=300, cache_written=600), NOON)
    usage = ListUsage(input_tokens=1000, cache_read_tokens=300, cache_write_tokens=600, output_tokens=100)
    assert 0 <= cost - listed(usage, claude.model, "anthropic") < 1
    assert prices.worst_case(claude, 1000, 100, NOON) >= prices.cost(claude, None, Usage(1000, 100, cache_written=1000), NOON)[0]


@pytest.mark.parametrize(("model", "written", "read"), [("claude-sonnet-4-5", 5, 4), ("said", 7, 1)])
def test_a_configured_price_counts_what_is_written_to_the_cache(prices: Prices, model: str, written: int, read: int) -> None:
    own = Slot("own", model)
    usage = Usage(1000, 100, cached=300, cache_written=600)
    assert prices.cost(own, None, usage, NOON)[0] == 100 * 4 + 300 * read + 600 * written + 100 * 20
    assert prices.worst_case(own, 1000, 100, NOON) == 1000 * written + 100 * 20


def test_money_is_rounded_up(prices: Prices) -> None:
    assert prices.cost(GROQ, None, Usage(1, 0, cached=1), NOON) == (1, "config")
    assert prices.cost(GROQ, None, Usage(0, 0), NOON) == (0, "config")


@settings(max_examples=200, deadline=None)
@given(data=st.data(), hour=st.integers(0, 47))
def test_no_cost_within_the_bounds_passes_the_worst_case(data: st.DataObject, hour: int) -> None:
    prices = shared_prices()
    slot = data.draw(st.sampled_from([KIMI, GROQ, Slot("deep", "deepseek-chat"), Slot("gemini", "gemini-2.5-pro")]))
    prompt_bound, output_bound = data.draw(st.integers(0, 500_000)), data.draw(st.integers(0, 100_000))
    prompt, output = data.draw(st.integers(0, prompt_bound)), data.draw(st.integers(0, output_bound))
    parts = [data.draw(st.integers(0, 500_000)) for _ in range(3)]
    usage = Usage(prompt, output, cached=parts[0], reasoning=parts[1], cache_written=parts[2])
    cost, _ = prices.cost(slot, None, usage, NOON + timedelta(hours=hour))
    assert 0 <= cost <= prices.worst_case(slot, prompt_bound, output_bound, NOON)


def test_names_that_clients_invent_are_not_remembered_for_ever(prices: Prices) -> None:
    for number in range(3000):
        prices.source(Slot("home", f"invented-{number}"))
    assert len(prices._listings) <= REMEMBERED_MAX


def test_what_is_loaded_ahead_is_every_configured_model(prices: Prices) -> None:
    prices.load()
    assert prices._listings.keys() >= {("moonshot", "kimi-unheard-of"), ("groq", GROQ.model), ("tiny", "smollm2")}


def test_a_model_that_only_makes_vectors_is_priced_by_its_prompt_and_by_nothing_that_it_generates(prices: Prices) -> None:
    slot = Slot("openai", "text-embedding-3-small")
    assert prices.worst_case(slot, 1_000_000, 0, NOON) == 20_000
    assert prices.cost(slot, None, Usage(1_000_000, 0), NOON) == (20_000, "list")
    with pytest.raises(UnknownPrice):
        prices.worst_case(slot, 1_000_000, 1, NOON)
    assert prices.cost(slot, None, Usage(1_000_000, 1), NOON) == (0, "unknown")
