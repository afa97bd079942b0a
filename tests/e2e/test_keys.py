"""What a key may: every route with a key of each kind, chains that are not its own, and runs that keep to their key's."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from gateway.errors import InvalidRequest
from gateway.web.dashboard import ROUTES as PAGES
from tests.doubles.upstream import Upstream
from tests.e2e.rig import Answer, Gateway, budget, config, provider

PATIENCE_S = 60
ASK, RUN, READ, ADMIN, OPEN, PAGE = "ask", "run", "read", "admin", "open", "page"
NEEDED = {
    "POST /v1/chat/completions": ASK,
    "POST /v1/embeddings": ASK,
    "POST /v1/messages": ASK,
    "POST /v1/messages/count_tokens": ASK,
    "GET /v1/models": ASK,
    "GET /v1/models/{model}": ASK,
    "GET /api/budgets": READ,
    "POST /api/budgets/{name}/raise": ADMIN,
    "GET /api/usage": READ,
    "GET /api/usage/export.csv": READ,
    "GET /api/usage/export.jsonl": READ,
    "GET /api/workflows": RUN,
    "POST /api/workflows/{name}/runs": RUN,
    "GET /api/runs": RUN,
    "GET /api/runs/{id}": RUN,
    "GET /api/runs/{id}/events": RUN,
    "POST /api/runs/{id}/cancel": RUN,
    "POST /api/runs/{id}/retry": RUN,
    "POST /api/runs/{id}/approve": RUN,
    "POST /api/runs/{id}/reject": RUN,
    "POST /api/runs/{id}/signals/{name}": RUN,
    "GET /metrics": ADMIN,
    "GET /healthz": OPEN,
    "GET /readyz": OPEN,
    "GET /openapi.json": OPEN,
    "GET /docs": OPEN,
    "GET /login": OPEN,
    "GET /login/{link}": OPEN,
    "POST /login": OPEN,
    "GET /static/{name}": OPEN,
    "GET /favicon.ico": OPEN,
    "POST /telegram/{path}": OPEN,
}
"""What this test says that each route needs, whatever the program says. What is not here is a page: for sessions only."""
KINDS: dict[str, dict[str, Any]] = {
    "asks": {"may": ["ask"]},
    "runs": {"may": ["run"]},
    "reads": {"may": ["read"]},
    "all three": {"may": ["ask", "run", "read"]},
    "usual": {},
    "boss": {"admin": True},
}


@pytest.fixture
async def gateway(tmp_path: Path, up: Upstream, other: Upstream) -> AsyncIterator[Gateway]:
    text = config(
        provider("main", up, aliases=["m"]),
        provider("spare", other),
        budget("hour", tokens=100_000),
        chain=["main", "spare"],
        more={"cheap": ["spare"]},
    )
    async with Gateway(tmp_path, text) as running:
        yield running


async def give(gateway: Gateway, name: str, *, admin: bool = False, **scope: Any) -> str:
    gateway.keys[name] = await gateway.app.keys.create(name, admin, "test", **scope)
    return name


def registered(gateway: Gateway) -> set[str]:
    router = gateway.app._server._runner.app.router  # type: ignore[union-attr]
    return {f"{route.method} {route.resource.canonical}" for route in router.routes() if route.resource is not None}


async def test_every_route_lets_in_the_keys_that_may_and_no_other(gateway: Gateway) -> None:
    for name, scope in KINDS.items():
        await give(gateway, name, **scope)
    routes = registered(gateway)
    assert NEEDED.keys() <= routes
    for route in sorted(routes):
        method, path = route.split(" ", 1)
        needed = NEEDED.get(route.replace("HEAD ", "GET "), PAGE)
        address = path.replace("{", "").replace("}", "")
        for name, scope in KINDS.items():
            answer = await gateway.call(method, address, key=name, allow_redirects=False)
            may = bool(scope.get("admin")) or needed in scope.get("may", ["ask", "run"])
            if needed == PAGE:
                # A key by itself opens no page: a look is sent to the login, and a form is not taken.
                sent = answer.headers.get("location", "").startswith("/login")
                assert sent if answer.status == 303 else answer.status == 401, (route, name, answer.status)
            elif needed != OPEN and not may:
                assert answer.status == 403, (route, name, answer.status)
                assert method == "HEAD" or says_what_is_missing(answer, path, needed), (route, answer.body)
            elif path not in ("/telegram/{path}", "/login", "/login/{link}"):
                assert answer.status not in (401, 403, 500), (route, name, answer.status, answer.body)
        if needed not in (OPEN, PAGE):
            assert (await gateway.call(method, address, key=None)).status == 401, route
            assert (await gateway.call(method, address, key="sk-sluicegate-none")).status == 401, route


def says_what_is_missing(answer: Answer, path: str, needed: str) -> bool:
    """The refusal in the address's own shape; what an admin alone may says so."""
    words = {ASK: "ask models", RUN: "start workflows", READ: "read budgets and usage", ADMIN: "needs an admin key"}[needed]
    error = answer.error
    told = words in error["message"] and error.get("needs") == (None if needed == ADMIN else needed)
    if path.startswith("/v1/messages"):
        return told and answer.json["type"] == "error" and error["type"] == "permission_error"
    return told and error["code"] == "forbidden"


