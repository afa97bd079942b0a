"""`/api/workflows` and `/api/runs` over real HTTP, on the rows of a real database. What a worker would do, the test does."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from gateway.errors import LedgerUnavailable
from gateway.runs import Caps, RunState, Starter, StepState
from gateway.store.database import Database
from gateway.store.runs import Runs
from gateway.web import workflow_api
from tests.web.shell import Answer, Shell, shell
from tests.workflow.test_desk import Rig

OTHER = Starter("telegram", "1001")


class Api:
    """The web room in front of a desk."""

    def __init__(self, web: Shell, rig: Rig) -> None:
        self.web, self.runs, self.desk, self.clock = web, rig.runs, rig.desk, rig.clock

    async def ask(self, method: str, path: str, key: str = "sk-user", **rest: Any) -> tuple[int, Any]:
        answer = await self.web.call(method, f"/api{path}", key=key, **rest)
        return answer.status, json.loads(answer.body) if answer.body else None

    async def start(self, name: str = "hello", key: str = "sk-user", **rest: Any) -> str:
        status, body = await self.ask(
            "POST", f"/workflows/{name}/runs", key, json={"name": "x"} if name == "hello" else {}, **rest
        )
        assert status == 202, body
        assert body == {"id": body["id"], "workflow": name, "state": "queued"}
        return str(body["id"])

    @asynccontextmanager
    async def follow(self, run: str, last: str | None = None) -> AsyncIterator[aiohttp.ClientResponse]:
        headers = {"Authorization": "Bearer sk-user"} | ({} if last is None else {"Last-Event-ID": last})
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"{self.web.base}/api/runs/{run}/events", headers=headers) as response,
        ):
            yield response


@pytest.fixture
async def api(tmp_path: Path, database: Database) -> AsyncIterator[Api]:
    rig = Rig(tmp_path, database)
    async with shell(desk=rig.desk) as web:
        yield Api(web, rig)


def events_of(text: str) -> list[tuple[int, str, dict[str, Any]]]:
    """Id, name and data of each event."""
    found = []
    for block in filter(None, text.split("\n\n")):
        if not block.startswith(":"):
            fields = dict(line.split(": ", 1) for line in block.split("\n"))
            found.append((int(fields["id"]), fields["event"], json.loads(fields["data"])))
    return found


async def some(response: aiohttp.ClientResponse, count: int) -> list[tuple[int, str, dict[str, Any]]]:
    """The next events of a stream, as many as are asked for."""
    text = ""
    async with asyncio.timeout(20):
        while text.count("\n\n") < count:
            text += (await response.content.readany()).decode()
    return events_of(text)


async def test_the_workflows_that_a_key_may_start_are_listed_with_their_schema(api: Api) -> None:
    status, body = await api.ask("GET", "/workflows")
    names = {each["name"]: each for each in body["workflows"]}
    assert (status, "danger" in names) == (200, False)
    assert names["hello"]["caps"] == {"tokens": 9, "requests": 9}
    assert names["hello"]["parameters"]["required"] == ["name"]
    assert names["hello"]["parameters"]["properties"]["times"]["default"] == 1
    assert "danger" in {each["name"] for each in (await api.ask("GET", "/workflows", "sk-admin"))[1]["workflows"]}


async def test_a_started_run_has_the_fields_of_the_surface(api: Api) -> None:
    answer = await api.web.call("POST", "/api/workflows/hello/runs", json={"name": "x", "times": "2"})
    run = json.loads(answer.body)["id"]
    assert (answer.status, answer.header("Location")) == (202, f"/api/runs/{run}")
    await api.runs.take(run, "w")
    await api.runs.step_began(run, "clone", "shell")
    until = api.clock.now() + timedelta(hours=1)
    await api.runs.set_state(run, RunState.WAITING_BUDGET, waiting_until=until, waiting_for="day")
    status, body = await api.ask("GET", f"/runs/{run}")
    assert (status, body["id"], body["workflow"], body["state"]) == (200, run, "hello", "waiting_budget")
    assert body["params"] == {"name": "x", "times": 2, "repo": "petroserver"}
    assert (body["waiting_until"], body["cost_micro_usd"], body["error"]) == ("2026-03-02T13:00:00Z", 0, "")
    assert body["starter"] == {"surface": "http", "user": "app"}
    (step,) = body["steps"]
    assert (step["name"], step["kind"], step["state"], step["attempts"]) == ("clone", "shell", "running", 1)


async def test_case_56_every_wrong_parameter_is_named_and_nothing_is_started(api: Api) -> None:
    body = {"nmae": "x", "times": True, "repo": "--upload-pack=touch /tmp/x"}
    status, refused = await api.ask("POST", "/workflows/hello/runs", json=body)
    assert (status, refused["error"]["code"]) == (422, "invalid_request")
    assert {each["param"] for each in refused["error"]["problems"]} == {"nmae", "name", "times", "repo"}
    assert all(each["message"] for each in refused["error"]["problems"])
    for repo in ("/etc/passwd", "../x", "ext::sh -c id", "https://github.com/acme/../x", {"a": 1}, ["a"]):
        status, refused = await api.ask("POST", "/workflows/hello/runs", json={"name": "x", "repo": repo})
        assert (status, refused["error"]["param"]) == (422, "repo"), repo
    for raw in (b"[]", b"{", b'"x"', b"\xff"):
        answer = await api.web.call("POST", "/api/workflows/hello/runs", data=raw)
        assert answer.status == 400, raw
    assert await api.runs.newest() == []


async def test_case_53_a_key_used_twice_is_one_run_and_another_body_conflicts(api: Api) -> None:
    headers = {"Idempotency-Key": "order 5"}
    run = await api.start(headers=headers)
    assert await api.start(headers=headers) == run
    path = "/workflows/hello/runs"
    status, body = await api.ask("POST", path, json={"name": "y"}, headers=headers)
    assert (status, body["error"]["code"]) == (409, "idempotency_conflict")
    assert await api.start(key="sk-admin", headers=headers) != run, "another API key's word is its own"
    status, body = await api.ask("POST", path, json={"name": "x"}, headers={"Idempotency-Key": ""})
    assert (status, body["error"]["param"]) == (400, "Idempotency-Key")


async def test_what_does_not_exist_is_404_and_what_is_not_allowed_403(api: Api) -> None:
    status, body = await api.ask("POST", "/workflows/nothing/runs", json={})
    assert (status, body["error"]["code"], "danger" in body["error"]["message"]) == (404, "not_found", False)
    status, body = await api.ask("POST", "/workflows/danger/runs", json={})
    assert (status, body["error"]["code"]) == (403, "forbidden")
    for method, path in (("GET", ""), ("GET", "/events"), ("POST", "/cancel"), ("POST", "/retry"), ("POST", "/approve")):
        status, body = await api.ask(method, f"/runs/nothing{path}")
        assert (status, body["error"]["code"]) == (404, "not_found"), path


async def test_a_key_sees_its_own_runs_and_an_admin_key_all(api: Api) -> None:
    mine, theirs = await api.start(), await api.start(key="sk-admin")
    told = (await api.desk.start("hello", {"name": "x"}, OTHER)).id
    assert [run["id"] for run in (await api.ask("GET", "/runs"))[1]["runs"]] == [mine]
    everything = (await api.ask("GET", "/runs", "sk-admin"))[1]
    assert ({run["id"] for run in everything["runs"]}, everything["next"]) == ({mine, theirs, told}, None)
    for path in ("", "/events"):
        assert (await api.ask("GET", f"/runs/{told}{path}"))[0] == 404
    for action in ("cancel", "retry", "approve", "reject", "signals/go"):
        assert (await api.ask("POST", f"/runs/{told}/{action}"))[0] == 404
    assert (await api.ask("GET", f"/runs/{told}", "sk-admin"))[0] == 200
    assert (await api.ask("POST", f"/runs/{told}/cancel", "sk-admin"))[1]["state"] == "cancelled"


async def test_runs_are_filtered_and_paged(api: Api) -> None:
    made = [await api.start() for _ in range(3)]
    await api.ask("POST", f"/runs/{made[0]}/cancel")
    assert {run["id"] for run in (await api.ask("GET", "/runs?state=queued&workflow=hello"))[1]["runs"]} == set(made[1:])
    assert (await api.ask("GET", "/runs?workflow=other"))[1] == {"runs": [], "next": None}
    first = (await api.ask("GET", "/runs?limit=2"))[1]
    second = (await api.ask("GET", f"/runs?limit=2&before={first['next']}"))[1]
    assert {run["id"] for page in (first, second) for run in page["runs"]} == set(made)
    for query in ("state=done", "limit=0", "limit=201", "limit=x", "limit=²"):
        status, body = await api.ask("GET", f"/runs?{query}")
        assert (status, body["error"]["param"]) == (400, query.partition("=")[0]), query


async def test_a_run_is_cancelled_and_retried_in_its_time(api: Api) -> None:
    run = await api.start()
    await api.runs.take(run, "w")
    assert (await api.ask("POST", f"/runs/{run}/cancel"))[1] == {
        "id": run, "workflow": "hello", "state": "running", "wanted": "cancel",
    }  # fmt: skip
    status, body = await api.ask("POST", f"/runs/{run}/retry")
    assert (status, body["error"]["code"], body["error"]["state"]) == (409, "wrong_state", "running")
    await api.runs.set_state(run, RunState.FAILED, error="cap reached")
    assert (await api.ask("POST", f"/runs/{run}/cancel"))[0] == 409
    assert (await api.ask("POST", f"/runs/{run}/retry", json={"caps": {"tokens": 99}}))[0] == 403
    for caps in ({}, 5, {"tokens": "9"}, {"tokens": True}, {"usd": "x"}, {"tokens": -1}, {"euros": 1}, {"usd": 1}):
        status, body = await api.ask("POST", f"/runs/{run}/retry", "sk-admin", json={"caps": caps})
        assert (status, body["error"]["param"].startswith("caps")) == (422, True), caps
    assert (await api.ask("POST", f"/runs/{run}/retry", "sk-admin", json={"tokens": 5}))[0] == 422
    assert (await api.ask("POST", f"/runs/{run}/retry", "sk-admin", json={"caps": {"tokens": 99}}))[0] == 202
    assert (await api.runs.get(run)).caps == Caps(tokens=99, requests=9)


async def test_case_57_a_question_is_answered_once_and_by_those_who_are_asked(api: Api) -> None:
    run = await api.start()
    status, body = await api.ask("POST", f"/runs/{run}/approve")
    assert (status, body["error"]["state"]) == (409, "queued"), "it asks nothing"
    asked = await api.runs.ask_approval(run, "approve", "Sure?", ["admins"])
    assert (await api.ask("GET", f"/runs/{run}"))[1]["approvals"][0]["question"] == "Sure?"
    status, body = await api.ask("POST", f"/runs/{run}/approve")
    assert (status, body["error"]["code"]) == (403, "forbidden")
    status, body = await api.ask("POST", f"/runs/{run}/approve", "sk-admin")
    assert (status, body["approval"]["decision"], body["approval"]["by"]) == (200, "approved", "http:boss")
    named = {"approval": asked.id}
    assert (await api.ask("POST", f"/runs/{run}/approve", "sk-admin", json=named))[0] == 200, "twice the same is once"
    status, body = await api.ask("POST", f"/runs/{run}/reject", "sk-admin", json=named)
    assert (status, body["error"]["state"]) == (409, "approved")
    other = await api.start()
    assert (await api.ask("POST", f"/runs/{other}/approve", "sk-admin", json=named))[0] == 404, "not this run's question"
    assert (await api.ask("POST", f"/runs/{run}/approve", "sk-admin", json={"approval": 5}))[0] == 422
    late = await api.runs.ask_approval(run, "two", "Sure?", ["starter"], api.clock.now())
    status, body = await api.ask("POST", f"/runs/{run}/reject", json={"approval": late.id})
    assert (status, body["error"]["state"]) == (409, "expired")


async def test_one_of_several_questions_must_be_named(api: Api) -> None:
    run = await api.start()
    one, two = [await api.runs.ask_approval(run, name, "Sure?", ["starter"]) for name in ("one", "two")]
    status, body = await api.ask("POST", f"/runs/{run}/approve")
    assert (status, one.id in body["error"]["message"], two.id in body["error"]["message"]) == (409, True, True)
    assert (await api.ask("POST", f"/runs/{run}/approve", json={"approval": two.id}))[0] == 200
    assert (await api.ask("POST", f"/runs/{run}/reject"))[1]["approval"]["id"] == one.id


async def test_a_signal_reaches_the_run_and_cannot_pass_for_an_answer(api: Api) -> None:
    run = await api.start()
    assert await api.ask("POST", f"/runs/{run}/signals/go", json=[1, {"a": None}]) == (202, {"id": run, "signal": "go"})
    assert await api.ask("POST", f"/runs/{run}/signals/go") == (202, {"id": run, "signal": "go"})
    assert [(each.name, each.data) for each in await api.runs.signals()] == [("go", [1, {"a": None}]), ("go", None)]
    assert (await api.ask("POST", f"/runs/{run}/signals/approval:x"))[0] == 422
    for raw, refusal in ((b'1,"x":2', 400), (b"{", 400), (b"[" * 200 + b"]" * 200, 400), (b'"' + b"x" * 70_000 + b'"', 413)):
        answer = await api.web.call("POST", f"/api/runs/{run}/signals/go", data=raw)
        assert answer.status == refusal, raw[:20]
    await api.runs.set_state(run, RunState.SUCCEEDED)
    assert (await api.ask("POST", f"/runs/{run}/signals/go"))[0] == 409


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/workflows"),
        ("POST", "/workflows/hello/runs"),
        ("GET", "/runs"),
        ("GET", "/runs/x"),
        ("GET", "/runs/x/events"),
        *(("POST", f"/runs/x/{action}") for action in ("cancel", "retry", "approve", "reject", "signals/go")),
    ],
)
async def test_nothing_is_told_without_a_key(method: str, path: str) -> None:
    async with shell() as web:
        answer: Answer = await web.call(method, f"/api{path}", key=None)
    assert answer.status == 401


async def test_events_are_told_as_they_come_until_the_run_has_ended(api: Api) -> None:
    run = await api.start()
    async with api.follow(run) as response:
        assert (response.status, response.content_type) == (200, "text/event-stream")
        assert [(number, name, data["state"]) for number, name, data in await some(response, 1)] == [(1, "state", "queued")]
        await api.runs.take(run, "w")
        await api.runs.step_began(run, "clone", "shell")
        await api.runs.log(run, "half\nway 😀", step="clone")
        state, step, line = await some(response, 3)
        assert (state[2]["state"], step[1], step[2]["name"], step[2]["kind"]) == ("running", "step", "clone", "shell")
        assert (line[0], line[1], line[2]["text"], line[2]["run"]) == (4, "log", "half\nway 😀", run)
        await api.runs.step_ended(run, "clone", StepState.SUCCEEDED)
        await api.runs.set_state(run, RunState.FAILED, error="it broke")
        async with asyncio.timeout(20):
            rest = events_of((await response.content.read()).decode())
    assert [(number, data["state"]) for number, _, data in rest] == [(5, "succeeded"), (6, "failed")]
    assert rest[-1][2]["error"] == "it broke"


async def test_a_follower_that_comes_again_misses_nothing_and_is_told_when_there_is_no_more(api: Api) -> None:
    run = await api.start()
    await api.runs.take(run, "w")
    for number in range(500):
        await api.runs.log(run, str(number))
    await api.runs.set_state(run, RunState.SUCCEEDED)
    await api.runs.log(run, "a last word")
    numbers: list[int] = []
    async with asyncio.timeout(30):
        async with api.follow(run) as response:
            numbers += [number for number, _, _ in await some(response, 3)]
        async with api.follow(run, str(numbers[-1])) as response:
            numbers += [number for number, _, _ in events_of((await response.content.read()).decode())]
        assert numbers == list(range(1, 505)), "the last word too, and each once"
        for last, left in (("503", [504]), ("504", None), ("9999", None)):
            async with api.follow(run, last) as response:
                if left is None:
                    assert (response.status, await response.read()) == (204, b"")
                else:
                    assert [number for number, _, _ in events_of((await response.content.read()).decode())] == left
    for wrong in ("x", "-1", "1.5", "9" * 30):
        async with api.follow(run, wrong) as response:
            assert response.status == 400, wrong


async def test_a_retried_run_is_followed_on(api: Api) -> None:
    run = await api.start()
    await api.runs.set_state(run, RunState.FAILED, error="x")
    await api.runs.retry(run, "cli:root")
    async with api.follow(run) as response:
        assert [data["state"] for _, _, data in await some(response, 3)] == ["queued", "failed", "queued"]
        await api.runs.set_state(run, RunState.SUCCEEDED)
        assert [data["state"] for _, _, data in await some(response, 1)] == ["succeeded"]


async def test_a_silent_stream_has_a_heartbeat_and_ends_with_the_server(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workflow_api, "HEARTBEAT_S", 0.05)
    monkeypatch.setattr(workflow_api, "LOOK_EVERY_S", 0.02)
    run = await api.start()
    async with api.follow(run) as response:
        await some(response, 1)
        async with asyncio.timeout(20):
            assert (await response.content.readuntil(b"\n\n")) == b": alive\n\n"
            stopping = asyncio.create_task(api.web.server.stop())
            while await response.content.readany():
                pass
            await stopping


async def test_a_stream_outlives_a_database_that_is_away(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workflow_api, "LOOK_EVERY_S", 0.02)
    run, tries = await api.start(), 0
    read = Runs.events

    async def away(self: Runs, *arguments: Any) -> Any:
        nonlocal tries
        tries += 1
        if tries % 2:
            raise LedgerUnavailable("away")
        return await read(self, *arguments)

    monkeypatch.setattr(Runs, "events", away)
    await api.runs.set_state(run, RunState.SUCCEEDED)
    async with api.follow(run) as response, asyncio.timeout(20):
        assert len(events_of((await response.content.read()).decode())) == 2


async def test_a_follower_that_leaves_is_noticed(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workflow_api, "LOOK_EVERY_S", 0.02)
    run, looks = await api.start(), 0
    read = Runs.events

    async def counted(self: Runs, *arguments: Any) -> Any:
        nonlocal looks
        looks += 1
        return await read(self, *arguments)

    monkeypatch.setattr(Runs, "events", counted)
    async with api.follow(run) as response:
        await some(response, 1)
    async with asyncio.timeout(20):
        before = -1
        while looks != before:  # it has stopped looking
            before = looks
            await asyncio.sleep(0.3)
