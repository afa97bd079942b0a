"""Prices: what an attempt cost, and the most it can cost, in integer micro-USD.

Rules:
- A price in the configuration wins over the price list; a cost that the provider stated itself wins over both.
- The price is that of the model served, or of the model asked where the served one is unknown (said in the source).
- Money is rounded up, so that the sum of the rows is never below the bill.
- The worst case is the dearest that a rate can be from now to the end of tomorrow: some prices follow the hour, and a
  call may end later than it began.
- An unknown price is never guessed.

The list is that of genai-prices, as installed: nothing is fetched. Loading it takes tenths of a second, so it is
loaded with the first price that is looked up, and only where a model has no price of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import ROUND_CEILING, Decimal
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from gateway.chat import Slot, Usage
from gateway.errors import UnknownPrice
from gateway.settings import Settings

if TYPE_CHECKING:
    from genai_prices.types import ModelInfo, ModelPrice, TieredPrices

SCALE = 10**9
"""Rates are whole billionths of a micro-USD per token: exact for any list price, and integer arithmetic is fast."""

REMEMBERED_MAX = 1000
"""Names come from clients and providers too, so what is remembered about them is bounded."""

Source = str
"""Where a cost comes from: "config", "list", "list:asked" (the price of the model asked), "stated", "free", "unknown"."""


class Cost(NamedTuple):
    """What an attempt cost, and where the number comes from."""

    micro_usd: int
    source: Source


Steps = tuple[tuple[int, int], ...]
"""One rate as (prompt tokens above which it holds, rate), ascending: crossing a step reprices the whole call."""


@dataclass(frozen=True)
class Rates:
    """What a token costs at one time, as steps."""

    input: Steps
    output: Steps
    cached: Steps
    written: Steps
    """Input that the provider also writes to its cache."""
    reasoning: Steps
    request: int = 0
    """For the request itself, in billionths of a micro-USD."""
    prompt_only: bool = False
    """True where no price of output is known: models that make vectors. Calls that may generate have no known price then."""

    def cost(self, usage: Usage) -> int:
        """What this usage costs, in micro-USD, rounded up. No token is priced twice."""
        prompt = usage.prompt
        cached = min(usage.cached, prompt)
        written = min(usage.cache_written, prompt - cached)
        reasoning = min(usage.reasoning, usage.output)
        scaled = (
            (prompt - cached - written) * _at(self.input, prompt)
            + cached * _at(self.cached, prompt)
            + written * _at(self.written, prompt)
            + (usage.output - reasoning) * _at(self.output, prompt)
            + reasoning * _at(self.reasoning, prompt)
            + self.request
        )
        return -(-scaled // SCALE)

    def worst_case(self, prompt_tokens: int, output_tokens: int) -> int:
        """The most that up to this many tokens cost, in micro-USD, rounded up."""
        if self._flat is not None:
            dearest_in, dearest_out = self._flat
        else:
            dearest_in = max(_dearest(steps, prompt_tokens) for steps in (self.input, self.cached, self.written))
            dearest_out = max(_dearest(steps, prompt_tokens) for steps in (self.output, self.reasoning))
        return -(-(prompt_tokens * dearest_in + output_tokens * dearest_out + self.request) // SCALE)

    @cached_property
    def _flat(self) -> tuple[int, int] | None:
        """The dearest rates of input and output where they are the same for every length; None where they are not."""
        steps = (self.input, self.cached, self.written, self.output, self.reasoning)
        if any(len(each) > 1 for each in steps):
            return None
        return max(each[0][1] for each in steps[:3]), max(each[0][1] for each in steps[3:])


FREE = Rates(*(((0, 0),),) * 5)


@dataclass(frozen=True, slots=True)
class Listing:
    """How one model is priced over time."""

    source: Source
    at: Callable[[datetime], Rates]
    """The rates of a call that begins at an instant."""
    edges: tuple[time, ...] = ()
    """The UTC times of day at which they change; () for a price without hours."""
    dated: bool = False
    """True when a price begins on some day."""

    def possible(self, day: date) -> tuple[Rates, ...]:
        """Every set of rates that holds at some time of this UTC day or the next."""
        days = (day, day + timedelta(days=1)) if self.dated or self.edges else (day,)
        instants = (datetime.combine(each, edge, UTC) for each in days for edge in (time(0), *self.edges))
        return tuple(dict.fromkeys(self.at(instant) for instant in instants))


class Prices:
    """The prices of every slot of one configuration. Pure but for its memory of what it looked up."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._listings: dict[tuple[str, str], Listing | None] = {}
        self._possible: dict[Slot, tuple[date, tuple[Rates, ...]]] = {}

    def load(self) -> None:
        """Looks up every configured model, so that no call has to wait for the price list."""
        for name, provider in self._settings.providers.items():
            for model in provider.models:
                self._listing(name, model)

    def source(self, slot: Slot) -> Source | None:
        """Where the slot's price comes from ("config", "list", "free"), None where it is unknown."""
        listing = self._listing(slot.provider, slot.model)
        return None if listing is None else listing.source

    def worst_case(self, slot: Slot, prompt_tokens: int, output_tokens: int, now: datetime) -> int:
        """The most that an attempt on this slot can cost, in micro-USD, rounded up.

        `prompt_tokens` and `output_tokens` are bounds. Raises UnknownPrice rather than guess.
        """
        day = now.date() if now.tzinfo is UTC else now.astimezone(UTC).date()
        remembered = self._possible.get(slot)
        if remembered is None or remembered[0] != day:
            listing = self._listing(slot.provider, slot.model)
            if listing is None:
                raise UnknownPrice(slot.provider, slot.model, self._section(slot))
            remembered = self._possible[slot] = (day, listing.possible(day))
        possible = remembered[1]
        if output_tokens and possible[0].prompt_only:
            raise UnknownPrice(slot.provider, slot.model, self._section(slot))
        if len(possible) == 1:
            return possible[0].worst_case(prompt_tokens, output_tokens)
        return max(rates.worst_case(prompt_tokens, output_tokens) for rates in possible)

    def cost(self, slot: Slot, model_served: str | None, usage: Usage, now: datetime) -> Cost:
        """What an attempt cost, in micro-USD, and where that number comes from.

        `now` is the time of the call. A stated cost of 0 with real tokens is no statement. An unknown price costs 0
        from source "unknown": a USD budget has refused such a call before it was made.
        """
        if usage.stated_cost_micro_usd:
            return Cost(usage.stated_cost_micro_usd, "stated")
        asked = self._listing(slot.provider, slot.model)
        if asked is not None and asked.source != "list":
            return Cost(asked.at(now).cost(usage), asked.source)
        served = asked if model_served in (None, slot.model) else self._listing(slot.provider, model_served or "")
        listing, source = (served, served.source) if served is not None else (asked, "list:asked")
        rates = None if listing is None else listing.at(now)
        if rates is None or (rates.prompt_only and usage.output):
            return Cost(0, "unknown")
        return Cost(rates.cost(usage), source)

    def _section(self, slot: Slot) -> str:
        """Where the slot's price belongs in the file."""
        section = f"providers.{slot.provider}"
        return section if slot.model == self._settings.providers[slot.provider].model else f'{section}.models."{slot.model}"'

    def _listing(self, provider: str, model: str) -> Listing | None:
        key = (provider, model)
        if key not in self._listings:
            if len(self._listings) >= REMEMBERED_MAX:
                self._listings.clear()
                self._possible.clear()
            self._listings[key] = self._look_up(Slot(provider, model))
        return self._listings[key]

    def _look_up(self, slot: Slot) -> Listing | None:
        model = self._settings.model(slot)
        if model.price is not None:
            price = model.price
            paid, said = _flat(price.input), _flat(price.output)
            read, written = _flat(price.cached_input), _flat(price.cache_write)
            rates = Rates(input=paid, output=said, cached=read, written=written, reasoning=said)
            return Listing("config", lambda now: rates)
        if model.free:
            return Listing("free", lambda now: FREE)
        provider = self._settings.providers[slot.provider]
        info = _find(provider.base_url, provider.name, slot.model)
        return None if info is None else _listed(info)


