"""Approvals: asked once where those are who may decide, answered by a button, signed, and closed for everybody else."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from gateway.runs import Approval, Decision, Run, RunState, Starter
from tests.doubles.botapi import Bubble, Fault
from tests.telegram_bot.rig import ADMIN, GROUP, OTHER, PERSON, STRANGER, Rig, rig
from tests.telegram_bot.workflows import FILES, started

BOTH = ("starter", "admins")


async def asks(run: Rig, *who: str, chat: int = PERSON, question: str = "Write the report?", expires_h: int = 0) -> Approval:
    """A run in a chat that asks, as its worker would have it."""
    await run.api.say("/run tidy", PERSON, chat)
    made = await started(run)
    await run.runs.take(made.id, "worker")
    return await ask(run, made, *who, question=question, expires_h=expires_h)


async def ask(run: Rig, made: Run, *who: str, question: str = "Write the report?", expires_h: int = 0) -> Approval:
    expires = run.clock.now() + timedelta(hours=expires_h) if expires_h else None
    asked = await run.runs.ask_approval(made.id, "approve", question, who or BOTH, expires)
    await run.runs.set_state(made.id, RunState.WAITING_APPROVAL, waiting_until=expires)
    return asked


async def decision(run: Rig, asked: Approval) -> tuple[Decision, str]:
    found = await run.runs.approval(asked.id)
    return found.decision, found.by


async def question(run: Rig, chat: int = PERSON) -> Bubble:
    return await run.api.answered("✋ tidy asks:", chat)


async def test_case_43_and_57_a_stranger_and_the_wrong_person_tap_in_vain_and_the_right_one_counts_once(
    tmp_path: Path, sqlite_url: str
) -> None:
    async with rig(tmp_path, sqlite_url, files=FILES) as run:
        asked = await asks(run, chat=GROUP)
        bubble = await question(run, GROUP)
        assert bubble.text == "✋ tidy asks:\nWrite the report?"
        assert list(bubble.buttons) == ["✅ Approve", "✖️ Reject"]
        assert all(len(token.encode()) <= 64 for token in bubble.buttons.values())
        for user in (OTHER, STRANGER):
            await run.api.tap(bubble, "Approve", user)
            told = await run.api.alerted(f"P{user}")
            assert told.fields["show_alert"]
        assert await decision(run, asked) == (Decision.OPEN, "")
        before = dict(bubble.buttons)
        await run.api.tap(bubble, "Approve")
        await run.api.until(lambda: bubble.text == "✋ tidy asks:\nWrite the report?\n✅ Approved by P42." and not bubble.buttons)
        bubble.buttons = before
        await run.api.tap(bubble, "Reject", ADMIN)
        await run.api.alerted("This was approved already.")
        await run.api.tap(bubble, "Approve", PERSON)
        await run.api.alerted("This was approved already.")
        assert await decision(run, asked) == (Decision.APPROVED, "telegram:42")
        kept = [(entry.actor, entry.action, entry.subject) for entry in await run.bot.books.audit()]
        assert kept == [("telegram:42", "approved", f"run:{asked.run}")], "the audit keeps the one that counted"
        assert len(await run.runs.signals()) == 1


async def test_case_57_an_approval_is_answered_after_a_restart_and_an_admins_tap_counts(tmp_path: Path, sqlite_url: str) -> None:
    async with rig(tmp_path, sqlite_url, files=FILES) as run:
        asked = await asks(run)
        bubble = await question(run)
        run.clock.advance(days=9)
        await run.restart()
        await run.api.until(lambda: run.bot.ready)
        await run.api.tap(bubble, "Reject", ADMIN)
        await run.api.until(lambda: "✖️ Rejected by P1." in bubble.text)
        assert await decision(run, asked) == (Decision.REJECTED, "telegram:1")
        assert len(run.api.bubbles()) == 2, "the run's message and the question, each once"


async def test_case_57_an_expired_approval_says_so(tmp_path: Path, sqlite_url: str) -> None:
    async with rig(tmp_path, sqlite_url, files=FILES) as run:
        asked = await asks(run, expires_h=3)
        bubble = await question(run)
        assert "It can be answered until 15:01." in bubble.text
        before = dict(bubble.buttons)
        run.clock.advance(hours=4)
        await run.api.tap(bubble, "Approve")
        await run.api.alerted("no longer open")
        assert (await decision(run, asked))[0] is Decision.EXPIRED
        await run.api.until(lambda: "⌛ This is no longer open." in bubble.text and not bubble.buttons)
        bubble.buttons = before
        await run.api.tap(bubble, "Approve")
        await run.api.until(lambda: len(run.api.made("answerCallbackQuery")) == 2)
        assert (await decision(run, asked))[0] is Decision.EXPIRED


async def test_who_decided_elsewhere_is_written_under_the_question(tmp_path: Path, sqlite_url: str) -> None:
    async with rig(tmp_path, sqlite_url, files=FILES) as run:
        asked = await asks(run)
        bubble = await question(run)
        await run.runs.decide(asked.id, True, "http:ops")
        await run.api.until(lambda: "✅ Approved by http:ops." in bubble.text and not bubble.buttons)


async def test_what_only_admins_may_decide_is_asked_of_them_in_private_too(tmp_path: Path, sqlite_url: str) -> None:
    async with rig(tmp_path, sqlite_url, files=FILES) as run:
        asked = await asks(run, "admins", str(OTHER))
        mine, others = await question(run), [await question(run, chat) for chat in (ADMIN, OTHER)]
        await run.api.tap(mine, "Approve")
        await run.api.alerted("P42, you are not among those")
        await run.api.tap(others[1], "Approve", OTHER)
        await run.api.until(lambda: all("Approved by P43." in bubble.text for bubble in (mine, *others)))
        assert await decision(run, asked) == (Decision.APPROVED, "telegram:43")


async def test_a_schedule_that_tells_somebody_who_may_not_decide_asks_the_admins_too(tmp_path: Path, sqlite_url: str) -> None:
    async with rig(tmp_path, sqlite_url, files=FILES) as run:
        made = await run.bot._desk.flows.start("tidy", {}, Starter("schedule", "nightly", chat=str(PERSON)), key="s")
        await run.runs.take(made.id, "worker")
        asked = await ask(run, made, "admins")
        mine, theirs = await question(run), await question(run, ADMIN)
        await run.api.tap(mine, "Approve")
        await run.api.alerted("P42")
        await run.api.tap(theirs, "Reject", ADMIN)
        await run.api.until(lambda: "Rejected by P1." in mine.text)
        assert await decision(run, asked) == (Decision.REJECTED, "telegram:1")


async def test_a_run_without_a_chat_asks_the_admins_and_one_for_users_anybody_listed(tmp_path: Path, sqlite_url: str) -> None:
    async with rig(tmp_path, sqlite_url, files=FILES) as run:
        for key in ("a", "b"):
            made = await run.bot._desk.flows.start("tidy", {}, Starter("http", "ops", key="ops"), key=key)
            await run.runs.take(made.id, "worker")
            await ask(run, made, *(BOTH if key == "a" else ("users",)))
        await question(run, ADMIN)
        run.clock.advance(seconds=1)
        await asks(run, "users", chat=GROUP)
        bubble = await question(run, GROUP)
        await run.api.tap(bubble, "Approve", STRANGER)
        await run.api.alerted("P99")
        await run.api.tap(bubble, "Approve", OTHER)
        await run.api.until(lambda: "Approved by P43." in bubble.text)
        assert len(run.api.bubbles(ADMIN)) == 1


async def test_a_cancelled_run_closes_its_question(tmp_path: Path, sqlite_url: str) -> None:
    async with rig(tmp_path, sqlite_url, files=FILES) as run:
        asked = await asks(run)
        bubble = await question(run)
        await run.runs.set_state(asked.run, RunState.CANCELLED)
        await run.api.until(lambda: "no longer open" in bubble.text and not bubble.buttons)


async def test_a_question_that_may_have_arrived_is_not_repeated_and_is_answered_from_the_list(
    tmp_path: Path, sqlite_url: str
) -> None:
    async with rig(tmp_path, sqlite_url, files=FILES) as run:
        await run.api.say("/run tidy")
        await run.api.answered("tidy · queued")
        run.api.faults.append(Fault("sendMessage", cut=True, match=lambda fields: "asks:" in fields["text"]))
        made = await started(run)
        await run.runs.take(made.id, "worker")
        asked = await ask(run, made)
        bubble = await question(run)
        await run.eventually(lambda: run.bot._desk.posts.of(f"ask:{asked.id}"), lambda posts: posts[0].state == "uncertain")
        await run.api.say("/runs")
        listed = await run.api.answered("1. ✋ tidy · waiting for approval")
        await run.api.tap(listed, "1. tidy")
        await run.api.until(lambda: "Write the report?" in listed.text)
        await run.api.tap(listed, "Approve")
        await run.api.alerted("Approved.")
        assert (await decision(run, asked))[0] is Decision.APPROVED
        assert [one.text for one in run.api.bubbles()].count(bubble.text) == 1


async def test_a_hostile_question_cannot_pass_for_ours(tmp_path: Path, sqlite_url: str) -> None:
    async with rig(tmp_path, sqlite_url, files=FILES) as run:
        await asks(run, question="Fine?\n\n✅ Approved by P1.\u202e\n<b>x</b> [a](tg://user?id=1) " + "😀" * 5000)
        bubble = await question(run)
        quote = bubble.entities[0]
        assert quote["type"] == "blockquote"
        head, rest = bubble.text[: quote["offset"]], bubble.text[quote["offset"] :]
        assert head == "✋ tidy asks:\n"
        assert "\u202e" not in rest
        assert len(bubble.entities) == 1, "no link and no mention"
        assert quote["offset"] + quote["length"] == len(bubble.text.encode("utf-16-le")) // 2
