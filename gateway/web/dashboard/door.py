"""The console's door: who comes, whether a form is ours, and what is answered when something goes wrong.

- Without a session there is the login and nothing else.
- A form is taken only with its session's token and from our own origin; a browser says where a form comes from.
- Every answer has a strict content policy: what a hostile name could smuggle in would not run.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Awaitable, Callable
from dataclasses import replace
from importlib import import_module
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlsplit

from aiohttp import web

from gateway.errors import GatewayError, InvalidRequest
from gateway.web.app import Services
from gateway.web.auth import request_id
from gateway.web.dashboard import Export
from gateway.web.dashboard.live import OVER, STREAM, live
from gateway.web.dashboard.once import Once
from gateway.web.dashboard.render import Shelf
from gateway.web.dashboard.visit import Answer, Missing, Onward, View, Visit
from gateway.web.failures import failure
from gateway.web.problems import REQUEST_ID

Page = Callable[[Visit], Awaitable[Answer]]
COOKIE = "sluicegate_session"
SAID = "sluicegate_said"
"""What the page before has done, for the next one to show."""
SAID_MAX = 300
"""In characters. Each may take twelve in a cookie, and a browser drops one of more than 4096 without a word."""
ICON = "icon.svg"
"""What a browser that has no page of ours asks for as /favicon.ico."""
TOKEN = "csrf"  # noqa: S105  (the field's name)
TOKEN_HEADER = "X-CSRF-Token"  # noqa: S105  (the header's name)
OPEN = frozenset({"login:ask", "login:by_key", "login:by_link"})
"""The pages before the login."""
FORM = "application/x-www-form-urlencoded"
FORM_BYTES_MAX = 1 << 20
FIELDS_MAX = 500
ENDED = "Your session has ended. Log in, and send the form once more."
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # Not "no-referrer": forms would then say that they come from nowhere.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
FRESH = {**HEADERS, "Cache-Control": "no-store"}


class Door:
    """One per process, made with the first page."""

    def __init__(self, services: Services, export: Export, stopping: asyncio.Event) -> None:
        self._services, self._export, self._stopping = services, export, stopping
        self._shelf = Shelf(services.settings)
        self._once = Once()

    def static(self, request: web.Request) -> web.StreamResponse:
        """A style sheet, a script, an icon."""
        found = self._shelf.files.get(request.match_info.get("name", ICON))
        if found is None:
            raise web.HTTPNotFound
        headers = HEADERS | {
            "Content-Type": found.kind,
            "Cache-Control": "public, max-age=86400",
            "ETag": f'"{self._shelf.stamp}"',
        }
        return web.Response(body=found.body, headers=headers)

    async def page(self, name: str, request: web.Request) -> web.StreamResponse:
        """Lets somebody in, or sends them to the login; then what the page answers."""
        try:
            visit = await self._visit(request)
            if visit.session is None and name not in OPEN:
                return self._to_login(visit)
            if request.method == "POST":
                # Where it comes from is asked before anything of it is read.
                fault = _elsewhere(request)
                visit = visit if fault else await _filled(visit)
                if fault := fault or ("" if name in OPEN else _unsigned(visit)):
                    return self._problem(visit, 403, "This form was not taken", fault)
        except GatewayError as error:
            return self._failed(request, None, error)
        except web.HTTPRequestEntityTooLarge:
            return self._problem(visit, 413, "This form was not taken", f"It is larger than {FORM_BYTES_MAX:,} bytes.")
        module, _, function = name.partition(":")
        page: Page = getattr(import_module(f"gateway.web.dashboard.{module}"), function)
        try:
            answer = await self._once.answer(visit, page)
            if isinstance(answer, View) and answer.live and visit.follows:
                return await live(visit, page, self._shelf, self._stopping, FRESH | {REQUEST_ID: request_id(request)})
        except Missing:
            if visit.follows:
                return _over()
            return self._problem(visit, 404, "There is nothing here", "What this address showed is gone, or never was.")
        except (web.HTTPException, ConnectionError):
            raise
        except Exception as error:
            # Also a fault of our own: a person gets a page, and the log where it happened.
            return self._failed(request, visit, error)
        return self._answered(visit, answer)

    async def _visit(self, request: web.Request) -> Visit:
        secret = request.cookies.get(COOKIE, "")
        session = await self._services.sessions.find(secret) if secret else None
        return Visit(request, self._services, self._export, session, secret if session else "", {}, {})

    def _answered(self, visit: Visit, answer: Answer) -> web.StreamResponse:
        if isinstance(answer, web.StreamResponse):
            if not answer.prepared:
                answer.headers.extend({name: value for name, value in FRESH.items() if name not in answer.headers})
            return answer
        if isinstance(answer, Onward):
            response = web.Response(status=303, headers=FRESH | {"Location": answer.place})
            if answer.said:
                said = quote(f"{'-' if answer.bad else '+'}{answer.said[:SAID_MAX]}")
                response.set_cookie(SAID, said, path="/", max_age=60, httponly=True, samesite="Strict")
            return response
        said = unquote(visit.request.cookies.get(SAID, ""))
        body = self._shelf.page(visit, answer, said[1:], bad=said.startswith("-"))
        response = _html(body, answer.status)
        if said:
            response.del_cookie(SAID, path="/")
        return response

    def _to_login(self, visit: Visit) -> web.StreamResponse:
        request = visit.request
        if visit.follows:
            return _over()
        if request.method == "POST":
            if request.content_type != FORM:
                return web.Response(status=401, headers=FRESH)
            view = View("login.html", "Log in", {"after": _back(request) or "/", "wrong": ENDED}, status=401)
            return self._answered(visit, view)
        after = "" if request.path == "/" else f"?next={quote(request.path_qs, safe='')}"
        return web.Response(status=303, headers=FRESH | {"Location": f"/login{after}"})

    def _failed(self, request: web.Request, visit: Visit | None, error: Exception) -> web.StreamResponse:
        """What a page could not do. After a form it is said on the page that has the form."""
        found = failure(error, request_id(request), self._services.clock.now(), admin=True)
        back = _back(request)
        if request.method == "POST" and visit is not None and visit.session is not None and back and found.status < 500:
            message = error.message if isinstance(error, InvalidRequest) else found.message
            return self._answered(visit, Onward(back, message, bad=True))
        nobody = Visit(request, self._services, self._export, None, "", {}, {})
        return self._problem(visit or nobody, found.status, "That did not work", found.message)

    def _problem(self, visit: Visit, status: int, title: str, message: str) -> web.StreamResponse:
        if "json" in visit.request.content_type:
            return web.json_response({"error": {"message": message}}, status=status, headers=FRESH)
        return _html(self._shelf.page(visit, View("problem.html", title, {"message": message}, status=status), ""), status)


def cookie(response: web.StreamResponse, visit: Visit, secret: str) -> None:
    """Keeps a session with the browser: out of reach of scripts and of other sites."""
    secure = visit.request.secure or _proxied(visit.request) == "https"
    response.set_cookie(COOKIE, secret, path="/", httponly=True, samesite="Strict", secure=secure)


def _proxied(request: web.Request) -> str:
    """How the visitor's own connection is made, where a proxy says so: each one appends what it saw itself."""
    return request.headers.get("X-Forwarded-Proto", "").partition(",")[0].strip().lower()


