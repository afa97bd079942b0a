"""A provider in the OpenAI wire format that answers at once, at the least cost: python -m bench.upstream PORT

The same answer each time, with usage. A body with `"stream":true` gets it as events; a model named `wait-50` gets it after
50 ms, any other one at once.
"""

from __future__ import annotations

import asyncio
import socket
import sys

import httptools
import orjson
import uvloop

WORDS = ("Water flows downhill, and a gate in its way lets through what there is room for. " * 2).split()
USAGE = {"prompt_tokens": 24, "completion_tokens": len(WORDS), "total_tokens": 24 + len(WORDS)}
BASE = {"id": "chatcmpl-bench", "created": 1, "model": "bench"}


def answer() -> bytes:
    """The whole HTTP response to a request that does not stream."""
    message = {"role": "assistant", "content": " ".join(WORDS)}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    body = orjson.dumps({**BASE, "object": "chat.completion", "choices": [choice], "usage": USAGE})
    return b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body) + body


def event(**fields: object) -> bytes:
    """One event in one HTTP chunk, as providers send them."""
    data = b"data: " + orjson.dumps({**BASE, "object": "chat.completion.chunk", **fields}) + b"\n\n"
    return b"%x\r\n%b\r\n" % (len(data), data)


def events() -> list[bytes]:
    """What is written, write by write, for a request that streams: four events each, as a network brings them together."""
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    deltas = [{"role": "assistant", "content": ""}, *({"content": f"{word} "} for word in WORDS)]
    writes = [event(choices=[{"index": 0, "delta": delta, "finish_reason": None}]) for delta in deltas]
    writes.append(event(choices=[{"index": 0, "delta": {}, "finish_reason": "stop"}]))
    writes.append(event(choices=[], usage=USAGE))
    parts = [head + writes[0], *writes[1:], b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"]
    return [b"".join(parts[at : at + 4]) for at in range(0, len(parts), 4)]


ANSWER, EVENTS = answer(), events()


class Connection(asyncio.Protocol):
    """One client's connection; requests on it come one after the other."""

    def connection_made(self, transport: asyncio.Transport) -> None:
        self.transport = transport
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.parser = httptools.HttpRequestParser(self)
        self.body = b""

    def data_received(self, data: bytes) -> None:
        self.parser.feed_data(data)

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        body, self.body = self.body, b""
        if b'"wait-50"' in body:
            asyncio.get_running_loop().call_later(0.05, self.respond, body)
        else:
            self.respond(body)

    def respond(self, body: bytes) -> None:
        if b'"stream":true' in body or b'"stream": true' in body:
            for write in EVENTS:
                self.transport.write(write)
        else:
            self.transport.write(ANSWER)


async def main(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(Connection, "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1])))
