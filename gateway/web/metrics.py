"""Prometheus metrics: what the dispatcher reports, what the endpoint serves, and each budget as it stands when asked.

Label values come from the configuration alone, so that no client can grow the number of series: a model that is not
configured counts as "other", and the counters of a `*` budget are summed. Children are bound once and kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from gateway.chat import Slot
from gateway.errors import BreakerOpen, CannotServe, Exhausted, Paused, SlotRefusal, UnknownPrice
from gateway.ledger import Closing, Outcome, Reservation
from gateway.settings import Settings
from gateway.store.budgets import Balance

LATENCY_BUCKETS_S = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80, 160)
OTHER_MODEL = "other"
DEPTHS = {
    "queue_depth": "Telegram updates that wait or are being answered.",
    "lanes": "Telegram conversations with something to do.",
    "parked": "Telegram questions that wait for their window.",
}
"""What is waiting in the bot of this process, by the end of its metric's name."""
ENDINGS: tuple[Outcome, ...] = tuple(outcome for outcome in Outcome if outcome not in (Outcome.PENDING, Outcome.EXPIRED))
"""How the dispatcher ends an attempt; what the sweep ends is counted apart, whoever made it."""
_SLOT = ("provider", "model")
_REASONS: tuple[tuple[type[SlotRefusal], str], ...] = (
    (Exhausted, "budget"),
    (Paused, "paused"),
    (UnknownPrice, "unpriced"),
    (BreakerOpen, "breaker"),
    (CannotServe, "cannot_serve"),
)


class _SlotSeries:
    """The bound children of one provider and model."""

    def __init__(self, metrics: Metrics, provider: str, model: str) -> None:
        names = (provider, model)
        self.attempts = {outcome: metrics.attempts.labels(*names, outcome.value) for outcome in ENDINGS}
        self.spend = metrics.spend.labels(*names)
        self.prompt = metrics.tokens.labels(*names, "prompt")
        self.output = metrics.tokens.labels(*names, "output")
        self.total = metrics.latency.labels(*names)
        self.first_token = metrics.first_token.labels(*names)
        self.breaker = metrics.breaker_open.labels(*names)
        self.skipped = {reason: metrics.skipped.labels(*names, reason) for _, reason in _REASONS}


