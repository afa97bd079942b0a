"""The seam to the network: one POST, an answer that comes in blocks of bytes, and three ways to fail.

A client never repeats a request, follows no redirect, uses no proxy, and says whether a byte may have left: that
decides whether a call that failed can have been billed. Compressed answers are not asked for; gzip is understood.
"""

from __future__ import annotations

import asyncio
import socket
import zlib
from collections.abc import Mapping
from typing import Protocol, Self

import aiohttp

from gateway import __version__

USER_AGENT = f"sluicegate/{__version__}"
CONNECT_TIMEOUT_S = 5.0
IDLE_CONNECTION_S = 15.0
"""An unused connection is closed after this: well before the common servers close it themselves."""
_ENCODINGS = {"gzip": zlib.MAX_WBITS | 32, "x-gzip": zlib.MAX_WBITS | 32, "deflate": zlib.MAX_WBITS | 32}


class TransportError(Exception):
    """A call that failed below the provider's own words. `str` never holds a header, a key or a URL."""


class NotSent(TransportError):
    """No connection: no byte of the request left."""


class Broken(TransportError):
    """Reset, cut or unreadable after the request may have left."""


class TimedOut(Broken):
    """Nothing came in time, after the request may have left."""


class Response(Protocol):
    """An answer whose head has come."""

    status: int
    headers: Mapping[str, str]
    """By lower-case name."""

    async def block(self, timeout_s: float) -> bytes:
        """The next bytes as they came, b"" at the end. Raises Broken, TimedOut."""
        ...

    def close(self) -> None:
        """Closes the connection at once, or keeps it for the next call if the answer was read to its end."""
        ...


class HttpClient(Protocol):
    """Makes calls over kept connections."""

    async def post(self, url: str, headers: Mapping[str, str], body: bytes, timeout_s: float) -> Response:
        """Sends once; returns when the head of the answer has come. Raises NotSent, Broken, TimedOut."""
        ...

    async def close(self) -> None:
        """Closes every connection."""
        ...


class Unpacker:
    """Takes a content encoding off. Answers are asked for without one, but not every server listens."""

    def __init__(self, encoding: str) -> None:
        if encoding not in _ENCODINGS:
            raise Broken(f"the answer came with the unknown content encoding {encoding[:20]!r}")
        self._zlib = zlib.decompressobj(_ENCODINGS[encoding])

    @classmethod
    def of(cls, headers: Mapping[str, str]) -> Self | None:
        """The unpacker that these headers ask for, None for plain bytes."""
        encoding = headers.get("content-encoding", "identity").strip().lower()
        return None if encoding in ("", "identity") else cls(encoding)

    def __call__(self, block: bytes) -> bytes:
        """The plain bytes of a block; may be b"" in the middle. A block may not unpack to more than 16 MiB."""
        try:
            plain = self._zlib.decompress(block, 16 << 20)
        except zlib.error as error:
            raise Broken(f"the answer's compression is damaged: {error}") from None
        if self._zlib.unconsumed_tail:
            raise Broken("the answer unpacks to more than is sensible")
        return plain


class AiohttpClient:
    """The seam on aiohttp's client."""

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None

    async def post(self, url: str, headers: Mapping[str, str], body: bytes, timeout_s: float) -> Response:
        """Sends once; returns when the head of the answer has come. Raises NotSent, Broken, TimedOut."""
        try:
            async with asyncio.timeout(timeout_s):
                response = await self._open().post(url, data=body, headers=headers, allow_redirects=False)
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, aiohttp.InvalidURL) as error:
            raise NotSent(_words(error)) from None
        except TimeoutError:
            raise TimedOut(f"no answer within {timeout_s:.3g} s") from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise Broken(_words(error)) from None
        try:
            return _AiohttpResponse(response)
        except Broken:
            response.close()
            raise

    async def close(self) -> None:
        """Closes every connection."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _open(self) -> aiohttp.ClientSession:
        # Made at the first call, since a session belongs to the loop that runs then.
        if self._session is None:
            connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=IDLE_CONNECTION_S, socket_factory=_socket)
            self._session = aiohttp.ClientSession(
                connector=connector,
                timeout=aiohttp.ClientTimeout(total=None, connect=2 * CONNECT_TIMEOUT_S, sock_connect=CONNECT_TIMEOUT_S),
                headers={"User-Agent": USER_AGENT, "Accept-Encoding": "identity", "Content-Type": "application/json"},
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                trust_env=False,
            )
        return self._session


def open_client() -> HttpClient:
    """The client that the product uses. Connects to nobody yet."""
    return AiohttpClient()


class _AiohttpResponse:
    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.status = response.status
        self.headers: Mapping[str, str] = {name.lower(): value for name, value in response.headers.items()}
        self._unpack = Unpacker.of(self.headers)
        self._response = response

    async def block(self, timeout_s: float) -> bytes:
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    data = await self._response.content.readany()
                    plain = self._unpack(data) if self._unpack and data else data
                    if plain or not data:
                        return plain
        except TimeoutError:
            raise TimedOut(f"nothing came for {timeout_s:.3g} s") from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise Broken(_words(error)) from None

    def close(self) -> None:
        self._response.close()


def _socket(address: tuple[object, ...]) -> socket.socket:
    family, kind, protocol = address[:3]
    made = socket.socket(family, kind, protocol)  # type: ignore[arg-type]
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return made


def _words(error: BaseException) -> str:
    """What went wrong in short, without the URL that aiohttp likes to name."""
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return "the host's name is not known"
    if isinstance(error, aiohttp.ClientConnectorCertificateError | aiohttp.ClientSSLError):
        return "the TLS connection could not be made"
    if isinstance(error, aiohttp.ClientConnectorError):
        return f"no connection: {error.os_error.strerror or type(error.os_error).__name__}"
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        return "no connection in time"
    if isinstance(error, aiohttp.InvalidURL):
        return "the base URL is not a URL"
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "the connection was closed before the answer"
    if isinstance(error, aiohttp.ClientPayloadError):
        return "the connection was closed in the middle of the answer"
    return f"the connection broke: {type(error).__name__}"
