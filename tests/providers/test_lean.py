"""The lean HTTP client against a server that says byte for byte what the test wants."""

from __future__ import annotations

import asyncio
import gzip
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.providers.http import Broken, HttpClient, NotSent, TimedOut
from gateway.providers.lean import LeanClient

WAIT_S = 30.0
"""A time-out that nothing but a fault reaches: the machine may be busy with other things."""
DATA = Path(__file__).parent.parent / "data"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Kind: plain\r\n\r\nok"


class Server:
    """Answers each request with the next of `answers`; a bare float is a wait, None closes, "reset" resets."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}/v1/chat?x=1"
        self.answers: list[list[bytes | float | str | None]] = []
        self.requests: list[bytes] = []
        self.connections = 0
        self.said = 0
        """How many parts of answers were said, or waited for, so far."""
        self.closed = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
                self.requests.append(head + await reader.readexactly(length))
                for part in self.answers.pop(0):
                    if isinstance(part, bytes):
                        writer.write(part)
                        await writer.drain()
                    elif isinstance(part, float):
                        await asyncio.sleep(part)
                    else:
                        if part == "reset":
                            writer.transport.abort()
                        return
                    self.said += 1
        except (asyncio.IncompleteReadError, ConnectionError):
            self.closed.set()
        finally:
            writer.close()

    async def until(self, said: int) -> None:
        """Waits until so much was said, and a moment more: then it has also come."""
        async with asyncio.timeout(WAIT_S):
            while self.said < said:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    holder: list[Server] = []
    listener = await asyncio.start_server(lambda reader, writer: holder[0].serve(reader, writer), "127.0.0.1", 0)
    holder.append(Server(listener.sockets[0].getsockname()[1]))
    yield holder[0]
    listener.close()


@pytest.fixture
async def client() -> AsyncIterator[HttpClient]:
    made = LeanClient()
    yield made
    await made.close()


async def whole(client: HttpClient, server: Server) -> bytes:
    response = await client.post(server.url, {"Authorization": "Bearer k"}, b"{}", WAIT_S)
    data = b""
    try:
        while block := await response.block(WAIT_S):
            data += block
    finally:
        response.close()
    return data


async def test_a_call_is_sent_as_asked_and_its_connection_serves_the_next(client: HttpClient, server: Server) -> None:
    server.answers = [[OK], [OK]]
    assert [await whole(client, server), await whole(client, server)] == [b"ok", b"ok"]
    assert server.connections == 1
    head, _, body = server.requests[0].partition(b"\r\n\r\n")
    assert head.startswith(b"POST /v1/chat?x=1 HTTP/1.1\r\n")
    assert b"\r\nAuthorization: Bearer k\r\n" in head
    assert b"\r\nContent-Length: 2" in head
    assert body == b"{}"


async def test_status_and_headers_come_before_the_body(client: HttpClient, server: Server) -> None:
    server.answers = [[b"HTTP/1.1 429 Slow\r\nRetry-After: 3\r\nContent-Length: 2\r\n\r\n", 0.05, b"no"]]
    response = await client.post(server.url, {}, b"{}", WAIT_S)
    assert (response.status, response.headers["retry-after"]) == (429, "3")
    assert await response.block(WAIT_S) == b"no"
    assert await response.block(WAIT_S) == b""
    response.close()


@pytest.mark.parametrize(
    ("parts", "body"),
    [
        ([b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", b"2\r\nde\r\n0\r\n\r\n"], b"abcde"),
        ([b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nX-Trailer: 1\r\n\r\n"], b"a"),
        ([b"HTTP/1.0 200 OK\r\n\r\nuntil ", b"the end", None], b"until the end"),
        ([b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 Early\r\nX: 1\r\n\r\n" + OK], b"ok"),
        ([*(OK[at : at + 1] for at in range(len(OK)))], b"ok"),
        ([b"HTTP/1.1 204 No Content\r\n\r\n"], b""),
    ],
    ids=["chunked", "trailer", "until close", "interim", "byte by byte", "no content"],
)
async def test_every_framing(client: HttpClient, server: Server, parts: list[bytes | float | str | None], body: bytes) -> None:
    server.answers = [parts, [OK]]
    assert await whole(client, server) == body
    assert await whole(client, server) == b"ok"


async def test_gzip_is_understood(client: HttpClient, server: Server) -> None:
    packed = gzip.compress(b"words " * 100)
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(packed)
    server.answers = [[head + packed[:20], 0.02, packed[20:]]]
    assert await whole(client, server) == b"words " * 100


@pytest.mark.parametrize(
    "parts",
    [
        [None],
        ["reset"],
        [b"HTTP/1.1 200 OK\r\nContent-Le", None],
        [b"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\nhalf", None],
        [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhal", None],
        [b"SSH-2.0-nonsense\r\n\r\n"],
        [b"HTTP/1.1 200 OK\r\nX: " + b"x" * 70_000],
    ],
    ids=["closed", "reset", "cut head", "cut length", "cut chunk", "no HTTP", "large head"],
)
async def test_what_breaks_after_sending_is_broken_and_never_repeated(
    client: HttpClient, server: Server, parts: list[bytes | float | str | None]
) -> None:
    server.answers = [parts, [OK]]
    with pytest.raises(Broken):
        await whole(client, server)
    assert len(server.requests) == 1
    assert await whole(client, server) == b"ok"
    assert server.connections == 2


async def test_no_connection_is_not_sent(client: HttpClient) -> None:
    with pytest.raises(NotSent):
        await client.post("http://127.0.0.1:1/", {}, b"{}", WAIT_S)
    with pytest.raises(NotSent, match="not a URL"):
        await client.post("ftp://127.0.0.1/", {}, b"{}", WAIT_S)
    with pytest.raises(NotSent, match="line break"):
        await client.post("http://127.0.0.1:1/", {"X": "a\r\nY: b"}, b"{}", WAIT_S)


@pytest.mark.parametrize("trusted", [True, False])
async def test_tls_checks_the_server(trusted: bool, client: HttpClient, monkeypatch: pytest.MonkeyPatch) -> None:
    if trusted:
        monkeypatch.setenv("SSL_CERT_FILE", str(DATA / "localhost.crt"))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(DATA / "localhost.crt", DATA / "localhost.key")
    server = Server(0)
    server.answers = [[OK], [OK]]
    listener = await asyncio.start_server(server.serve, "localhost", 0, ssl=context)
    port = listener.sockets[0].getsockname()[1]
    server.url = f"https://localhost:{port}/"
    if trusted:
        assert [await whole(client, server), await whole(client, server)] == [b"ok", b"ok"]
        assert server.connections == 1
        server.url = f"https://127.0.0.1:{port}/"
    with pytest.raises(NotSent, match="TLS"):
        await whole(client, server)
    listener.close()


async def test_silence_times_out_before_and_in_the_answer(client: HttpClient, server: Server) -> None:
    server.answers = [[5.0], [b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc", 5.0]]
    with pytest.raises(TimedOut, match="no answer"):
        await client.post(server.url, {}, b"{}", 0.05)
    response = await client.post(server.url, {}, b"{}", WAIT_S)
    assert await response.block(WAIT_S) == b"abc"
    with pytest.raises(TimedOut, match="nothing came"):
        await response.block(0.05)
    response.close()


@pytest.mark.parametrize("read_first", [False, True])
async def test_leaving_closes_the_connection_at_once(client: HttpClient, server: Server, read_first: bool) -> None:
    server.answers = [
        [b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nabc", 0.1, b"d", 0.1, b"e", 0.1, b"f"] if read_first else [0.3, OK]
    ]
    call = asyncio.ensure_future(whole(client, server))
    async with asyncio.timeout(WAIT_S):
        while not server.requests or server.said < read_first:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await asyncio.wait_for(server.closed.wait(), WAIT_S)


async def test_a_kept_connection_that_the_server_closed_is_not_used(client: HttpClient, server: Server) -> None:
    server.answers = [[OK, None], [OK]]
    assert await whole(client, server) == b"ok"
    await asyncio.sleep(0.05)
    assert await whole(client, server) == b"ok"
    assert server.connections == 2


@pytest.mark.parametrize(
    "spoil",
    [
        [OK + OK],
        [OK, 0.02, b"more"],
        [OK.replace(b"\r\nX-Kind", b"\r\nConnection: close\r\nX-Kind")],
    ],
    ids=["two answers", "more later", "connection: close"],
)
async def test_a_connection_that_says_more_or_ends_serves_no_further_call(
    client: HttpClient, server: Server, spoil: list[bytes | float | str | None]
) -> None:
    server.answers = [spoil, [OK]]
    assert await whole(client, server) == b"ok"
    await server.until(len(spoil))
    assert await whole(client, server) == b"ok"
    assert server.connections == 2


async def test_the_connection_of_an_answer_that_is_still_coming_is_not_reused(client: HttpClient, server: Server) -> None:
    server.answers = [[OK[:-1], 0.2, OK[-1:]], [OK]]
    response = await client.post(server.url, {}, b"{}", WAIT_S)
    response.close()
    assert await whole(client, server) == b"ok"
    assert server.connections == 2


async def test_a_reader_that_is_slow_holds_the_server_back(client: HttpClient, server: Server) -> None:
    size = 8 << 20
    sent: list[int] = []

    def head() -> bytes:
        return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size

    class Counting(list):  # type: ignore[type-arg]
        def __iter__(self):  # type: ignore[no-untyped-def]
            yield head()
            for _ in range(size >> 16):
                sent.append(1 << 16)
                yield b"x" * (1 << 16)

    server.answers = [Counting()]
    response = await client.post(server.url, {}, b"{}", WAIT_S)
    await asyncio.sleep(0.2)
    assert sum(sent) < size
    total = 0
    while block := await response.block(WAIT_S):
        total += len(block)
    assert total == size
    response.close()


async def test_many_at_once_do_not_mix(client: HttpClient, server: Server) -> None:
    def answer(number: int) -> bytes:
        body = b"%d" % number
        return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body

    server.answers = [[0.01, answer(number)] for number in range(40)]
    replies = await asyncio.gather(*(whole(client, server) for _ in range(40)))
    assert sorted(map(int, replies)) == list(range(40))


async def test_an_unused_connection_is_closed_in_time(
    client: HttpClient, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.providers.lean.IDLE_CONNECTION_S", 0.1)
    server.answers = [[OK]]
    await whole(client, server)
    await asyncio.wait_for(server.closed.wait(), WAIT_S)
