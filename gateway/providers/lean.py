"""The seam on a lean HTTP/1.1 client of our own: a protocol on the loop's transports, parsed by httptools.

A general client takes twice as long for a call as the rest of the gateway together. Here a call is one write, one
future and one parser. What `gateway.providers.http` promises holds: nothing is sent twice, no redirect, no proxy.

A connection serves one call at a time and goes back to the pool only if its answer has come to the end and nothing
else came. Whatever else happens to a call ends the connection.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

import httptools

from gateway.providers.http import CONNECT_TIMEOUT_S, IDLE_CONNECTION_S, USER_AGENT, Broken, NotSent, Response, TimedOut, Unpacker

HEAD_BYTES_MAX = 64 << 10
BUFFERED_BYTES_MAX = 256 << 10
"""More than this unread, and the connection is not read until it is."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where a URL leads: the address, TLS or not, and how the request's head begins."""

    host: str
    port: int
    tls: bool
    head: str


Address = tuple[str, int, bool]


class LeanClient:
    """Makes calls over kept connections. Belongs to the loop that made the first call."""

    def __init__(self) -> None:
        self._targets: dict[str, Target] = {}
        self._fresh: dict[Address, list[Connection]] = {}
        self._old: dict[Address, list[Connection]] = {}
        self._busy: set[Connection] = set()
        self._sweep: asyncio.TimerHandle | None = None
        self._tls: ssl.SSLContext | None = None

    async def post(self, url: str, headers: Mapping[str, str], body: bytes, timeout_s: float) -> Response:
        """Sends once; returns when the head of the answer has come. Raises NotSent, Broken, TimedOut."""
        target = self._targets.get(url)
        if target is None:
            target = self._targets[url] = _target(url)
        request = _request(target, headers, body)
        connection = self._kept(target)
        left_s = timeout_s
        if connection is None:
            loop = asyncio.get_running_loop()
            began = loop.time()
            connection = await self._connect(target, timeout_s)
            left_s -= loop.time() - began
        self._busy.add(connection)
        try:
            await connection.ask(request, max(0.0, left_s))
            return LeanResponse(self, connection)
        except BaseException:
            self.drop(connection)
            raise

    async def close(self) -> None:
        """Closes every connection."""
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        for pool in (self._fresh, self._old):
            for connections in pool.values():
                for connection in connections:
                    connection.abort()
            pool.clear()
        for connection in tuple(self._busy):
            self.drop(connection)

    def keep(self, connection: Connection) -> None:
        """Takes back a connection whose answer was read to the end."""
        self._busy.discard(connection)
        self._fresh.setdefault(connection.address, []).append(connection)
        if self._sweep is None:
            self._sweep = connection.loop.call_later(IDLE_CONNECTION_S / 2, self._close_old)

    def drop(self, connection: Connection) -> None:
        """Ends a connection at once."""
        self._busy.discard(connection)
        connection.abort()

    def _kept(self, target: Target) -> Connection | None:
        address = (target.host, target.port, target.tls)
        for pool in (self._fresh, self._old):
            connections = pool.get(address)
            while connections:
                connection = connections.pop()
                if connection.usable:
                    return connection
        return None

    def _close_old(self) -> None:
        """What lay unused for a whole period goes; what is left grows old. Runs once a period while any is kept."""
        for connections in self._old.values():
            for connection in connections:
                connection.abort()
        self._old, self._fresh, self._sweep = self._fresh, {}, None
        if any(self._old.values()):
            loop = asyncio.get_running_loop()
            self._sweep = loop.call_later(IDLE_CONNECTION_S / 2, self._close_old)

    async def _connect(self, target: Target, timeout_s: float) -> Connection:
        loop = asyncio.get_running_loop()
        context = None
        if target.tls:
            context = self._tls = self._tls or ssl.create_default_context()
        try:
            async with asyncio.timeout(min(timeout_s, CONNECT_TIMEOUT_S)):
                _, connection = await loop.create_connection(
                    lambda: Connection(loop, (target.host, target.port, target.tls)),
                    target.host,
                    target.port,
                    ssl=context,
                    server_hostname=target.host if target.tls else None,
                )
        except TimeoutError:
            raise NotSent("no connection in time") from None
        except (OSError, ValueError) as error:
            raise NotSent(_words(error)) from None
        return connection


