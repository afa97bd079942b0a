"""Workflows are started, followed and cancelled from a chat."""

from __future__ import annotations

from pathlib import Path

from gateway.runs import RunState, Starter
from tests.doubles.botapi import Fault, message, person
from tests.telegram_bot.rig import ADMIN, GROUP, OTHER, PERSON, Rig, rig
from tests.telegram_bot.workflows import FILES, RULES, ended, started, worked


async def states(run: Rig) -> list[RunState]:
    return [one.state for one in await run.runs.newest()]


async def test_case_53_a_message_that_comes_twice_starts_one_run(tmp_path: Path, sqlite_url: str) -> None:
    async with rig(tmp_path, sqlite_url, files=FILES) as run:
        raw = {"update_id": 7, "message": message(1, '/run news topic="oil prices" limit=3')}
        await run.bot._source.take([raw])
        await run.bot._source.take([raw, raw])
        made = await started(run)
        assert made.params == {"topic": "oil prices", "depth": "short", "quiet": False, "limit": 3}
        assert (made.workflow, made.starter.user, made.starter.chat, made.starter.bot) == ("news", "42", "42", 123456)
        await run.api.answered("news · queued")
        # As after a crash between the start and its note in the inbox: the update is handled once more.
        await run.bot._desk.flows.start("news", {"topic": "oil prices", "limit": "3"}, made.starter, key="tg:123456:7")
        await run.restart()
        await run.api.until(lambda: run.bot.ready)
        await run.bot._source.take([raw])
        await run.api.say("/run tidy")
        await run.api.answered("tidy · queued")
        assert sorted(one.workflow for one in await run.runs.newest()) == ["news", "tidy"]


async def test_case_56_what_is_wrong_with_a_start_is_named_and_nothing_runs(tmp_path: Path, sqlite_url: str) -> None:
    async with rig(tmp_path, sqlite_url, files=FILES, workflows=RULES) as run:
        for said, answers in (
            ("/run nope", ["no workflow nope", "news, tidy"]),
            ("/run secret", ["P42", "may not start secret"]),
            ("/run news topic=a limit=many colour=red", ["limit: must be a whole number", "colour: is unknown"]),
            ("/run news limit=many", ["topic: is missing", "limit: must be a whole number"]),
            ("/run news topic=a stray", ["“stray” is no key=value"]),
            ("/run news topic=a topic=b", ["“topic” is given twice"]),
            ('/run news topic="a', ["A quote is not closed"]),
        ):
            before = len(run.api.bubbles())
            await run.api.say(said)
            await run.api.until(lambda before=before: len(run.api.bubbles()) > before)
            assert all(answer in run.api.bubbles()[-1].text for answer in answers), run.api.bubbles()[-1].text
        await run.idle()
        assert await run.runs.newest() == []
        assert run.first.meter.requests == 0


async def test_a_person_sees_what_they_may_start_and_starts_it_by_a_button(tmp_path: Path, sqlite_url: str) -> None:
    async with rig(tmp_path, sqlite_url, files=FILES, workflows=RULES) as run:
        await run.api.say("/workflows")
        shown = await run.api.answered("news: Sums up the news.")
        assert {"▶️ news", "▶️ tidy"} <= set(shown.buttons)
        assert "▶️ secret" not in shown.buttons
        assert all(len(token.encode()) <= 64 for token in shown.buttons.values())
        await run.api.tap(shown, "tidy")
        card = await run.api.answered("tidy · queued")
        await run.api.tap(shown, "tidy")
        await run.api.alerted("used already")
        await worked(run.runs, (await started(run)).id, "sweep")
        await run.api.until(lambda: card.text == "▶️ tidy · running\n✅ sweep")
        await run.api.say("/workflows", ADMIN)
        assert "secret" in (await run.api.answered("tidy:", ADMIN)).text
        await run.api.tap(shown, "tidy", OTHER)
        await run.api.alerted("P43")
        assert len(await run.runs.newest()) == 1


