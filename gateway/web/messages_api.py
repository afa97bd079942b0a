"""`/v1/messages`: Anthropic's shape over the same gate. Every provider serves it, whatever its wire format."""

from __future__ import annotations

from functools import partial

import orjson
from aiohttp import web

from gateway.chat import Request
from gateway.dispatcher import Dispatcher
from gateway.errors import CannotServe, InvalidRequest
from gateway.web.auth import MESSAGES, caller
from gateway.web.exchange import Routed
from gateway.web.messages_parsing import messages_call
from gateway.web.messages_shape import THEIR_REQUEST_ID, MessagePage, message
from gateway.web.openai_api import answer_headers, origin_of
from gateway.web.streaming import StreamSender


class MessagesApi:
    """The handlers. `sender` is the one that all streams of the endpoint share."""

    def __init__(self, dispatcher: Dispatcher, sender: StreamSender) -> None:
        self._dispatcher, self._sender = dispatcher, sender

    def routes(self) -> list[web.RouteDef]:
        """The routes under `/v1/messages`."""
        return [web.post(MESSAGES, self.messages), web.post(f"{MESSAGES}/count_tokens", self.count_tokens)]

    async def messages(self, request: web.Request) -> web.StreamResponse:
        """One gated answer, streamed or whole."""
        exchange = Routed(request)
        call = messages_call(await exchange.body())
        origin, thinking = origin_of(exchange, caller(request)), _thinks(call.request)
        if call.stream:
            events = self._dispatcher.stream(call.request, call.target, origin)
            await self._sender.send(exchange, events, origin, partial(MessagePage, thinking=thinking))
            assert exchange.response is not None, "what is not whole was streamed"
            return exchange.response
        reply = await self._dispatcher.complete(call.request, call.target, origin, settle_first=False)
        headers = {**answer_headers(reply), THEIR_REQUEST_ID: reply.request_id}
        return web.Response(headers=headers, body=orjson.dumps(message(reply, thinking=thinking)))

    async def count_tokens(self, request: web.Request) -> web.Response:
        """What the gate would hold for the prompt: never fewer tokens than it has. Nothing is spent."""
        exchange = Routed(request)
        call = messages_call(await exchange.body(), counting=True)
        verdicts = await self._dispatcher.explain(call.request, call.target, origin_of(exchange, caller(request)))
        for verdict in verdicts:
            if not isinstance(verdict.error, CannotServe):
                return web.json_response({"input_tokens": verdict.prompt_tokens})
        raise InvalidRequest("; ".join(str(verdict.error) for verdict in verdicts))


def _thinks(request: Request) -> bool:
    """True when the caller asked to see the model's thinking."""
    thinking = request.extra.get("thinking")
    return isinstance(thinking, dict) and thinking.get("type") in ("enabled", "adaptive")
