"""The web console. What is here is all that a process has of it until somebody opens a page: its addresses.

Pages are functions `(Visit) -> Answer`, one file for each part. The door finds out who comes, refuses forms that no page of
ours has sent, and renders; a page asks for what it shows and nothing else. One that an EventSource opens is sent again and
again, as far as it has changed (live.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING

from aiohttp import web

if TYPE_CHECKING:
    from gateway.web.app import Services
    from gateway.web.dashboard.door import Door

ROUTES = (
    ("GET", "/", "overview:overview"),
    ("GET", "/login", "login:ask"),
    ("POST", "/login", "login:by_key"),
    ("GET", "/login/{link}", "login:by_link"),
    ("POST", "/logout", "login:leave"),
    ("GET", "/budgets", "budgets:every"),
    ("GET", "/budgets/{name}", "budgets:one"),
    ("POST", "/budgets/{name}/raise", "budgets:raise_limit"),
    ("POST", "/budgets/{name}/end", "budgets:end_raises"),
    ("POST", "/budgets/{name}/adjust", "budgets:adjust"),
    ("POST", "/alerts", "overview:acknowledge"),
    ("POST", "/reload", "budgets:reload"),
    ("POST", "/pause", "budgets:pause"),
    ("POST", "/resume", "budgets:resume"),
    ("GET", "/why/{request_id:.+}", "why:why"),
    ("GET", "/chat", "chat:page"),
    ("POST", "/chat", "chat:answer"),
    ("GET", "/workflows", "workflows:every"),
    ("GET", "/workflows/{name}", "workflows:one"),
    ("POST", "/workflows/{name}", "workflows:start"),
    ("GET", "/runs", "runs:every"),
    ("GET", "/runs/{id}", "runs:one"),
    ("POST", "/runs/{id}/cancel", "runs:cancel"),
    ("POST", "/runs/{id}/retry", "runs:retry"),
    ("POST", "/runs/{id}/approve", "runs:approve"),
    ("POST", "/runs/{id}/reject", "runs:reject"),
    ("POST", "/runs/{id}/signal", "runs:signal"),
    ("GET", "/reports", "reports:page"),
    ("GET", "/reports.csv", "reports:table"),
    ("GET", "/reports.json", "reports:document"),
    ("GET", "/reports.png", "reports:picture"),
    ("POST", "/reports/{name}/send", "reports:send"),
    ("GET", "/usage", "usage:sums"),
    ("GET", "/usage.csv", "usage:export"),
    ("GET", "/keys", "keys:every"),
    ("POST", "/keys", "keys:create"),
    ("POST", "/keys/revoke", "keys:revoke"),
    ("GET", "/people", "people:every"),
    ("POST", "/people", "people:change"),
    ("GET", "/audit", "audit:every"),
)
"""Method, address, and `file:function`."""
STATIC = ("/static/{name}", "/favicon.ico")
"""Addresses of files, for everybody."""

Export = Callable[[web.Request, Mapping[str, str]], Awaitable[web.StreamResponse]]
"""Sends the usage rows of the request's period that have these values of a scope's attributes."""


class Console:
    """The console's routes, whose files are read when the first page is asked for."""

    def __init__(self, services: Services, export: Export) -> None:
        self._services, self._export = services, export
        self._stopping = asyncio.Event()
        self._door: Door | None = None

    def routes(self) -> list[web.RouteDef]:
        """Every address."""
        pages = []
        for method, path, name in ROUTES:
            # A look at the head alone does nothing: one of these addresses uses a link up.
            pages.append(web.RouteDef(method, path, partial(self._page, name), {"allow_head": False} if method == "GET" else {}))
        return [*pages, *(web.get(path, self._static) for path in STATIC)]

    async def stop(self, _: web.Application) -> None:
        """Ends every live page: they would keep a graceful stop waiting."""
        self._stopping.set()

    async def _page(self, name: str, request: web.Request) -> web.StreamResponse:
        return await (await self._opened()).page(name, request)

    async def _static(self, request: web.Request) -> web.StreamResponse:
        return (await self._opened()).static(request)

    async def _opened(self) -> Door:
        if self._door is None:
            # Templates and what draws them: nothing that a gateway without a console's visitor should hold in memory.
            module = await asyncio.to_thread(import_module, "gateway.web.dashboard.door")
            self._door = module.Door(self._services, self._export, self._stopping)
        assert self._door is not None
        return self._door
