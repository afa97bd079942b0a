"""When a window opens, or a limit is raised: people first, then runs, the oldest first, and nothing past the limit."""

import asyncio
from pathlib import Path

from sqlalchemy import func, select

from gateway.clock import to_ms
from gateway.runs import RunState
from gateway.store.tables import refusals
from gateway.store.telegram import Arrival, Inbox, Lane, State
from tests.doubles.botapi import TOKEN, BotApi, message
from tests.doubles.upstream import Upstream
from tests.e2e.rig import budget, section
from tests.workflow.house import House

PEOPLE, RUNS, ROOM = 200, 50, 30
FIRST_PERSON = 1000
QUIET_S = 2.0


async def park_questions(here: House) -> None:
    """What a bot leaves in the database: questions whose people asked to be answered when the window opens."""
    inbox, now_ms = Inbox(here.app.database, int(TOKEN.split(":")[0])), to_ms(here.clock.now())
    for number in range(PEOPLE):
        person = FIRST_PERSON + number
        raw = {"update_id": number + 1, "message": message(number + 1, f"question {number}", person)}
        await inbox.add([Arrival(number + 1, Lane(person), person, raw)], now_ms + number)
        await inbox.take(number + 1, [State.RECEIVED])
        await inbox.park(number + 1, now_ms + 3_600_000, now_ms)


def asked(up: Upstream, since: int) -> list[str]:
    """What was asked of the upstream, in the order in which it came."""
    return [seen.body["messages"][-1]["content"] for seen in up.seen[since:]]


async def test_case_67_two_hundred_people_and_fifty_runs_with_room_for_thirty(tmp_path: Path, up: Upstream) -> None:
    async with BotApi() as api:
        bot = {"api_root": api.url, "admins": [1], "allowed_users": list(range(FIRST_PERSON, FIRST_PERSON + PEOPLE))}
        here = House(tmp_path, up, budget("hour", requests=ROOM, per="hour"), section("[telegram]", bot))
        here.environ["TELEGRAM_BOT_TOKEN"] = TOKEN
        await here.start()
        try:
            await here.succeeds(await here.begin("fans", items=ROOM, limit=ROOM))
            runs = []
            for number in range(RUNS):
                runs.append(await here.begin("says", text=f"run {number}"))
                here.clock.advance(0.001)
            for run in runs:
                await here.reaches(run, RunState.WAITING_BUDGET)
            await park_questions(here)
            await here.stop()
            here.roles = frozenset({"bot", "worker"})
            await here.start()
            await _all_parked(here, PEOPLE, RUNS)
            assert len(up.seen) == ROOM

            here.clock.advance(hours=1)
            await here.until(lambda: len(up.seen) >= 2 * ROOM, timeout_s=120)
            await _all_parked(here, PEOPLE - ROOM, RUNS)
            # The gate takes them in order; on their way to the upstream two calls may pass each other.
            assert set(asked(up, ROOM)) == {f"question {number}" for number in range(ROOM)}

            # Room for everybody else and for twenty of the runs.
            more = PEOPLE - ROOM + 20
            await here.app.store.raise_limit("hour", "+", more, None, "test")
            await here.until(lambda: len(up.seen) >= 2 * ROOM + more, timeout_s=120)
            await _all_parked(here, 0, RUNS - 20)
            order = asked(up, 2 * ROOM)
            assert set(order[: PEOPLE - ROOM]) == {f"question {number}" for number in range(ROOM, PEOPLE)}
            assert set(order[PEOPLE - ROOM :]) == {f"run {number}" for number in range(20)}
            assert len(order) == more
            for run in runs[:20]:
                await here.succeeds(run)
        finally:
            await here.stop()


async def _all_parked(here: House, people: int, runs: int) -> None:
    """Waits until so many questions and runs are parked, and for two seconds nobody has asked the gate."""
    quiet_since, asked_before = 0.0, -1
    loop = asyncio.get_running_loop()
    count = select(func.count()).select_from(refusals)
    async with asyncio.timeout(180):
        while True:
            worker, bot = here.app.worker, here.app.bot
            assert worker is not None
            assert bot is not None
            asked_now = len(here.upstream.seen) + await here.app.database.read(lambda at: at.execute(count).scalar_one())
            if asked_now != asked_before:
                quiet_since, asked_before = loop.time(), asked_now
            parked = await here.runs.parked(limit=1000)
            found = bot.parked, len(parked), worker.parked, bot.queue_depth
            if found == (people, runs, runs, 0) and loop.time() - quiet_since > QUIET_S:
                return
            await asyncio.sleep(0.1)