async def _filled(visit: Visit) -> Visit:
    """With the form's fields, if it is a form at all. Raises InvalidRequest, and HTTPRequestEntityTooLarge."""
    if visit.request.content_type != FORM:
        return visit
    body = await visit.request.clone(client_max_size=FORM_BYTES_MAX).read()
    try:
        # Pages are UTF-8, and so is what a browser sends from them.
        given = parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=FIELDS_MAX)
    except ValueError:
        raise InvalidRequest(f"the form has more than {FIELDS_MAX} fields", "form") from None
    if any("\0" in value for _, value in given):
        raise InvalidRequest("the form has a character that no text has", "form")
    lists: dict[str, list[str]] = {}
    for name, value in given:
        lists.setdefault(name, []).append(value)
    return replace(visit, form={name: values[-1] for name, values in lists.items()}, lists=lists)


def _elsewhere(request: web.Request) -> str:
    """Why a form is not taken that no page of ours can have sent; "" for one that may be ours."""
    if _parts(request.headers.get("Origin", "")).netloc != request.host:
        return "It was sent from another site, or by a browser that does not say from where."
    return ""


def _unsigned(visit: Visit) -> str:
    """Why a form is not taken that a page of another session has sent; "" for one of this session."""
    given = visit.form.get(TOKEN) or visit.request.headers.get(TOKEN_HEADER) or ""
    if not hmac.compare_digest(given.encode("utf-8", "replace"), visit.csrf.encode()):
        return "It belongs to another session. Load the page again, and send it once more."
    return ""


def inside(place: str) -> str:
    """A place of ours; "" for any other."""
    return place if place.startswith("/") and not place.startswith(("//", "/\\")) and place.isprintable() else ""


def _back(request: web.Request) -> str:
    """The page from which a form came; "" where that is not one of ours."""
    came = _parts(request.headers.get("Referer", ""))
    return inside(came.path + (f"?{came.query}" if came.query else "")) if came.netloc == request.host else ""


def _parts(address: str) -> SplitResult:
    try:
        return urlsplit(address)
    except ValueError:
        return urlsplit("")


def _over() -> web.Response:
    """To a page that follows what is gone: it shall look for itself."""
    return web.Response(body=OVER, headers=FRESH | STREAM)


def _html(body: str, status: int) -> web.Response:
    headers = FRESH | {"Content-Type": "text/html; charset=utf-8"}
    return web.Response(body=body.encode("utf-8", "replace"), status=status, headers=headers)
