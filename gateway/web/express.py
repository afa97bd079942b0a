"""The short way for the one request that matters: POST /v1/chat/completions, straight from the socket to its handler.

A general server spends more on such a request than the gate does. Here it is one parser, one task and one write.

- A connection begins here. The first request on it that is not the plain case (another address or method, a chunked,
  packed or large body, `Expect`, a large or a broken head, a second request sent before the first was taken) makes it
  the other server's, with every byte that came of it, and for good. So nothing is refused here that is not refused there.
- Requests on a connection are answered one after the other; what comes early waits, within bounds.
- A client that leaves cancels its request. A slow one is waited for.
"""

from __future__ import annotations

import asyncio
import email.utils
import socket
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus

import httptools

from gateway.clock import Clock
from gateway.store.keys import Key, Keys
from gateway.web.auth import admitted, new_request_id
from gateway.web.doors import door_of
from gateway.web.exchange import Exchange, Whole
from gateway.web.failures import failure, refusal
from gateway.web.metrics import Metrics

PATH = b"/v1/chat/completions"
DOOR = door_of("POST", PATH.decode())
HEAD_BYTES_MAX = 8 << 10
BODY_BYTES_MAX = 256 << 10
EARLY_BYTES_MAX = 64 << 10
"""Bytes of later requests that are kept while one is answered; with more, the connection is not read."""
KEEPALIVE_S = 75.0
"""A connection on which nothing came for this long is closed, at the latest after twice as long."""
_OTHERS = frozenset((b"expect", b"transfer-encoding", b"content-encoding", b"upgrade"))
"""Headers of requests that are the other server's."""

Chat = Callable[[Exchange, Key], Awaitable[Whole | None]]
"""Answers a key's request: gives the answer in one piece, or None once it was streamed."""


class Express:
    """The connections that one listening socket has taken and no other server serves."""

    def __init__(self, chat: Chat, keys: Keys, other: Callable[[], asyncio.Protocol], metrics: Metrics, clock: Clock) -> None:
        self.chat, self.keys, self.other, self.metrics, self.clock = chat, keys, other, metrics, clock
        self.connections: set[Connection] = set()
        self.stopping = False
        self._loop = asyncio.get_running_loop()
        self._sweep: asyncio.TimerHandle = self._loop.call_later(KEEPALIVE_S, self._close_idle)
        self._date, self._date_until = "", 0.0

    def __call__(self) -> Connection:
        """The protocol of a new connection."""
        return Connection(self, self._loop)

    async def stop(self, grace_s: float) -> None:
        """Takes no new requests, waits for those under way for at most `grace_s`, then cancels them."""
        self.stopping = True
        self._sweep.cancel()
        busy = [connection.task for connection in self.connections if connection.task is not None]
        for connection in tuple(self.connections):
            if connection.task is None:
                connection.close()
        if busy:
            _, late = await asyncio.wait(busy, timeout=grace_s)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        for connection in tuple(self.connections):
            connection.close()

    def date(self) -> str:
        """The time as a header has it, made once a second."""
        if self._loop.time() >= self._date_until:
            self._date = email.utils.format_datetime(self.clock.now(), usegmt=True)
            self._date_until = self._loop.time() + 1.0
        return self._date

    def _close_idle(self) -> None:
        for connection in tuple(self.connections):
            if not connection.heard and connection.task is None:
                connection.close()
            connection.heard = False
        self._sweep = self._loop.call_later(KEEPALIVE_S, self._close_idle)


