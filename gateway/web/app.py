"""The web application: its routes and the one middleware.

Every answer carries a request id; every failure is JSON of the shape that the address speaks and never a traceback. Only
`/healthz`, `/readyz`, the description of the interface and the Telegram webhook are open without a key; the webhook has its own
secret, and the console its sessions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

import orjson
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from gateway.clock import Clock
from gateway.dispatcher import Dispatcher
from gateway.errors import GatewayError
from gateway.runs import Notice
from gateway.settings import ReportSettings, Settings
from gateway.store.books import Books
from gateway.store.keys import Keys
from gateway.store.ledger_store import LedgerStore
from gateway.store.sessions import Sessions
from gateway.web import messages_shape
from gateway.web.auth import MESSAGES, Denied, admit, is_admin, request_id
from gateway.web.budget_api import BudgetApi
from gateway.web.dashboard import Console
from gateway.web.docs import Docs
from gateway.web.failures import failure, refusal
from gateway.web.messages_api import MessagesApi
from gateway.web.metrics import Metrics, exposition
from gateway.web.openai_api import OpenAIApi
from gateway.web.parsing import BODY_BYTES_MAX
from gateway.web.problems import FORBIDDEN, REQUEST_ID, Problem
from gateway.web.workflow_api import WorkflowApi
from gateway.workflow.desk import Desk

if TYPE_CHECKING:
    from gateway.settings.difference import Change
    from gateway.store.alerts import Alerts
    from gateway.store.telegram_talk import People
    from gateway.workflow.parts import Parts

READY_TIMEOUT_S = 2.0
"""A part that does not answer within this is not ready."""

SECRET_HEADER = "X-Telegram-Bot-Api-Secret-Token"  # noqa: S105  (the header's name)


class Receiver(Protocol):
    """Takes Telegram's updates. The composition root hands it in when the bot is in webhook mode."""

    def admits(self, path: str, secret: str) -> bool:
        """True when the last part of the address and the secret header are right, compared in constant time."""
        ...

    async def receive(self, body: bytes) -> bool:
        """Stores one update and returns after the commit; False when the body is no update. Raises LedgerUnavailable."""
        ...


class Told(Protocol):
    """A report that was made."""

    def sections(self) -> Sequence[object]:
        """What it says, for a template: each has a key, a title, lines, items with bars, and how many more there are."""
        ...

    def svg(self) -> str:
        """Its chart, in the page's own colours."""
        ...

    def png(self) -> bytes:
        """The same drawing as a picture."""
        ...

    def csv(self) -> str:
        """Its figures as a table."""
        ...

    def document(self) -> Mapping[str, object]:
        """Everything, for programs."""
        ...


class Reporting(Protocol):
    """Makes and sends reports. Every method raises LedgerUnavailable."""

    async def make(self, period: str) -> Told:
        """The report of this moment, of a day, week or month."""
        ...

    async def send_now(self, report: ReportSettings, actor: str) -> Notice:
        """Sends a configured one, and says what has become of it so far."""
        ...

    async def sent(self, report: ReportSettings) -> Sequence[Notice]:
        """The last that was sent of one, with what became of it; empty before the first."""
        ...

    async def chart(
        self, rows: Sequence[Mapping[str, Any]], bar: str, since: datetime, until: datetime, *, limited: bool
    ) -> str | None:
        """The drawing of usage by bar ("hour" or "day") and provider, as SVG in the page's own colours; None of nothing.

        `limited` draws the limits of budgets.
        """
        ...


Check = Callable[[], Awaitable[bool]]


@dataclass(frozen=True)
class Services:
    """What the web room is handed. `ready` names each part that `/readyz` asks; `depths` says what waits in the bot."""

    dispatcher: Dispatcher
    keys: Keys
    store: LedgerStore
    books: Books
    settings: Settings
    clock: Clock
    metrics: Metrics
    desk: Desk
    sessions: Sessions
    """Who is logged in to the console."""
    people: People | None = None
    """Whom admins of the bot let in; None without a bot's token."""
    parts: Callable[[], Parts] | None = None
    """What a run would use: for dry runs."""
    reports: Callable[[], Reporting] | None = None
    """What draws needs much memory: it is made when somebody looks."""
    alerts: Alerts | None = None
    """What admins are told of."""
    reload: Callable[[str], Awaitable[Sequence[Change]]] | None = None
    """Reads the configuration again, for an actor. Raises ConfigError."""
    ready: Mapping[str, Check] = field(default_factory=dict)
    receiver: Receiver | None = None
    depths: Callable[[], Mapping[str, int]] = dict


