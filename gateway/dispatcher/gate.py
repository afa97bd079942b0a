"""The gate: what a slot would hold for a request, the clamping to the room that is left, and the reservation.

Rules:
- What a slot cannot serve is said before anything is held.
- The output limit is lowered to the room that is left, never below the least useful reply; with less room the slot is
  refused, with the facts of that least reply. A request that is not clampable is never lowered.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from gateway.budget import Amounts, Unit
from gateway.chat import Asked, EmbeddingRequest, Origin, Request, Slot
from gateway.clock import Clock, to_ms
from gateway.errors import Block, CannotServe, Exhausted, InvalidRequest, Paused, UnknownPrice
from gateway.estimate import Estimator
from gateway.ledger import Closing, Draft, Outcome, Reservation, State
from gateway.prices import Prices
from gateway.settings import Model, Settings
from gateway.settings.values import EMBEDDING_APIS
from gateway.store import Peek, Store

HOLD_MARGIN_S = 60.0
"""How long past its call's own time-out a hold lives before the sweep may expire it."""
STALE = timedelta(seconds=15)
"""A hold that was asked for longer ago may have expired with its process's lease: that process stood still meanwhile."""
CLAMPS_MAX = 3
"""How often the output limit is lowered while other calls take the same room."""


class Bound(NamedTuple):
    """What one slot would be asked for. Tokens; `limit` and `floor` are output limits of one answer of `answers`."""

    prompt_tokens: int
    limit: int
    floor: int
    """The least useful reply: below it the slot is refused rather than clamped."""
    answers: int
    wanted: int
    """What the caller asked, or the model's default: a smaller `limit` is a lowered one."""


class Admission(NamedTuple):
    """A committed reservation, and whether its output limit is lower than what was wanted."""

    reservation: Reservation
    lowered: bool


def checked(request: Asked) -> Asked:
    """The request itself. Raises InvalidRequest for an output limit or a number of answers below 1."""
    if isinstance(request, EmbeddingRequest):
        return request
    if request.max_output_tokens is not None and request.max_output_tokens < 1:
        raise InvalidRequest("the output limit must be at least 1", "max_tokens")
    if request.n < 1:
        raise InvalidRequest("n must be at least 1", "n")
    return request


