"""The composition root: what opens, starts and stops, and that a clock can be set from outside."""

import asyncio
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import aiohttp
import pytest

from gateway.app import App
from gateway.budget import Amounts
from gateway.chat import Origin, Request, Slot
from gateway.clock import to_ms
from gateway.errors import ChainExhausted, ConfigError, DatabaseBehind
from gateway.ledger import Draft
from gateway.settings import Settings, load
from gateway.store.migrations import upgrade
from tests.cli.program import COMMAND, environment
from tests.doubles.botapi import TOKEN, BotApi
from tests.doubles.clock import SettableClock
from tests.doubles.upstream import Script, Upstream

CONFIG = """
[gateway]
listen = "127.0.0.1:0"
[telegram]
api_root = "{api}"
[providers.first]
{provider}
[chains]
default = ["first"]
[[budgets]]
name = "calls"
requests = 1
per = "{per}"
"""


SCRIPTED = 'api = "demo"\nmodel = "scripted"'
PAID = 'api = "openai"\nbase_url = "{url}"\nmodel = "m"\nprice = "free"'
QUESTION = [{"role": "user", "content": "hi"}]


def settings(
    folder: Path,
    *,
    api: str = "http://127.0.0.1:9",
    provider: str = SCRIPTED,
    upgraded: bool = True,
    per: str = "rolling 1h",
    **environ: str,
) -> Settings:
    file = folder / "sluicegate.toml"
    file.write_text(CONFIG.format(api=api, provider=provider, per=per))
    found = load(file, environ)
    if upgraded:
        upgrade(found.database_url)
    return found


