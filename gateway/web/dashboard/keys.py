"""HTTP keys: made here with what each may and shown once, with where they stand, revoked here."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlencode

from gateway.errors import InvalidRequest
from gateway.store.budgets import Balance
from gateway.store.keys import USUAL, Key, May
from gateway.web.dashboard.visit import Answer, Onward, View, Visit

WORDS = {May.ASK: "ask models", May.RUN: "run workflows", May.READ: "read budgets and usage"}
"""What a key may, as people read it."""


async def every(visit: Visit) -> Answer:
    """Every key, without the key."""
    return await _page(visit)


async def create(visit: Visit) -> Answer:
    """Makes a key, which is shown in this one answer. Raises InvalidRequest, UnknownTarget."""
    name = visit.text("name", "the name", 100)
    chains = visit.lists.get("chain", [])
    for chain in chains:
        visit.services.settings.slots(chain)
    admin = visit.form.get("admin") == "yes"
    secret = await visit.services.keys.create(name, admin, visit.actor, may=visit.lists.get("may", []), chains=chains)
    return await _page(visit, name, secret)


async def revoke(visit: Visit) -> Answer:
    """Ends a key."""
    name = visit.form.get("name", "")
    if not await visit.services.keys.revoke(name, visit.actor):
        raise InvalidRequest("there is no live key of this name", "name")
    return Onward("/keys", f"{name} is revoked.")


async def _page(visit: Visit, made: str = "", secret: str = "") -> View:
    assert visit.session is not None
    counters = await _counters(visit)
    fields = {
        "keys": [
            {
                "key": key,
                "may": _said(key),
                "counters": [] if key.revoked_at else counters.get(key.name, []),
                "usage": "/usage?" + urlencode([("key", key.name), ("by", "provider"), ("by", "model")]),
            }
            for key in await visit.services.keys.list()
        ],
        "words": [(each.value, WORDS[each], each in USUAL) for each in May],
        "chains": list(visit.services.settings.chains),
        "made": made,
        "secret": secret,
        "own": visit.session.key,
    }
    return View("keys.html", "Keys", fields)


def _said(key: Key) -> str:
    if key.admin:
        return "everything"
    return ", ".join(WORDS[each] for each in May if each in key.may)


async def _counters(visit: Visit) -> Mapping[str, list[Balance]]:
    """The counters of budgets that count one key alone, by the key's name. Over HTTP the user is the key."""
    found: dict[str, list[Balance]] = {}
    for balance in await visit.services.books.balances():
        for name in {value for kind in ("key", "user") if (value := balance.scope.get(kind))}:
            found.setdefault(name, []).append(balance)
    return found
