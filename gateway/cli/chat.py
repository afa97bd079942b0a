"""`sluicegate chat`: one gated exchange, or a conversation on a terminal."""

from __future__ import annotations

import sys
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from gateway.chat import Chunk, Request
from gateway.cli.outcome import DONE, EXHAUSTED, FAILED, USAGE, CommandError, complain
from gateway.cli.render import document, on_terminal, stamp
from gateway.cli.session import load_settings, opened
from gateway.cli.typed import typed
from gateway.cli.words import default_target, error_text, origin, reader
from gateway.dispatcher import Reply, StreamBroken
from gateway.errors import ChainExhausted, GatewayError, InvalidRequest, UnknownTarget

if TYPE_CHECKING:
    from gateway.app import App


async def chat(config: Path | None, text: str | None, chain: str, *, stream: bool, as_json: bool) -> int:
    """Asks once; without a text a terminal gets a conversation, anything else is read from standard input."""
    if stream and as_json:
        raise CommandError("--stream prints an answer as it comes and --json one document: choose one", USAGE)
    if text is None and sys.stdin.isatty() and on_terminal() and not as_json:
        return await _converse(config, chain)
    question = sys.stdin.read() if text is None else text
    question = question.encode("utf-8", "surrogateescape").decode("utf-8", "replace").strip()
    if not question:
        raise CommandError('nothing to ask: sluicegate chat "your question"', USAGE)
    settings = load_settings(config)
    target = chain or default_target(settings)
    settings.slots(target)
    async with opened(settings, gate=True) as app:
        return await (_stream if stream else _whole)(app, question, target, as_json)


async def _converse(config: Path | None, chain: str) -> int:
    from gateway.cli.talk import HINTS, Talk

    settings = load_settings(config)
    target = chain or default_target(settings)
    settings.slots(target)
    async with opened(settings, gate=True) as app:
        typer.echo(f"Chatting with {target}. {HINTS}")
        await Talk(app, target).run()
    return DONE


async def _whole(app: App, question: str, target: str, as_json: bool) -> int:
    asked = origin()
    try:
        reply = await app.dispatcher.complete(Request(messages=[{"role": "user", "content": question}]), target, asked)
    except GatewayError as error:
        return _failed(app, error, asked.request_id, as_json)
    if as_json:
        document(
            {
                "text": reply.completion.text,
                "provider": reply.slot.provider,
                "model": reply.completion.model,
                "usage": {
                    "prompt_tokens": reply.usage.prompt,
                    "completion_tokens": reply.usage.output,
                    "total_tokens": reply.usage.tokens,
                    "cached_tokens": reply.usage.cached,
                    "reasoning_tokens": reply.usage.reasoning,
                },
                "request_id": reply.request_id,
                "chain": reply.chain,
                "finish_reason": reply.completion.finish_reason,
                "cost_micro_usd": reply.cost_micro_usd,
                "clamped": reply.clamped,
                "estimated": reply.estimated,
            }
        )
    else:
        typer.echo(reply.completion.text)
        _about(app, reply)
    return DONE


async def _stream(app: App, question: str, target: str, _as_json: bool) -> int:
    asked = origin()
    request = Request(messages=[{"role": "user", "content": question}])
    try:
        async with aclosing(app.dispatcher.stream(request, target, asked)) as events:
            async for event in events:
                if isinstance(event, Chunk) and event.text:
                    typer.echo(event.text, nl=False)
                elif isinstance(event, Reply):
                    typer.echo()
                    _about(app, event)
    except StreamBroken as error:
        typer.echo()
        complain(f"the answer broke off: {error.error} (request {asked.request_id})")
        return FAILED
    except GatewayError as error:
        return _failed(app, error, asked.request_id, as_json=False)
    return DONE


def _about(app: App, reply: Reply) -> None:
    """Who answered, on standard error: the answer itself stays clean."""
    now, zone = app.clock.now(), app.settings.zone
    for cause in reply.skipped:
        typer.echo(f"[{cause.slot}: {error_text(cause.error, zone, now)}]", err=True)
    cost = f", {reply.cost_micro_usd} micro-USD" if reply.cost_micro_usd else ""
    short = ", shortened to what the budget had left" if reply.clamped else ""
    tokens = f"{reply.usage.prompt} + {reply.usage.output} tokens"
    typer.echo(f"[{reply.slot}, {tokens}{cost}{short}, request {reply.request_id}]", err=True)


def _failed(app: App, error: GatewayError, request_id: str, as_json: bool) -> int:
    """The notice on standard error; with --json its facts as the one document on standard output."""
    from gateway.notice import notice
    from gateway.web.problems import problem

    if isinstance(error, UnknownTarget | InvalidRequest):
        raise error
    now, zone = app.clock.now(), app.settings.zone
    said = notice(error, reader(app.settings), now)
    exhausted = isinstance(error, ChainExhausted) and error.budgets_only
    if as_json:
        facts: dict[str, object] = {
            # The code that the HTTP interface gives for the same error.
            "code": problem(error, now, admin=True).code,
            "message": said.text,
            "request_id": request_id,
        }
        if isinstance(error, ChainExhausted):
            facts["resets_at"] = stamp(error.available_at)
            facts["causes"] = [{"slot": str(cause.slot), "reason": str(cause.error)} for cause in error.causes]
        document({"error": facts})
    typer.echo(said.text, err=True)
    if isinstance(error, ChainExhausted):
        for cause in error.causes:
            typer.echo(f"  {cause.slot}: {error_text(cause.error, zone, now)}", err=True)
    else:
        complain(str(error))
    typer.echo(f"  {typed(app.settings, f'why {request_id}')}", err=True)
    return EXHAUSTED if exhausted else FAILED