@contextmanager
def serving(folder: Path, *, until: str = "listens on", **env: str) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    """The real program: the process, and what it said until it said that."""
    process = subprocess.Popen([*COMMAND, "serve"], cwd=folder, env=environment(**env), stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    said = ""
    try:
        while until not in said:
            line = process.stderr.readline()
            assert line, said
            said += line
        yield process, said
    finally:
        process.kill()
        process.communicate()


async def test_a_database_that_is_behind_is_refused(tmp_path: Path) -> None:
    app = App(settings(tmp_path, upgraded=False))
    with pytest.raises(DatabaseBehind, match="sluicegate db upgrade"):
        await app.start()
    await app.stop()
    assert not app.ready.is_set()


async def test_it_serves_is_ready_and_stops(tmp_path: Path) -> None:
    app = App(settings(tmp_path))
    async with app.running(), aiohttp.ClientSession() as client:
        assert app.ready.is_set()
        # The worker has its first look at what there is to do after everything else is up.
        async with asyncio.timeout(60):
            while (response := await client.get(f"{app.address}/readyz")).status != 200:
                assert (await response.json())["database"]
                await asyncio.sleep(0.02)
        assert await response.json() == {"status": "ready", "database": True, "engine": True}
    assert not app.ready.is_set()
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", int(app.address.rpartition(":")[2])), timeout=1)


async def test_the_clock_that_is_handed_in_moves_the_windows(tmp_path: Path) -> None:
    clock = SettableClock(datetime(2026, 3, 2, 12, 30, tzinfo=UTC))
    request = Request(messages=QUESTION)
    async with App(settings(tmp_path, per="hour"), clock).running() as app:
        await app.dispatcher.complete(request, "default", Origin("r1", "cli"))
        with pytest.raises(ChainExhausted) as refused:
            await app.dispatcher.complete(request, "default", Origin("r2", "cli"))
        assert refused.value.available_at == datetime(2026, 3, 2, 13, 0, tzinfo=UTC)
        clock.advance(minutes=30)
        await app.dispatcher.complete(request, "default", Origin("r3", "cli"))


async def test_what_a_dead_process_held_is_settled_before_the_first_call(tmp_path: Path) -> None:
    found = settings(tmp_path)
    clock = SettableClock()
    lost = App(found, clock)
    await lost.open()
    # A reservation that nobody closes, of a process whose lease ends.
    deadline_ms = to_ms(clock.now() + timedelta(minutes=2))
    await lost.store.reserve(
        Draft("a1", Origin("r1", "cli"), 1, "default", Slot("first", "scripted"), Amounts(1, 10, 0), 5, 5, deadline_ms)
    )
    await lost.stop()
    async with App(found, clock).running() as app:
        (balance,) = await app.books.balances()
        assert (balance.spent, balance.held) == (1, 0)
        assert await app.books.check() == []


async def test_roles_start_only_what_they_name(tmp_path: Path) -> None:
    async with BotApi() as api:
        found = settings(tmp_path, api=api.url, TELEGRAM_BOT_TOKEN=TOKEN)
        async with App(found, roles=frozenset({"bot"})).running() as app:
            assert app.address == ""
            assert app.bot is not None
            await api.until(lambda: app.bot is not None and app.bot.ready)
            assert app.pairing_code
        async with App(found, roles=frozenset({"web"})).running() as app:
            assert app.bot is None
            assert app.address


async def test_what_waits_in_the_bot_is_measured(tmp_path: Path) -> None:
    async with BotApi() as api, Upstream(Script(gate=True)) as upstream:
        found = settings(tmp_path, api=api.url, provider=PAID.format(url=upstream.base_url), TELEGRAM_BOT_TOKEN=TOKEN)
        async with App(found).running() as app, aiohttp.ClientSession() as client:
            await api.say(f"/start {app.pairing_code}", 42)
            await api.until(lambda: len(api.bubbles(42)) == 1)
            headers = {"Authorization": f"Bearer {await app.keys.create('ops', True, 'test')}"}

            async def depths() -> dict[str, float]:
                async with client.get(f"{app.address}/metrics", headers=headers) as response:
                    lines = (await response.text()).splitlines()
                return {
                    name.removeprefix("sluicegate_telegram_"): float(value)
                    for name, value in (line.split(" ") for line in lines if line.startswith("sluicegate_telegram_"))
                }

            await api.until(lambda: app.bot is not None and not app.bot.queue_depth)
            assert await depths() == {"queue_depth": 0, "lanes": 0, "parked": 0}
            # The second question waits behind the first.
            await api.say("first", 42)
            await api.say("second", 42)
            await api.until(lambda: app.bot is not None and app.bot.queue_depth == 2)
            assert await depths() == {"queue_depth": 2, "lanes": 1, "parked": 0}
            upstream.release()
            notice = await api.answered("is used up", 42)
            await api.tap(notice, "Answer me", 42)
            await api.until(lambda: app.bot is not None and app.bot.parked == 1)
            assert (await depths())["parked"] == 1


async def test_the_pairing_code_makes_the_first_admin_and_is_then_gone(tmp_path: Path) -> None:
    async with BotApi() as api:
        found = settings(tmp_path, api=api.url, TELEGRAM_BOT_TOKEN=TOKEN)
        async with App(found).running() as app:
            await api.say(f"/start {app.pairing_code}", 42)
            await api.until(lambda: api.bubbles(42))
        async with App(found).running() as app:
            assert app.pairing_code is None


async def test_case_33_admins_hear_once_that_a_key_is_refused(tmp_path: Path) -> None:
    refused = Script(status=401, body={"error": {"message": "bad key", "code": "invalid_api_key"}})
    async with BotApi() as api, Upstream(refused) as upstream:
        found = settings(tmp_path, api=api.url, provider=PAID.format(url=upstream.base_url), TELEGRAM_BOT_TOKEN=TOKEN)
        async with App(found).running() as app:
            await api.say(f"/start {app.pairing_code}", 42)
            await api.until(lambda: api.bubbles(42))
            await app.store.raise_limit("calls", "+", 10, None, "test")
            for number in range(3):
                with pytest.raises(ChainExhausted):
                    await app.dispatcher.complete(Request(messages=QUESTION), "default", Origin(f"r{number}", "cli"))
            await api.answered("first refuses its key (401)", 42)
            assert len([bubble for bubble in api.bubbles(42) if "refuses its key" in bubble.text]) == 1
            assert upstream.meter.requests == 1


async def test_a_token_that_telegram_does_not_know_ends_the_program(tmp_path: Path) -> None:
    from aiohttp import web

    async def refuse(_: web.Request) -> web.Response:
        return web.json_response({"ok": False, "error_code": 401, "description": "Unauthorized"}, status=401)

    server = web.Application()
    server.router.add_route("*", "/{rest:.*}", refuse)
    runner = web.AppRunner(server)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    app = App(settings(tmp_path, api=f"http://127.0.0.1:{runner.addresses[0][1]}", TELEGRAM_BOT_TOKEN=TOKEN))
    try:
        async with app.running(), asyncio.timeout(60):
            with pytest.raises(ConfigError, match="TELEGRAM_BOT_TOKEN: Telegram does not know this token"):
                await app.until_stopped()
    finally:
        await runner.cleanup()


def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    settings(tmp_path)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        done = subprocess.run(
            [*COMMAND, "serve"], cwd=tmp_path, env=environment(PORT=port), capture_output=True, text=True, timeout=60, check=False
        )
    assert done.returncode == 1
    assert port in done.stderr.splitlines()[-1]
    assert "PORT" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_gracefully(tmp_path: Path, number: signal.Signals) -> None:
    settings(tmp_path)
    # Also while it starts.
    for until in ("listens on", '"started"', "budgets_rebuilt"):
        (tmp_path / "var/sluicegate.db").unlink()
        settings(tmp_path)
        with serving(tmp_path, until=until) as (process, _):
            process.send_signal(number)
            assert process.wait(60) == 0


def test_log_lines_are_json_without_the_token(tmp_path: Path) -> None:
    settings(tmp_path)
    token = "123456789:" + "S" * 35
    with serving(tmp_path, TELEGRAM_BOT_TOKEN=token) as (process, said):
        process.send_signal(signal.SIGTERM)
        _, rest = process.communicate(timeout=60)
    lines = (said + rest).splitlines()
    assert token not in said + rest
    assert any(line.startswith('{"') and '"event": "started"' in line for line in lines)
