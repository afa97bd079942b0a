"""`sluicegate demo`: the built-in configuration. On a terminal a chat beside the server, elsewhere the server alone."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import typer

from gateway.app import App
from gateway.cli import keys
from gateway.cli.outcome import DONE
from gateway.cli.render import on_terminal
from gateway.cli.serve import greeting, run_app
from gateway.cli.session import demo_settings, log_to
from gateway.cli.typed import own_name, typed
from gateway.cli.words import default_target
from gateway.settings import Settings
from gateway.store.migrations import upgrade

_LOOKS = ("budgets", "usage --by provider", "workflows", "run clone_petroserver --follow")
KEY = "demo"
"""The name of the API key that every start makes anew."""


def demo() -> int:
    """Upgrades the demo's database by itself, then chats or serves."""
    settings = demo_settings()
    upgrade(settings.database_url)
    app = App(settings)
    if sys.stdin.isatty() and on_terminal():
        return _chat(app)
    log_to(app, sys.stderr)
    return run_app(app, welcome)


def _chat(app: App) -> int:
    import uvloop

    file = Path("var/demo.log")
    file.parent.mkdir(parents=True, exist_ok=True)
    with (
        file.open("a", encoding="utf-8") as stream,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        log_to(app, stream)
        runner.run(_talk(app))
    return DONE


async def _talk(app: App) -> None:
    from gateway.cli.talk import HINTS, Talk

    await app.start()
    try:
        await welcome(app)
        typer.echo(f"\nAsk something. {HINTS}")
        await Talk(app, default_target(app.settings)).run()
    finally:
        await app.stop()


async def welcome(app: App) -> None:
    """Says where it is, what to try, and how to connect a bot."""
    key = await keys.replace(app, KEY)
    for line in [*await greeting(app), "", *_about(app.settings, app.address, key)]:
        typer.echo(line)


def _about(settings: Settings, address: str, key: str) -> list[str]:
    scripted = any(provider.api == "demo" for provider in settings.providers.values())
    first, second = list(settings.providers)[:2]
    what = (
        "The small model is not installed here, so a script answers: its words are canned,\nwhat the gate does is real."
        if scripted
        else "A small model answers on this machine: it is real and not clever."
    )
    headers = f"-H 'Authorization: Bearer {key}' -H 'Content-Type: application/json'"
    body = '{"model": "default", "messages": [{"role": "user", "content": "Hello"}]}'
    lines = [
        what,
        "It is served as two providers with small budgets:",
        f"{first} answers until its own is gone, then {second} does, then a notice says",
        "when it opens again. Eight questions show it.",
        "",
        "Over HTTP (this key is shown once):",
        f"  curl -s {address}/v1/chat/completions {headers} -d '{body}'",
        "Look into it from another terminal:",
        *(f"  {typed(settings, command)}" for command in _LOOKS),
    ]
    if not settings.telegram.token:
        lines.append("A Telegram bot: put TELEGRAM_BOT_TOKEN=… (@BotFather) into .env, start again.")
    lines.append(f"Your own providers: {own_name()} init")
    return lines