class Gate:
    """Makes reservations. `complete`, `stream` and `explain` share it."""

    def __init__(
        self, store: Store, settings: Settings, estimator: Estimator, prices: Prices, clock: Clock, chance: random.Random
    ) -> None:
        self._store = store
        self._settings = settings
        self._estimator = estimator
        self._prices = prices
        self._clock = clock
        self._chance = chance

    def bound(self, request: Asked, slot: Slot, larger_than: int | None = None) -> Bound:
        """What this slot would be asked for. Raises CannotServe, also for parts whose worst case is not known.

        `larger_than` is the context, in tokens, that another slot found too small.
        """
        model = self._settings.model(slot)
        if isinstance(request, EmbeddingRequest):
            return self._embedding_bound(request, slot, model)
        if not model.tools and request.extra.get("tools"):
            raise CannotServe(slot, "the model takes no tools")
        context = model.context_tokens
        if larger_than is not None and (context is None or context <= larger_than):
            raise CannotServe(slot, "its context is not known to be larger than the one that was too small")
        prompt = self._estimator.prompt_bound(slot, model, request)
        if context is not None and prompt >= context:
            raise CannotServe(slot, f"a prompt of up to {prompt} tokens does not fit its context of {context}")
        return self._output_bound(request, slot, model, prompt)

    def _embedding_bound(self, request: EmbeddingRequest, slot: Slot, model: Model) -> Bound:
        """The prompt alone: nothing is generated, so nothing can be lowered. The context is that of each input by itself."""
        if self._settings.providers[slot.provider].api not in EMBEDDING_APIS:
            raise CannotServe(slot, "its wire format has no embeddings")
        context = model.context_tokens
        if context is not None and (longest := self._estimator.longest_input(slot, request)) > context:
            raise CannotServe(slot, f"an input of up to {longest} tokens does not fit its context of {context}")
        return Bound(self._estimator.prompt_bound(slot, model, request), limit=0, floor=0, answers=1, wanted=0)

    def _output_bound(self, request: Request, slot: Slot, model: Model, prompt: int) -> Bound:
        asked = request.max_output_tokens
        wanted = model.max_output_tokens if asked is None else asked
        limit = min(wanted, model.max_output_tokens)
        if model.context_tokens is not None:
            limit = min(limit, model.context_tokens - prompt)
        floor = min(self._settings.min_reply_tokens, wanted, model.max_output_tokens)
        if not request.clampable and asked is not None:
            floor = asked
        if limit < floor:
            raise CannotServe(slot, f"only {limit} output tokens fit, {floor} are wanted")
        if not request.clampable:
            floor = limit
        return Bound(prompt, limit, floor, request.n, wanted)

    def draft(self, bound: Bound, origin: Origin, chain: str, slot: Slot, attempt: int, now: datetime) -> Draft:
        """What would be reserved. Raises UnknownPrice when a USD budget is in scope and the price is not known."""
        now_ms = to_ms(now)
        output = bound.limit * bound.answers
        price, unknown = 0, None
        try:
            price = self._prices.worst_case(slot, bound.prompt_tokens, output, now)
        except UnknownPrice as error:
            unknown = error
        draft = Draft(
            id=f"{now_ms:012x}{self._chance.getrandbits(80):020x}",
            origin=origin,
            attempt=attempt,
            chain=chain,
            slot=slot,
            held=Amounts(1, bound.prompt_tokens + output, price),
            output_tokens=bound.limit,
            prompt_tokens=bound.prompt_tokens,
            deadline_ms=now_ms + int((self._settings.model(slot).timeout_s + HOLD_MARGIN_S) * 1000),
        )
        if unknown is not None:
            matching = self._settings.budgets.matching(draft.scope_values())
            if any(budget.unit is Unit.MICRO_USD for budget, _ in matching):
                raise unknown
        return draft

    async def admit(self, bound: Bound, origin: Origin, chain: str, slot: Slot, attempt: int) -> Admission:
        """Reserves, clamped where it must be. Raises Exhausted, Paused, UnknownPrice, LedgerUnavailable."""
        clamps = 0
        while True:
            asked_at = self._clock.now()
            try:
                reservation = await self._store.reserve(self.draft(bound, origin, chain, slot, attempt, asked_at))
                if self._clock.now() - asked_at < STALE:
                    return Admission(reservation, bound.limit < bound.wanted)
                await self._store.close(reservation, Closing(State.RELEASED, Amounts(), Outcome.NOT_SENT))
            except Exhausted as refusal:
                if bound.limit == bound.floor:
                    raise
                clamps += 1
                bound = self.clamped(bound, slot, refusal.blocks, at_floor=clamps > CLAMPS_MAX)

    async def peek(self, bound: Bound, origin: Origin, chain: str, slot: Slot) -> tuple[Bound, Draft, Peek]:
        """What `admit` would do now, holding nothing. Raises UnknownPrice, LedgerUnavailable."""
        while True:
            draft = self.draft(bound, origin, chain, slot, 1, self._clock.now())
            peek = await self._store.peek(draft)
            if peek.refusal is None or isinstance(peek.refusal, Paused) or bound.limit == bound.floor:
                return bound, draft, peek
            bound = self.clamped(bound, slot, peek.refusal.blocks)

    def clamped(self, bound: Bound, slot: Slot, blocks: Sequence[Block], *, at_floor: bool = False) -> Bound:
        """The same with a limit that fits the room of the refusing lines, at least `floor` and always lower than before.

        At the floor the gate is asked once more even where it cannot fit: its refusal then speaks of the least useful
        reply, so that the time it names is the first at which this request would be answered.
        """
        limit = bound.floor if at_floor else bound.limit - 1
        for block in blocks:
            limit = min(limit, self._fitting(bound, slot, block))
        return bound._replace(limit=max(limit, bound.floor))

    def _fitting(self, bound: Bound, slot: Slot, block: Block) -> int:
        """The largest output limit of one answer for which this line has room; below the floor where there is none."""
        room = block.limit - block.spent - block.held
        if block.unit == Unit.TOKENS:
            return (room - bound.prompt_tokens) // bound.answers
        if block.unit == Unit.REQUESTS:
            return 0
        now = self._clock.now()
        low, high = 0, bound.limit
        while low < high:
            middle = (low + high + 1) // 2
            if self._prices.worst_case(slot, bound.prompt_tokens, middle * bound.answers, now) <= room:
                low = middle
            else:
                high = middle - 1
        return low
