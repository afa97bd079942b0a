"""The server: one listening socket, the short way for chat completions, and aiohttp for everything else."""

from __future__ import annotations

import asyncio

from aiohttp import web

from gateway.web.app import Services, create_app
from gateway.web.express import KEEPALIVE_S, Express
from gateway.web.openai_api import OpenAIApi

GRACE_S = 10.0
"""How long a stop waits for requests under way."""
BACKLOG = 1024


class Server:
    """What the web room serves, on a listening socket. Handlers are cancelled when their client leaves."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._openai = OpenAIApi(services.dispatcher, services.metrics, services.settings, services.clock)
        self._runner = web.AppRunner(
            create_app(services, self._openai),
            handler_cancellation=True,
            access_log=None,
            shutdown_timeout=GRACE_S,
            keepalive_timeout=KEEPALIVE_S,
        )
        self._express: Express | None = None
        self._listener: asyncio.Server | None = None

    async def start(self, host: str, port: int) -> int:
        """Listens, and returns the port (0 picks a free one). Raises OSError."""
        await self._runner.setup()
        other = self._runner.server
        assert other is not None, "a runner that is set up has a server"
        self._express = Express(self._openai.chat, self._services.keys, other, self._services.metrics, self._services.clock)
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(self._express, host, port, backlog=BACKLOG)
        return int(self._listener.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Takes no new requests, waits for those under way for at most GRACE_S, then cancels them; lets streams settle."""
        if self._listener is not None:
            self._listener.close()
        stops = [self._runner.cleanup()]
        if self._express is not None:
            stops.append(self._express.stop(GRACE_S))
        await asyncio.gather(*stops)
        await self._openai.settled()
