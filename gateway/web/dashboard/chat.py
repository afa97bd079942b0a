"""The chat: a question through the gate, as any client of the endpoint asks it, and the answer as it comes.

Events of an answer: `begun` (who answers, and why others did not), `text`, and at the end `done` (what it took) or `notice`
(what a person reads when there is no answer). The conversation is the page's own: nothing of it is kept here.
"""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import replace
from typing import Any

import orjson
from aiohttp import web

from gateway.chat import Chunk, Origin, Request
from gateway.dispatcher import Begun, Event, Reply, StreamBroken
from gateway.errors import GatewayError
from gateway.notice import Reader, notice
from gateway.web.auth import request_id
from gateway.web.dashboard.visit import Answer, View, Visit
from gateway.web.parsing import chat_call
from gateway.web.problems import REQUEST_ID

PATIENCE_S = 5.0
"""How long a question waits while only holds are in its way."""
_STREAM = {"Content-Type": "text/event-stream", "Cache-Control": "no-store", "X-Accel-Buffering": "no"}


async def page(visit: Visit) -> Answer:
    """The conversation."""
    return View("chat.html", "Chat", {"targets": visit.services.settings.targets})


async def answer(visit: Visit) -> Answer:
    """One answer as events. The body is that of a chat completion. Raises InvalidRequest, UnknownTarget."""
    call = chat_call(await visit.request.read())
    settings, session = visit.services.settings, visit.session
    assert session is not None
    settings.slots(call.target)
    system = settings.telegram.system_prompt
    persona = [{"role": "system", "content": system}] if system else []
    asked = replace(call.request, messages=[*persona, *call.request.messages])
    name = request_id(visit.request)
    origin = Origin(name, "http", user=visit.starter.user, key=session.key, patience_s=PATIENCE_S)
    response = web.StreamResponse(headers=_STREAM | {REQUEST_ID: name})
    await response.prepare(visit.request)
    try:
        await _send(visit, response, asked, call.target, origin)
        await response.write_eof()
    except ConnectionResetError:
        # The reader has left or pressed stop; what came until then is settled.
        pass
    return response


async def _send(visit: Visit, response: web.StreamResponse, asked: Request, target: str, origin: Origin) -> None:
    try:
        async with aclosing(visit.services.dispatcher.stream(asked, target, origin)) as events:
            async for event in events:
                if told := _told(event):
                    await response.write(_frame(*told))
    except StreamBroken as error:
        said = f"The answer broke off: {_own_words(error.error)}"
        await response.write(_frame("notice", {"text": said, "request_id": origin.request_id}))
    except GatewayError as error:
        # As people see it: an operator finds the rest behind `why`.
        found = notice(error, Reader("en", visit.zone), visit.now)
        opens_at = None if found.opens_at is None else found.opens_at.isoformat()
        fields = {"text": found.text, "opens_at": opens_at, "request_id": origin.request_id}
        await response.write(_frame("notice", fields))


def _told(event: Event) -> tuple[str, dict[str, Any]] | None:
    match event:
        case Begun():
            skipped = [{"slot": str(cause.slot), "why": _own_words(cause.error)} for cause in event.skipped]
            return "begun", {"provider": event.slot.provider, "model": event.slot.model, "skipped": skipped}
        case Chunk() if event.text:
            return "text", {"text": event.text}
        case Reply():
            return "done", {
                "tokens": event.usage.tokens,
                "cost_micro_usd": event.cost_micro_usd,
                "clamped": event.clamped,
                "estimated": event.estimated,
                "request_id": event.request_id,
            }
    return None


def _own_words(error: GatewayError) -> str:
    return str(error)[:300]


def _frame(kind: str, fields: dict[str, Any]) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (kind.encode(), orjson.dumps(fields))
