"""`sluicegate login-link`: a one-time link to the web console."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from gateway.cli.outcome import DONE
from gateway.cli.render import document, on_terminal, stamp
from gateway.cli.session import actor, load_settings, opened

if TYPE_CHECKING:
    from gateway.app import App


async def login_link(config: Path | None, *, as_json: bool) -> int:
    """Makes a link and shows it. Piped, standard output has the link alone."""
    settings = load_settings(config)
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    async with opened(settings) as app:
        link, expires_at = await app.sessions.make_link(actor())
    url = _url(f"http://{host}:{settings.port}", link)
    if as_json:
        document({"url": url, "expires_at": stamp(expires_at)})
        return DONE
    typer.echo(url)
    if on_terminal():
        typer.echo("It works once and for an hour, in any browser that reaches the server.", err=True)
    return DONE


async def new(app: App, address: str) -> str:
    """A link to the console at this address."""
    link, _ = await app.sessions.make_link(actor())
    return _url(address, link)


def _url(address: str, link: str) -> str:
    return f"{address}/login/{link}"