def _find(base_url: str, name: str, model: str) -> ModelInfo | None:
    """The list's entry for a model: of the vendor at this address, else of the vendor that the provider is named for."""
    from genai_prices.data_snapshot import get_snapshot

    snapshot = get_snapshot()
    try:
        vendor = snapshot.find_provider(None, None, base_url or "-")
    except LookupError:
        try:
            vendor = snapshot.find_provider(None, name, None)
        except LookupError:
            return None
    return vendor.find_model(model, all_providers=snapshot.providers)


def _listed(info: ModelInfo) -> Listing | None:
    """How the list prices a model; None where it names no price for input tokens."""
    from genai_prices.types import ModelPrice, StartDateConstraint, TimeOfDateConstraint

    if isinstance(info.prices, ModelPrice):
        rates = _rates(info.prices, info.id)
        return None if rates is None else Listing("list", lambda now: rates)
    by_price = {id(entry.prices): _rates(entry.prices, info.id) for entry in info.prices}
    if not by_price or any(rates is None for rates in by_price.values()):
        return None
    known = {key: rates for key, rates in by_price.items() if rates is not None}
    constraints = [entry.constraint for entry in info.prices]
    hours = [limit for limit in constraints if isinstance(limit, TimeOfDateConstraint)]
    edges = {_utc(edge) for limit in hours for edge in (limit.start_time, limit.end_time)}
    return Listing(
        "list",
        lambda now: known[id(info.get_prices(now))],
        edges=tuple(sorted(edges)),
        dated=any(isinstance(limit, StartDateConstraint) for limit in constraints),
    )


