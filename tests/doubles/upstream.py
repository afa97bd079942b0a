"""A scripted upstream over real HTTP, with its own meter: what a provider says it received and billed.

In a test's loop: `async with Upstream() as upstream: upstream.queue.append(Script(…)); upstream.base_url`.
As an own process: `python -m tests.doubles.upstream --port 0` prints `listening PORT`, and is driven by
`GET /__meter`, `POST /__script` ({"default": …, "queue": […], "models": {…}}), `POST /__release`, `POST /__reset`.

The script of a request is, first that exists: its body's own `script`, the queue's next, the model's, the default.
It speaks `POST /v1/chat/completions` and `POST /v1/embeddings` (OpenAI), and `POST /v1/messages` (Anthropic).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import socket
import ssl
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from aiohttp import web

from tests.doubles import wire
from tests.doubles.wire import Event, Plan, Script

__all__ = ["Meter", "Script", "Seen", "Upstream"]


class _Hangup(Exception):
    """The script cuts the connection here."""


@dataclass
class Seen:
    """One request as the upstream saw it. Times are `time.monotonic()` seconds."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]
    model: str
    started: float
    pieces: int = 0
    prompt_billed: int = 0
    output_billed: int = 0
    done: bool = False
    """The answer was sent to its end."""
    client_left: float | None = None
    """When the client's connection was seen to close before the end."""


@dataclass
class Meter:
    """The upstream's own bill. `tokens` is prompt and output together, by model too."""

    requests: int = 0
    answered: int = 0
    prompt_tokens: int = 0
    output_tokens: int = 0
    by_model: dict[str, dict[str, int]] = field(default_factory=dict)
    open_now: int = 0
    waiting: int = 0
    """Requests held at the gate now."""
    client_left: int = 0

    @property
    def tokens(self) -> int:
        """Everything billed."""
        return self.prompt_tokens + self.output_tokens

    def as_json(self) -> dict[str, Any]:
        """For `GET /__meter`."""
        return {**asdict(self), "tokens": self.tokens}


