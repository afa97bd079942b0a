"""A step that asks a model: through the dispatcher, parked while budgets have no room, tried again after failures only.

Rules:
- The request's id is the run, the step and its generation: an answer that was paid for is found again after a crash.
- Want of budget is no failure. The step waits for the window, a raise, or a close where only holds were in the way.
- What can never fit, and the run's own cap, end the step with the budget's name, what was asked and the limit.
- A run that a key started asks what its key may ask, and nothing else.
- Failures of providers are tried again a bounded number of times; the dispatcher has tried every slot by then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import structlog

from gateway.budget import is_cap
from gateway.chat import Message, Origin, Request
from gateway.dispatcher import Reply
from gateway.errors import (
    Block,
    CallerFault,
    CannotServe,
    ChainExhausted,
    ContentRefused,
    Exhausted,
    GatewayError,
    InvalidRequest,
    Paused,
    RequestConflict,
    TargetNotAllowed,
    UnknownPrice,
    UnknownTarget,
)
from gateway.runs import RunState
from gateway.workflow.board import Board, insist
from gateway.workflow.failures import NEVER_FITS, OWN_CAP, StepFailed
from gateway.workflow.parts import Parts
from gateway.workflow.waits import Wait

FAILURES_MAX = 6
"""Rounds over the whole chain that may fail before the step does."""
BACKOFF_S = 1.0
BACKOFF_MAX_S = 60.0
HELD_S = 5.0
"""When a step that only other calls' holds kept out is tried again, if no close has woken it before."""
SOON_S = 1.0
"""The least wait for a budget: its time may be given as now when clocks differ by a hair."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Park:
    """Wait for room: until an instant if it is known."""

    until: datetime | None
    budget: str
    held: bool


@dataclass(frozen=True, slots=True)
class Never:
    """It will not fit, however long one waits."""

    reason: str


@dataclass(frozen=True, slots=True)
class Failed:
    """Some provider failed: worth another round."""

    reason: str


def judge(error: ChainExhausted, now: datetime) -> Park | Never | Failed:
    """What an exhausted chain means for a step."""
    errors = [cause.error for cause in error.causes]
    hopeless = [found for found in errors if _is_hopeless(found)]
    if errors and len(hopeless) == len(errors):
        return Never("; ".join(dict.fromkeys(_why_never(found) for found in hopeless)))
    open_ones = [found for found in errors if not _is_hopeless(found)]
    if not errors or not all(isinstance(found, Exhausted | Paused) for found in open_ones):
        return Failed(str(error) or "no provider answered in time")
    capped = [block for found in open_ones if (block := _cap_reached(found)) is not None]
    if len(capped) == len(open_ones):
        block = capped[0]
        return Never(
            f"{OWN_CAP} {block.budget} is reached: {block.asked:,} {_unit(block)} asked, "
            f"{block.spent:,} of {block.limit:,} are spent"
        )
    held = any(isinstance(found, Exhausted) and found.held_only for found in open_ones)
    return Park(now + timedelta(seconds=HELD_S) if held else _not_before(error.available_at, now), _budget(open_ones), held)


def _is_hopeless(error: GatewayError) -> bool:
    """True for what waiting does not mend: too large for a whole limit, a slot that cannot serve, a price not known."""
    if isinstance(error, Exhausted):
        return any(block.too_large for block in error.blocks)
    return isinstance(error, CannotServe | UnknownPrice | CallerFault)


def _why_never(error: GatewayError) -> str:
    if not isinstance(error, Exhausted):
        return str(error)
    block = next(block for block in error.blocks if block.too_large)
    return f"{NEVER_FITS}: {block.asked:,} {_unit(block)} asked, the whole limit of budget {block.budget} is {block.limit:,}"


def _cap_reached(error: GatewayError) -> Block | None:
    """The run's own cap, where that is in the way and holds of the same run are not."""
    blocks = error.blocks if isinstance(error, Exhausted) else ()
    return next((block for block in blocks if is_cap(block.budget) and block.spent + block.asked > block.limit), None)


def _budget(errors: Sequence[GatewayError]) -> str:
    names = [block.budget for found in errors if isinstance(found, Exhausted) for block in found.blocks]
    return names[0] if names else "pause"


def _unit(block: Block) -> str:
    return block.unit.replace("_", "-")


def _not_before(until: datetime | None, now: datetime) -> datetime | None:
    return None if until is None else max(until, now + timedelta(seconds=SOON_S))