def _rates(price: ModelPrice, model: str) -> Rates | None:
    if price.input_mtok is None:
        # A listed model without any price is unknown, unless its very name says that it is given away.
        return FREE if model.endswith(":free") and not price.__dict__ else None
    request = price.requests_kcount
    said = price.output_mtok if price.output_mtok is not None else Decimal(0)
    return Rates(
        input=_steps(price.input_mtok),
        output=_steps(said),
        cached=_steps(price.cache_read_mtok or price.input_mtok),
        written=_steps(price.cache_write_mtok or price.input_mtok),
        reasoning=_steps(price.output_reasoning_mtok or said),
        request=_scaled(request * 1000) if isinstance(request, Decimal) else 0,
        prompt_only=price.output_mtok is None,
    )


def _steps(price: Decimal | TieredPrices) -> Steps:
    if isinstance(price, Decimal):
        return _flat(price)
    return ((0, _scaled(price.base)), *((tier.start, _scaled(tier.price)) for tier in price.tiers))


def _flat(price: Decimal) -> Steps:
    return ((0, _scaled(price)),)


def _scaled(price: Decimal) -> int:
    """USD per million tokens is micro-USD per token: as whole billionths, rounded up."""
    return int((price * SCALE).to_integral_value(ROUND_CEILING))


def _utc(moment: time) -> time:
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return datetime.combine(date(2000, 1, 2), aware).astimezone(UTC).time()


def _at(steps: Steps, prompt_tokens: int) -> int:
    if len(steps) == 1:
        return steps[0][1]
    rate = steps[0][1]
    for start, step in steps[1:]:
        if prompt_tokens > start:
            rate = step
    return rate


def _dearest(steps: Iterable[tuple[int, int]], prompt_tokens: int) -> int:
    return max(rate for start, rate in steps if start == 0 or prompt_tokens > start)
