"""What admin keys see and do over HTTP: budgets, raises, usage and metrics."""

import csv
import io
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.doubles.clock import SettableClock
from tests.doubles.upstream import Script, Upstream
from tests.e2e.rig import Gateway, budget, config, provider

START = datetime(2026, 3, 2, 12, 0, 30, tzinfo=UTC)
EVERYTHING = {"from": "2020-01-01", "to": "2099-12-31"}


@pytest.fixture
def clock() -> SettableClock:
    return SettableClock(START)


@pytest.fixture
async def gateway(tmp_path: Path, up: Upstream, clock: SettableClock) -> AsyncIterator[Gateway]:
    text = config(
        provider("moonshot", up, price={"input": 1.0, "output": 2.0}, max_attempts=1),
        budget("hour", provider="moonshot", tokens=10_000),
        budget("person", user="*", requests=3, per="day"),
        budget("money", usd=0.5, per="month"),
        chain=["moonshot"],
    )
    async with Gateway(tmp_path, text, clock) as running:
        yield running


async def raised(gateway: Gateway, body: Any, name: str = "hour") -> Any:
    return await gateway.call("POST", f"/api/budgets/{name}/raise", key="admin", json=body)


async def test_budgets_have_the_fixed_fields(gateway: Gateway) -> None:
    await gateway.chat()
    await gateway.chat(key="admin")
    entries = {(entry["name"], entry["scope"].get("user")): entry for entry in await gateway.budgets()}
    assert entries["hour", None] == {
        "name": "hour", "scope": {"provider": "moonshot"}, "unit": "tokens", "limit": 10_000, "spent": 14, "held": 0,
        "left": 9_986, "resets_at": "2026-03-02T13:01:00Z", "runs_out_at": None,
    }  # fmt: skip
    assert entries["person", "user"]["spent"] == entries["person", "admin"]["spent"] == 1
    assert (entries["money", None]["unit"], entries["money", None]["limit"]) == ("micro_usd", 500_000)
    assert (entries["money", None]["spent"], entries["money", None]["resets_at"]) == (24, "2026-04-01T00:00:00Z")


@pytest.mark.parametrize(
    ("name", "change", "limit"),
    [
        ("hour", "+50k", 60_000),
        ("hour", "+20%", 12_000),
        ("hour", "=300k", 300_000),
        ("hour", "500", 10_500),
        ("hour", 500, 10_500),
        ("money", "+1.50", 2_000_000),
        ("money", 1, 1_500_000),
    ],
)
async def test_a_raise_speaks_the_command_lines_words(gateway: Gateway, name: str, change: Any, limit: int) -> None:
    answer = await raised(gateway, {"change": change, "for": "2h"}, name)
    assert answer.status == 200
    assert answer.json["ends_at"] == "2026-03-02T14:00:30Z"
    assert answer.json["budgets"] == [await gateway.budget(name)]
    assert (await gateway.budget(name))["limit"] == limit


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "change"),
        ({"change": "+1"}, "for"),
        ({"change": "lots", "for": "2h"}, "change"),
        ({"change": "-5", "for": "2h"}, "change"),
        ({"change": True, "for": "2h"}, "change"),
        ({"change": 1.5, "for": "2h"}, "change"),
        ({"change": ["+1"], "for": "2h"}, "change"),
        ({"change": "+1", "for": "soon"}, "for"),
        ({"change": "+1", "for": 3600}, "for"),
        ({"change": "+1", "for": "999999999999d"}, "for"),
        ({"change": "+1", "for": "2h", "until": "x"}, "until"),
        ({"change": "+" + "9" * 400, "for": "2h"}, "change"),
    ],
)
async def test_a_wrong_raise_is_refused_by_name_and_changes_nothing(gateway: Gateway, body: Any, param: str) -> None:
    answer = await raised(gateway, body)
    assert (answer.status, answer.error["code"], answer.error["param"]) == (422, "invalid_request", param)
    assert (await gateway.budget("hour"))["limit"] == 10_000