class LeanResponse:
    """An answer whose head has come."""

    def __init__(self, client: LeanClient, connection: Connection) -> None:
        self._client = client
        self._connection: Connection | None = connection
        self.status = connection.status
        self.headers: Mapping[str, str] = connection.headers
        self._unpack = Unpacker.of(self.headers)

    async def block(self, timeout_s: float) -> bytes:
        """The next bytes as they came, b"" at the end. Raises Broken, TimedOut."""
        connection = self._connection
        if connection is None:
            raise Broken("the answer was closed")
        while True:
            data = await connection.read(timeout_s)
            plain = self._unpack(data) if self._unpack and data else data
            if plain or not data:
                return plain

    def close(self) -> None:
        """Closes the connection at once, or keeps it for the next call if the answer was read to its end."""
        connection, self._connection = self._connection, None
        if connection is not None:
            if connection.reusable:
                self._client.keep(connection)
            else:
                self._client.drop(connection)


class Connection(asyncio.Protocol):
    """One connection: what came of the current answer, and one waiter for more of it."""

    def __init__(self, loop: asyncio.AbstractEventLoop, address: Address) -> None:
        self.loop = loop
        self.address = address
        self._transport: asyncio.Transport | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._deadline = 0.0
        """When the current wait ends."""
        self._asked = False
        self._error: Broken | None = None
        self._paused = False
        self._begin()

    @property
    def usable(self) -> bool:
        """True while the connection stands and nothing came that was not asked for."""
        return self._transport is not None and not self._transport.is_closing() and self._error is None

    @property
    def reusable(self) -> bool:
        """True when the whole answer has come, read or not, and the server keeps the connection."""
        return self._complete and self._keep_alive and not self._surplus and self.usable

    async def ask(self, request: bytes, timeout_s: float) -> None:
        """Sends a request and waits for the head of its answer. Raises NotSent, Broken, TimedOut."""
        self._begin()
        if self._transport is None:
            raise NotSent("the connection was closed")
        self._asked = True
        self._transport.write(request)
        while not self.head_came:
            if self._error is not None:
                raise self._error
            await self._wait(timeout_s, "no answer within")

    async def read(self, timeout_s: float) -> bytes:
        """All bytes of the body that have come since; b"" at its end. Raises Broken, TimedOut."""
        while not self._blocks:
            if self._complete:
                return b""
            if self._error is not None:
                raise self._error
            await self._wait(timeout_s, "nothing came for")
        data = self._blocks[0] if len(self._blocks) == 1 else b"".join(self._blocks)
        self._blocks.clear()
        self._buffered = 0
        if self._paused and self._transport is not None:
            self._paused = False
            self._transport.resume_reading()
        return data

    def abort(self) -> None:
        """Ends the connection at once."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._transport is not None:
            self._transport.abort()
            self._transport = None

    async def _wait(self, timeout_s: float, words: str) -> None:
        self._deadline = deadline = self.loop.time() + timeout_s
        # One timer serves many waits: a new one for each would cost more than the reading.
        if self._timer is None or deadline < self._timer_at:
            self._arm(deadline)
        waiter = self._waiter = self.loop.create_future()
        try:
            await waiter
        except TimeoutError:
            raise TimedOut(f"{words} {timeout_s:.3g} s") from None
        finally:
            self._waiter = None

    def _arm(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timer_at = self.loop.call_at(at, self._time_out), at

    def _time_out(self) -> None:
        """Ends the wait if its own deadline has passed; an earlier wait's timer goes on to the deadline of this one."""
        self._timer = None
        if self._waiter is None or self._waiter.done():
            return
        if self._timer_at >= self._deadline:
            self._waiter.set_exception(TimeoutError())
        else:
            self._arm(self._deadline)

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _begin(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self.status = 0
        self.headers: dict[str, str] = {}
        self.head_came = False
        self._head_bytes = 0
        self._blocks: list[bytes] = []
        self._buffered = 0
        self._complete: bool = False
        self._keep_alive = False
        self._surplus = False

    def _break(self, words: str) -> None:
        self._error = self._error or Broken(words)
        self.abort()
        self._wake()

    # asyncio's calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Small writes go out at once."""
        self._transport = transport  # type: ignore[assignment]
        sock = transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def data_received(self, data: bytes) -> None:
        """Feeds the parser; anything that was not asked for ends the connection."""
        if not self._asked or self._complete:
            self._break("the server sent what was not asked for")
            return
        if not self.head_came:
            self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self._break("the answer is not HTTP")
            return
        if not self.head_came and self._head_bytes > HEAD_BYTES_MAX:
            self._break("the head of the answer is too large")
        elif self._buffered > BUFFERED_BYTES_MAX and not self._complete and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()
        if self.head_came:
            self._wake()

    def connection_lost(self, error: Exception | None) -> None:
        """An answer without a length ends with its connection; any other is broken by it."""
        self._transport = None
        if self.head_came and not self._complete and error is None and self._ends_with_the_connection():
            self._complete = True
        elif not self._complete:
            where = "in the middle of the answer" if self.head_came else "before the answer"
            self._error = self._error or Broken(f"the connection was closed {where}")
        self._wake()

    def _ends_with_the_connection(self) -> bool:
        return "content-length" not in self.headers and "transfer-encoding" not in self.headers

    # the parser's calls

    def on_message_begin(self) -> None:
        """A second answer to one request: its connection serves no further call."""
        if self._complete:
            self._surplus = True

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header, or one trailer after the body, which is dropped."""
        if not self.head_came:
            self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """The head is whole; one of an interim answer (1xx) is forgotten."""
        self.status = self._parser.get_status_code()
        if self.status >= 200:
            self.head_came = True
        else:
            self.headers.clear()

    def on_body(self, body: bytes) -> None:
        """A piece of the body."""
        if self._complete:
            return
        self._blocks.append(body)
        self._buffered += len(body)

    def on_message_complete(self) -> None:
        """The end of the body; an interim answer has none."""
        if self.head_came and not self._complete:
            self._complete = True
            self._keep_alive = self._parser.should_keep_alive()


def _target(url: str) -> Target:
    try:
        parts = urlsplit(url)
        tls = {"http": False, "https": True}[parts.scheme]
        host, port = parts.hostname or "", parts.port or (443 if tls else 80)
        (parts.path + parts.query + parts.netloc).encode("ascii")
    except (ValueError, KeyError):
        raise NotSent("the base URL is not a URL") from None
    if not host or any(character.isspace() for character in url):
        raise NotSent("the base URL is not a URL")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    named = parts.netloc.rpartition("@")[2]
    head = (
        f"POST {path} HTTP/1.1\r\nHost: {named}\r\nUser-Agent: {USER_AGENT}\r\nAccept: */*\r\n"
        "Accept-Encoding: identity\r\nContent-Type: application/json\r\n"
    )
    return Target(host, port, tls, head)


def _request(target: Target, headers: Mapping[str, str], body: bytes) -> bytes:
    lines = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
    if lines.count("\n") != len(headers) or lines.count("\r") != len(headers):
        raise NotSent("a header holds a line break")
    try:
        head = f"{target.head}{lines}Content-Length: {len(body)}\r\n\r\n".encode("latin-1")
    except UnicodeEncodeError:
        raise NotSent("a header holds characters that HTTP cannot carry") from None
    return head + body


def _words(error: Exception) -> str:
    """Why there is no connection, in short, without the URL."""
    if isinstance(error, socket.gaierror):
        return "the host's name is not known"
    if isinstance(error, ssl.SSLError | ssl.CertificateError):
        return "the TLS connection could not be made"
    reason = error.strerror if isinstance(error, OSError) else None
    return f"no connection: {reason or type(error).__name__}"
