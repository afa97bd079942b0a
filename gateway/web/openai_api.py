"""`/v1`: chat completions, streamed or whole, embeddings, and the list of models, in OpenAI's shape.

A provider's own bytes are forwarded as they came. Headers of a stream wait for its first chunk, so that a refused
stream is a plain JSON answer; after it a failure is one last event whose `finish_reason` is "error".
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

import orjson
from aiohttp import web

from gateway.chat import Completion, Origin
from gateway.clock import Clock
from gateway.dispatcher import Dispatcher, Reply
from gateway.settings import Settings
from gateway.store.keys import Key
from gateway.web.auth import caller
from gateway.web.exchange import Exchange, Routed, Whole
from gateway.web.metrics import Metrics
from gateway.web.parsing import chat_call, embedding_call, idempotency_key
from gateway.web.problems import COST, PROVIDER, REQUEST_ID
from gateway.web.streaming import ChatPage, StreamSender

CATCH_UP_S = 1.0
"""How long a look at the budgets waits for answers that are being settled."""
_JSON = "application/json"


class OpenAIApi:
    """The handlers of `/v1`."""

    def __init__(self, dispatcher: Dispatcher, metrics: Metrics, settings: Settings, clock: Clock) -> None:
        self._dispatcher = dispatcher
        self.sender = StreamSender(metrics, clock)
        """Sends the streams of the whole endpoint."""
        self._settings = settings

    def routes(self) -> list[web.RouteDef]:
        """The routes under `/v1`."""
        return [
            web.post("/v1/chat/completions", self.routed_chat),
            web.post("/v1/embeddings", self.embeddings),
            web.get("/v1/models", self.models),
            web.get("/v1/models/{model:.+}", self.model),
        ]

    async def caught_up(self) -> None:
        """Returns when the answers given until now are settled: what is read after it knows of them. Bounded in time."""
        await self.sender.caught_up(CATCH_UP_S)
        with suppress(TimeoutError):
            async with asyncio.timeout(CATCH_UP_S):
                await self._dispatcher.settled()

    async def settled(self) -> None:
        """Returns when every stream that was sent is settled: part of a graceful stop."""
        await self.sender.settled()

    async def models(self, request: web.Request) -> web.Response:
        """Every name that a request's `model` may have with this key."""
        only = caller(request).chains
        names = [name for name in self._settings.targets if not only or self._settings.allows(only, name)]
        listed = [self._model(name) for name in names]
        return web.Response(body=orjson.dumps({"object": "list", "data": listed}), headers={"Content-Type": _JSON})

    async def model(self, request: web.Request) -> web.Response:
        """One of them, or any model of a provider by `provider:model`. Raises UnknownTarget, TargetNotAllowed."""
        model = self._model(request.match_info["model"], caller(request).chains)
        return web.Response(body=orjson.dumps(model), headers={"Content-Type": _JSON})

    async def routed_chat(self, request: web.Request) -> web.StreamResponse:
        """One gated answer, to a request that took the long way."""
        exchange = Routed(request)
        whole = await self.chat(exchange, caller(request))
        if whole is not None:
            return web.Response(status=whole.status, headers=whole.headers, body=whole.body)
        assert exchange.response is not None, "what is not whole was streamed"
        return exchange.response

    async def chat(self, exchange: Exchange, key: Key) -> Whole | None:
        """One gated answer; None once it was streamed."""
        call = chat_call(await exchange.body())
        origin = origin_of(exchange, key)
        if call.stream:
            events = self._dispatcher.stream(call.request, call.target, origin)
            await self.sender.send(exchange, events, origin, partial(ChatPage, include_usage=call.include_usage))
            return None
        # The answer need not wait for its settling, which is ahead of this client's next request in any case.
        reply = await self._dispatcher.complete(call.request, call.target, origin, settle_first=False)
        return Whole(200, answer_headers(reply), _bytes(reply.completion))

    async def embeddings(self, request: web.Request) -> web.Response:
        """Vectors of texts, gated as a chat completion is; what is held is the bound of the texts alone."""
        exchange = Routed(request)
        asked, target = embedding_call(await exchange.body())
        reply = await self._dispatcher.complete(asked, target, origin_of(exchange, caller(request)), settle_first=False)
        return web.Response(headers=answer_headers(reply), body=_bytes(reply.completion))

    def _model(self, name: str, only: Sequence[str] = ()) -> dict[str, object]:
        chain, slots = self._settings.slots(name, only)
        owner = "sluicegate" if chain in self._settings.chains else slots[0].provider
        return {"id": name, "object": "model", "created": 0, "owned_by": owner}


def origin_of(exchange: Exchange, key: Key) -> Origin:
    """Where the request comes from. With an `Idempotency-Key` it has the id that this means. Raises InvalidRequest."""
    given = exchange.header("idempotency-key")
    if given is not None:
        exchange.rename(f"key:{key.name}:{idempotency_key(given)}")
    return Origin(exchange.request_id, "http", user=key.name, key=key.name, dedupe=given is not None, may_use=key.chains)


def answer_headers(reply: Reply) -> dict[str, str]:
    """The headers of an answer in one piece: who gave it, and what it cost."""
    return {
        "Content-Type": _JSON,
        REQUEST_ID: reply.request_id,
        PROVIDER: reply.slot.provider,
        COST: str(reply.cost_micro_usd),
    }


def _bytes(completion: Completion) -> bytes:
    """The provider's own bytes where they are the answer."""
    return orjson.dumps(completion.body) if completion.raw is None else completion.raw
