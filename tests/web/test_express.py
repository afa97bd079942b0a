"""The short way and the other server behind it, byte by byte: whose request it is, order, early bytes, slow and gone clients."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import orjson
import pytest

from gateway.chat import Chunk, Completion, Usage
from gateway.dispatcher import Begun
from gateway.web import express
from tests.web.shell import SLOT, Shell, shell

RAW = b'{"id":"x", "choices":[{"message":{"content":"hi"}}] , "vendor":1}'
WHOLE = Completion("hi", "stop", "kimi", Usage(3, 2), orjson.loads(RAW), RAW)
BEGUN = Begun(SLOT, "default", ())
FINISH = Chunk(finish_reason="stop", raw=b'{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}')
PLAIN: dict[str, Any] = {"model": "default", "messages": [{"role": "user", "content": "hello"}]}


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes


@dataclass
class Wire:
    """One connection to the server, as bytes."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def send(self, *parts: bytes) -> None:
        self.writer.write(b"".join(parts))

    async def answer(self) -> Answer:
        async with asyncio.timeout(30):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)
            if headers.get("transfer-encoding") == "chunked":
                body = b""
                while size := int(await self.reader.readline(), 16):
                    body += (await self.reader.readexactly(size + 2))[:-2]
                await self.reader.readline()
            else:
                body = await self.reader.readexactly(int(headers["content-length"]))
        return Answer(int(head[0].split()[1]), headers, body)

    async def rest(self) -> bytes:
        async with asyncio.timeout(30):
            return await self.reader.read()


@asynccontextmanager
async def wire(web: Shell) -> AsyncIterator[Wire]:
    reader, writer = await asyncio.open_connection("127.0.0.1", int(web.base.rsplit(":", 1)[1]))
    try:
        yield Wire(reader, writer)
    finally:
        writer.close()


def request(body: dict[str, Any] | bytes = PLAIN, *lines: str, key: str = "sk-user", path: str = "/v1/chat/completions") -> bytes:
    data = body if isinstance(body, bytes) else orjson.dumps(body)
    own = [f"POST {path} HTTP/1.1", "Host: x", f"Authorization: Bearer {key}"]
    sized = [] if any(line.startswith("Transfer-Encoding") for line in lines) else [f"Content-Length: {len(data)}"]
    return "\r\n".join([*own, *sized, *lines, "", ""]).encode() + data


def error_code(answer: Answer) -> str:
    error = orjson.loads(answer.body)["error"]
    assert error["request_id"] == answer.headers["x-sluicegate-request-id"]
    return str(error["code"])


def taken_short(web: Shell) -> int:
    """How many connections are still on the short way."""
    assert web.server._express is not None
    return len(web.server._express.connections)


async def test_an_answer_names_its_length_and_time_and_the_connection_is_kept() -> None:
    async with shell(WHOLE, WHOLE) as web, wire(web) as client:
        for _ in range(2):
            client.send(request())
            answer = await client.answer()
            assert (answer.status, answer.body) == (200, RAW)
            assert answer.headers["date"].endswith(" gmt")
            assert "connection" not in answer.headers
        assert taken_short(web) == 1


async def test_a_client_that_says_so_has_its_connection_closed_after_the_answer() -> None:
    async with shell(WHOLE) as web, wire(web) as client:
        client.send(request(PLAIN, "Connection: close"))
        answer = await client.answer()
        assert (answer.body, answer.headers["connection"]) == (RAW, "close")
        assert await client.rest() == b""


async def test_a_request_may_come_byte_by_byte() -> None:
    async with shell(WHOLE) as web, wire(web) as client:
        for byte in request():
            client.send(bytes([byte]))
            await client.writer.drain()
            await asyncio.sleep(0)
        assert (await client.answer()).body == RAW
        assert taken_short(web) == 1


CHUNKED = b"%x\r\n%b\r\n0\r\n\r\n" % (len(orjson.dumps(PLAIN)), orjson.dumps(PLAIN))


