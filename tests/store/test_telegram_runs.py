"""What the bot remembers of runs: messages are claimed once, forms count each step once, on SQLite and on PostgreSQL."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from gateway.runs import Run, RunState, Starter
from gateway.store.database import Database
from gateway.store.runs import Runs
from gateway.store.telegram import Lane
from gateway.store.telegram_runs import Form, Forms, Post, Posts, PostState
from tests.doubles.clock import SettableClock

HERE, THERE = Lane(42), Lane(-100, 7)
FORM = Form("f1", HERE, 42, "news", 7, 1000, {"topic": "a\0b\ud800 😀"}, ("limit",), heard=7)


@pytest.fixture
async def runs(database: Database) -> Runs:
    made = Runs(database, SettableClock())
    run = Run("r1", "news", RunState.QUEUED, {}, Starter("telegram", "42", chat="42", bot=1), SettableClock().now())
    await made.start(run)
    await made.take("r1", "worker")
    return made


async def the(posts: Posts, subject: str) -> Post:
    (found,) = await posts.of(subject)
    return found


async def test_a_message_is_claimed_by_one_and_another_bot_leaves_it_alone(database: Database, runs: Runs) -> None:
    posts, others = Posts(database, 1), Posts(database, 2)
    await asyncio.gather(posts.want("run:r1", [HERE]), posts.want("run:r1", [HERE]))
    await others.want("run:r1", [HERE])
    assert await others.of("run:r1") == []
    post = await the(posts, "run:r1")
    assert sorted(await asyncio.gather(*(posts.claim(post, 5) for _ in range(4)))) == [False, False, False, True]
    sending = await the(posts, "run:r1")
    assert (sending.state, sending.claimed_ms) == (PostState.SENDING, 5)
    await posts.end(sending, PostState.SENT, 99, "ended")
    assert await the(posts, "run:r1") == Post("run:r1", HERE, PostState.SENT, 99, 5, "ended")
    await posts.want("run:r1", [HERE])
    assert (await the(posts, "run:r1")).state is PostState.SENT


async def test_approvals_are_to_be_placed_sent_and_signed(database: Database, runs: Runs) -> None:
    posts = Posts(database, 1)
    first = await runs.ask_approval("r1", "one", "?", ["admins"])
    second = await runs.ask_approval("r1", "two", "?", ["admins"])
    assert set(await posts.unasked()) == {first.id, second.id}
    await posts.want(f"ask:{first.id}", [HERE, THERE])
    await posts.want(f"ask:{second.id}", [Lane(0)], PostState.FAILED)
    assert await posts.unasked() == []
    pending = await posts.stale()
    assert {post.lane for post in pending} == {HERE, THERE}
    for number, post in enumerate(pending):
        assert await posts.claim(post, 5)
        await posts.end(post, PostState.SENT, number)
    assert await posts.stale() == []
    await runs.decide(first.id, True, "telegram:1")
    behind = await posts.stale()
    assert len(behind) == 2
    for post in behind:
        await posts.end(post, PostState.SENT, post.message_id, "approved")
    assert await posts.stale() == []


async def test_messages_are_forgotten_with_their_run(database: Database, runs: Runs) -> None:
    posts = Posts(database, 1)
    asked = await runs.ask_approval("r1", "one", "?", ["admins"])
    for subject in ("run:r1", f"ask:{asked.id}"):
        await posts.want(subject, [HERE])
    await posts.prune()
    assert len(await posts.of("run:r1")) == len(await posts.of(f"ask:{asked.id}")) == 1
    await runs.set_state("r1", RunState.FAILED)
    await runs.forget(["r1"])
    await posts.prune()
    assert await posts.of("run:r1") == await posts.of(f"ask:{asked.id}") == []


async def test_a_person_has_one_form_in_a_conversation_and_each_step_counts_once(database: Database) -> None:
    forms = Forms(database, 1)
    assert await forms.begin(FORM) is None
    kept = await forms.get("f1")
    assert kept == replace(FORM, given={"topic": "a\ufffdb? 😀"})
    assert await forms.begin(replace(FORM, id="again")) is None, "the same update opens one form"
    assert await forms.open(HERE, 42) == kept
    await forms.asked("f1", 99)
    step = replace(FORM, step=1, given={"topic": "b"}, heard=8)
    assert sorted(await asyncio.gather(forms.save(step), forms.save(replace(step, given={"topic": "c"})))) == [False, True]
    newer = await forms.begin(replace(FORM, id="f2", update_id=9))
    assert newer is not None
    assert (newer.id, newer.step, newer.message_id) == ("f1", 1, 99)
    await forms.begin(replace(FORM, id="f3", lane=THERE, update_id=10))
    assert await Forms(database, 2).get("f2") is None
    assert await forms.end("f2")
    assert not await forms.end("f2")
    assert await forms.open(HERE, 42) is None
    await forms.prune(1000)
    assert await forms.get("f3") is not None
    await forms.prune(1001)
    assert await forms.get("f3") is None