async def test_a_route_that_nothing_is_said_about_is_for_admins_and_every_page_has_its_place(gateway: Gateway) -> None:
    from gateway.web.doors import DOORS, Door, door_of

    assert door_of("POST", "/v1/something/new") is Door.ADMIN
    assert {f"{method} {path}" for method, path in DOORS} == {route for route in registered(gateway) if "HEAD" not in route}
    assert len([door for door in DOORS.values() if door is Door.SESSION]) == len(PAGES)


async def test_the_short_way_and_the_long_one_refuse_alike(gateway: Gateway, up: Upstream) -> None:
    await give(gateway, "runs", may=["run"])
    for stream in (False, True):
        short = await gateway.chat(key="runs", stream=stream)
        # What comes with Expect is not the plain case.
        long = await gateway.chat(key="runs", stream=stream, headers={"Expect": "100-continue"})
        assert {one: short.error[one] for one in ("message", "type", "code", "needs")} == {
            "message": "This key may not ask models; an admin can make one that may.",
            "type": "permission_error",
            "code": "forbidden",
            "needs": "ask",
        }
        assert (long.status, short.status) == (403, 403)
        assert long.error | {"request_id": ""} == short.error | {"request_id": ""}
        assert short.headers["x-should-retry"] == "false"
    assert up.meter.requests == 0


async def test_a_key_with_chains_asks_these_alone_by_whatever_way(gateway: Gateway, up: Upstream, other: Upstream) -> None:
    await give(gateway, "small", chains=["cheap", "main"])
    listed = (await gateway.call("GET", "/v1/models", key="small")).json["data"]
    # An alias and the model's full name are the same model.
    assert [one["id"] for one in listed] == ["cheap", "main", "m", "main:main-model"]
    for name in ("cheap", "main", "m", "main:main-model"):
        assert (await gateway.chat(key="small", model=name)).status == 200
        assert (await gateway.call("GET", f"/v1/models/{name}", key="small")).status == 200
    before = up.meter.requests, other.meter.requests
    hello = {"max_tokens": 20, "messages": [{"role": "user", "content": "hello"}]}
    for name in ("default", "spare", "spare:spare-model", "main:another", "nothing-of-this-name"):
        body = {"model": name, **hello}
        answers = [
            await gateway.chat(key="small", model=name),
            await gateway.chat(key="small", model=name, stream=True),
            await gateway.chat(key="small", model=name, headers={"Expect": "100-continue"}),
            await gateway.call("GET", f"/v1/models/{name}", key="small"),
            await gateway.call("POST", "/v1/embeddings", key="small", json={"model": name, "input": "a"}),
            await gateway.call("POST", "/v1/messages", key="small", json=body),
            await gateway.call("POST", "/v1/messages", key="small", json=body | {"stream": True}),
            await gateway.call("POST", "/v1/messages/count_tokens", key="small", json={"model": name, **hello}),
        ]
        for answer in answers:
            assert answer.status == 403, (name, answer.body)
            said = f"The key may not use {name!r}, only cheap, main; an admin can make one that may."
            assert answer.error["message"] == said
            assert answer.error["type"] == "permission_error"
    assert (up.meter.requests, other.meter.requests) == before
    assert not [row for row in await gateway.rows() if row["chain"] not in ("cheap", "main", "main:main-model")]


async def test_a_stored_answer_is_not_given_to_a_key_of_the_same_name_that_may_not_ask_for_it(gateway: Gateway) -> None:
    await give(gateway, "app")
    headers = {"Idempotency-Key": "once"}
    assert (await gateway.chat(key="app", headers=headers)).status == 200
    await gateway.app.keys.revoke("app", "test")
    await give(gateway, "app", chains=["cheap"])
    assert (await gateway.chat(key="app", headers=headers)).status == 403