@pytest.mark.parametrize(
    "sent",
    [
        request(CHUNKED, "Transfer-Encoding: chunked"),
        request(PLAIN, "Upgrade: websocket", "Connection: upgrade"),
        request({**PLAIN, "user": "x" * express.BODY_BYTES_MAX}),
        request(path="/v1/chat/completions?x=1"),
        request().replace(b"HTTP/1.1", b"HTTP/1.0"),
    ],
    ids=["chunked", "upgrade", "large", "query", "HTTP/1.0"],
)
async def test_an_unusual_request_is_answered_all_the_same_the_long_way(sent: bytes) -> None:
    async with shell(WHOLE) as web, wire(web) as client:
        client.send(sent)
        answer = await client.answer()
        assert (answer.status, answer.body) == (200, RAW)
        assert answer.headers["x-sluicegate-request-id"] == web.played.asked[0][2].request_id
        assert taken_short(web) == 0


async def test_a_client_that_waits_to_be_told_to_go_on_is_told() -> None:
    async with shell(WHOLE) as web, wire(web) as client:
        sent = request(PLAIN, "Expect: 100-continue")
        at = sent.index(b"\r\n\r\n") + 4
        client.send(sent[:at])
        assert (await client.reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100 ")
        client.send(sent[at:])
        assert (await client.answer()).body == RAW


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (request(PLAIN, "X-Large: " + "x" * (express.HEAD_BYTES_MAX + 100)), 400),
        (b"POST /v1/chat/completions HTTP/1.1\r\nX-Endless: " + b"x" * (express.HEAD_BYTES_MAX + 100), 400),
        (b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 1x\r\n\r\n", 400),
        (b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}", 400),
        (request(CHUNKED, "Transfer-Encoding: chunked", "Content-Length: 3"), 400),
        (b"NONSENSE\r\n\r\n", 400),
    ],
    ids=["large header", "endless header", "no length", "two lengths", "length and chunks", "no HTTP"],
)
async def test_a_head_that_is_none_reaches_nobody(sent: bytes, status: int) -> None:
    async with shell(WHOLE) as web, wire(web) as client:
        client.send(sent)
        assert (await client.answer()).status == status
        assert not web.played.asked


