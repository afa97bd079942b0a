"""HTTP keys: made here and shown once, revoked here."""

from __future__ import annotations

from gateway.errors import InvalidRequest
from gateway.web.dashboard.visit import Answer, Onward, View, Visit


async def every(visit: Visit) -> Answer:
    """Every key, without the key."""
    return await _page(visit)


async def create(visit: Visit) -> Answer:
    """Makes a key, which is shown in this one answer. Raises InvalidRequest."""
    name = visit.text("name", "the name", 100)
    secret = await visit.services.keys.create(name, visit.form.get("admin") == "yes", visit.actor)
    return await _page(visit, name, secret)


async def revoke(visit: Visit) -> Answer:
    """Ends a key."""
    name = visit.form.get("name", "")
    if not await visit.services.keys.revoke(name, visit.actor):
        raise InvalidRequest("there is no live key of this name", "name")
    return Onward("/keys", f"{name} is revoked.")


async def _page(visit: Visit, made: str = "", secret: str = "") -> View:
    assert visit.session is not None
    fields = {"keys": await visit.services.keys.list(), "made": made, "secret": secret, "own": visit.session.key}
    return View("keys.html", "Keys", fields)