class Metrics:
    """One per process; the dispatcher's Observer. Every method returns at once and raises nothing."""

    def __init__(self, settings: Settings) -> None:
        self.registry = CollectorRegistry(auto_describe=False)
        own = self.registry
        self.attempts = Counter(
            "sluicegate_reservations", "Reservations that ended, by outcome.", (*_SLOT, "outcome"), registry=own
        )
        self.skipped = Counter("sluicegate_slots_skipped", "Slots passed over without a call.", (*_SLOT, "reason"), registry=own)
        self.expired = Counter("sluicegate_holds_expired", "Holds that a sweep ended at their worst case.", registry=own)
        self.refusals = Counter("sluicegate_budget_refusals", "Refusals by budget.", ("budget",), registry=own)
        self.spend = Counter("sluicegate_spend_micro_usd", "Money spent, in micro-USD.", _SLOT, registry=own)
        self.tokens = Counter("sluicegate_tokens", "Tokens that providers stated.", (*_SLOT, "kind"), registry=own)
        self.latency = Histogram(
            "sluicegate_provider_seconds", "Attempt until its end.", _SLOT, buckets=LATENCY_BUCKETS_S, registry=own
        )
        self.first_token = Histogram(
            "sluicegate_provider_first_token_seconds",
            "Attempt until its first token.",
            _SLOT,
            buckets=LATENCY_BUCKETS_S,
            registry=own,
        )
        self.breaker_open = Gauge("sluicegate_breaker_open", "1 while a breaker is open.", _SLOT, registry=own)
        self.streams_open = Gauge("sluicegate_streams_open", "Streams under way over HTTP.", registry=own)
        streams = Counter("sluicegate_streams", "Streams that ended over HTTP, by how.", ("end",), registry=own)
        self.streams_done, self.streams_broken, self.streams_left = (streams.labels(end) for end in ("done", "broken", "left"))
        self._answers = Counter("sluicegate_http_answers", "HTTP answers by status.", ("status",), registry=own)
        self._by_status = {status: self._answers.labels(str(status)) for status in (200, 401, 429, 503)}
        self._known: dict[Slot, _SlotSeries] = {}
        self._other: dict[str, _SlotSeries] = {}
        self.use(settings)

    def use(self, settings: Settings) -> None:
        """Counts for these providers and budgets too. What is gone keeps its numbers: it may come back."""
        for provider in settings.providers.values():
            for slot in (Slot(provider.name, model) for model in provider.models):
                if slot not in self._known:
                    self._known[slot] = _SlotSeries(self, slot.provider, slot.model)
            if provider.name not in self._other:
                self._other[provider.name] = _SlotSeries(self, provider.name, OTHER_MODEL)
        for budget in settings.budgets.all:
            # A budget that has never refused shows a nought.
            self.refusals.labels(budget.name)

    def answered(self, status: int) -> None:
        """An HTTP answer was made."""
        child = self._by_status.get(status)
        if child is None:
            child = self._by_status[status] = self._answers.labels(str(status))
        child.inc()

    def settled(self, reservation: Reservation, closing: Closing) -> None:
        """An attempt ended."""
        series = self._series(reservation.slot)
        series.attempts[closing.outcome].inc()
        if closing.spent.micro_usd:
            series.spend.inc(closing.spent.micro_usd)
        if closing.usage is not None:
            series.prompt.inc(closing.usage.prompt)
            series.output.inc(closing.usage.output)
        if closing.total_ms is not None:
            series.total.observe(closing.total_ms / 1000)
        if closing.first_token_ms is not None:
            series.first_token.observe(closing.first_token_ms / 1000)

    def refused(self, slot: Slot, error: SlotRefusal) -> None:
        """A slot was passed over without a call."""
        for kind, reason in _REASONS:
            if isinstance(error, kind):
                self._series(slot).skipped[reason].inc()
        if isinstance(error, Exhausted):
            for block in error.blocks:
                self.refusals.labels(block.budget).inc()

    def breaker(self, slot: Slot, is_open: bool) -> None:
        """A slot's breaker opened or closed."""
        self._series(slot).breaker.set(int(is_open))

    def _series(self, slot: Slot) -> _SlotSeries:
        return self._known.get(slot) or self._other[slot.provider]


class _BudgetGauges(Collector):
    """The budgets' standing at one scrape, in each budget's unit; the counters of a `*` budget summed."""

    def __init__(self, balances: Iterable[Balance]) -> None:
        self._balances = balances

    def collect(self) -> Iterable[Metric]:
        """Three gauges."""
        spent: dict[tuple[str, str], int] = {}
        held: dict[tuple[str, str], int] = {}
        limit: dict[tuple[str, str], int] = {}
        for balance in self._balances:
            labels = (balance.name, str(balance.unit))
            spent[labels] = spent.get(labels, 0) + balance.spent
            held[labels] = held.get(labels, 0) + balance.held
            if not balance.key:
                limit[labels] = balance.limit
        yield _gauge("sluicegate_budget_limit", "The limit, of budgets with one counter.", limit)
        yield _gauge("sluicegate_budget_spent", "What is spent.", spent)
        yield _gauge("sluicegate_budget_held", "What open reservations hold.", held)


class _Depths(Collector):
    """What waits in the bot at one scrape."""

    def __init__(self, depths: Mapping[str, int]) -> None:
        self._depths = depths

    def collect(self) -> Iterable[Metric]:
        """One gauge each."""
        for name, value in self._depths.items():
            yield GaugeMetricFamily(f"sluicegate_telegram_{name}", DEPTHS[name], value=value)


def _gauge(name: str, text: str, values: Mapping[tuple[str, str], int]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, text, labels=("budget", "unit"))
    for labels, value in values.items():
        family.add_metric(labels, value)
    return family


def exposition(metrics: Metrics, balances: Iterable[Balance], depths: Mapping[str, int]) -> bytes:
    """The text that Prometheus scrapes; `depths` by the names of DEPTHS, empty without a bot."""
    standing = CollectorRegistry(auto_describe=False)
    standing.register(_BudgetGauges(balances))
    standing.register(_Depths(depths))
    return generate_latest(metrics.registry) + generate_latest(standing)