class Connection(asyncio.Protocol):
    """One client's connection: what came of its next request, and the task that answers the current one."""

    def __init__(self, express: Express, loop: asyncio.AbstractEventLoop) -> None:
        self.task: asyncio.Task[None] | None = None
        self.heard = True
        """True when something came since the last look at idle connections."""
        self.transport: asyncio.Transport | None = None
        self._express, self._loop = express, loop
        self._parser = httptools.HttpRequestParser(self)
        self._came: list[bytes] = []
        """Every byte of the request that is being read."""
        self._early: list[bytes] = []
        """What came while a request was answered."""
        self._early_bytes = 0
        self._room: asyncio.Future[None] | None = None
        """Done when the client has read enough; None while it keeps up."""
        self._begin()

    def close(self) -> None:
        """Closes the connection once what was written is out."""
        if self.transport is not None:
            self.transport.close()

    async def send(self, data: bytes) -> None:
        """Writes, and waits for a slow reader. Raises ConnectionResetError."""
        transport = self.transport
        if transport is None or transport.is_closing():
            raise ConnectionResetError("the client has left")
        transport.write(data)
        if self._room is not None:
            await self._room

    def head(self, status: int, headers: Mapping[str, str], framing: str, *, keep: bool) -> bytes:
        """The head of an answer. Raises ValueError for a header that is none."""
        lines = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
        if lines.count("\n") != len(headers) or lines.count("\r") != len(headers):
            raise ValueError("a header holds a line break")
        last = "" if keep else "Connection: close\r\n"
        reason = HTTPStatus(status).phrase
        return f"HTTP/1.1 {status} {reason}\r\n{lines}{framing}\r\nDate: {self._express.date()}\r\n{last}\r\n".encode()

    async def _answer(self, asked: _Asked) -> None:
        """One request to its end, whatever happens; then the next one."""
        express, keep = self._express, False
        try:
            status, answer = await self._answered(asked)
            express.metrics.answered(status)
            if answer:
                await self.send(answer)
            keep = asked.keep and not express.stopping
        except ConnectionError:
            # The client has left: there is nobody to be told.
            pass
        finally:
            self.task = None
            self._next(keep)

    async def _answered(self, asked: _Asked) -> tuple[int, bytes]:
        """The status and the bytes of the answer; b"" where it was streamed."""
        try:
            key = await admitted(asked.header("authorization"), DOOR, self._express.keys)
            asked.by_admin = key.admin
            whole = await self._express.chat(asked, key)
            return (200, b"") if whole is None else (whole.status, self._packed(whole, asked.keep))
        except ConnectionError:
            raise
        except Exception as error:
            found = failure(error, asked.request_id, self._express.clock.now(), admin=asked.by_admin)
            return found.status, self._packed(refusal(found, asked.request_id), asked.keep)

    def _packed(self, whole: Whole, keep: bool) -> bytes:
        return self.head(whole.status, whole.headers, f"Content-Length: {len(whole.body)}", keep=keep) + whole.body

    def _next(self, keep: bool) -> None:
        transport = self.transport
        if transport is None:
            return
        if not keep:
            transport.close()
        elif self._early:
            early = b"".join(self._early)
            if self._early_bytes > EARLY_BYTES_MAX:
                transport.resume_reading()
            self._early.clear()
            self._early_bytes = 0
            self.data_received(early)

    def _begin(self) -> None:
        self._url = b""
        self._headers: dict[bytes, bytes] = {}
        self._head_bytes = self._came_bytes = 0
        self._blocks: list[bytes] = []
        self._head_came = self._complete = self._others = self._keep = False
        self._came.clear()

    def _hand_over(self) -> None:
        """From here on the connection is the other server's, as if it had been so from the first byte of this request."""
        transport, self.transport = self.transport, None
        assert transport is not None, "bytes come on a connection"
        self._express.connections.discard(self)
        other = self._express.other()
        transport.set_protocol(other)
        other.connection_made(transport)
        if self._room is not None:
            other.pause_writing()
        other.data_received(b"".join(self._came))
        self._begin()

    # the loop's calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Small writes go out at once, and a client that vanished is noticed in the end."""
        self.transport = transport  # type: ignore[assignment]
        self._express.connections.add(self)
        sock = transport.get_extra_info("socket")
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    def data_received(self, data: bytes) -> None:
        """Reads the request on, and begins to answer it when it is whole."""
        self.heard = True
        if self.task is not None:
            self._early.append(data)
            self._early_bytes += len(data)
            if self._early_bytes > EARLY_BYTES_MAX and self.transport is not None:
                self.transport.pause_reading()
            return
        self._came.append(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._others = True
        self._came_bytes += len(data)
        if not self._head_came and self._came_bytes > HEAD_BYTES_MAX:
            self._others = True
        if self._others:
            self._hand_over()
        elif self._complete:
            keep = self._keep and not self._express.stopping
            body = self._blocks[0] if len(self._blocks) == 1 else b"".join(self._blocks)
            asked = _Asked(self, self._headers, body, keep)
            self._begin()
            self.task = self._loop.create_task(self._answer(asked))

    def connection_lost(self, _: Exception | None) -> None:
        """The client has left: its request is cancelled."""
        self.transport = None
        self._express.connections.discard(self)
        if self.task is not None:
            self.task.cancel()

    def pause_writing(self) -> None:
        """The client reads more slowly than it is written to."""
        self._room = self._loop.create_future()

    def resume_writing(self) -> None:
        """The client has caught up."""
        room, self._room = self._room, None
        if room is not None and not room.done():
            room.set_result(None)

    # the parser's calls

    def on_message_begin(self) -> None:
        """A second request in the same bytes."""
        self._others = self._others or self._complete

    def on_url(self, url: bytes) -> None:
        """A piece of the address."""
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header; of several with one name the first counts."""
        self._head_bytes += len(name) + len(value)
        self._headers.setdefault(name.lower(), value)

    def on_headers_complete(self) -> None:
        """Decides whose request it is."""
        self._head_came = True
        headers = self._headers
        plain = (
            self._url == PATH
            and self._parser.get_method() == b"POST"
            and self._parser.get_http_version() == "1.1"
            and self._head_bytes <= HEAD_BYTES_MAX
            and headers.keys().isdisjoint(_OTHERS)
            and int(headers.get(b"content-length", BODY_BYTES_MAX + 1)) <= BODY_BYTES_MAX
        )
        self._others = self._others or not plain

    def on_body(self, body: bytes) -> None:
        """A piece of the body."""
        self._blocks.append(body)

    def on_message_complete(self) -> None:
        """The request is whole."""
        self._complete = True
        self._keep = self._parser.should_keep_alive()


class _Asked:
    """One request, and the exchange on it."""

    __slots__ = ("_body", "_connection", "_head", "_headers", "by_admin", "keep", "request_id")

    def __init__(self, connection: Connection, headers: Mapping[bytes, bytes], body: bytes, keep: bool) -> None:
        self.request_id = new_request_id()
        self.by_admin = False
        self.keep = keep
        """True when the client keeps the connection for its next request."""
        self._connection, self._headers, self._body = connection, headers, body
        self._head = b""
        """The head of a stream that was begun, until it is sent with the first bytes."""

    def rename(self, request_id: str) -> None:
        """Gives the request another id."""
        self.request_id = request_id

    def header(self, name: str) -> str | None:
        """A header of the request."""
        value = self._headers.get(name.encode())
        return None if value is None else value.strip(b" \t").decode("utf-8", "surrogateescape")

    async def body(self) -> bytes:
        """The whole body."""
        return self._body

    async def begin(self, headers: Mapping[str, str]) -> None:
        """Begins a stream; its head goes out with the first bytes."""
        self._head = self._connection.head(200, headers, "Transfer-Encoding: chunked", keep=self.keep)

    async def write(self, data: bytes) -> None:
        """Sends bytes of the stream, as one HTTP chunk. None is not sent: it would be the end."""
        if data:
            head, self._head = self._head, b""
            await self._connection.send(b"%b%x\r\n%b\r\n" % (head, len(data), data))

    async def end(self, data: bytes) -> None:
        """Sends the last bytes of the stream, and its end."""
        head, self._head = self._head, b""
        last = b"%x\r\n%b\r\n" % (len(data), data) if data else b""
        await self._connection.send(b"%b%b0\r\n\r\n" % (head, last))
