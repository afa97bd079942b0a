"""One question to its answer: history, the dispatcher's stream into a bubble, and the turn kept as it was shown."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

import structlog
from telegram.error import TelegramError

from gateway.chat import Chunk, Message, Origin, Request
from gateway.clock import to_ms
from gateway.dispatcher import Begun, Reply, StreamBroken
from gateway.errors import Cause, ChainExhausted, Exhausted, GatewayError, LedgerUnavailable, RequestConflict, UnknownTarget
from gateway.estimate import count_text
from gateway.notice import notice
from gateway.store.telegram import Turn
from gateway.store.telegram_talk import trimmed_key
from gateway.telegram_bot.delivery import Gone
from gateway.telegram_bot.desk import Desk, Running, Work
from gateway.telegram_bot.exhausted import exhausted
from gateway.telegram_bot.streaming import Live
from gateway.telegram_bot.waiting import retouch

log = structlog.get_logger()

TURN_TOKENS = 10
"""What the frame of a question and its answer takes in a prompt."""
PATIENCE_S = 20.0
"""How long a question waits by itself when only holds are in its way."""


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked: the text, images as data URLs, and the request that it is asked again instead of."""

    text: str
    images: tuple[str, ...] = ()
    instead_of: str | None = None


@dataclass(slots=True)
class _Progress:
    text: str = ""
    begun: Begun | None = None
    reply: Reply | None = None


async def answer(desk: Desk, work: Work, question: Question) -> None:
    """Answers a question, or says why not. Raises only what ends the message (CancelledError at a stop of the bot)."""
    target = await target_of(desk, work)
    request, dropped = await _request(desk, work, question)
    origin = _origin(desk, work)
    live = Live(desk.delivery, work.place, work.letter.bubbles, lambda bubbles: _keep(desk, work, bubbles))
    progress = _Progress()
    running = Running(asyncio.create_task(_consume(desk, work, request, target, origin, live, progress)), work.letter.user_id)
    desk.running[work.lane] = running
    try:
        error = await _outcome(running, live, desk.stopping)
    except BaseException:
        await live.close()
        raise
    finally:
        desk.running.pop(work.lane, None)
        work.decided.set()
    if isinstance(error, ChainExhausted):
        await live.close()
        await exhausted(desk, work, request, target, origin, error, live.bubbles)
        return
    await _deliver(desk, work, question, live, progress, error, running.stopped, dropped)