async def test_one_connection_serves_every_address_whatever_comes_first() -> None:
    async with shell(WHOLE, WHOLE) as web, wire(web) as client:
        client.send(request())
        assert (await client.answer()).body == RAW
        client.send(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert orjson.loads((await client.answer()).body) == {"status": "ok"}
        client.send(request())
        assert (await client.answer()).body == RAW


@pytest.mark.parametrize("together", [True, False])
async def test_requests_sent_ahead_are_answered_in_order(together: bool) -> None:
    answers = [Completion("hi", "stop", "kimi", None, {"number": number}) for number in range(3)]
    async with shell(*answers) as web, wire(web) as client:
        if together:
            client.send(request(), request(), request())
        else:
            client.send(request())
            await _until(lambda: len(web.played.asked) == 1)
            client.send(request(), request())
        assert [orjson.loads((await client.answer()).body)["number"] for _ in range(3)] == [0, 1, 2]


async def test_a_request_and_the_beginning_of_the_next_in_one_piece_are_two() -> None:
    answers = [Completion("hi", "stop", "kimi", None, {"number": number}) for number in range(2)]
    async with shell(*answers) as web, wire(web) as client:
        second = request()
        client.send(request(), second[:20])
        assert orjson.loads((await client.answer()).body)["number"] == 0
        client.send(second[20:])
        assert orjson.loads((await client.answer()).body)["number"] == 1


async def test_many_requests_sent_ahead_are_all_answered() -> None:
    sent = [request({**PLAIN, "user": "x" * 100_000})] * 20
    async with shell("settle", *[WHOLE] * 21) as web, wire(web) as client:
        client.send(request())
        await _until(lambda: len(web.played.asked) == 1)
        early = asyncio.create_task(_send_all(client, sent))
        await asyncio.sleep(0.1)
        assert len(web.played.asked) == 1
        web.played.settle.set()
        for _ in range(21):
            assert (await client.answer()).status == 200
        await early


async def test_what_comes_early_is_kept_within_bounds() -> None:
    async with shell(BEGUN, FINISH, "settle") as web, wire(web) as client:
        client.send(request({**PLAIN, "stream": True}))
        await client.reader.readuntil(b"\r\n\r\n")
        web.played.plays = [WHOLE]
        filler = {**PLAIN, "user": "x" * 200_000}
        early = asyncio.create_task(_send_all(client, [request(filler)] * 100))
        await asyncio.sleep(0.1)
        assert not early.done(), "twenty megabytes were taken in"
        early.cancel()


async def test_a_wrong_key_and_a_wrong_body_are_refused_and_the_connection_kept() -> None:
    async with shell(WHOLE) as web, wire(web) as client:
        for sent, status, code in (
            (request(key="sk-wrong"), 401, "unauthorized"),
            (request(b"not JSON"), 400, "invalid_request"),
            (request({**PLAIN, "model": ""}), 400, "invalid_request"),
        ):
            client.send(sent)
            answer = await client.answer()
            assert (answer.status, error_code(answer)) == (status, code)
        client.send(request())
        assert (await client.answer()).status == 200
        assert taken_short(web) == 1


async def test_of_two_keys_the_first_counts() -> None:
    async with shell(WHOLE) as web, wire(web) as client:
        client.send(request(PLAIN, "Authorization: Bearer sk-admin"))
        await client.answer()
        assert web.played.asked[0][2].key == "app"


async def test_a_client_that_reads_slowly_holds_its_stream_up() -> None:
    big = Chunk(text="x", visible=True, raw=b'{"choices":[],"x":"' + b"x" * 500_000 + b'"}')
    async with shell(BEGUN, *[big] * 100, FINISH) as web:
        with socket.create_connection(("127.0.0.1", int(web.base.rsplit(":", 1)[1]))) as client:
            client.setblocking(False)
            loop = asyncio.get_running_loop()
            await loop.sock_sendall(client, request({**PLAIN, "stream": True}))
            await _until(lambda: web.metrics.streams_open._value.get() == 1)
            await asyncio.sleep(0.1)
            assert web.metrics.streams_done._value.get() == 0, "fifty megabytes were buffered"
            came = 0
            async with asyncio.timeout(20):
                while web.metrics.streams_done._value.get() == 0:
                    came += len(await loop.sock_recv(client, 1 << 20))
            # What the system holds for both ends differs from machine to machine, up to some ten megabytes.
            assert came > 25_000_000


async def test_a_client_that_leaves_while_it_is_waited_for_ends_its_stream() -> None:
    big = Chunk(text="x", visible=True, raw=b'{"choices":[],"x":"' + b"x" * 500_000 + b'"}')
    async with shell(BEGUN, *[big] * 100, FINISH) as web:
        async with wire(web) as client:
            client.send(request({**PLAIN, "stream": True}))
            await _until(lambda: web.metrics.streams_open._value.get() == 1)
            client.writer.transport.abort()
        await _until(lambda: web.played.closed == 1)
        assert web.metrics.streams_left._value.get() == 1


async def test_a_connection_on_which_nothing_comes_is_closed_but_not_one_that_is_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(express, "KEEPALIVE_S", 0.05)
    async with shell("wait") as web, wire(web) as idle, wire(web) as busy:
        busy.send(request())
        await web.played.waiting.wait()
        assert await idle.rest() == b""
        assert taken_short(web) == 1


async def test_a_stop_closes_idle_connections_at_once() -> None:
    async with shell(WHOLE) as web, wire(web) as client:
        client.send(request())
        await client.answer()
        await asyncio.wait_for(web.server.stop(), 5)
        assert await client.rest() == b""


async def _send_all(client: Wire, parts: list[bytes]) -> None:
    for part in parts:
        client.send(part)
        await client.writer.drain()


async def _until(true: Any) -> None:
    async with asyncio.timeout(30):
        while not true():  # noqa: ASYNC110 - any condition, of any object
            await asyncio.sleep(0.005)