async def test_case_52_the_one_message_of_a_run_says_what_it_waits_for_until_when_and_how_it_ended(
    tmp_path: Path, sqlite_url: str
) -> None:
    async with rig(tmp_path, sqlite_url, files=FILES) as run:
        await run.api.say("/run news topic=oil")
        card = await run.api.answered("news · queued")
        assert list(card.buttons) == ["✖️ Cancel"]
        made = await started(run)
        await worked(run.runs, made.id, "fetch")
        await run.runs.step_began(made.id, "summary", "ask")
        await run.api.until(lambda: card.text == "▶️ news · running\n✅ fetch\n▶️ summary")
        opens = run.clock.now().replace(hour=14, minute=20, second=0)
        await run.runs.step_waits(made.id, "summary", "ask", opens, "budget team-hour")
        await run.runs.set_state(made.id, RunState.WAITING_BUDGET, waiting_until=opens, waiting_for="team-hour")
        await run.api.until(lambda: card.text.startswith("⏳ news · waiting for budget until 14:20"))
        assert "team-hour" not in card.text
        await run.restart()
        await run.api.until(lambda: run.bot.ready)
        await run.runs.step_began(made.id, "summary", "ask")
        await run.runs.set_state(made.id, RunState.RUNNING)
        await run.api.until(lambda: card.text.startswith("▶️ news · running\n✅ fetch\n▶️ summary"))
        await ended(run.runs, made.id)
        await run.api.until(lambda: card.text.startswith("✅ news · done") and not card.buttons)
        assert len(run.api.bubbles()) == 1


async def test_case_42_a_run_is_told_in_the_topic_in_which_it_was_started(tmp_path: Path, sqlite_url: str) -> None:
    async with rig(tmp_path, sqlite_url, files=FILES) as run:
        await run.api.say("/run tidy", PERSON, GROUP, message_thread_id=3, is_topic_message=True)
        await run.api.say("/run tidy", PERSON, GROUP)
        await run.api.until(lambda: len(run.api.bubbles(GROUP)) == 2)
        assert {bubble.thread for bubble in run.api.bubbles(GROUP)} == {3, None}
        runs = await run.runs.newest()
        assert {one.starter.thread for one in runs} == {3, None}
        for one in runs:
            await ended(run.runs, one.id)
        await run.api.until(lambda: all("done" in bubble.text for bubble in run.api.bubbles(GROUP)))
        assert len(run.api.bubbles(GROUP)) == 2
        assert {call.thread for call in run.api.made("sendMessage", GROUP)} == {3, None}


async def test_a_run_of_a_schedule_is_told_where_the_schedule_says_with_its_cost_for_an_admin(
    tmp_path: Path, sqlite_url: str
) -> None:
    async with rig(tmp_path, sqlite_url, files=FILES) as run:
        for chat, key in ((str(ADMIN), "a"), (str(GROUP), "b")):
            starter = Starter("schedule", "morning", chat=chat, thread=5 if chat == str(GROUP) else None)
            await run.bot._desk.flows.start("tidy", {}, starter, key=key)
        await run.api.answered("tidy · queued", ADMIN)
        assert (await run.api.answered("tidy · queued", GROUP)).thread == 5


async def test_cost_is_shown_in_an_admins_own_chat_only(tmp_path: Path, sqlite_url: str) -> None:
    async with rig(tmp_path, sqlite_url, files=FILES) as run:
        for user, chat in ((ADMIN, ADMIN), (ADMIN, GROUP), (PERSON, PERSON)):
            await run.api.say("/run tidy", user, chat)
            card = await run.api.answered("tidy · queued", chat)
            made = await started(run)
            await run.spend(made.id, tokens=1200, micro_usd=30_000)
            await ended(run.runs, made.id)
            await run.api.until(lambda card=card: "done" in card.text)
            assert ("$0.03" in card.text) == (chat == ADMIN)


async def test_a_persons_runs_are_listed_with_details_and_buttons(tmp_path: Path, sqlite_url: str) -> None:
    async with rig(tmp_path, sqlite_url, files=FILES) as run:
        await run.api.say("/runs")
        await run.api.answered("No runs yet")
        await run.api.say("/run news topic=oil")
        card = await run.api.answered("news · queued")
        made = await started(run)
        await worked(run.runs, made.id, "fetch")
        await ended(run.runs, made.id, RunState.FAILED, "the feed is gone")
        await run.api.until(lambda: "the feed is gone" in card.text and list(card.buttons) == ["🔁 Try again from here"])
        await run.api.say("/runs")
        listed = await run.api.answered("1. ❌ news · failed")
        await run.api.tap(listed, "1. news")
        await run.api.until(lambda: "the feed is gone" in listed.text and made.id in listed.text)
        assert list(listed.buttons) == ["🔁 Try again from here", "‹ Runs"]
        await run.api.tap(listed, "‹ Runs")
        await run.api.until(lambda: list(listed.buttons) == ["1. news"])
        for name in ("runs", "run"):
            await run.api.say(f"/{name}", OTHER)
        await run.api.answered("No runs yet", OTHER)
        await run.api.say("/runs", ADMIN)
        assert "telegram:42" in (await run.api.answered("news · failed", ADMIN)).text
        await run.api.tap(card, "Try again", OTHER)
        await run.api.alerted("P43, only the one who started")
        await run.api.tap(card, "Try again")
        await run.api.until(lambda: card.text.startswith("🕓 news · queued"))
        assert (await run.runs.get(made.id)).generation == 1