async def _outcome(running: Running, live: Live, stopping: asyncio.Event) -> GatewayError | None:
    """Waits for the stream's end: its error, or None. Somebody who left, or /stop, ends it early.

    Raises CancelledError when a stop of the bot cuts it: the question is left to the next start.
    """
    gone, stops = asyncio.create_task(live.gone.wait()), asyncio.create_task(stopping.wait())
    try:
        await asyncio.wait({running.task, gone, stops}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        gone.cancel()
        stops.cancel()
        cut = not running.task.done()
        if cut:
            running.task.cancel()
        # The stream is left properly before anything else happens: its connection is closed and its hold settled.
        await asyncio.wait({running.task})
    if cut and stopping.is_set():
        raise asyncio.CancelledError
    if running.task.cancelled():
        return None
    error = running.task.exception()
    if error is not None and not isinstance(error, GatewayError):
        raise error
    return error


async def _consume(
    desk: Desk, work: Work, request: Request, target: str, origin: Origin, live: Live, progress: _Progress
) -> None:
    try:
        await _follow(desk, work, request, target, origin, live, progress)
    except RequestConflict:
        # After a restart with another configuration the same question is another request: it is made anew.
        anew = replace(origin, request_id=f"{origin.request_id}:again")
        await _follow(desk, work, request, target, anew, live, progress)


async def _follow(desk: Desk, work: Work, request: Request, target: str, origin: Origin, live: Live, progress: _Progress) -> None:
    async with contextlib.aclosing(desk.dispatcher.stream(request, target, origin)) as events:
        async for event in events:
            if isinstance(event, Begun):
                progress.begun = event
                work.decided.set()
            elif isinstance(event, Chunk) and event.text:
                progress.text += event.text
                live.show(progress.text)
            elif isinstance(event, Reply):
                progress.reply = event


async def _deliver(
    desk: Desk,
    work: Work,
    question: Question,
    live: Live,
    progress: _Progress,
    error: GatewayError | None,
    stopped: bool,
    dropped: int,
) -> None:
    body, ending, outcome = _body(desk, work, progress, error, stopped)
    footers = [ending] if ending else []
    if body and error is None:
        footers += await _footers(desk, work, progress, dropped)
    shown = "\n\n".join(part for part in (body, *footers) if part)
    try:
        if not await live.finish(_fenced(body, shown), plain=not body):
            outcome = "uncertain"
    except Gone as gone:
        log.info("telegram_unreachable", chat=work.lane.chat_id, reason=str(gone))
        outcome = "unreachable"
    except TelegramError as failure:
        log.error("telegram_answer_refused", chat=work.lane.chat_id, reason=failure.message)
        outcome = "undelivered"
    turn = None
    if body:
        tokens = count_text(question.text) + count_text(body) + TURN_TOKENS
        turn = Turn(desk.request_id(work.letter.update_id), question.text, body, tokens, desk.now_ms())
    await desk.persist(lambda: desk.inbox.finish(work.letter.update_id, outcome, work.lane, turn, instead_of=question.instead_of))
    work.outcome, work.ended = outcome, True
    await retouch(desk, work.letter, work.say("answer_below"))


def _body(desk: Desk, work: Work, progress: _Progress, error: GatewayError | None, stopped: bool) -> tuple[str, str, str]:
    """What of an answer there is, how it ends, and what to call that."""
    if stopped:
        return progress.text, work.say("stopped"), "stopped"
    if isinstance(error, StreamBroken):
        return error.text or progress.text, work.say("broken"), "broken"
    if error is not None:
        return "", notice(error, work.reader, desk.clock.now()).text, "failed"
    text = progress.text
    if progress.reply is not None:
        text = progress.reply.completion.text or text
    if not text.strip():
        return "", work.say("empty_reply"), "empty"
    return text, "", "answered"


def _fenced(body: str, shown: str) -> str:
    """The text to show; a code fence that the answer left open is closed before what stands under it."""
    if shown != body and body and body.count("```") % 2:
        return body.rstrip() + "\n```" + shown[len(body) :]
    return shown


async def _footers(desk: Desk, work: Work, progress: _Progress, dropped: int) -> list[str]:
    """What is said under an answer: that it was cut short, that another provider serves, that old turns were dropped."""
    found = []
    if progress.reply is not None and progress.reply.clamped:
        found.append(work.say("clamped"))
    elif progress.reply is not None and progress.reply.completion.finish_reason == "length":
        found.append(work.say("full_length"))
    now = desk.clock.now()
    if progress.begun is not None and desk.settings.telegram.notify_fallback == "once":
        causes = [cause for cause in progress.begun.skipped if isinstance(cause.error, Exhausted)]
        until = _until(causes)
        name = progress.begun.slot.provider
        if causes and await desk.talk.say_once(
            work.lane.chat_id, f"fallback:{name}", to_ms(now), to_ms(until or now + timedelta(days=1))
        ):
            name = name[:1].upper() + name[1:]
            if until is None:
                found.append(work.say("fallback", provider=name))
            else:
                found.append(work.say("fallback_until", provider=name, until=desk.until(work.reader, until)))
    if dropped and await desk.talk.say_once(
        work.lane.chat_id, trimmed_key(work.lane), to_ms(now), to_ms(now + timedelta(days=3650))
    ):
        found.append(work.say("trimmed"))
    return found


def _until(causes: list[Cause]) -> datetime | None:
    first = next((cause.error for cause in causes if isinstance(cause.error, Exhausted)), None)
    return None if first is None else first.resets_at


async def target_of(desk: Desk, work: Work) -> str:
    """The chain or model that is asked: picked for this question, chosen for the chat, or configured."""
    chosen = work.letter.target or await desk.talk.choice(work.lane)
    if chosen is not None:
        try:
            desk.settings.slots(chosen)
            return chosen
        except UnknownTarget:
            log.info("telegram_choice_gone", target=chosen)
    return desk.settings.telegram.chain


async def _request(desk: Desk, work: Work, question: Question) -> tuple[Request, int]:
    telegram = desk.settings.telegram
    without = question.instead_of or desk.request_id(work.letter.update_id)
    turns, dropped = await desk.talk.history(work.lane, telegram.history_tokens, without)
    messages: list[Message] = [{"role": "system", "content": telegram.system_prompt}] if telegram.system_prompt else []
    for turn in turns:
        messages += [{"role": "user", "content": turn.question}, {"role": "assistant", "content": turn.answer}]
    content: Any = question.text
    if question.images:
        content = [{"type": "text", "text": question.text}] if question.text else []
        content += [{"type": "image_url", "image_url": {"url": url}} for url in question.images]
    messages.append({"role": "user", "content": content})
    return Request(messages, max_output_tokens=telegram.max_reply_tokens), dropped


def _origin(desk: Desk, work: Work) -> Origin:
    return Origin(
        request_id=desk.request_id(work.letter.update_id),
        surface="telegram",
        user=str(work.letter.user_id),
        chat=str(work.lane.chat_id),
        guest=not work.standing.listed,
        dedupe=True,
        patience_s=PATIENCE_S,
    )


async def _keep(desk: Desk, work: Work, bubbles: list[int]) -> None:
    try:
        await desk.inbox.shown(work.letter.update_id, bubbles)
    except LedgerUnavailable:
        log.warning("telegram_bubble_not_kept", update_id=work.letter.update_id)