def create_app(services: Services, openai: OpenAIApi) -> web.Application:
    """The application. It owns nothing that must be closed."""
    app = web.Application(middlewares=[_guard(services)], client_max_size=BODY_BYTES_MAX)
    budgets = BudgetApi(services.store, services.books, services.settings, services.clock, openai.caught_up)
    workflows = WorkflowApi(services.desk)
    messages = MessagesApi(services.dispatcher, openai.sender)
    console = Console(services, budgets.send_export)
    for part in (openai, messages, budgets, workflows, Docs(), console, _Plain(services)):
        app.add_routes(part.routes())
    app.on_shutdown.extend((workflows.stop, console.stop))
    return app


class _Plain:
    """Health, readiness, metrics and the webhook."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/healthz", self.healthz),
            web.get("/readyz", self.readyz),
            web.get("/metrics", self.metrics),
            web.post("/telegram/{path}", self.telegram),
        ]

    async def healthz(self, _: web.Request) -> web.Response:
        """The process answers."""
        return json_response({"status": "ok"})

    async def readyz(self, _: web.Request) -> web.Response:
        """503 while any part is not ready; says which."""
        names = list(self._services.ready)
        parts = dict(zip(names, await asyncio.gather(*(_is_ready(self._services.ready[name]) for name in names)), strict=True))
        ready = all(parts.values())
        return json_response({"status": "ready" if ready else "not ready", **parts}, 200 if ready else 503)

    async def metrics(self, _: web.Request) -> web.Response:
        """What Prometheus scrapes."""
        body = exposition(self._services.metrics, await self._services.books.balances(), self._services.depths())
        return web.Response(body=body, headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})

    async def telegram(self, request: web.Request) -> web.Response:
        """One update: the secret is compared before the body is read, 200 comes after the commit."""
        receiver = self._services.receiver
        if receiver is None:
            raise web.HTTPNotFound
        if not receiver.admits(request.match_info["path"], request.headers.get(SECRET_HEADER, "")):
            raise Denied(FORBIDDEN)
        if not await receiver.receive(await request.read()):
            raise web.HTTPBadRequest
        return json_response({})


async def _is_ready(check: Check) -> bool:
    try:
        async with asyncio.timeout(READY_TIMEOUT_S):
            return await check()
    except (GatewayError, TimeoutError):
        return False


def json_response(body: object, status: int = 200) -> web.Response:
    """Any document as JSON."""
    return web.Response(body=orjson.dumps(body), status=status, headers={"Content-Type": "application/json"})


def _guard(services: Services) -> Middleware:
    """The one middleware: lets in who may come, names every answer, counts it, and turns whatever is raised into a JSON error."""
    clock, metrics, keys = services.clock, services.metrics, services.keys

    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            # No name has one, and PostgreSQL takes it in no text.
            if "%00" in request.raw_path:
                raise web.HTTPNotFound if "%00" in request.rel_url.raw_path else web.HTTPBadRequest
            await admit(request, keys)
            response = await handler(request)
        except web.HTTPException as error:
            found = _http(error)
        except web.RequestPayloadError:
            found = Problem(400, "invalid_request", "The body's encoding is broken.")
        except ConnectionError:
            raise
        except Exception as error:
            found = failure(error, request_id(request), clock.now(), admin=is_admin(request))
        else:
            if not response.prepared:
                response.headers.setdefault(REQUEST_ID, request_id(request))
            metrics.answered(response.status)
            return response
        metrics.answered(found.status)
        say = messages_shape.refusal if request.path.startswith(MESSAGES) else refusal
        status, headers, body = say(found, request_id(request))
        return web.Response(body=body, status=status, headers=headers)

    return guard


def _http(error: web.HTTPException) -> Problem:
    """What aiohttp itself refuses: an unknown path, another method, a body that is too large."""
    if isinstance(error, web.HTTPMethodNotAllowed):
        headers = {"Allow": ", ".join(sorted(error.allowed_methods))}
        return Problem(405, "method_not_allowed", f"{error.method} is not allowed here.", headers=headers)
    if isinstance(error, web.HTTPNotFound):
        return Problem(404, "not_found", "There is nothing at this address.")
    if isinstance(error, web.HTTPRequestEntityTooLarge):
        return Problem(413, "invalid_request", f"The body is larger than {BODY_BYTES_MAX} bytes.")
    return Problem(error.status, "invalid_request", error.reason)
