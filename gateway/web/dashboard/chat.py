"""The chat: a question through the gate, as any client of the endpoint asks it, and the answer as it comes.

Events of an answer: `begun` (who answers, and why others did not), `text`, and at the end `done` (what it took) or `notice`
(what a person reads when there is no answer). The conversation is the page's own: nothing of it is kept here.
Without the page's script the answer comes whole, on a page made here.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import orjson
from aiohttp import web

from gateway.chat import Chunk, Origin, Request
from gateway.dispatcher import Begun, Event, Reply, StreamBroken
from gateway.errors import GatewayError, InvalidRequest
from gateway.notice import Reader, notice
from gateway.web.auth import request_id
from gateway.web.dashboard.visit import Answer, View, Visit
from gateway.web.parsing import chat_call
from gateway.web.problems import REQUEST_ID

PATIENCE_S = 5.0
"""How long a question waits while only holds are in its way."""
QUESTION_MAX = 200_000
_STREAM = {"Content-Type": "text/event-stream", "Cache-Control": "no-store", "X-Accel-Buffering": "no"}


async def page(visit: Visit) -> Answer:
    """The conversation."""
    return _page(visit, [], [])


async def answer(visit: Visit) -> Answer:
    """One answer as events. The body is that of a chat completion. Raises InvalidRequest, UnknownTarget."""
    if visit.form:
        return await _whole(visit)
    asking = _asking(visit, await visit.request.read())
    response = web.StreamResponse(headers=_STREAM | {REQUEST_ID: request_id(visit.request)})
    await response.prepare(visit.request)
    try:
        async with aclosing(_told(visit, asking)) as told:
            async for kind, fields in told:
                await response.write(b"event: %s\ndata: %s\n\n" % (kind.encode(), orjson.dumps(fields)))
        await response.write_eof()
    except ConnectionResetError:
        # The reader has left or pressed stop; what came until then is settled.
        pass
    return response


async def _whole(visit: Visit) -> Answer:
    """The same for a browser without scripts: a page with the whole answer, whose form carries the conversation along."""
    try:
        before = orjson.loads(visit.form.get("before") or "[]")
    except orjson.JSONDecodeError:
        before = None
    if not isinstance(before, list):
        raise InvalidRequest("the conversation cannot be read", "before")
    asked = {"role": "user", "content": visit.text("question", "the question", QUESTION_MAX)}
    body = {"model": visit.text("target", "the model"), "messages": [*before, asked]}
    words, notes, notice_text = "", [], ""
    async with aclosing(_told(visit, _asking(visit, orjson.dumps(body)))) as told:
        async for kind, fields in told:
            match kind:
                case "begun":
                    notes.append(f"{fields['provider']} {fields['model']}")
                case "text":
                    words += fields["text"]
                case "done":
                    notes.append(f"{fields['tokens']:,} tokens")
                case _:
                    notice_text = fields["text"]
    if not words:
        return _page(visit, before, [*before, asked], notice_text)
    talk = [*before, asked, {"role": "assistant", "content": words}]
    return _page(visit, talk, talk, notice_text, " · ".join(notes))


def _page(visit: Visit, talk: list[Any], shown: list[Any], notice_text: str = "", note: str = "") -> View:
    """`talk` goes along with the next question; of what is shown, one that got no answer does not."""
    turns = [turn for turn in shown if isinstance(turn, dict) and isinstance(turn.get("content"), str)]
    fields = {"talk": turns, "note": note, "notice": notice_text, "before": orjson.dumps(talk).decode()}
    return View("chat.html", "Chat", {"targets": visit.services.settings.targets, **fields})


def _asking(visit: Visit, body: bytes) -> tuple[Request, str, Origin]:
    """What is asked, of whom, and by whom. Raises InvalidRequest, UnknownTarget."""
    call = chat_call(body)
    settings, session = visit.services.settings, visit.session
    assert session is not None
    settings.slots(call.target)
    system = settings.telegram.system_prompt
    persona = [{"role": "system", "content": system}] if system else []
    asked = replace(call.request, messages=[*persona, *call.request.messages])
    return (
        asked,
        call.target,
        Origin(request_id(visit.request), "http", user=visit.starter.user, key=session.key, patience_s=PATIENCE_S),
    )


async def _told(visit: Visit, asking: tuple[Request, str, Origin]) -> AsyncGenerator[tuple[str, dict[str, Any]]]:
    """The events of one answer, by their kinds."""
    origin = asking[2]
    try:
        async with aclosing(visit.services.dispatcher.stream(*asking)) as events:
            async for event in events:
                if told := _event(event):
                    yield told
    except StreamBroken as error:
        yield "notice", {"text": f"The answer broke off: {_own_words(error.error)}", "request_id": origin.request_id}
    except GatewayError as error:
        # As people see it: an operator finds the rest behind `why`.
        found = notice(error, Reader("en", visit.zone), visit.now)
        opens_at = None if found.opens_at is None else found.opens_at.isoformat()
        yield "notice", {"text": found.text, "opens_at": opens_at, "request_id": origin.request_id}


def _event(event: Event) -> tuple[str, dict[str, Any]] | None:
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
