"""`/api/workflows` and `/api/runs`: start, look, act, and follow a run as server-sent events.

A key sees its own runs, an admin key all; another's run is as one that does not exist. An event's id is its number in the
run: a client that comes again with `Last-Event-ID` gets what it has missed, and 204 once an ended run has nothing more to
tell, which is how an EventSource is told to stop.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import structlog
from aiohttp import web

from gateway.errors import InvalidRequest, LedgerUnavailable
from gateway.runs import Caps, Run, RunEvent, RunState, Starter
from gateway.web.auth import caller, request_id
from gateway.web.parsing import any_json, idempotency_key, json_object
from gateway.web.problems import REQUEST_ID
from gateway.workflow.definition import Definition
from gateway.workflow.desk import Desk

log = structlog.get_logger(__name__)

PAGE_MAX = 200
LOOK_EVERY_S = 0.4
"""How often a follower looks for news: another process may write them."""
HEARTBEAT_S = 15.0
"""A silent stream gets a comment this often, so that proxies keep it and a client that left is noticed."""
_EVENTS_AT_ONCE = 200
_STREAM = {"Content-Type": "text/event-stream", "Cache-Control": "no-cache", "X-Accel-Buffering": "no"}


class WorkflowApi:
    """The handlers."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._stopping = asyncio.Event()

    def routes(self) -> list[web.RouteDef]:
        """The routes under `/api/workflows` and `/api/runs`."""
        return [
            web.get("/api/workflows", self.workflows),
            web.post("/api/workflows/{name}/runs", self.start),
            web.get("/api/runs", self.runs),
            web.get("/api/runs/{id}", self.run),
            web.get("/api/runs/{id}/events", self.events, allow_head=False),
            web.post("/api/runs/{id}/cancel", self.cancel),
            web.post("/api/runs/{id}/retry", self.retry),
            web.post("/api/runs/{id}/approve", self.approve),
            web.post("/api/runs/{id}/reject", self.reject),
            web.post("/api/runs/{id}/signals/{name}", self.signal),
        ]

    async def stop(self, _: web.Application) -> None:
        """Ends every stream: they would keep a graceful stop waiting for as long as their runs take."""
        self._stopping.set()

    async def workflows(self, request: web.Request) -> web.Response:
        """What this key may start, with the JSON Schema of the parameters."""
        starter = _starter(request)
        return _json({"workflows": [_shown(each) for each in self._desk.startable(starter)]})

    async def start(self, request: web.Request) -> web.Response:
        """Queues a run. The body is its parameters, one flat object; nothing is all defaults."""
        starter = _starter(request)
        given = request.headers.get("Idempotency-Key")
        key = None if given is None else idempotency_key(given)
        run = await self._desk.start(request.match_info["name"], await _object(request), starter, key=key)
        return _json(run.brief(), 202, {"Location": f"/api/runs/{run.id}"})

    async def runs(self, request: web.Request) -> web.Response:
        """The newest runs first: `?workflow=`, `?state=`, `?limit=` (50), and `?before=` the `next` of the page before."""
        starter = _starter(request)
        query = request.query
        limit = _number(query.get("limit", "50"), "limit", PAGE_MAX)
        found = await self._desk.newest(
            starter, workflow=query.get("workflow"), state=_state(query.get("state")), limit=limit, before=query.get("before")
        )
        return _json({"runs": [run.as_json() for run in found], "next": found[-1].id if len(found) == limit else None})

    async def run(self, request: web.Request) -> web.Response:
        """One run with its steps and the questions that it asks."""
        starter = _starter(request)
        return _json((await self._desk.get(request.match_info["id"], starter)).as_json())

    async def cancel(self, request: web.Request) -> web.Response:
        """Stops a run: at once where no worker has it, else as soon as its worker has seen to it."""
        starter = _starter(request)
        return _acted(await self._desk.cancel(request.match_info["id"], starter))

    async def retry(self, request: web.Request) -> web.Response:
        """Goes on from the step that failed. An admin key may send `{"caps": {"tokens": 90000}}`."""
        starter = _starter(request)
        caps = _caps(await _object(request))
        return _acted(await self._desk.retry(request.match_info["id"], starter, caps))

    async def approve(self, request: web.Request) -> web.Response:
        """Says yes to what the run asks; `{"approval": id}` says to which of several questions."""
        return await self._decide(request, approve=True)

    async def reject(self, request: web.Request) -> web.Response:
        """Says no."""
        return await self._decide(request, approve=False)

    async def signal(self, request: web.Request) -> web.Response:
        """Tells a run what it waits for; the body is any JSON, or nothing."""
        starter = _starter(request)
        run, name = request.match_info["id"], request.match_info["name"]
        await self._desk.signal(run, name, any_json(await request.read()), starter)
        return _json({"id": run, "signal": name}, 202)

    async def events(self, request: web.Request) -> web.StreamResponse:
        """What happens to a run, from its beginning or behind `Last-Event-ID`, until it has ended."""
        starter = _starter(request)
        run = (await self._desk.get(request.match_info["id"], starter)).run
        last = _number(request.headers.get("Last-Event-ID") or request.query.get("after") or "0", "Last-Event-ID", 2**62, least=0)
        if run.state.ended and last >= run.change:
            return web.Response(status=204)
        response = web.StreamResponse(headers={**_STREAM, REQUEST_ID: request_id(request)})
        await response.prepare(request)
        await self._follow(response, run, last)
        await response.write_eof()
        return response

    async def _follow(self, response: web.StreamResponse, run: Run, last: int) -> None:
        """Sends the events behind `last` as they come, and returns after the last one of an ended run."""
        loop = asyncio.get_running_loop()
        beat_at, ended = loop.time() + HEARTBEAT_S, run.state.ended
        while not self._stopping.is_set():
            found = await self._news(run.id, last)
            if found:
                last = found[-1].seq
                ended = _ends(found, ended)
                await response.write(b"".join(map(_event, found)))
            elif found is not None and ended:
                return
            elif loop.time() >= beat_at:
                await response.write(b": alive\n\n")
            else:
                await self._pause()
                continue
            beat_at = loop.time() + HEARTBEAT_S

    async def _news(self, run: str, last: int) -> list[RunEvent] | None:
        """The next events; None while the database cannot be read: what was begun as a stream can only wait."""
        try:
            return await self._desk.events(run, last, _EVENTS_AT_ONCE)
        except LedgerUnavailable as error:
            log.warning("follower_delayed", run=run, reason=error.reason)
            return None

    async def _pause(self) -> None:
        try:
            async with asyncio.timeout(LOOK_EVERY_S):
                await self._stopping.wait()
        except TimeoutError:
            return

    async def _decide(self, request: web.Request, *, approve: bool) -> web.Response:
        starter = _starter(request)
        run, body = request.match_info["id"], await _object(request)
        asked = body.pop("approval", run)
        if body or not isinstance(asked, str):
            raise InvalidRequest("the body may have one field: approval, the id of the question", "approval", 422)
        return _json({"id": run, "approval": (await self._desk.decide(asked, approve, starter, of=run)).as_json()})


