"""The load: a fixed number of connections to loopback, each with one request after the other, bounded in time and count."""

from __future__ import annotations

import asyncio
import socket
import statistics
import time
from dataclasses import dataclass
from urllib.parse import urlsplit

import httptools
import orjson

REQUESTS_MAX = 100_000


@dataclass(frozen=True, slots=True)
class Round:
    """One round's figures. Times in milliseconds."""

    requests: int
    per_s: float
    p50_ms: float
    p99_ms: float
    first_p50_ms: float
    """Until the first byte of the body."""
    first_p99_ms: float


class Client(asyncio.Protocol):
    """One connection. Stops asking at `until`, or when the round has asked for enough."""

    def __init__(self, request: bytes, until: float, ended: asyncio.Future[None], counts: Counts) -> None:
        self.request, self.until, self.ended, self.counts = request, until, ended, counts
        self.parser = httptools.HttpResponseParser(self)

    def connection_made(self, transport: asyncio.Transport) -> None:
        self.transport = transport
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.ask()

    def ask(self) -> None:
        self.started = time.perf_counter()
        self.first = 0.0
        if self.started >= self.until or self.counts.asked >= self.counts.most:
            self.transport.close()
            return
        self.counts.asked += 1
        self.transport.write(self.request)

    def data_received(self, data: bytes) -> None:
        self.parser.feed_data(data)

    def on_body(self, _: bytes) -> None:
        if not self.first:
            self.first = time.perf_counter() - self.started

    def on_message_complete(self) -> None:
        status = self.parser.get_status_code()
        if status != 200:
            self.fail(RuntimeError(f"the server answered {status}"))
            return
        self.counts.totals.append(time.perf_counter() - self.started)
        self.counts.firsts.append(self.first)
        # Not from inside the parser: a new answer may begin in the same read.
        asyncio.get_running_loop().call_soon(self.begin_again)

    def begin_again(self) -> None:
        self.parser = httptools.HttpResponseParser(self)
        self.ask()

    def fail(self, error: Exception) -> None:
        if not self.ended.done():
            self.ended.set_exception(error)
        self.transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        if not self.ended.done():
            if error or (time.perf_counter() < self.until and self.counts.asked < self.counts.most):
                self.ended.set_exception(error or RuntimeError("the server closed a connection"))
            else:
                self.ended.set_result(None)


@dataclass(slots=True)
class Counts:
    """What the connections of a round have done together. Times in seconds."""

    most: int
    totals: list[float]
    firsts: list[float]
    asked: int = 0


def percentile_ms(times: list[float], percent: int) -> float:
    """A percentile, in milliseconds."""
    return statistics.quantiles(times, n=100, method="inclusive")[percent - 1] * 1000 if len(times) > 1 else times[0] * 1000


async def measure(
    url: str, *, key: str, connections: int, stream: bool, seconds: float, model: str = "default", most: int = REQUESTS_MAX
) -> Round:
    """One round. Raises RuntimeError on any answer but 200, and for any address that is not loopback."""
    host, port = urlsplit(url).hostname, urlsplit(url).port
    if host != "127.0.0.1" or port is None:
        raise RuntimeError("load goes to 127.0.0.1 only")
    body = orjson.dumps(
        {
            "model": model,
            "messages": [
                {"role": "system", "content": "You are a helpful assistant."},
                {"role": "user", "content": "Say in two sentences what a sluice gate is for, please."},
            ],
            "max_tokens": 64,
            **({"stream": True, "stream_options": {"include_usage": True}} if stream else {}),
        }
    )
    head = f"POST {urlsplit(url).path} HTTP/1.1\r\nhost: {host}:{port}\r\nauthorization: Bearer {key}\r\n"
    request = f"{head}content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body
    counts, loop = Counts(most, [], []), asyncio.get_running_loop()
    began = time.perf_counter()
    endings = [loop.create_future() for _ in range(connections)]
    for ended in endings:
        await loop.create_connection(lambda ended=ended: Client(request, began + seconds, ended, counts), host, port)  # type: ignore[misc]
    async with asyncio.timeout(seconds + 30):
        await asyncio.gather(*endings)
    took = time.perf_counter() - began
    totals, firsts = counts.totals, counts.firsts
    return Round(
        len(totals),
        len(totals) / took,
        percentile_ms(totals, 50),
        percentile_ms(totals, 99),
        percentile_ms(firsts, 50),
        percentile_ms(firsts, 99),
    )
