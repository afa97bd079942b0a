"""A changed configuration holds at the next call, all of it or nothing, and no counter is lost by it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from contextlib import aclosing
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from gateway.app import App
from gateway.chat import Origin, Request
from gateway.cli.changes import against_running
from gateway.errors import ChainExhausted, ConfigError, UnknownTarget
from gateway.settings import Settings, differences, load, outline
from gateway.store.books import Books
from gateway.store.migrations import upgrade
from tests.doubles.upstream import Script, Upstream
from tests.test_app import serving

CONFIG = """
[gateway]
listen = "127.0.0.1:0"
[providers.first]
api = "openai"
base_url = "{url}"
model = "m"
price = "free"
api_key = "env:FIRST_KEY"
max_attempts = 1
{more}
[[budgets]]
name = "calls"
requests = {limit}
per = "lifetime"
"""
TOKENS = '[[budgets]]\nname = "new"\nprovider = "first"\ntokens = 100_000\nper = "lifetime"\n'
REQUEST = Request(messages=[{"role": "user", "content": "hi"}], max_output_tokens=50)


def written(
    folder: Path, url: str, *, limit: object = 2, more: str = "", more_budgets: str = "", key: str = "key-of-first"
) -> Settings:
    (folder / "sluicegate.toml").write_text(CONFIG.format(url=url, limit=limit, more=more) + more_budgets)
    (folder / ".env").write_text(f"FIRST_KEY={key}\n")
    return load(folder / "sluicegate.toml", {})


def app_of(settings: Settings) -> App:
    upgrade(settings.database_url)
    return App(settings, roles=frozenset({"web", "scheduler"}), environ={})


async def ask(app: App, number: int, target: str = "first") -> str:
    return (await app.dispatcher.complete(REQUEST, target, Origin(f"r{number}", "http"))).completion.text


async def test_case_13_a_reload_keeps_what_is_spent_and_a_new_limit_and_budget_hold_at_the_next_call(tmp_path: Path) -> None:
    async with Upstream(Script(text="Hello.")) as upstream, app_of(written(tmp_path, upstream.base_url)).running() as app:
        for number in (1, 2):
            await ask(app, number)
        with pytest.raises(ChainExhausted):
            await ask(app, 3)
        spent = sum(row["tokens"] for row in await app.books.usage([], *_always()))
        written(tmp_path, upstream.base_url, limit=3, more_budgets=TOKENS)
        changes = await app.reload("test")
        assert [str(change) for change in changes] == [
            "budgets.calls.limit: 2 → 3",
            "budgets.new: (none) → unit tokens, limit 100000, window lifetime, scope.provider first",
        ]
        assert {one.name: (one.limit, one.spent) for one in await app.books.balances() if not one.name.startswith("run:")} == {
            "calls": (3, 2),
            "new": (100_000, spent),
        }
        await ask(app, 4)
        with pytest.raises(ChainExhausted):
            await ask(app, 5)
        assert await app.books.check() == []
        entry = (await app.books.audit("configuration"))[0]
        assert (entry.actor, entry.action) == ("test", "reload")
        assert entry.detail["changes"] == [str(change) for change in changes]


async def test_a_wrong_file_changes_nothing_and_every_problem_is_logged(tmp_path: Path) -> None:
    async with Upstream(Script(text="Hello.")) as upstream:  # noqa: SIM117 - the upstream must listen first
        async with app_of(written(tmp_path, upstream.base_url)).running() as app:
            with pytest.raises(ConfigError):
                written(
                    tmp_path, upstream.base_url, limit=-1, more='bogus = 1\n[[schedules]]\nname = "s"\ncron = "x"\nworkflow = "w"'
                )
            with capture_logs() as told, pytest.raises(ConfigError):
                await app.reload("test")
            places = [line["place"] for line in told if line["event"] == "configuration_wrong"]
            assert len(places) >= 3
            assert [line["event"] for line in told][-1] == "reload_refused"
            assert app.settings.budgets.by_name["calls"].limit == 2
            assert await ask(app, 1) == "Hello."
            assert await app.books.audit("configuration") == []


async def test_a_provider_that_is_gone_ends_what_is_under_way_and_a_new_key_is_used_at_once(
    tmp_path: Path,
) -> None:
    async with Upstream(Script(text="A slow answer")) as upstream, Upstream(Script(text="Other.")) as other:
        second = '[providers.second]\napi = "openai"\nbase_url = "{}"\nmodel = "n"\nprice = "free"\n'
        settings = written(tmp_path, upstream.base_url, limit=100, more=second.format(upstream.base_url))
        async with app_of(settings).running() as app:
            async with aclosing(app.dispatcher.stream(REQUEST, "second", Origin("s", "http"))) as events:
                await anext(events)
                written(
                    tmp_path,
                    other.base_url,
                    limit=100,
                    more=second.format(other.base_url).replace("second", "third"),
                    key="another",
                )
                changes = await app.reload("test")
                places = [change.place for change in changes]
                assert places[:3] == ["chains.default", "providers.first.api_key", "providers.first.base_url"]
                assert places[3:] == ["providers.second", "providers.third"]
                assert "another" not in str(changes) + json.dumps(outline(app.settings))
                with pytest.raises(UnknownTarget):
                    await ask(app, 1, "second")
                assert await ask(app, 2, "third") == "Other."
                assert await ask(app, 3) == "Other."
                rest = [event async for event in events]
            assert rest[-1].completion.text == "A slow answer"  # type: ignore[union-attr]
            assert other.seen[-1].headers["Authorization"] == "Bearer another"
            await app.dispatcher.drain()
            assert await app.books.check() == []


async def test_what_needs_a_restart_is_named_and_stays_and_check_says_what_a_reload_would_change(tmp_path: Path) -> None:
    async with Upstream(Script(text="Hello.")) as upstream:
        settings = written(tmp_path, upstream.base_url)
        async with app_of(settings).running() as app:
            assert await against_running(load(tmp_path / "sluicegate.toml", {})) == []
            file = tmp_path / "sluicegate.toml"
            file.write_text(file.read_text().replace("127.0.0.1:0", "127.0.0.1:1").replace("requests = 2", "requests = 7"))
            expected = await against_running(load(file, {}))
            with capture_logs() as told:
                changes = await app.reload("test")
            assert changes == expected
            assert [(change.place, change.needs_restart) for change in changes] == [
                ("budgets.calls.limit", False),
                ("port", True),
            ]
            assert ("configuration_needs_restart", "port") in [(line["event"], line.get("place")) for line in told]
            assert (app.settings.port, app.settings.budgets.by_name["calls"].limit) == (0, 7)
            assert [change.place for change in await against_running(load(file, {})) or []] == ["port"]
        assert await against_running(load(file, {})) is None, "nothing runs any more"


async def test_calls_that_go_on_all_the_while_never_pass_a_limit_and_none_is_lost(tmp_path: Path) -> None:
    async with Upstream(Script(text="Hello.")) as upstream:  # noqa: SIM117 - the upstream must listen first
        async with app_of(written(tmp_path, upstream.base_url, limit=20)).running() as app:
            calls = [asyncio.create_task(ask(app, number)) for number in range(60)]
            for limit in (15, 30, 25):
                written(tmp_path, upstream.base_url, limit=limit, more_budgets=TOKENS if limit == 30 else "")
                await app.reload("test")
            outcomes = await asyncio.gather(*calls, return_exceptions=True)
            answered = sum(outcome == "Hello." for outcome in outcomes)
            assert all(outcome == "Hello." or isinstance(outcome, ChainExhausted) for outcome in outcomes)
            await app.dispatcher.settled()
            assert answered == len(upstream.seen) <= 30
            assert await app.books.check() == []
            assert [one.spent for one in await app.books.balances() if one.name == "calls"] == [answered]


def test_the_real_program_reloads_at_sighup_and_so_does_one_beside_it(tmp_path: Path) -> None:
    settings = written(tmp_path, "http://127.0.0.1:9/v1")
    upgrade(settings.database_url)
    with serving(tmp_path) as (process, _), serving(tmp_path) as (beside, _):
        written(tmp_path, "http://127.0.0.1:9/v1", limit=5)
        os.kill(process.pid, signal.SIGHUP)
        for each in (process, beside):
            said = ""
            assert each.stderr is not None
            while '"reloaded"' not in said:
                line = each.stderr.readline()
                assert line, said
                said += line
            assert '"budgets.calls.limit"' in said
            assert "key-of-first" not in said


def test_a_difference_is_shown_place_by_place_and_whole_items_as_one() -> None:
    before = {"port": "1", "budgets.a.limit": "1", "budgets.a.unit": "tokens", "budgets.b.limit": "2"}
    after = {"port": "2", "budgets.a.limit": "3", "budgets.a.unit": "tokens", "budgets.c.limit": "4"}
    assert [str(change) for change in differences(before, after)] == [
        "budgets.a.limit: 1 → 3",
        "budgets.b: limit 2 → (none)",
        "budgets.c: (none) → limit 4",
        "port: 1 → 2",
    ]


def _always():  # type: ignore[no-untyped-def]
    from datetime import UTC, datetime

    return datetime(2000, 1, 1, tzinfo=UTC), datetime(2100, 1, 1, tzinfo=UTC)


async def test_a_signal_that_comes_during_the_start_reloads_at_its_end(tmp_path: Path) -> None:
    app = app_of(written(tmp_path, "http://127.0.0.1:9/v1"))
    written(tmp_path, "http://127.0.0.1:9/v1", limit=7)
    early = asyncio.create_task(app.reload("signal:SIGHUP"))
    await asyncio.sleep(0)
    async with app.running():
        assert [str(change) for change in await early] == ["budgets.calls.limit: 2 → 7"]


async def test_two_reloads_at_once_both_end_with_what_the_file_says(tmp_path: Path) -> None:
    async with (
        Upstream(Script(text="Hello.")) as upstream,
        Upstream(Script(text="Other.")) as other,
        app_of(written(tmp_path, upstream.base_url, limit=100)).running() as app,
    ):
        assert await ask(app, 1) == "Hello."
        for number, (place, key) in enumerate(((other, "second"), (upstream, "third"), (other, "fourth"))):
            written(tmp_path, place.base_url, limit=100, key=key)
            await asyncio.gather(app.reload("one"), app.reload("other"))
            assert await ask(app, 2 + number) == ("Other." if place is other else "Hello.")
            assert place.seen[-1].headers["Authorization"] == f"Bearer {key}"


async def test_a_reload_that_one_process_is_asked_for_is_made_by_every_one_on_the_database(tmp_path: Path) -> None:
    async with Upstream(Script(text="Hello.")) as upstream:
        settings = written(tmp_path, upstream.base_url, limit=100)
        async with app_of(settings).running() as asked, app_of(load(tmp_path / "sluicegate.toml", {})).running() as beside:
            file = tmp_path / "sluicegate.toml"
            written(tmp_path, upstream.base_url, limit=1)
            changes = [str(change) for change in await against_running(load(file, {})) or []]
            assert changes == ["budgets.calls.limit: 100 → 1"], "nothing was reloaded yet"
            await asked.reload("test")
            assert await ask(beside, 1) == "Hello."
            async with asyncio.timeout(30):
                while beside.settings.budgets.by_name["calls"].limit != 1:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
            with pytest.raises(ChainExhausted):
                await ask(beside, 2)
            assert await against_running(load(file, {})) == []
            # What is written afterwards holds nowhere until somebody asks for it, and one wish is one entry.
            written(tmp_path, upstream.base_url, limit=5)
            for app in (asked, beside):
                await app._reload.follow()
                assert app.settings.budgets.by_name["calls"].limit == 1
            assert len(await beside.books.audit("configuration")) == 1
            # One that stays behind, since its own environment is wrong, is seen by `check`.
            beside._reload._environ = {"SLUICEGATE_BOGUS": "1"}
            with capture_logs() as told:
                await asked.reload("test")
                await beside._reload.follow()
            assert "reload_refused" in {line["event"] for line in told}
            changes = [str(change) for change in await against_running(load(file, {})) or []]
            assert changes == ["budgets.calls.limit: 1 → 5"]


async def test_between_an_edit_and_its_reload_the_books_are_right_and_name_what_is_not_counted(tmp_path: Path) -> None:
    async with Upstream(Script(text="Hello.")) as upstream, app_of(written(tmp_path, upstream.base_url)).running() as app:
        await ask(app, 1)
        file = tmp_path / "sluicegate.toml"
        file.write_text(file.read_text().replace('"lifetime"', '"day"'))
        written_now = load(file, {})
        looking = Books(app.database, written_now.budgets, app.clock)
        assert await looking.check() == []
        assert await looking.uncounted() == ["calls"]
        await app.reload("test")
        assert (await looking.check(), await looking.uncounted()) == ([], [])
        assert [(one.spent, one.window) for one in await looking.balances()] == [(1, "day")]