async def test_cancel_by_button_by_name_and_alone_overtakes_the_lane(tmp_path: Path, sqlite_url: str) -> None:
    async with rig(tmp_path, sqlite_url, files=FILES) as run:
        await run.api.say("/cancel")
        await run.api.answered("Nothing of yours waits here")
        await run.api.say("/run tidy")
        card = await run.api.answered("tidy · queued")
        await run.api.tap(card, "Cancel", OTHER)
        await run.api.alerted("P43")
        await run.api.say("/cancel")
        await run.api.until(lambda: card.text.startswith("🚫 tidy · cancelled") and not card.buttons)
        await run.api.say("/run tidy")
        await run.api.say("/run tidy")
        await run.eventually(lambda: states(run), lambda found: len(found) == 3)
        await run.api.say("/cancel")
        which = await run.api.answered("Which run")
        assert len(which.buttons) == 2
        second = (await run.runs.newest(state=RunState.QUEUED))[0]
        await run.runs.take(second.id, "worker")
        await run.api.say(f"/cancel {second.id.upper()}")
        await run.eventually(lambda: run.runs.get(second.id), lambda found: found.wanted == "cancel")
        await run.api.answered("tidy · being cancelled")
        await run.api.say(f"/cancel {second.id}", OTHER)
        await run.api.answered(f"You have no run {second.id}", OTHER)
        await run.api.tap(which, which_label(which.buttons, second.id, other=True))
        await run.eventually(lambda: states(run), lambda found: found.count(RunState.CANCELLED) == 2)


def which_label(buttons: dict[str, str], run_id: str, *, other: bool) -> str:
    return next(label for label, token in buttons.items() if token.endswith(run_id) != other)


async def test_a_first_message_that_may_have_arrived_is_not_repeated_but_the_end_is_told(tmp_path: Path, sqlite_url: str) -> None:
    async with rig(tmp_path, sqlite_url, files=FILES) as run:
        run.api.faults.append(Fault("sendMessage", cut=True))
        await run.api.say("/run tidy")
        made = await started(run)
        await run.eventually(lambda: run.runs.untold(123456), lambda found: not found)
        await worked(run.runs, made.id, "sweep")
        await run.eventually(lambda: run.runs.untold(123456), lambda found: not found)
        assert [bubble.text for bubble in run.api.bubbles()] == ["🕓 tidy · queued"]
        await ended(run.runs, made.id)
        await run.api.answered("✅ tidy · done")
        await run.eventually(lambda: run.runs.untold(123456), lambda found: not found)
        assert len(run.api.bubbles()) == 2


async def test_telegram_that_cannot_be_reached_is_tried_again_and_hears_of_a_run_once(tmp_path: Path, sqlite_url: str) -> None:
    async with rig(tmp_path, sqlite_url, files=FILES) as run:
        run.api.faults.append(Fault("sendMessage", "Bad Gateway", 502))
        await run.api.say("/run tidy")
        await run.api.answered("tidy · queued", timeout_s=30)
        await run.eventually(lambda: run.runs.untold(123456), lambda found: not found)
        assert len(run.api.bubbles()) == 1


async def test_a_blocked_chat_ends_no_run_and_holds_nothing_up(tmp_path: Path, sqlite_url: str) -> None:
    async with rig(tmp_path, sqlite_url, files=FILES) as run:
        forbidden = Fault("sendMessage", "Forbidden: bot was blocked by the user", 403, times=99)
        forbidden.match = lambda fields: int(fields["chat_id"]) == PERSON
        run.api.faults.append(forbidden)
        await run.api.say("/run tidy")
        await started(run)
        await run.eventually(lambda: run.runs.untold(123456), lambda found: not found)
        await run.api.say("/run tidy", OTHER)
        await run.api.answered("tidy · queued", OTHER)


async def test_menus_have_the_commands_of_workflows(tmp_path: Path, sqlite_url: str) -> None:
    async with rig(tmp_path, sqlite_url) as run:
        menus = await run.api.until(lambda: run.api.made("setMyCommands")[:4])
        for name in ("run", "workflows", "runs", "cancel"):
            assert all(f'"{name}"' in call.fields["commands"] for call in menus)


async def test_a_run_speaks_the_language_of_the_one_who_started_it(tmp_path: Path, sqlite_url: str) -> None:
    async with rig(tmp_path, sqlite_url, files=FILES) as run:
        await run.api.say("/run tidy", PERSON, **{"from": person(PERSON, "es-MX")})
        card = await run.api.answered("tidy · en cola")
        assert list(card.buttons) == ["✖️ Cancelar"]
