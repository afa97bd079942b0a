"""`sluicegate keys`: who may use the HTTP interface."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from gateway.cli.outcome import DONE, FAILED, USAGE, CommandError, complain
from gateway.cli.render import document, on_terminal, past, show, stamp
from gateway.cli.session import actor, load_settings, opened
from gateway.store.keys import USUAL, Key, May

if TYPE_CHECKING:
    from gateway.app import App


async def create(config: Path | None, name: str, *, admin: bool, may: str | None, chains: Sequence[str], as_json: bool) -> int:
    """Makes a key and shows it this once. Piped, standard output has the key alone."""
    if admin and (may is not None or chains):
        raise CommandError("--admin is everything: leave --may and --chain out", USAGE)
    granted = USUAL if may is None else tuple(word for part in may.split(",") if (word := part.strip()))
    settings = load_settings(config)
    for chain in chains:
        settings.slots(chain)
    async with opened(settings) as app:
        secret = await app.keys.create(name, admin, actor(), may=granted, chains=chains)
        made = next(key for key in await app.keys.list() if key.name == name)
    if as_json:
        document({"name": name, "key": secret} | _scope(made))
        return DONE
    typer.echo(secret)
    if on_terminal():
        typer.echo("Keep it: it is shown this once, and only its hash is stored.", err=True)
    return DONE


async def list_keys(config: Path | None, *, as_json: bool) -> int:
    """Every key by name, revoked ones too."""
    settings = load_settings(config)
    async with opened(settings) as app:
        found = await app.keys.list()
    if as_json:
        facts = [
            {"name": key.name} | _scope(key) | {"created_at": stamp(key.created_at), "revoked_at": stamp(key.revoked_at)}
            for key in found
        ]
        document({"keys": facts})
        return DONE
    rows = [
        [
            key.name,
            "admin" if key.admin else ", ".join(_words(key)),
            ", ".join(key.chains) or "all",
            past(key.created_at, settings.zone),
            past(key.revoked_at, settings.zone),
        ]
        for key in found
    ]
    show(["name", "may", "chains", "created", "revoked"], rows)
    return DONE


async def revoke(config: Path | None, name: str, *, as_json: bool) -> int:
    """Ends a key; exit code 1 when there is no live one of this name."""
    async with opened(load_settings(config)) as app:
        revoked = await app.keys.revoke(name, actor())
    if as_json:
        document({"name": name, "revoked": revoked})
    if not revoked:
        complain(f"there is no key {name!r} that could be revoked: `sluicegate keys list` shows them")
        return FAILED
    if not as_json:
        typer.echo(f"{name}: revoked.")
    return DONE


def _scope(key: Key) -> dict[str, object]:
    """What a key may, as documents have it."""
    return {"admin": key.admin, "may": _words(key), "chains": list(key.chains)}


def _words(key: Key) -> list[str]:
    return [each.value for each in May if each in key.may]


async def replace(app: App, name: str) -> str:
    """A new key under a name that may have one already."""
    await app.keys.revoke(name, actor())
    return await app.keys.create(name, False, actor())
