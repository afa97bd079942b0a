"""Whoever changes something, from wherever: one row of the audit says who, what and when, and by which surface they came."""

from pathlib import Path
from typing import Any

import pytest

from gateway.runs import Run, RunState, Starter
from gateway.store.alerts import Sign
from tests.browser.test_forms import Visitor
from tests.doubles.upstream import Upstream
from tests.e2e.rig import Gateway, budget, config, provider, section

OPS = Starter("cli", "root", admin=True)
FOUND: dict[str, Any] = {"feeds": ["http://127.0.0.1:1/feed"]}


@pytest.fixture
def text(up: Upstream, tmp_path: Path) -> str:
    report = section("[[reports]]", {"name": "daily", "cron": "0 9 * * *", "to": f"file:{tmp_path}/made", "period": "day"})
    return config(provider("main", up), budget("hour", tokens=5000), report, chain=["main"])


async def asking(gateway: Gateway) -> tuple[str, str]:
    """A run, and a question that it asks."""
    run = await gateway.app.desk.start("digest", FOUND, OPS)
    asked = await gateway.app.runs.ask_approval(run.id, "send", "Send it?", ["admins"])
    return run.id, asked.id


async def failed(gateway: Gateway) -> Run:
    run = await gateway.app.desk.start("digest", FOUND, OPS)
    await gateway.app.runs.set_state(run.id, RunState.FAILED, error="x")
    return run


async def told(gateway: Gateway) -> list[tuple[str, str, str]]:
    """Actor, action and subject of every entry, the oldest first."""
    kept = [(entry.actor, entry.action, entry.subject) for entry in await gateway.app.books.audit()]
    return [entry for entry in reversed(kept) if entry[0] != "test"]


async def test_what_programs_do_over_http(tmp_path: Path, text: str) -> None:
    async with Gateway(tmp_path, text) as gateway:

        async def post(path: str, body: Any = None) -> None:
            answer = await gateway.call("POST", path, key="admin", json=body or {})
            assert answer.status < 300, answer.body

        (yes, _), (no, _) = await asking(gateway), await asking(gateway)
        broken = (await failed(gateway)).id
        await post("/api/budgets/hour/raise", {"change": "+5", "for": "1h"})
        await post(f"/api/runs/{yes}/approve")
        await post(f"/api/runs/{no}/reject")
        await post(f"/api/runs/{no}/cancel")
        await post(f"/api/runs/{no}/cancel")
        await post(f"/api/runs/{broken}/retry", {"caps": {"tokens": 900}})
        refused = await gateway.call("POST", f"/api/runs/{yes}/retry", key="admin", json={})
        assert refused.status == 409
        assert await told(gateway) == [
            ("http:admin", "raise", "hour"),
            ("http:admin", "approved", f"run:{yes}"),
            ("http:admin", "rejected", f"run:{no}"),
            ("http:admin", "cancel", f"run:{no}"),
            ("http:admin", "retry", f"run:{broken}"),
        ]


async def test_what_people_do_at_the_console(tmp_path: Path, text: str) -> None:
    async with Gateway(tmp_path, text) as gateway:
        by_key = await Visitor.logged_in(gateway)
        link, _ = await gateway.app.sessions.make_link("cli:root")
        secret = await gateway.app.sessions.open_by_link(link)
        assert secret is not None
        page = (await Visitor(gateway, secret).get("/budgets/hour")).body.decode()
        by_link = Visitor(gateway, secret, page.split('data-csrf="')[1].split('"')[0])

        async def post(visitor: Visitor, path: str, **fields: str) -> None:
            answer = await visitor.post(path, fields | {"csrf": visitor.token})
            said = answer.headers.get("set-cookie", "")
            assert answer.status in (200, 303), answer.body
            assert "sluicegate_said=-" not in said, said

        (yes, _), (no, _) = await asking(gateway), await asking(gateway)
        broken = (await failed(gateway)).id
        await gateway.app.alerts.note([Sign("key:main", "provider_key_refused", {"provider": "main"})])
        (alert,) = await gateway.app.alerts.newest(1)
        await post(by_key, "/budgets/hour/raise", change="+5", **{"for": "1h"})
        await post(by_link, "/budgets/hour/end")
        await post(by_link, "/budgets/hour/adjust", spent="7", reason="the provider's bill")
        await post(by_key, "/pause")
        await post(by_key, "/resume")
        await post(by_key, "/keys", name="laptop", may="ask")
        await post(by_key, "/keys/revoke", name="laptop")
        await post(by_key, "/alerts", alert=str(alert.id))
        await post(by_link, f"/runs/{yes}/approve")
        await post(by_key, f"/runs/{no}/reject")
        await post(by_key, f"/runs/{no}/cancel")
        await post(by_key, f"/runs/{broken}/retry")
        (tmp_path / "sluicegate.toml").write_text(text.replace("5000", "6000"))
        await post(by_link, "/reload")
        await post(by_link, "/logout")
        await post(by_key, "/logout")
        key, linked = "console:key:admin", "console:cli:root"
        assert await told(gateway) == [
            (key, "log in", "console"),
            (linked, "log in", "console"),
            (key, "raise", "hour"),
            (linked, "end raise", "hour"),
            (linked, "adjust", "hour"),
            (key, "pause", "*"),
            (key, "resume", "*"),
            (key, "create key", "laptop"),
            (key, "revoke key", "laptop"),
            (key, "acknowledge", "key:main"),
            (linked, "approved", f"run:{yes}"),
            (key, "rejected", f"run:{no}"),
            (key, "cancel", f"run:{no}"),
            (key, "retry", f"run:{broken}"),
            (linked, "reload", "configuration"),
            (linked, "log out", "console"),
            (key, "log out", "console"),
        ]
        visitor = await Visitor.logged_in(gateway)
        newest = (await gateway.app.books.audit())[0].id
        for path in (f"/audit?before={newest}", "/audit"):
            assert "the provider&#39;s bill" in (await visitor.get(path)).body.decode()
        assert "the provider" not in (await visitor.get("/audit?before=1")).body.decode()
        assert (await visitor.get("/audit?before=x")).status == 400
        for _ in range(50):
            await gateway.app.store.pause(None, "test")
            await gateway.app.store.resume("test")
        assert "/audit?before=" in (await visitor.get("/audit")).body.decode()
