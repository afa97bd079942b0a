"""The one table of routes for programs, and `/openapi.json` made from it. A route without an entry fails a test.

Pages of the console are for people and have no entries.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gateway import __version__
from gateway.web.api_schemas import SCHEMAS, ref
from gateway.web.doors import Door, door_of


@dataclass(frozen=True, slots=True)
class Entry:
    """One route. `answers` names for each status a schema, a media type, or both; everything else is an error."""

    method: str
    path: str
    does: str
    answers: Mapping[int, Sequence[str]]
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: str = ""
    """The schema of the body; "" for none."""
    example: Any = None
    error: str = "Error"

    @property
    def door(self) -> Door:
        """Who may come in."""
        return door_of(self.method, self.path)

    @property
    def group(self) -> str:
        """What it belongs to."""
        parts = self.path.split("/")
        return {"v1": "Models", "api": parts[2].title() if len(parts) > 2 else ""}.get(parts[1], "The program itself")


_IDEMPOTENT = {"Idempotency-Key": "the same key with the same body gives the stored answer for 24 hours and spends nothing"}
_RUN_KEY = {"Idempotency-Key": "the same key gives the same run"}
_PERIOD = {
    "from": "the first day or instant; the first of this month unless it says otherwise",
    "to": "the last day, or an instant",
}
_HELLO = [{"role": "user", "content": "What is a sluice gate?"}]
_STREAM = "text/event-stream"

ROUTES: tuple[Entry, ...] = (
    Entry(
        "POST",
        "/v1/chat/completions",
        "One gated answer in OpenAI's shape, whole or streamed. Fields that are not known here travel to the provider.",
        {200: ("ChatCompletion", _STREAM)},
        headers=_IDEMPOTENT,
        body="ChatRequest",
        example={"model": "default", "messages": _HELLO, "max_tokens": 200},
    ),
    Entry(
        "POST",
        "/v1/embeddings",
        "Vectors of texts or tokens, from the first provider of the chain that makes them.",
        {200: ("Embeddings",)},
        headers=_IDEMPOTENT,
        body="EmbeddingsRequest",
        example={"model": "default", "input": ["a sluice gate", "a weir"]},
    ),
    Entry(
        "POST",
        "/v1/messages",
        "One gated answer in Anthropic's shape, whole or streamed, from any provider. A key may come as x-api-key.",
        {200: ("Message", _STREAM)},
        headers=_IDEMPOTENT,
        body="MessagesRequest",
        example={"model": "default", "max_tokens": 200, "messages": _HELLO},
        error="MessagesError",
    ),
    Entry(
        "POST",
        "/v1/messages/count_tokens",
        "The tokens that the gate would hold for this prompt: never fewer than it has. Nothing is spent.",
        {200: ("TokenCount",)},
        body="CountRequest",
        example={"model": "default", "messages": _HELLO},
        error="MessagesError",
    ),
    Entry("GET", "/v1/models", "Every name that a request's model may have with this key.", {200: ("Models",)}),
    Entry("GET", "/v1/models/{model}", "One of them, or any model of a provider as provider:model.", {200: ("Model",)}),
    Entry("GET", "/api/budgets", "Every budget as it stands, one for each counter of a * scope.", {200: ("Budgets",)}),
    Entry(
        "POST",
        "/api/budgets/{name}/raise",
        "Raises a limit for a while.",
        {200: ("Raised",)},
        body="Raise",
        example={"change": "+50k", "for": "2h"},
    ),
    Entry(
        "GET",
        "/api/usage",
        "Sums over the usage rows, one row for each attempt.",
        {200: ("Usage",)},
        query={"by": "comma-separated: provider, model, user, chat, workflow, run, key, surface, chain, hour, day", **_PERIOD},
    ),
    Entry(
        "GET",
        "/api/usage/export.csv",
        "The usage rows themselves, oldest first.",
        {200: ("text/csv",)},
        query=_PERIOD,
    ),
    Entry(
        "GET",
        "/api/usage/export.jsonl",
        "The same rows, a JSON object on each line.",
        {200: ("application/x-ndjson",)},
        query=_PERIOD,
    ),
    Entry("GET", "/api/workflows", "What this key may start, with the JSON Schema of the parameters.", {200: ("Workflows",)}),
    Entry(
        "POST",
        "/api/workflows/{name}/runs",
        "Queues a run; a 422 names each parameter that is wrong.",
        {202: ("RunBrief",)},
        headers=_RUN_KEY,
        body="Parameters",
        example={},
    ),
    Entry(
        "GET",
        "/api/runs",
        "The newest runs first: a key sees its own, an admin key all.",
        {200: ("Runs",)},
        query={"workflow": "its name", "state": "its state", "limit": "at most 200", "before": "the `next` of the page before"},
    ),
    Entry("GET", "/api/runs/{id}", "One run with its steps, its cost and what it asks.", {200: ("RunDetails",)}),
    Entry("POST", "/api/runs/{id}/cancel", "Stops a run.", {202: ("RunBrief",)}),
    Entry(
        "GET",
        "/api/runs/{id}/events",
        "Every change as a server-sent event, until the run has ended; 204 when nothing more will come.",
        {200: (_STREAM,), 204: ()},
        query={"after": "the number of the last event that is known"},
        headers={"Last-Event-ID": "the same"},
    ),
    Entry(
        "POST",
        "/api/runs/{id}/retry",
        "Goes on from the step that failed; new caps need an admin key.",
        {202: ("RunBrief",)},
        body="Retry",
        example={},
    ),
    Entry("POST", "/api/runs/{id}/approve", "Says yes to what the run asks.", {200: ("Decided",)}, body="Decision", example={}),
    Entry("POST", "/api/runs/{id}/reject", "Says no.", {200: ("Decided",)}, body="Decision", example={}),
    Entry(
        "POST",
        "/api/runs/{id}/signals/{name}",
        "Tells a run what its wait_for waits for.",
        {202: ("Signalled",)},
        body="AnyJson",
        example={"word": "go"},
    ),
    Entry("GET", "/healthz", "The process answers.", {200: ("Health",)}),
    Entry("GET", "/readyz", "Every part is ready; which is not, with 503.", {200: ("Health",), 503: ("Health",)}),
    Entry("GET", "/metrics", "What Prometheus scrapes.", {200: ("text/plain",)}),
    Entry("GET", "/openapi.json", "This description, for programs.", {200: ("OpenApi",)}),
    Entry("GET", "/docs", "This description, for people.", {200: ("text/html",)}),
    Entry(
        "POST",
        "/telegram/{path}",
        "Takes Telegram's updates where the bot has a webhook.",
        {200: ("application/json",)},
        example={"update_id": 1},
    ),
)

ABOUT = (
    "Every call passes one gate: budget is held before it and settled after it. Each answer carries x-sluicegate-request-id; "
    "one from a provider also x-sluicegate-provider and, when whole, x-sluicegate-cost-micro-usd. A 429 with the code "
    "budget_exhausted says in resets_at when there is room again. A key is sent as Authorization: Bearer KEY; sluicegate keys "
    "create NAME makes one. What it may do was said then: ask, run, read, or everything as an admin key, and perhaps some chains "
    "and models only; a 403 with the code forbidden says what it lacks."
)


def document() -> dict[str, Any]:
    """The whole description, OpenAPI 3.1."""
    paths: dict[str, dict[str, Any]] = {}
    for entry in ROUTES:
        paths.setdefault(entry.path, {})[entry.method.lower()] = _operation(entry)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Sluicegate", "version": __version__, "description": ABOUT},
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {
            "schemas": SCHEMAS,
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "x-api-key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
            },
        },
    }


def _operation(entry: Entry) -> dict[str, Any]:
    made: dict[str, Any] = {
        "summary": entry.does,
        "operationId": f"{entry.method.lower()}{entry.path.replace('/', '_').translate(_PLAIN)}",
        "tags": [entry.group],
        "parameters": _parameters(entry),
        "responses": {str(status): _answer(status, kinds) for status, kinds in entry.answers.items()},
        "security": _security(entry),
    }
    made["responses"]["default"] = {"description": "an error", "content": {"application/json": {"schema": ref(entry.error)}}}
    if not entry.door.keyless:
        made["description"] = f"Needs {entry.door}."
    if entry.body:
        content: dict[str, Any] = {"schema": ref(entry.body)}
        if entry.example is not None:
            content["example"] = entry.example
        made["requestBody"] = {"required": bool(SCHEMAS[entry.body].get("required")), "content": {"application/json": content}}
    return made


_PLAIN = str.maketrans({"{": None, "}": None, ".": "_"})


def _parameters(entry: Entry) -> list[dict[str, Any]]:
    places = [part[1:-1] for part in entry.path.split("/") if part.startswith("{")]
    text = {"type": "string"}
    return [
        *({"name": name, "in": "path", "required": True, "schema": text} for name in places),
        *({"name": name, "in": "query", "description": said, "schema": text} for name, said in entry.query.items()),
        *({"name": name, "in": "header", "description": said, "schema": text} for name, said in entry.headers.items()),
    ]


def _answer(status: int, kinds: Sequence[str]) -> dict[str, Any]:
    described: dict[str, Any] = {"description": {202: "taken", 204: "nothing"}.get(status, "the answer")}
    content = {kind if "/" in kind else "application/json": {} if "/" in kind else {"schema": ref(kind)} for kind in kinds}
    return described | ({"content": content} if content else {})


def _security(entry: Entry) -> list[dict[str, list[str]]]:
    if entry.door.keyless:
        return []
    return [{"bearer": []}, {"x-api-key": []}] if entry.error == "MessagesError" else [{"bearer": []}]
