"""Notices with buttons, and questions that wait."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from gateway.budget import Budgets
from tests.doubles.own_time import within
from tests.doubles.upstream import Script
from tests.telegram_bot.rig import ADMIN, GROUP, HOURLY, OTHER, PERSON, Rig, rig

ONE = '[[budgets]]\nname = "team-hour"\nrequests = {n}\nper = "hour"\n'


async def spent(run: Rig, user: int = OTHER) -> None:
    await run.api.say("takes what there is", user)
    await run.api.answered("Answer from the first.", user)
    await run.idle()


async def test_case_43_a_stranger_or_another_person_taps_in_vain_and_the_asker_counts_once(
    tmp_path: Path, sqlite_url: str
) -> None:
    async with rig(tmp_path, sqlite_url, budgets=ONE.format(n=1), telegram='groups = "all"') as run:
        await spent(run)
        await run.api.say("question", PERSON, GROUP)
        notice = await run.api.answered("used up", GROUP)
        assert all(len(token.encode()) <= 64 for token in notice.buttons.values())
        before = dict(notice.buttons)
        for user in (99, OTHER):
            await run.api.tap(notice, "Answer me", user)
            call = await run.api.until(lambda: run.api.made("answerCallbackQuery")[-1:])
            await run.api.until(lambda user=user: f"P{user}" in run.api.made("answerCallbackQuery")[-1].text)
            assert call[0].fields["show_alert"]
        assert notice.buttons == before
        await run.api.tap(notice, "Answer me", PERSON)
        await run.api.until(lambda: list(notice.buttons) == ["Cancel"])
        notice.buttons = before
        await run.api.tap(notice, "Answer me", PERSON)
        await run.api.until(lambda: "already" in run.api.made("answerCallbackQuery")[-1].text)
        run.clock.advance(hours=1)
        await run.api.answered("Answer from the first.", GROUP)
        assert run.first.meter.requests == 2


async def test_case_43_an_admins_tap_counts(tmp_path: Path, sqlite_url: str) -> None:
    async with rig(tmp_path, sqlite_url, budgets=ONE.format(n=0), telegram='groups = "all"') as run:
        await run.api.say("/pause", ADMIN)
        await run.api.answered("Paused", ADMIN)
        await run.api.say("question", PERSON, GROUP)
        notice = await run.api.answered("paused", GROUP)
        await run.api.tap(notice, "Cancel", ADMIN)
        await run.api.until(lambda: "Cancelled" in notice.text and not notice.buttons)


async def test_case_12_a_raise_answers_parked_questions_within_a_second(tmp_path: Path, sqlite_url: str) -> None:
    async with rig(tmp_path, sqlite_url, budgets=ONE.format(n=1)) as run:
        await spent(run)
        await run.api.say("question", PERSON)
        notice = await run.api.answered("used up")
        await run.api.tap(notice, "Answer me")
        await run.api.until(lambda: list(notice.buttons) == ["Cancel"])
        await run.api.say("/raise team-hour +1 2h", ADMIN)
        await run.api.answered("team-hour", ADMIN)
        async with within(1.5):
            await run.api.answered("Answer from the first.")


async def test_case_12_a_limit_that_the_file_raises_answers_parked_questions_at_the_reload(
    tmp_path: Path, sqlite_url: str
) -> None:
    async with rig(tmp_path, sqlite_url, budgets=ONE.format(n=1)) as run:
        await spent(run)
        await run.api.say("question", PERSON)
        notice = await run.api.answered("used up")
        await run.api.tap(notice, "Answer me")
        await run.api.until(lambda: list(notice.buttons) == ["Cancel"])
        old = run.settings.budgets.by_name["team-hour"]
        await run.store.use(Budgets((replace(old, limit=2),)), lambda _: None)
        await run.api.answered("Answer from the first.")


async def test_a_parked_question_waits_when_it_meets_no_room_and_expires_with_a_word(tmp_path: Path, sqlite_url: str) -> None:
    async with rig(tmp_path, sqlite_url, budgets=ONE.format(n=1), telegram="parked_for_h = 2") as run:
        await spent(run)
        await run.api.say("question", PERSON)
        notice = await run.api.answered("used up")
        await run.api.tap(notice, "Answer me")
        await run.api.until(lambda: list(notice.buttons) == ["Cancel"])
        run.store.raises.clear()
        await run.api.say("/pause", ADMIN)
        await run.api.answered("Paused", ADMIN)
        run.clock.advance(hours=1, minutes=30)
        await run.idle()
        assert len(run.api.bubbles()) == 1, "it waits without a word"
        run.clock.advance(minutes=31)
        expired = await run.api.answered("waited too long")
        assert expired.reply_to is not None
        await run.api.until(lambda: "no longer waits" in notice.text and not notice.buttons)
        await run.api.say("/resume", ADMIN)
        await run.idle()
        assert run.first.meter.requests == 1


async def test_another_model_answers_at_once(tmp_path: Path, sqlite_url: str) -> None:
    budgets = HOURLY.replace(
        'name = "groq-hour"\nprovider = "groq"\nrequests = 1', 'name = "chain-hour"\nchain = "default"\nrequests = 1'
    )
    async with rig(tmp_path, sqlite_url, budgets=budgets) as run:
        await spent(run)
        await run.api.say("question", PERSON)
        notice = await run.api.answered("used up")
        await run.api.tap(notice, "another model")
        await run.api.until(lambda: "groq" in notice.buttons)
        assert "moonshot" not in notice.buttons
        await run.api.tap(notice, "groq")
        await run.api.answered("Answer from the second.")
        await run.api.until(lambda: notice.text == "✅ The answer is below.")
        await run.api.say("next", PERSON)
        await run.api.until(lambda: len(run.api.bubbles()) == 3)
        assert "used up" in run.api.bubbles()[-1].text, "the choice was for one question"


async def test_an_admin_is_asked_for_more_and_does_it_with_the_command_at_hand(tmp_path: Path, sqlite_url: str) -> None:
    async with rig(tmp_path, sqlite_url, budgets=ONE.format(n=1)) as run:
        await spent(run)
        await run.api.say("question", PERSON)
        notice = await run.api.answered("used up")
        assert "team-hour" not in notice.text
        await run.api.tap(notice, "Ask an admin")
        told = await run.api.answered("asks for more", ADMIN)
        assert str(PERSON) in told.text
        await run.api.until(lambda: "admins are told" in notice.text and list(notice.buttons) == ["Cancel"])
        await run.api.say(told.text.splitlines()[-1], ADMIN)
        await run.api.answered("team-hour: ", ADMIN)
        await run.api.answered("Answer from the first.")


async def test_an_admin_hears_of_the_same_person_once_in_a_while(tmp_path: Path, sqlite_url: str) -> None:
    async with rig(tmp_path, sqlite_url, budgets=ONE.format(n=0)) as run:
        for n in range(3):
            await run.api.say(f"question {n}", PERSON)
            await run.api.until(lambda n=n: len(run.api.bubbles()) == n + 1)
            await run.api.tap(run.api.bubbles()[n], "Ask an admin")
            await run.api.until(lambda n=n: "admins are told" in run.api.bubbles()[n].text)
        await run.idle()
        assert len(run.api.bubbles(ADMIN)) == 1
        assert run.first.meter.requests == 0
        await run.api.say("/raise team-hour +9", ADMIN)
        await run.api.until(lambda: len(run.api.bubbles()) == 6)


async def test_a_notice_follows_its_question(tmp_path: Path, sqlite_url: str) -> None:
    async with rig(tmp_path, sqlite_url, budgets=ONE.format(n=1)) as run:
        await spent(run)
        sender = {"id": PERSON, "is_bot": False, "first_name": "Ana", "language_code": "es"}
        await run.api.say("pregunta", PERSON, **{"from": sender})
        notice = await run.api.answered("13:00")
        await run.api.tap(notice, "Respóndeme", ADMIN)
        await run.api.until(lambda: notice.text == "⏳ Guardada. Recibirás la respuesta a las 13:00.")
        await run.api.say("/pause 2h", ADMIN)
        await run.api.until(lambda: "14:00" in notice.text and list(notice.buttons) == ["Cancelar"])
        await run.restart()
        await run.api.say("/resume", ADMIN)
        await run.api.until(lambda: "13:00" in notice.text)
        await run.idle()
        run.clock.advance(hours=1)
        await run.api.answered("Answer from the first.")
        await run.api.until(lambda: notice.text == "✅ La respuesta está abajo." and not notice.buttons)


async def test_cancel_by_command_and_by_button(tmp_path: Path, sqlite_url: str) -> None:
    async with rig(tmp_path, sqlite_url, budgets=ONE.format(n=1)) as run:
        await spent(run)
        await run.api.say("question", PERSON)
        notice = await run.api.answered("used up")
        await run.api.tap(notice, "Answer me")
        await run.api.until(lambda: list(notice.buttons) == ["Cancel"])
        await run.api.say("/cancel", PERSON)
        before = dict(notice.buttons)
        await run.api.until(lambda: [bubble.text for bubble in run.api.bubbles()] == ["Cancelled.", "Cancelled."])
        assert not notice.buttons
        notice.buttons = before
        await run.api.tap(notice, "Cancel")
        await run.api.until(lambda: "no longer waits" in run.api.made("answerCallbackQuery")[-1].text)
        run.clock.advance(hours=1)
        await run.idle()
        assert run.first.meter.requests == 1


async def test_case_67_parked_people_come_oldest_first_and_nothing_passes_the_limit(tmp_path: Path, sqlite_url: str) -> None:
    people = list(range(100, 112))
    lists = f"allowed_users = {[OTHER, *people]}"
    async with rig(tmp_path, sqlite_url, budgets=ONE.format(n=4), lists=lists) as run:
        for n in range(4):
            await run.api.say(f"takes {n}", OTHER)
        await run.api.until(lambda: len(run.api.bubbles(OTHER)) == 4)
        for person in people:
            await run.api.say(f"question of {person}", person)
            notice = await run.api.answered("used up", person)
            await run.api.tap(notice, "Answer me", person)
        await run.api.until(lambda: all(list(run.api.bubbles(person)[0].buttons) == ["Cancel"] for person in people))
        run.first.default = Script(text="Late answer.")
        for window in range(3):
            run.clock.advance(hours=1)
            due = people[4 * window : 4 * window + 4]
            await run.api.until(lambda due=due: all(len(run.api.bubbles(person)) == 2 for person in due))
            await run.idle()
            assert run.first.meter.requests == 4 + 4 * (window + 1)
        asked = [seen.body["messages"][-1]["content"] for seen in run.first.seen[4:]]
        assert asked == [f"question of {person}" for person in people]


async def test_case_64_holds_only_make_a_message_wait_and_no_notice(tmp_path: Path, sqlite_url: str) -> None:
    # Beside the first question's hold there is no room for the least useful reply.
    budgets = '[[budgets]]\nname = "team-hour"\ntokens = 1100\nper = "hour"\n'
    async with rig(tmp_path, sqlite_url, budgets=budgets) as run:
        run.first.queue.append(Script(text="Slow one.", gate=True))
        await run.api.say("first", OTHER)
        await run.first.until(lambda: run.first.meter.requests == 1)
        await run.api.say("second", PERSON)
        await run.eventually(run.refusals, lambda found: found)
        assert (run.bot.queue_depth, run.api.bubbles(PERSON)) == (2, [])
        run.first.release()
        # By whichever provider is asked first once there is room.
        await run.api.answered("Answer from the ", PERSON)
        assert len(run.api.bubbles(PERSON)) == 1


async def test_a_notice_is_in_the_persons_language(tmp_path: Path, sqlite_url: str) -> None:
    async with rig(tmp_path, sqlite_url, budgets=ONE.format(n=1)) as run:
        await spent(run)
        sender = {"id": PERSON, "is_bot": False, "first_name": "Ana", "language_code": "es-MX"}
        await run.api.say("pregunta", PERSON, **{"from": sender})
        notice = await run.api.answered("13:00")
        assert "cupo" in notice.text
        assert any("Respóndeme" in label or "Responde" in label for label in notice.buttons)


async def test_the_gate_that_cannot_be_written_is_said_plainly(tmp_path: Path, sqlite_url: str) -> None:
    async with rig(tmp_path, sqlite_url, budgets=HOURLY) as run:
        from gateway.errors import LedgerUnavailable

        async def gone(_: object) -> None:
            raise LedgerUnavailable("gone")

        run.store.reserve = gone  # type: ignore[method-assign, assignment]
        await run.api.say("question", PERSON)
        await run.api.answered("ledger cannot be written")
        assert run.first.meter.requests == 0
