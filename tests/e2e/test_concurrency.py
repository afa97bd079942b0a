"""Many at once, in one and in two operating-system processes: exactly as many go out as there is room for."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import aiohttp
import pytest

from tests.doubles.upstream import Script, Upstream
from tests.e2e.rig import Answer, Gateway, GatewayProcess, budget, chat_body, config, prepared, provider

CALLS, ROOM = 200, 50
REPLY = 5


async def worst_case(tmp_path: Path, up: Upstream) -> int:
    """What the gate holds for one of the calls, as a budget without room says it."""
    async with Gateway(tmp_path / "probe", config(provider("moonshot", up), budget("b", tokens=1), chain=["moonshot"])) as probe:
        return int((await probe.chat(key="admin", max_tokens=REPLY)).error["asked"])


async def call(session: aiohttp.ClientSession, base: str, key: str, stream: bool) -> Answer:
    headers = {"Authorization": f"Bearer {key}"}
    body = chat_body(stream=stream, max_tokens=REPLY)
    async with session.post(f"{base}/v1/chat/completions", json=body, headers=headers) as response:
        return Answer(response.status, {k.lower(): v for k, v in response.headers.items()}, await response.read())


@pytest.mark.parametrize("processes", [1, 2])
async def test_of_200_calls_with_room_for_50_exactly_50_reach_the_upstream(
    tmp_path: Path, up: Upstream, empty_database: str, processes: int
) -> None:
    limit = ROOM * await worst_case(tmp_path, up) + REPLY
    text = config(
        provider("moonshot", up),
        budget("tokens", provider="moonshot", tokens=limit, per="day"),
        budget("requests", requests=CALLS, per="day"),
        budget("person", user="*", tokens=10 * limit, per="day"),
        chain=["moonshot"],
    )
    up.default = Script(gate=True, pieces=REPLY)
    async with Gateway(tmp_path, text, database_url=empty_database) as books, AsyncExitStack() as stack:
        servers = [
            await stack.enter_async_context(GatewayProcess(tmp_path / "sluicegate.toml", {"DATABASE_URL": empty_database}))
            for _ in range(processes)
        ]
        session = await stack.enter_async_context(aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)))
        key = books.keys["user"]
        calls = [
            asyncio.create_task(call(session, servers[number % processes].base, key, stream=bool(number % 4 < 2)))
            for number in range(CALLS)
        ]
        await books.until(lambda: sum(one.done() for one in calls) == CALLS - ROOM and up.meter.waiting == ROOM, 60)
        assert up.meter.answered == 0
        up.release()
        answers = await asyncio.gather(*calls)
        assert sorted(answer.status for answer in answers) == [200] * ROOM + [429] * (CALLS - ROOM)
        assert {answer.headers["retry-after"] for answer in answers if answer.status == 429} == {"1"}
        assert (up.meter.requests, up.meter.answered) == (ROOM, ROOM)
        assert up.meter.tokens <= limit
        await books.until_nothing_is_held()
        assert (await books.budget("tokens"))["spent"] == up.meter.tokens
        assert (await books.budget("requests"))["spent"] == ROOM
        assert len(await books.rows()) == ROOM


async def test_case_35_a_gateway_that_is_killed_leaves_nothing_stuck(tmp_path: Path, up: Upstream, empty_database: str) -> None:
    text = config(provider("moonshot", up), budget("tokens", tokens=100_000, per="day"), chain=["moonshot"])
    up.default = Script(gate=True)
    environ = {"DATABASE_URL": empty_database}
    async with Gateway(tmp_path, text, database_url=empty_database) as alive, aiohttp.ClientSession() as session:
        async with GatewayProcess(tmp_path / "sluicegate.toml", environ) as victim:
            calls = [asyncio.create_task(call(session, victim.base, alive.keys["user"], stream)) for stream in (False, True)]
            await up.until(lambda: up.meter.waiting == 2)
            held = (await alive.budget("tokens"))["held"]
            assert held > 0
            await victim.kill()
            await asyncio.gather(*calls, return_exceptions=True)
        await alive.until_nothing_is_held()
        assert (await alive.budget("tokens"))["spent"] == held
        assert {(row["outcome"], row["uncertain"]) for row in await alive.rows()} == {("expired", "1")}
        up.release()
        assert (await alive.chat()).status == 200


def test_the_rig_writes_what_it_is_given(tmp_path: Path) -> None:
    settings = prepared(tmp_path, config(provider("a", "http://127.0.0.1:9/v1", aliases=["x"]), chain=["a"]), {})
    assert settings.providers["a"].aliases == ("x",)
