"""Every route is described, every description is true: each route is called as its entry says and answers as it says."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import fastjsonschema
import pytest

from gateway.web.doors import Door
from gateway.web.openapi import ROUTES, Entry, document
from tests.doubles.upstream import Upstream
from tests.e2e.rig import Answer, Gateway, budget, config, provider

REFUSED = {
    ("POST", "/api/runs/{id}/retry"): 409,
    ("POST", "/api/runs/{id}/approve"): 409,
    ("POST", "/api/runs/{id}/reject"): 409,
    ("POST", "/api/runs/{id}/signals/{name}"): 409,
    ("POST", "/telegram/{path}"): 404,
}
"""Routes that have nothing to act on here: the run was cancelled and asks nothing, and there is no bot."""
WHOLE = document()


@pytest.fixture
async def gateway(tmp_path: Path, up: Upstream) -> AsyncIterator[Gateway]:
    text = config(provider("p", up), budget("hour", tokens=100_000), chain=["p"])
    async with Gateway(tmp_path, text) as running:
        yield running


async def test_every_route_but_the_consoles_pages_has_an_entry_and_every_entry_a_route(gateway: Gateway) -> None:
    app = gateway.app._server._runner.app  # type: ignore[union-attr]
    ours = [route for route in app.router.routes() if route.handler.__module__.startswith("gateway.web.")]
    programs = [route for route in ours if not route.handler.__module__.startswith("gateway.web.dashboard")]
    routes = {(route.method, route.resource.canonical) for route in programs if route.resource is not None}
    described = [(entry.method, entry.path) for entry in ROUTES]
    assert {(method, path) for method, path in routes if method != "HEAD"} == set(described)
    assert len(set(described)) == len(described)


async def test_every_documented_route_answers_as_it_says(gateway: Gateway) -> None:
    run = (await gateway.call("POST", "/api/workflows/digest/runs", json={"feeds": ["http://127.0.0.1:1/feed"]})).json["id"]
    names = {"{id}": run, "{model}": "default"}
    for entry in ROUTES:
        path = entry.path
        for place, name in names.items():
            path = path.replace(place, name)
        path = path.replace("{name}", "hour" if "budgets" in path else "digest").replace("{path}", "x")
        body = {"feeds": ["http://127.0.0.1:1/feed"]} if entry.body == "Parameters" else entry.example
        key = None if entry.door.keyless else "user" if entry.door in (Door.ASK, Door.RUN) else "admin"
        answer = await gateway.call(entry.method, path, key=key, json=body if entry.body else None)
        expected = REFUSED.get((entry.method, entry.path))
        assert answer.status in ([expected] if expected else entry.answers), (entry.path, answer.body)
        check(entry, answer)
        if not entry.door.keyless:
            nobody = await gateway.call(entry.method, path, key=None, json=body if entry.body else None)
            assert nobody.status == 401
            check(entry, nobody)
        if key == "admin":
            assert (await gateway.call(entry.method, path, json=body if entry.body else None)).status == 403


def check(entry: Entry, answer: Answer) -> None:
    """The answer has the type and the shape that the document gives it."""
    responses = WHOLE["paths"][entry.path][entry.method.lower()]["responses"]
    content = responses.get(str(answer.status), responses["default"]).get("content", {})
    kind = answer.headers.get("content-type", "").partition(";")[0]
    assert kind in content or not content, (entry.path, answer.headers)
    if schema := content.get(kind, {}).get("schema"):
        valid(schema, answer.json)


def valid(schema: Any, value: Any) -> None:
    fastjsonschema.compile({"components": WHOLE["components"], "allOf": [schema]})(value)


async def test_the_description_is_whole_and_its_examples_fit(gateway: Gateway) -> None:
    served = (await gateway.call("GET", "/openapi.json", key=None)).json
    assert served == WHOLE
    assert served["openapi"].startswith("3.1")
    operations = [operation for path in WHOLE["paths"].values() for operation in path.values()]
    assert len({operation["operationId"] for operation in operations}) == len(ROUTES)
    for operation in operations:
        if content := operation.get("requestBody", {}).get("content", {}).get("application/json"):
            valid(content["schema"], content["example"])


async def test_the_page_takes_nothing_from_elsewhere_and_runs_nothing(gateway: Gateway) -> None:
    answer = await gateway.call("GET", "/docs", key=None)
    page, policy = answer.body.decode(), answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "<script" not in page
    assert "https://" not in page
    for entry in ROUTES:
        assert f"<code>{entry.path}</code>" in page
