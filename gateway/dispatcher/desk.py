"""The desk: turns what came of an attempt into its closing and its reply, and closes it whatever happens to the caller."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from gateway.chat import Completion, Slot, Usage
from gateway.clock import from_ms
from gateway.dispatcher import replies, settle
from gateway.dispatcher.received import Received
from gateway.dispatcher.settle import Settlement, Timing
from gateway.dispatcher.values import Reply
from gateway.dispatcher.walk import Attempt, Parts, Walk
from gateway.errors import LedgerUnavailable, ProviderError
from gateway.estimate import Estimator, count_text
from gateway.ledger import Closing
from gateway.prices import Prices

OVERRAN_MAX = 1000
"""Model names come from clients too: after so many the operator reads the log."""


class Desk:
    """Settles attempts. One per dispatcher."""

    def __init__(self, parts: Parts, estimator: Estimator, prices: Prices) -> None:
        self._parts = parts
        self._estimator = estimator
        self._prices = prices
        self._tasks: set[asyncio.Task[None]] = set()
        self._overran: set[Slot] = set()

    async def close(self, attempt: Attempt, closing: Closing) -> None:
        """Ends the attempt's reservation. A caller cancelled here leaves the closing running.

        A ledger that cannot be written never takes the answer from the person: the hold stays, and the sweep ends it.
        """
        await asyncio.shield(self.closing(attempt, closing))

    def closing(self, attempt: Attempt, closing: Closing) -> asyncio.Task[None]:
        """The same, begun and left running."""
        return self._begin(self._write(attempt, closing))

    async def shielded(self, work: Coroutine[Any, Any, None]) -> None:
        """Runs work in a task that outlives a cancelled caller."""
        await asyncio.shield(self._begin(work))

    def _begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def settled(self) -> None:
        """Returns when what is running now is done."""
        if self._tasks:
            await asyncio.wait(tuple(self._tasks))

    async def drain(self) -> None:
        """Returns when nothing shielded is running."""
        while self._tasks:
            await asyncio.wait(tuple(self._tasks))

    async def _write(self, attempt: Attempt, closing: Closing) -> None:
        parts, reservation = self._parts, attempt.reservation
        try:
            first = await parts.store.close(reservation, closing)
        except LedgerUnavailable as error:
            parts.log.error("closing_not_written", id=reservation.id, reason=error.reason)
            return
        parts.observer.settled(reservation, closing)
        spent, held = closing.spent, reservation.draft.held
        if spent.tokens > held.tokens or spent.micro_usd > held.micro_usd:
            self._tell_overrun(attempt, closing)
        parts.log.debug(
            "reservation_settled", id=reservation.id, slot=str(attempt.slot), outcome=str(closing.outcome), first=first,
            reserved_tokens=reservation.draft.held.tokens, spent_tokens=closing.spent.tokens,
        )  # fmt: skip

    def _tell_overrun(self, attempt: Attempt, closing: Closing) -> None:
        """A provider billed above our worst case: the operator hears of each model's first one, the log of all."""
        spent, held, slot = closing.spent, attempt.reservation.draft.held, attempt.slot
        fields = {
            "id": attempt.reservation.id,
            "slot": str(slot),
            "tokens": spent.tokens,
            "held_tokens": held.tokens,
            "micro_usd": spent.micro_usd,
            "held_micro_usd": held.micro_usd,
        }
        if slot in self._overran or len(self._overran) >= OVERRAN_MAX:
            self._parts.log.warning("overrun", **fields)
        else:
            self._overran.add(slot)
            self._parts.tell("overrun", fields)

    def timing(self, attempt: Attempt, first_token_s: float | None = None) -> Timing:
        """How long the attempt took until now; `first_token_s` on the monotonic clock."""
        total_ms = int((self._parts.clock.monotonic() - attempt.started_s) * 1000)
        return Timing(total_ms, None if first_token_s is None else int((first_token_s - attempt.started_s) * 1000))

    def price(self, attempt: Attempt, model_served: str | None, usage: Usage) -> Settlement:
        """What this usage costs at the time at which the call was made."""
        return settle.price(self._prices, attempt.slot, model_served, usage, from_ms(attempt.reservation.started_ms))

    def success(self, walk: Walk, attempt: Attempt, completion: Completion, timing: Timing) -> tuple[Closing, Reply]:
        """A finished answer. From here on a deduplicated request's id is used up."""
        stated = completion.usage
        settlement = self._unstated(attempt, completion) if stated is None else self.price(attempt, completion.model, stated)
        if stated is not None and stated.prompt > attempt.reservation.draft.prompt_tokens:
            self._estimator.learn(attempt.slot, self._parts.settings.model(attempt.slot), walk.request, stated)
        clamped = attempt.lowered and completion.finish_reason == "length"
        reply = self._reply(walk, attempt, completion, settlement, clamped=clamped, estimated=stated is None)
        closing = settle.answered(
            settlement,
            timing,
            model=completion.model,
            estimated=stated is None,
            clamped=clamped,
            reply=self._kept(walk, reply),
        )
        self._parts.breakers.succeeded(attempt.slot)
        return closing, reply

    def _unstated(self, attempt: Attempt, completion: Completion) -> Settlement:
        """A finished answer without usage: the hold, or its text's own bound where the limit was plainly not kept."""
        hold, said = settle.held(attempt.reservation), replies.said(completion.body)
        if count_text(said) <= hold.usage.output:
            return hold
        output = max(hold.usage.output, self._estimator.received_bound(attempt.slot, said))
        priced = self.price(attempt, completion.model, Usage(hold.usage.prompt, output))
        return priced._replace(cost_micro_usd=max(priced.cost_micro_usd, hold.cost_micro_usd))

    def cut_off(self, walk: Walk, attempt: Attempt, received: Received, timing: Timing) -> tuple[Closing, Reply]:
        """A stream that passed its output limit and was cut off: what came is the answer, stopped by its length."""
        settlement = self.at_least(attempt, received)
        model = received.model or attempt.slot.model
        body = replies.whole(received, "length", model, settlement.usage)
        completion = Completion(received.text, "length", model, received.usage, body)
        reply = self._reply(walk, attempt, completion, settlement, clamped=attempt.lowered, estimated=True)
        self._parts.breakers.succeeded(attempt.slot)
        return settle.cut_off(attempt.reservation, settlement, timing, self._kept(walk, reply)), reply

    def at_least(self, attempt: Attempt, received: Received) -> Settlement:
        """The most that is known to have been used by a stream that did not end by itself."""
        hold, stated = settle.held(attempt.reservation).usage, received.usage
        usage = Usage(
            prompt=max(hold.prompt, stated.prompt if stated else 0),
            output=max(hold.output, received.deltas, stated.output if stated else 0),
        )
        return self.price(attempt, received.model, usage)

    def failure(self, attempt: Attempt, error: ProviderError, timing: Timing, *, whole: bool) -> Closing:
        """A call that did not end in an answer. `whole`: the usage it stated is all that was used."""
        stated = None if error.usage is None else self.price(attempt, None, error.usage)
        return settle.failed(attempt.reservation, error, stated, timing, whole=whole)

    def left(self, attempt: Attempt, received: Received, timing: Timing) -> Closing:
        """The caller left a stream that had not finished."""
        came = self.at_most(attempt, received) if received.visible else None
        return settle.left(attempt.reservation, came, timing)

    def at_most(self, attempt: Attempt, received: Received) -> Settlement:
        """The prompt bound and an upper bound of what was received, within the hold unless more is stated."""
        hold, slot, stated = settle.held(attempt.reservation).usage, attempt.slot, received.usage
        bound = self._estimator.received_bound(slot, received.reasoning + received.text) + received.unseen_bytes
        usage = Usage(
            prompt=max(hold.prompt, stated.prompt if stated else 0),
            output=max(min(bound, hold.output), received.deltas, stated.output if stated else 0),
        )
        return self.price(attempt, received.model, usage)

    def _reply(
        self, walk: Walk, attempt: Attempt, completion: Completion, settlement: Settlement, *, clamped: bool, estimated: bool
    ) -> Reply:
        return Reply(
            completion,
            attempt.slot,
            walk.chain,
            settlement.usage,
            settlement.cost_micro_usd,
            clamped,
            estimated,
            walk.skipped,
            walk.origin.request_id,
        )

    def _kept(self, walk: Walk, reply: Reply) -> bytes | None:
        kept = replies.stored(reply) if walk.origin.dedupe else None
        walk.answered = True
        return kept