async def test_a_raise_of_no_budget_is_404_and_of_no_object_400(gateway: Gateway) -> None:
    assert (await raised(gateway, {"change": "+1", "for": "1h"}, "nothing")).status == 404
    assert (await raised(gateway, ["+1"])).status == 400


async def test_usage_is_summed_by_what_is_asked(gateway: Gateway, clock: SettableClock) -> None:
    await gateway.chat()
    await gateway.chat()
    clock.advance(hours=13)
    await gateway.chat(key="admin")
    by_user = (await gateway.call("GET", "/api/usage", key="admin", params={"by": "user,provider"})).json
    assert (by_user["by"], by_user["from"]) == (["user", "provider"], "2026-03-01T00:00:00Z")
    found = {row["user"]: (row["attempts"], row["tokens"], row["cost_micro_usd"]) for row in by_user["usage"]}
    assert found == {"user": (2, 14, 24), "admin": (1, 7, 12)}
    twice = (await gateway.call("GET", "/api/usage?by=user&by=provider&by=user", key="admin")).json
    assert (twice["by"], twice["usage"]) == (["user", "provider"], by_user["usage"])
    today = {"by": "user", "from": "2026-03-03", "to": "2026-03-03"}
    only = (await gateway.call("GET", "/api/usage", key="admin", params=today)).json
    assert [row["user"] for row in only["usage"]] == ["admin"]


@pytest.mark.parametrize(
    "params", [{"by": "colour"}, {"from": "yesterday"}, {"from": "2026-03-03", "to": "2026-03-01"}, {"to": "9999-12-31"},
     {"from": "0001-01-01"}, {"form": "2026-03-01"}],
)  # fmt: skip
async def test_wrong_words_in_a_usage_query_are_the_callers(gateway: Gateway, params: dict[str, str]) -> None:
    for path in ("/api/usage", "/api/usage/export.csv"):
        if not (path.endswith("csv") and "by" in params):
            answer = await gateway.call("GET", path, key="admin", params=params)
            assert (answer.status, answer.error["code"]) == (400, "invalid_request")
            assert answer.error["param"] in params or answer.error["param"] == "from"


async def test_the_export_is_every_attempt_in_order_over_many_pages(tmp_path: Path, up: Upstream, clock: SettableClock) -> None:
    up.default = Script(pieces=1)
    async with Gateway(tmp_path, config(provider("moonshot", up), chain=["moonshot"]), clock) as gateway:
        for _ in range(2_100):
            await gateway.chat()
            clock.advance(0.25)
        answer = await gateway.call("GET", "/api/usage/export.csv", key="admin", params=EVERYTHING)
        lines = await gateway.call("GET", "/api/usage/export.jsonl", key="admin", params=EVERYTHING)
    assert lines.headers["content-type"].startswith("application/x-ndjson")
    as_json = [json.loads(line) for line in lines.body.splitlines()]
    assert answer.headers["content-type"].startswith("text/csv")
    assert answer.headers["x-sluicegate-request-id"]
    rows = list(csv.DictReader(io.StringIO(answer.body.decode())))
    assert len(rows) == len({row["id"] for row in rows}) == 2_100
    started = [datetime.fromisoformat(row["started"]) for row in rows]
    assert started == sorted(started)
    first = rows[0]
    assert (first["provider"], first["user"], first["surface"], first["outcome"]) == ("moonshot", "user", "http", "answered")
    assert first["started"] == "2026-03-02T12:00:30Z"
    assert [row["id"] for row in as_json] == [row["id"] for row in rows]
    assert (as_json[0]["started"], as_json[0]["estimated"], list(as_json[0])) == (first["started"], False, list(first))


@pytest.fixture
async def moneyless(tmp_path: Path, up: Upstream, clock: SettableClock) -> AsyncIterator[Gateway]:
    """Without a USD budget, a model that nobody has priced may be asked."""
    text = config(
        provider("moonshot", up, price={"input": 1.0, "output": 2.0}),
        budget("hour", provider="moonshot", tokens=10_000),
        budget("person", user="*", requests=3, per="day"),
        chain=["moonshot"],
    )
    async with Gateway(tmp_path / "moneyless", text, clock) as running:
        yield running