class Upstream:
    """The server. Scripts may be changed at any time; they apply to requests that come later."""

    def __init__(self, default: Script | None = None, *, port: int = 0, tls: ssl.SSLContext | None = None) -> None:
        self.default = default or Script()
        self.queue: deque[Script] = deque()
        self.models: dict[str, Script] = {}
        self.compress = False
        """Every answer is gzipped, whether or not the client can read that."""
        self.meter = Meter()
        self.seen: list[Seen] = []
        self.changed = asyncio.Condition()
        """Notified when a request comes, ends or is left."""
        self._peers: set[object] = set()
        self._released = asyncio.Event()
        self._port, self._tls = port, tls
        self._runner: web.AppRunner | None = None

    @property
    def port(self) -> int:
        """The bound port."""
        return self._port

    @property
    def root(self) -> str:
        """`http://127.0.0.1:PORT`."""
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self._port}"

    @property
    def base_url(self) -> str:
        """What goes into a provider's `base_url`."""
        return f"{self.root}/v1"

    @property
    def connections(self) -> int:
        """How many connections brought requests so far."""
        return len(self._peers)

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=64 << 20)
        app.router.add_post("/v1/chat/completions", self._chat)
        app.router.add_post("/v1/embeddings", self._chat)
        app.router.add_post("/v1/messages", self._messages)
        app.router.add_get("/__meter", self._get_meter)
        app.router.add_post("/__script", self._post_script)
        app.router.add_post("/__release", self._post_release)
        app.router.add_post("/__reset", self._post_reset)
        self._runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=0.2)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self._port, ssl_context=self._tls, backlog=1024)
        await site.start()
        self._port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._runner is not None
        self._released.set()
        await self._runner.cleanup()

    def release(self) -> None:
        """Lets go of every request that is held at the gate, and of those that come later."""
        self._released.set()

    def reset(self) -> None:
        """An empty meter, no scripts, the gate shut."""
        self.default, self.meter = Script(), Meter(open_now=self.meter.open_now, waiting=self.meter.waiting)
        self.queue.clear()
        self.models.clear()
        self.seen.clear()
        self._released.clear()

    async def until(self, condition: Any, timeout_s: float = 30.0) -> None:
        """Waits until `condition()` is true; it is asked again whenever something changed."""
        async with asyncio.timeout(timeout_s), self.changed:
            await self.changed.wait_for(condition)

    # control over HTTP

    async def _get_meter(self, _: web.Request) -> web.Response:
        seen = [{"path": s.path, "model": s.model, "done": s.done, "left": s.client_left is not None} for s in self.seen]
        return web.json_response({**self.meter.as_json(), "seen": seen})

    async def _post_script(self, request: web.Request) -> web.Response:
        given = await request.json()
        if "default" in given:
            self.default = Script(**given["default"])
        self.queue.extend(Script(**one) for one in given.get("queue", ()))
        self.models.update({model: Script(**one) for model, one in given.get("models", {}).items()})
        return web.json_response({"queued": len(self.queue)})

    async def _post_release(self, _: web.Request) -> web.Response:
        self.release()
        return web.json_response({})

    async def _post_reset(self, _: web.Request) -> web.Response:
        self.reset()
        return web.json_response({})

    # the provider

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        return await self._serve(request, anthropic=False)

    async def _messages(self, request: web.Request) -> web.StreamResponse:
        return await self._serve(request, anthropic=True)

    async def _notify(self) -> None:
        async with self.changed:
            self.changed.notify_all()

    async def _serve(self, request: web.Request, *, anthropic: bool) -> web.StreamResponse:
        transport = request.transport
        if transport is not None and not self._tls:
            self._peers.add(transport.get_extra_info("peername"))
            transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        body = await request.json()
        model = str(body.get("model", ""))
        seen = Seen(request.path, dict(request.headers), body, model, time.monotonic())
        own = body.pop("script", None)
        script = Script(**own) if own else self.queue.popleft() if self.queue else self.models.get(model, self.default)
        self.seen.append(seen)
        self.meter.requests += 1
        self.meter.open_now += 1
        self._tally(model)["requests"] += 1
        await self._notify()
        try:
            return await self._answer(request, script, seen, anthropic)
        except _Hangup:
            if request.transport is not None:
                request.transport.abort()
            raise asyncio.CancelledError
        except (asyncio.CancelledError, ConnectionError):
            seen.client_left = time.monotonic()
            self.meter.client_left += 1
            raise
        finally:
            self.meter.open_now -= 1
            self.meter.answered += seen.done
            await asyncio.shield(asyncio.ensure_future(self._notify()))

    async def _answer(self, request: web.Request, script: Script, seen: Seen, anthropic: bool) -> web.StreamResponse:
        if script.gate:
            self.meter.waiting += 1
            try:
                await self._notify()
                await self._released.wait()
            finally:
                self.meter.waiting -= 1
        await asyncio.sleep(script.start_delay_s)
        await self._fault(script, "headers")
        refusal = self._refusal(script, seen.body)
        if refusal is not None:
            return refusal
        if script.body is not None or script.status != 200:
            return self._fixed(script)
        if "input" in seen.body:
            return self._vectors(script, seen)
        made = wire.plan(script, seen.body, seen.model)
        if seen.body.get("stream"):
            return await self._stream(request, made, seen, anthropic)
        await self._fault(script, "first")
        answer, pieces = wire.anthropic_body(made) if anthropic else wire.openai_body(made)
        await asyncio.sleep(script.delay_s * pieces)
        self._bill(seen, made, pieces)
        if isinstance(script.cut, int):
            await self._cut_body(request, answer)
        seen.done = True
        response = web.json_response(answer, headers=script.headers)
        self._pack(response)
        return response

    def _vectors(self, script: Script, seen: Seen) -> web.Response:
        answer = wire.embeddings_body(script, seen.body, seen.model)
        seen.prompt_billed, seen.done = answer["usage"]["prompt_tokens"], True
        self.meter.prompt_tokens += seen.prompt_billed
        self._tally(seen.model)["tokens"] += seen.prompt_billed
        if script.usage == "none":
            del answer["usage"]
        return web.json_response(answer, headers=script.headers)

    def _fixed(self, script: Script) -> web.Response:
        body = script.body if script.body is not None else {"error": script.error}
        text = body if isinstance(body, str) else json.dumps(body)
        kind = script.content_type or ("text/html" if text.startswith("<") else "application/json")
        return web.Response(status=script.status, text=text, content_type=kind, headers=script.headers)

    def _refusal(self, script: Script, body: dict[str, Any]) -> web.Response | None:
        if script.refuse_max_tokens and "max_tokens" in body:
            message = "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
            error = {"message": message, "type": "invalid_request_error", "param": "max_tokens", "code": "unsupported_parameter"}
            return web.json_response({"error": error}, status=400)
        if script.context_tokens is not None and wire.plan(script, body, "").prompt_tokens > script.context_tokens:
            message = f"Invalid request: Your request exceeded model token limit: {script.context_tokens}"
            return web.json_response({"error": {"message": message, "type": "invalid_request_error"}}, status=400)
        return None

    async def _cut_body(self, request: web.Request, answer: dict[str, Any]) -> None:
        """Half of a body whose whole length was promised, then the end of the connection."""
        data = json.dumps(answer).encode()
        response = web.StreamResponse(headers={"Content-Length": str(len(data)), "Content-Type": "application/json"})
        await response.prepare(request)
        await response.write(data[: len(data) // 2])
        raise _Hangup

    async def _fault(self, script: Script, place: str | int) -> None:
        if script.stall == place:
            await asyncio.sleep(3600)
        if script.cut == place:
            raise _Hangup

    async def _stream(self, request: web.Request, made: Plan, seen: Seen, anthropic: bool) -> web.StreamResponse:
        script = made.script
        headers = {"Content-Type": "text/event-stream", "Cache-Control": "no-cache", **script.headers}
        response = web.StreamResponse(headers=headers)
        self._pack(response)
        await response.prepare(request)
        if script.comments:
            await response.write(b": OPENROUTER PROCESSING\n\n")
        await self._fault(script, "first")
        if script.events is not None:
            for block in script.events:
                await asyncio.sleep(script.delay_s)
                await response.write(block.encode("latin-1"))
        else:
            include = bool((seen.body.get("stream_options") or {}).get("include_usage"))
            events = wire.anthropic_events(made) if anthropic else wire.openai_events(made, include)
            await self._events(response, events, made, seen, anthropic)
        seen.done = True
        await response.write_eof()
        return response

    async def _events(
        self, response: web.StreamResponse, events: Iterator[Event], made: Plan, seen: Seen, anthropic: bool
    ) -> None:
        script, pieces = made.script, 0
        for index, event in enumerate(events):
            if event.content:
                await asyncio.sleep(script.delay_s)
                pieces += 1
                self._bill(seen, made, pieces)
            if index == script.malformed:
                event = Event('{"choices": [{"delta": {"conte', event.name)
            elif index == script.error_at:
                error = {"type": "error", "error": script.error} if anthropic else {"error": script.error}
                event = Event(json.dumps(error), "error" if anthropic else None)
            await response.write(_frame(event, script))
            if index == script.error_at:
                return
            if event.content:
                await self._fault(script, pieces)

    def _pack(self, response: web.StreamResponse) -> None:
        if self.compress:
            response.enable_compression(web.ContentCoding.gzip)

    def _tally(self, model: str) -> dict[str, int]:
        return self.meter.by_model.setdefault(model, {"requests": 0, "tokens": 0})

    def _bill(self, seen: Seen, made: Plan, pieces: int) -> None:
        """Brings the bill of this request up to `pieces` generated pieces."""
        output = made.output_tokens(pieces)
        new_prompt, new_output = made.prompt_tokens - seen.prompt_billed, output - seen.output_billed
        seen.pieces, seen.prompt_billed, seen.output_billed = pieces, made.prompt_tokens, output
        self.meter.prompt_tokens += new_prompt
        self.meter.output_tokens += new_output
        self._tally(seen.model)["tokens"] += new_prompt + new_output


def _frame(event: Event, script: Script) -> bytes:
    lines = [f"event: {event.name}"] if event.name else []
    data = event.data
    if script.multiline and data.startswith("{"):
        data = json.dumps(json.loads(data), indent=1)
    lines += [f"data: {line}" for line in data.split("\n")]
    if script.comments:
        lines.insert(0, ": keep-alive")
    end = "\r\n" if script.crlf else "\n"
    return (end.join(lines) + end * 2).encode()


async def _main(port: int) -> None:
    async with Upstream(port=port) as upstream:
        print("listening", upstream.port, flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=0)
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_main(parser.parse_args().port))
