"""One request for an answer, and the way back for it: what the endpoint asks of whichever server took the request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from aiohttp import web

from gateway.web.auth import name_request, request_id


class Whole(NamedTuple):
    """An answer in one piece."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Exchange(Protocol):
    """One request under way. A stream is begun once, written to, and ended; its writes wait for a slow reader.

    The writing methods raise ConnectionResetError once the client has left.
    """

    @property
    def request_id(self) -> str:
        """The id of this request."""
        ...

    def rename(self, request_id: str) -> None:
        """Gives the request another id: the one that its idempotency key means."""
        ...

    def header(self, name: str) -> str | None:
        """A header of the request by its lower-case name, the first where there are several."""
        ...

    async def body(self) -> bytes:
        """The whole body."""
        ...

    async def begin(self, headers: Mapping[str, str]) -> None:
        """Begins a stream; its head may wait for the first bytes."""
        ...

    async def write(self, data: bytes) -> None:
        """Sends bytes of the stream."""
        ...

    async def end(self, data: bytes) -> None:
        """Sends the last bytes of the stream."""
        ...


class Routed:
    """An exchange on a request that aiohttp has routed."""

    def __init__(self, request: web.Request) -> None:
        self._request = request
        self.response: web.StreamResponse | None = None
        """The stream, once it was begun."""

    @property
    def request_id(self) -> str:
        """The id of this request."""
        return request_id(self._request)

    def rename(self, request_id: str) -> None:
        """Gives the request another id."""
        name_request(self._request, request_id)

    def header(self, name: str) -> str | None:
        """A header of the request."""
        return self._request.headers.get(name)

    async def body(self) -> bytes:
        """The whole body. Raises what aiohttp raises for one that is too large or broken."""
        return await self._request.read()

    async def begin(self, headers: Mapping[str, str]) -> None:
        """Begins a stream."""
        self.response = web.StreamResponse(headers=headers)
        await self.response.prepare(self._request)

    async def write(self, data: bytes) -> None:
        """Sends bytes of the stream."""
        assert self.response is not None, "a stream is begun before it is written to"
        await self.response.write(data)

    async def end(self, data: bytes) -> None:
        """Sends the last bytes of the stream."""
        assert self.response is not None, "a stream is begun before it is ended"
        await self.response.write_eof(data)