async def test_no_cell_of_the_export_is_a_formula(moneyless: Gateway) -> None:
    await moneyless.chat(model="moonshot:=cmd()")
    row = (await moneyless.rows())[-1]
    assert row["model_asked"] == "'=cmd()"


async def test_metrics_are_what_happened_and_no_client_adds_a_series(moneyless: Gateway) -> None:
    gateway = moneyless
    await gateway.chat()
    await gateway.chat(stream=True)
    await gateway.until_nothing_is_held()
    await gateway.chat(model="moonshot:made-up-1", key="admin")
    await gateway.chat(model="moonshot:made-up-2", key="admin")
    await gateway.chat()
    assert (await gateway.chat()).status == 429
    text = (await gateway.call("GET", "/metrics", key="admin")).body.decode()
    samples = {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert samples["sluicegate_reservations_total", "answered", "moonshot", "moonshot-model"] == 3
    assert samples["sluicegate_reservations_total", "answered", "moonshot", "other"] == 2
    assert samples["sluicegate_budget_refusals_total", "person"] == 1
    assert samples["sluicegate_slots_skipped_total", "budget", "moonshot", "moonshot-model"] == 1
    assert samples["sluicegate_spend_micro_usd_total", "moonshot", "moonshot-model"] == 36
    assert samples["sluicegate_provider_seconds_count", "moonshot", "moonshot-model"] == 3
    assert samples["sluicegate_streams_total", "done"] == 1
    assert samples["sluicegate_streams_open",] == 0
    assert samples["sluicegate_budget_spent", "hour", "tokens"] == 35
    assert samples["sluicegate_budget_limit", "hour", "tokens"] == 10_000
    assert samples["sluicegate_budget_held", "hour", "tokens"] == 0
    assert samples["sluicegate_budget_spent", "person", "requests"] == 5
    assert samples["sluicegate_http_answers_total", "429"] == 1
    assert "made-up" not in text


async def test_an_open_breaker_is_seen(gateway: Gateway, up: Upstream) -> None:
    up.default = Script(status=401, error={"message": "bad key", "code": "invalid_api_key"})
    await gateway.chat()
    text = (await gateway.call("GET", "/metrics", key="admin")).body.decode()
    assert 'sluicegate_breaker_open{model="moonshot-model",provider="moonshot"} 1.0' in text


async def test_a_revoked_key_is_refused_within_a_second(gateway: Gateway, clock: SettableClock) -> None:
    assert (await gateway.chat()).status == 200
    await gateway.app.keys.revoke("user", "test")
    clock.advance(1)
    assert (await gateway.chat()).status == 401


async def test_a_database_that_is_gone_makes_no_call_and_is_not_ready(gateway: Gateway, up: Upstream) -> None:
    """Fail closed: without a written hold nothing is sent."""
    async with gateway.database_gone():
        answer = await gateway.chat()
        assert (answer.status, answer.error["code"]) == (503, "ledger_unavailable")
        assert "password" not in answer.body.decode()
    assert up.meter.requests == 0
    assert (await gateway.chat()).status == 200


async def test_the_surface_is_there(gateway: Gateway) -> None:
    assert (await gateway.call("GET", "/healthz", key=None)).status == 200
    ready = await gateway.call("GET", "/readyz", key=None)
    assert (ready.status, ready.json) == (200, {"status": "ready", "database": True})


@pytest.mark.parametrize(
    "path",
    [
        "/healthz",
        "/readyz",
        "/metrics",
        "/v1/models",
        "/v1/models/default",
        "/api/budgets",
        "/api/usage",
        "/api/usage/export.csv",
    ],
)
async def test_every_answer_has_a_request_id_of_its_own(gateway: Gateway, path: str) -> None:
    answers = [await gateway.call("GET", path, key="admin") for _ in range(2)]
    assert [answer.status for answer in answers] == [200, 200]
    assert len({answer.headers["x-sluicegate-request-id"] for answer in answers}) == 2
