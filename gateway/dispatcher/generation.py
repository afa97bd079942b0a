"""What one configuration made of the dispatcher. A request keeps to it to its end, also when another one comes into force."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping

from gateway.chat import Asked, Completion, EmbeddingRequest, Origin, Slot
from gateway.dispatcher.desk import Desk
from gateway.dispatcher.gate import Gate
from gateway.dispatcher.walk import Attempt, Parts, Walk
from gateway.errors import Unanswered
from gateway.providers import Embedder, Provider
from gateway.settings import Settings


class Generation:
    """As a context manager it counts the requests that are under way by it."""

    def __init__(self, settings: Settings, providers: Mapping[str, Provider], gate: Gate, parts: Parts, desk: Desk) -> None:
        self.settings, self.providers, self.gate, self.desk = settings, providers, gate, desk
        self._parts = parts
        self._underway = 0
        self._idle = asyncio.Event()
        self._idle.set()

    def __enter__(self) -> None:
        self._underway += 1
        self._idle.clear()

    def __exit__(self, *_: object) -> None:
        self._underway -= 1
        if not self._underway:
            self._idle.set()

    async def ended(self) -> None:
        """Returns when no request is under way by it."""
        await self._idle.wait()

    def walk(self, request: Asked, target: str, origin: Origin) -> Walk:
        """The request's way along its chain. Raises UnknownTarget, TargetNotAllowed, InvalidRequest."""
        chain, slots = self.settings.slots(target, origin.may_use)
        return Walk(self._parts, request, chain, slots, origin)

    def is_tight(self, walk: Walk, slot: Slot) -> bool:
        """True when the request's total deadline may pass before the provider's own time-out does."""
        return walk.left_s < self.settings.model(slot).timeout_s

    async def call(self, walk: Walk, attempt: Attempt) -> Completion:
        """Makes one call, within what is left of the request's total deadline. Raises ProviderError."""
        slot = attempt.slot
        if not self.is_tight(walk, slot):
            return await self._made(walk.request, attempt)
        try:
            async with asyncio.timeout(max(walk.left_s, 0)):
                return await self._made(walk.request, attempt)
        except TimeoutError:
            raise Unanswered(slot.provider, slot.model, "the request's total deadline has passed") from None

    def _made(self, request: Asked, attempt: Attempt) -> Awaitable[Completion]:
        """The call itself."""
        provider = self.providers[attempt.slot.provider]
        if isinstance(request, EmbeddingRequest):
            assert isinstance(provider, Embedder), "the gate lets through only those who make vectors"
            return provider.embed(request, attempt.reservation)
        return provider.complete(request, attempt.reservation)
