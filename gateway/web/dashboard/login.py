"""Logging in, by a one-time link or by an admin key, and out."""

from __future__ import annotations

from aiohttp import web

from gateway.web.dashboard.door import COOKIE, cookie, inside
from gateway.web.dashboard.visit import Answer, Onward, View, Visit

WRONG_KEY = "That is no admin key that is in force."
WRONG_LINK = "This link was used, or its hour has passed. `sluicegate login-link` prints another."


async def ask(visit: Visit) -> Answer:
    """The form for a key."""
    after = inside(visit.asked("next")) or "/"
    if visit.session is not None:
        return Onward(after)
    return View("login.html", "Log in", {"after": after, "wrong": ""})


async def by_key(visit: Visit) -> Answer:
    """An admin key opens a session. Raises LedgerUnavailable."""
    after = inside(visit.form.get("next", "")) or "/"
    key = await visit.services.keys.find(visit.form.get("key", "").strip())
    if key is None or not key.admin:
        return View("login.html", "Log in", {"after": after, "wrong": WRONG_KEY}, status=403)
    return _opened(visit, await visit.services.sessions.open_by_key(key.name), after)


async def by_link(visit: Visit) -> Answer:
    """A link that the start or `sluicegate login-link` printed opens one session. Raises LedgerUnavailable."""
    # A browser that fetches ahead, before anybody has clicked, must not use the link up.
    if "prefetch" in visit.request.headers.get("Sec-Purpose", ""):
        return web.Response(status=503)
    secret = await visit.services.sessions.open_by_link(visit.part("link"))
    if secret is None:
        return View("login.html", "Log in", {"after": "/", "wrong": WRONG_LINK}, status=403)
    return _opened(visit, secret, "/")


async def leave(visit: Visit) -> Answer:
    """Logs out; with `everybody` every session of the console ends."""
    sessions = visit.services.sessions
    await (sessions.close_all(visit.actor) if visit.form.get("everybody") else sessions.close(visit.secret))
    response = web.Response(status=303, headers={"Location": "/login"})
    response.del_cookie(COOKIE, path="/")
    return response


def _opened(visit: Visit, secret: str, after: str) -> web.Response:
    # A page that goes on by itself and no redirect: after a click in another program's page the browser would not send
    # the new cookie along with one.
    place = after.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")
    body = f'<!doctype html><html lang="en"><title>Sluicegate</title><meta http-equiv="refresh" content="0;url={place}">'
    response = web.Response(text=f'{body}<p><a href="{place}">You are logged in. Go on.</a></p></html>', content_type="text/html")
    cookie(response, visit, secret)
    return response
