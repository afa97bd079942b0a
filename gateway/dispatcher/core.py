"""The dispatcher itself: whole answers, streams, deduplication, and what the gate would say.

Handed a store, providers, settings and a clock; imports no IO library.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from datetime import datetime

import structlog

from gateway.chat import Asked, Origin, Request, Slot
from gateway.clock import Clock
from gateway.dispatcher import replies, settle
from gateway.dispatcher.breaker import Breakers
from gateway.dispatcher.desk import Desk
from gateway.dispatcher.gate import Gate, checked
from gateway.dispatcher.generation import Generation
from gateway.dispatcher.observe import Alert, Observer, Unobserved
from gateway.dispatcher.stream import Event, StreamedAttempt
from gateway.dispatcher.values import Reply, Verdict
from gateway.dispatcher.walk import Parts, Walk
from gateway.errors import BreakerOpen, CannotServe, ChainExhausted, LedgerUnavailable, ProviderError, UnknownPrice
from gateway.estimate import Estimator
from gateway.prices import Prices
from gateway.providers import Provider
from gateway.settings import Settings
from gateway.store import Answered, Claimed, Store, Underway

TWIN_POLL_S = 0.25
"""How often a request looks whether its twin was answered, at least."""


class Dispatcher:
    """One per process. `complete` and `stream` share one path through the gate.

    `alert` tells the operator; `observer` counts for metrics; `chance` draws the jitter and the ids.
    """

    def __init__(
        self,
        store: Store,
        providers: Mapping[str, Provider],
        settings: Settings,
        clock: Clock,
        *,
        estimator: Estimator | None = None,
        prices: Prices | None = None,
        alert: Alert | None = None,
        observer: Observer | None = None,
        chance: random.Random | None = None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._alert = alert
        self._log = structlog.get_logger("gateway.dispatcher").bind()
        self._estimator = estimator or Estimator()
        self._observer = observer or Unobserved()
        self._chance = chance or random.Random()  # noqa: S311 - jitter and ids, no secrets
        self._breakers = Breakers(clock, self._observer, self._tell)
        self._now = self._generation(settings, providers, prices or Prices(settings))
        self._before: set[Generation] = set()
        """Earlier generations that still have calls under way."""

    def use(self, settings: Settings, providers: Mapping[str, Provider], prices: Prices) -> Coroutine[object, object, None]:
        """From the next request on, these hold. What is returned waits until every request that was under way has ended, by
        what held when it began.
        """
        before, self._now = self._now, self._generation(settings, providers, prices)
        for name, provider in before.settings.providers.items():
            if settings.providers.get(name) != provider:
                # A key that was corrected is tried at once.
                self._breakers.forget(name)
        self._before.add(before)
        return self._outlived(before)

    async def _outlived(self, before: Generation) -> None:
        await before.ended()
        await before.desk.drain()
        self._before.discard(before)

    async def complete(
        self,
        request: Asked,
        target: str,
        origin: Origin,
        *,
        settle_first: bool = True,
        admitted: Callable[[], None] | None = None,
    ) -> Reply:
        """A whole answer from the first slot of `target` (chain, provider, alias or provider:model) that can serve: words,
        or the vectors of an EmbeddingRequest.

        `admitted` is called each time the gate has let an attempt through, before the call goes out.

        Without `settle_first` the answer is returned while its settling is on the way to the store, ahead of whatever is
        asked for next; `settled` waits for it. A deduplicated request's answer is always settled, and so stored, first.

        Raises ChainExhausted, CallerFault and ContentRefused (as the provider said it), InvalidRequest, UnknownTarget,
        TargetNotAllowed (for what `origin.may_use` does not name), RequestConflict, LedgerUnavailable.
        """
        made = self._now
        walk = made.walk(request, target, origin)
        with made:
            if not origin.dedupe:
                return await self._answer(made, walk, settle_first=settle_first, admitted=admitted)
            earlier = await self._take(walk, target)
            if earlier is not None:
                return earlier
            try:
                return await self._answer(made, walk, settle_first=True, admitted=admitted)
            finally:
                await self._give_back(walk)

    async def stream(self, request: Request, target: str, origin: Origin) -> AsyncGenerator[Event, None]:
        """An answer as it comes: one Begun, then chunks (with a Priced before the one that has the usage), then one Reply.

        Raises as `complete` does until Begun; StreamBroken after. Close it with `contextlib.aclosing`: leaving early
        closes the connection and settles what may have been billed. The settling happens after the last chunk was
        yielded and before Reply.
        """
        made = self._now
        walk = made.walk(request, target, origin)
        with made:
            if origin.dedupe and (earlier := await self._take(walk, target)) is not None:
                for event in replies.as_events(earlier):
                    yield event
                return
            try:
                while True:
                    attempt = await walk.next()
                    provider, in_time = made.providers[attempt.slot.provider], made.is_tight(walk, attempt.slot)
                    streamed = StreamedAttempt(walk, request, attempt, provider, made.desk, self._clock, in_time=in_time)
                    try:
                        async with contextlib.aclosing(streamed.events()) as events:
                            async for event in events:
                                yield event
                    except ProviderError as error:
                        await walk.failed(attempt, error)
                    else:
                        return
            finally:
                if origin.dedupe:
                    await self._give_back(walk)

    async def explain(self, request: Request, target: str, origin: Origin) -> list[Verdict]:
        """What the gate would say of each slot now. Calls nobody and holds nothing.

        Raises UnknownTarget, TargetNotAllowed, LedgerUnavailable.
        """
        chain, slots = self._now.settings.slots(target, origin.may_use)
        checked(request)
        return [await self._verdict(request, chain, slot, origin) for slot in dict.fromkeys(slots)]

    def left_alone_until(self, slot: Slot) -> datetime | None:
        """Until when this process leaves a slot alone after failures; None when it may be called now."""
        return self._breakers.until(slot)

    async def settled(self) -> None:
        """Returns when every closing that is under way now is with the store: what is read after it is up to date."""
        for made in (*self._before, self._now):
            await made.desk.settled()

    async def drain(self) -> None:
        """Returns when every closing under way is with the store: part of a graceful stop."""
        for made in (*self._before, self._now):
            await made.desk.drain()

    def _generation(self, settings: Settings, providers: Mapping[str, Provider], prices: Prices) -> Generation:
        gate = Gate(self._store, settings, self._estimator, prices, self._clock, self._chance)
        parts = Parts(
            self._store, gate, self._breakers, settings, self._clock, self._chance, self._observer, self._tell, self._log
        )
        return Generation(settings, providers, gate, parts, Desk(parts, self._estimator, prices))

    def _tell(self, event: str, fields: Mapping[str, object]) -> None:
        self._log.error(event, **fields)
        if self._alert is not None:
            self._alert(event, fields)

    async def _answer(self, made: Generation, walk: Walk, *, settle_first: bool, admitted: Callable[[], None] | None) -> Reply:
        desk = made.desk
        while True:
            attempt = await walk.next()
            if admitted is not None:
                admitted()
            try:
                completion = await made.call(walk, attempt)
                closing, reply = desk.success(walk, attempt, completion, desk.timing(attempt))
            except ProviderError as error:
                await desk.close(attempt, desk.failure(attempt, error, desk.timing(attempt), whole=True))
                await walk.failed(attempt, error)
                continue
            except asyncio.CancelledError:
                walk.left(attempt)
                await desk.close(attempt, settle.left(attempt.reservation, None, desk.timing(attempt)))
                raise
            except BaseException as error:
                walk.left(attempt)
                await desk.close(attempt, settle.lost(attempt.reservation, error, desk.timing(attempt)))
                raise
            settling = desk.closing(attempt, closing)
            if settle_first:
                await asyncio.shield(settling)
            return reply

    async def _verdict(self, request: Request, chain: str, slot: Slot, origin: Origin) -> Verdict:
        try:
            bound = self._now.gate.bound(request, slot)
        except CannotServe as error:
            return Verdict(slot, (), 0, 0, None, error)
        try:
            bound, draft, peek = await self._now.gate.peek(bound, origin, chain, slot)
        except UnknownPrice as error:
            return Verdict(slot, (), bound.prompt_tokens, bound.limit * bound.answers, None, error)
        until = self._breakers.until(slot)
        left_alone = None if until is None else BreakerOpen(slot.provider, until, "it failed lately")
        output_tokens = bound.limit * bound.answers
        return Verdict(slot, peek.matches, bound.prompt_tokens, output_tokens, draft.held.micro_usd, left_alone or peek.refusal)

    async def _take(self, walk: Walk, target: str) -> Reply | None:
        """Claims a deduplicated request's id, or gives the reply of an earlier or concurrent twin."""
        request_id, fingerprint = walk.origin.request_id, replies.fingerprint(walk.request, target)
        while True:
            claim = await self._claim(request_id, fingerprint)
            if isinstance(claim, Answered):
                return replies.restored(claim.reply, request_id)
            if isinstance(claim, Claimed):
                return None
            if walk.left_s <= 0:
                raise ChainExhausted(request_id, walk.chain, (), None)
            await self._store.wait_for_room(TWIN_POLL_S)
            await asyncio.sleep(self._chance.uniform(0.01, 0.05))

    async def _claim(self, request_id: str, fingerprint: str) -> Claimed | Answered | Underway:
        """A caller cancelled while the claim is being written does not leave the id taken."""
        task = asyncio.ensure_future(self._store.claim(request_id, fingerprint))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            await self._now.desk.shielded(self._unclaim_when_taken(task, request_id))
            raise

    async def _unclaim_when_taken(self, task: asyncio.Task[Claimed | Answered | Underway], request_id: str) -> None:
        await asyncio.wait((task,))
        if task.exception() is None and isinstance(task.result(), Claimed):
            await self._unclaim(request_id)

    async def _give_back(self, walk: Walk) -> None:
        """After a deduplicated request: without an answer its id may be used again."""
        if not walk.answered:
            await self._now.desk.shielded(self._unclaim(walk.origin.request_id))

    async def _unclaim(self, request_id: str) -> None:
        try:
            await self._store.unclaim(request_id)
        except LedgerUnavailable as error:
            self._log.error("claim_not_given_back", request=request_id, reason=error.reason)