class Asking:
    """One `ask` of a run: from its first attempt to an answer or the step's failure."""

    def __init__(self, parts: Parts, board: Board, step: str, target: str) -> None:
        self._parts, self._board, self._step, self._target = parts, board, step, target
        self._failures = 0
        self._wait: Wait | None = None
        """The step's last wait, until the gate has let it through."""
        self._resumed: asyncio.Task[None] | None = None

    async def answer(self, request: Request, repair: int = 0) -> Reply:
        """The reply. `repair` tells a further question of the same step from the first. Raises StepFailed."""
        standing = self._board.standing(self._step)
        try:
            if standing is not None and standing.waiting_until is not None and self._wait is None and not repair:
                # It was parked when the process ended: it goes on waiting, and asks the gate when its turn comes.
                await self._park(Park(standing.waiting_until, standing.detail, False), stale=True)
            elif self._wait is None:
                await self._board.began(self._step, "ask")
            return await self._insist(request, self._origin(repair))
        finally:
            self._decided()
            if self._resumed is not None:
                await self._resumed

    async def _insist(self, request: Request, origin: Origin) -> Reply:
        conflicts = 0
        while True:
            try:
                return await self._call(request, origin)
            except ChainExhausted as error:
                verdict = judge(error, self._parts.clock.now())
                if isinstance(verdict, Never):
                    raise StepFailed(self._step, verdict.reason) from None
                if isinstance(verdict, Park):
                    await self._park(verdict)
                else:
                    await self._try_again(verdict.reason)
            except RequestConflict:
                # The same step asked something else before a crash: that answer is lost, and this is another question.
                conflicts += 1
                log.warning("run_step_asks_differently", run=self._board.run.id, step=self._step)
                origin = replace(origin, request_id=f"{origin.request_id}!{conflicts}")
            except (CallerFault, ContentRefused, InvalidRequest, UnknownTarget, TargetNotAllowed) as error:
                raise StepFailed(self._step, str(error)) from None

    async def _call(self, request: Request, origin: Origin) -> Reply:
        with self._parts.calls:
            complete = self._parts.dispatcher.complete
            return await insist(lambda: complete(request, self._target, origin, admitted=self._let_through))

    def _let_through(self) -> None:
        """The gate has let the call through: a step that waited is shown as running, while the call goes out."""
        if self._wait is not None:
            self._decided()
            self._wait = None
            self._resumed = asyncio.ensure_future(self._board.began(self._step, "ask"))

    def _decided(self) -> None:
        if self._wait is not None:
            self._wait.decided.set()

    async def _park(self, park: Park, *, stale: bool = False) -> None:
        if self._resumed is not None:
            await self._resumed
        before, board = self._wait, self._board
        self._decided()
        self._wait = Wait(board.run, self._step, RunState.WAITING_BUDGET, park.until, park.budget, park.held, stale)
        await board.waits(self._wait, "ask", before)

    async def _try_again(self, reason: str) -> None:
        self._failures += 1
        if self._failures >= FAILURES_MAX:
            raise StepFailed(self._step, f"no provider answered after {self._failures} rounds: {reason}")
        self._decided()
        self._wait = None
        wait_s = min(BACKOFF_S * 2.0 ** (self._failures - 1), BACKOFF_MAX_S)
        log.info("run_step_tried_again", run=self._board.run.id, step=self._step, failures=self._failures, wait_s=wait_s)
        await asyncio.sleep(wait_s)
        await self._board.began(self._step, "ask", f"tried again after: {reason}"[:300])

    def _origin(self, repair: int) -> Origin:
        run, starter = self._board.run, self._board.run.starter
        again = f"@{run.generation}" if run.generation else ""
        return Origin(
            request_id=f"{run.id}/{self._step}{again}{f'~{repair}' if repair else ''}",
            surface=starter.surface,
            user=starter.user,
            chat=starter.chat,
            workflow=run.workflow,
            run=run.id,
            step=self._step,
            key=starter.key,
            guest=not starter.listed,
            dedupe=True,
            may_use=starter.may_use,
        )


def messages_of(prompt: str | Sequence[Message], system: str | None) -> list[Message]:
    """A prompt as messages."""
    asked: list[Message] = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else [dict(one) for one in prompt]
    return asked if system is None else [{"role": "system", "content": system}, *asked]