def _starter(request: web.Request) -> Starter:
    key = caller(request)
    return Starter("http", key.name, admin=key.admin, key=key.name, may_use=key.chains)


def _shown(definition: Definition) -> dict[str, Any]:
    caps = definition.caps
    return {
        "name": definition.name,
        "title": definition.title,
        "help": definition.help,
        "caps": None if caps is None else caps.as_json(),
        "parameters": definition.parameters.schema(),
    }


def _event(event: RunEvent) -> bytes:
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (event.seq, event.kind.encode(), _dumped(event.as_json()))


def _ends(events: list[RunEvent], ended: bool) -> bool:
    """Whether the run has ended after these events; `ended` is whether it had before. A retry begins it again."""
    states = [RunState(event.data["state"]) for event in events if event.kind == "state"]
    return states[-1].ended if states else ended


def _state(given: str | None) -> RunState | None:
    if given is None:
        return None
    try:
        return RunState(given)
    except ValueError:
        raise InvalidRequest(f"state must be one of {', '.join(RunState)}", "state") from None


def _number(given: str, name: str, most: int, least: int = 1) -> int:
    if not (given.isascii() and given.isdigit() and len(given) <= 19 and least <= int(given) <= most):
        raise InvalidRequest(f"{name} must be a whole number from {least} to {most}", name)
    return int(given)


async def _object(request: web.Request) -> dict[str, Any]:
    """The body as one JSON object; an empty body is an empty one."""
    body = await request.read()
    return json_object(body) if body.strip() else {}


def _caps(body: Mapping[str, Any]) -> Caps | None:
    if unknown := [name for name in body if name != "caps"]:
        raise InvalidRequest(f"{unknown[0][:50]}: unknown field; there is caps", unknown[0][:50], 422)
    given = body.get("caps")
    if given is None:
        return None
    units = ("tokens", "usd", "requests")
    if not isinstance(given, dict) or not given or set(given) - set(units):
        raise InvalidRequest(f"caps must be an object with any of {', '.join(units)}", "caps", 422)
    for unit, value in given.items():
        if isinstance(value, bool) or not isinstance(value, int if unit != "usd" else int | float):
            raise InvalidRequest(f"caps.{unit} must be a {'whole number' if unit != 'usd' else 'number'}", f"caps.{unit}", 422)
    try:
        return Caps(**given)
    except ValueError as error:
        raise InvalidRequest(f"caps.{error}", "caps", 422) from None


def _acted(run: Run) -> web.Response:
    return _json(run.brief() | {"wanted": run.wanted}, 202)


def _json(body: object, status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    own = {"Content-Type": "application/json", **(headers or {})}
    return web.Response(body=_dumped(body), status=status, headers=own)


def _dumped(body: object) -> bytes:
    # Not orjson: what a workflow gives back may hold whole numbers of any size.
    return json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")