async def test_a_key_that_reads_changes_nothing_and_keeps_what_it_may_over_a_restart(
    tmp_path: Path, up: Upstream, empty_database: str
) -> None:
    text = config(provider("main", up), budget("hour", tokens=100_000), chain=["main"])
    async with Gateway(tmp_path, text, database_url=empty_database) as gateway:
        await give(gateway, "sheet", may=["read"], chains=["main"])
        await gateway.restart()
        assert (await gateway.call("GET", "/api/budgets", key="sheet")).json["budgets"][0]["name"] == "hour"
        raised = await gateway.call("POST", "/api/budgets/hour/raise", key="sheet", json={"change": "+1k", "for": "1h"})
        assert (raised.status, raised.error["message"]) == (403, "This needs an admin key.")
        assert (await gateway.chat(key="sheet")).status == 403
        (kept,) = [key for key in await gateway.app.keys.list() if key.name == "sheet"]
        assert (kept.admin, sorted(kept.may), kept.chains) == (False, ["read"], ("main",))
        (entry,) = await gateway.app.books.audit("sheet")
        assert (entry.action, entry.detail) == ("create key", {"admin": False, "may": ["read"], "chains": ["main"]})


@pytest.mark.parametrize(
    ("scope", "said"),
    [
        ({"may": []}, "must be allowed something"),
        ({"may": ["ask", "rule"]}, "there is no 'rule'"),
        ({"admin": True, "chains": ["cheap"]}, "an admin key may use every chain"),
        ({"chains": [str(number) for number in range(101)]}, "at most 100"),
    ],
)
async def test_a_scope_that_is_none_makes_no_key(gateway: Gateway, scope: Any, said: str) -> None:
    with pytest.raises(InvalidRequest, match=said):
        await give(gateway, "wrong", **scope)
    with pytest.raises(InvalidRequest, match="what the web console itself is called"):
        await give(gateway, "console")
    assert {key.name for key in await gateway.app.keys.list()} == {"user", "admin"}


WORKFLOW = """
from gateway.workflow import Context, workflow


@workflow()
async def errand(ctx: Context, chain: str = "") -> list[str]:
    await ctx.wait_for("go")
    said = await ctx.ask("hello", name="ask", max_tokens=20, chain=chain or None)
    return [said, *(one.get() for one in await ctx.map(again, ["again"], name="more"))]


async def again(ctx: Context, word: str) -> str:
    return await ctx.ask(word, name="ask", max_tokens=20, chain="cheap")
"""


async def ended(gateway: Gateway, run: str, key: str) -> dict[str, Any]:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            found = (await gateway.call("GET", f"/api/runs/{run}", key=key)).json
            if found["state"] in ("succeeded", "failed"):
                return dict(found)
            await asyncio.sleep(0.05)


async def test_a_run_asks_what_its_key_may_also_after_a_restart_and_a_retry(
    tmp_path: Path, up: Upstream, other: Upstream, empty_database: str
) -> None:
    (tmp_path / "workflows").mkdir()
    (tmp_path / "workflows" / "errand.py").write_text(WORKFLOW)
    text = config(provider("main", up), provider("spare", other), chain=["main"], more={"cheap": ["spare"]})
    roles = frozenset({"web", "worker"})
    async with Gateway(tmp_path, text, database_url=empty_database, roles=roles) as gateway:
        await give(gateway, "small", chains=["cheap"])

        async def start(key: str, **params: str) -> str:
            answer = await gateway.call("POST", "/api/workflows/errand/runs", key=key, json=params)
            assert answer.status == 202, answer.body
            return str(answer.json["id"])

        async def go(run: str, key: str) -> dict[str, Any]:
            assert (await gateway.call("POST", f"/api/runs/{run}/signals/go", key=key)).status == 202
            return await ended(gateway, run, key)

        inside, outside, free = await start("small", chain="cheap"), await start("small"), await start("user")
        await gateway.restart()
        good, bad = await go(inside, "small"), await go(outside, "small")
        assert (good["state"], len(good["result"])) == ("succeeded", 2)
        assert (bad["state"], up.meter.requests) == ("failed", 0)
        assert "the key may not use 'default', only cheap" in bad["error"]

        # Others' runs are as none, and who may do everything goes on with a run as it was started.
        assert (await gateway.call("GET", f"/api/runs/{free}", key="small")).status == 404
        assert [run["id"] for run in (await gateway.call("GET", "/api/runs", key="small")).json["runs"]] == [outside, inside]
        assert (await gateway.call("POST", f"/api/runs/{outside}/retry", key="admin")).status == 202
        assert "may not use 'default'" in (await ended(gateway, outside, "admin"))["error"]

        # A key of the same name goes on with it as what it is itself, not as what its forerunner was.
        await gateway.app.keys.revoke("small", "test")
        await give(gateway, "small", chains=["default"])
        assert (await gateway.call("POST", f"/api/runs/{outside}/retry", key="small")).status == 202
        assert "may not use 'cheap', only default" in (await ended(gateway, outside, "small"))["error"]
        assert up.meter.requests == 1
        assert (await go(free, "user"))["state"] == "succeeded"
