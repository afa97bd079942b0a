"""The transactions of workflows, on SQLite and on PostgreSQL."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import insert

from gateway.errors import RequestConflict, UnknownRun, WrongState
from gateway.runs import Caps, Decision, NoticeState, Run, RunState, Starter, StepState
from gateway.store.database import Database
from gateway.store.fires import Fires
from gateway.store.runs import Runs
from gateway.store.tables import usage
from tests.doubles.clock import SettableClock

ADA = Starter("telegram", "1001", True, chat="-100", thread=7, language="es", bot=1)


@pytest.fixture
def clock() -> SettableClock:
    return SettableClock()


@pytest.fixture
def store(database: Database, clock: SettableClock) -> Runs:
    return Runs(database, clock)


def a_run(clock: SettableClock, name: str = "r1", **fields) -> Run:  # type: ignore[no-untyped-def]
    made = Run(name, "digest", RunState.QUEUED, {"topic": "a\u0000b 😀"}, ADA, clock.now(), version="v1")
    return replace(made, **fields)


async def test_a_run_is_kept_as_it_was_started_with_its_first_event(store: Runs, clock: SettableClock) -> None:
    run = a_run(clock, key="http:ops:k", caps=Caps(tokens=5, usd=0.25))
    kept, new = await store.start(run)
    assert new
    assert await store.get("r1") == kept == replace(run, change=1, caps=kept.caps)
    assert kept.caps is not None
    assert (kept.caps.tokens, kept.caps.micro_usd, kept.params["topic"]) == (5, 250_000, "a\u0000b 😀")
    (event,) = await store.events("r1")
    assert (event.seq, event.kind, event.data) == (1, "state", {"state": "queued"})
    with pytest.raises(UnknownRun):
        await store.get("r2")


async def test_a_key_means_one_run_and_conflicts_when_something_else_is_asked(store: Runs, clock: SettableClock) -> None:
    first, _ = await store.start(a_run(clock, key="k"))
    again, new = await store.start(a_run(clock, "r2", key="k"))
    assert (again, new) == (first, False)
    others: list[dict[str, object]] = [{"workflow": "other"}, {"params": {}}, {"caps": Caps(tokens=1)}]
    for other in others:
        with pytest.raises(RequestConflict):
            await store.start(a_run(clock, "r3", key="k", **other))
    assert [run.id for run in await store.newest()] == ["r1"]
    await store.start(a_run(clock, "r4"))
    await store.start(a_run(clock, "r5"))
    assert len(await store.newest()) == 3, "runs without a key are all different"


async def test_a_list_is_newest_first_filtered_and_paged(store: Runs, clock: SettableClock) -> None:
    key = Starter("http", "1001", key="1001")
    for number in range(5):
        await store.start(a_run(clock, f"r{number}", starter=key if number % 2 else ADA, workflow="w" if number < 2 else "x"))
        clock.advance(number % 2)
    assert [run.id for run in await store.newest()] == ["r4", "r3", "r2", "r1", "r0"]
    page = await store.newest(limit=2)
    assert [run.id for run in await store.newest(before=page[-1].id)] == ["r2", "r1", "r0"]
    assert [run.id for run in await store.newest(of=key)] == ["r3", "r1"], "the key 1001 is not the person 1001"
    assert [run.id for run in await store.newest(workflow="w", state=RunState.QUEUED)] == ["r1", "r0"]
    assert await store.newest(state=RunState.FAILED) == []


async def test_a_worker_takes_a_run_once_and_brings_it_to_its_end(store: Runs, clock: SettableClock) -> None:
    await store.start(a_run(clock))
    assert [run.id for run in await store.pending()] == ["r1"]
    took = await store.take("r1", "w1")
    assert took is not None
    assert (took.state, took.owner, took.started, took.generation) == (RunState.RUNNING, "w1", clock.now(), 0)
    assert await store.take("r1", "w2") is None
    assert await store.pending() == []
    assert [run.id for run in await store.unfinished()] == ["r1"]
    until = clock.now() + timedelta(hours=1)
    assert await store.set_state("r1", RunState.WAITING_BUDGET, waiting_until=until, waiting_for="day")
    assert not await store.set_state("r1", RunState.WAITING_BUDGET, waiting_until=until, waiting_for="day")
    assert (await store.get("r1")).waiting_until == until
    assert await store.parked(clock.now()) == []
    assert [run.id for run in await store.parked()] == [run.id for run in await store.parked(until)] == ["r1"]
    assert await store.set_state("r1", RunState.RUNNING)
    clock.advance(5)
    with pytest.raises(ValueError, match="JSON"):
        await store.set_state("r1", RunState.SUCCEEDED, result=float("nan"))
    assert await store.set_state("r1", RunState.SUCCEEDED, result={"ok": [1, "\ud800"]})
    ended = await store.get("r1")
    assert (ended.result, ended.ended, ended.waiting_for) == ({"ok": [1, "?"]}, clock.now(), "")
    assert not await store.set_state("r1", RunState.RUNNING), "an ended run stays ended"
    events = await store.events("r1")
    assert [event.seq for event in events] == list(range(1, ended.change + 1))
    states = [event.data["state"] for event in events]
    assert states == ["queued", "running", "waiting_budget", "running", "succeeded"]
    assert events[2].data == {"state": "waiting_budget", "waiting_for": "day", "waiting_until": "2026-03-02T13:00:00Z"}
    assert [event.seq for event in await store.events("r1", after=3, limit=1)] == [4]


async def test_steps_are_seen_while_they_run_and_cost_what_their_calls_cost(
    store: Runs, clock: SettableClock, database: Database
) -> None:
    await store.start(a_run(clock))
    await store.step_began("r1", "clone", "shell")
    await store.step_ended("r1", "clone", StepState.SUCCEEDED, "exit code 0")
    await store.step_waits("r1", "ask", "ask", clock.now(), "no room")
    await store.step_began("r1", "ask", "ask")
    await store.step_began("r1", "ask", "ask")
    for number, (step, tokens, cost) in enumerate((("ask", 10, 7), ("ask", 5, 3), ("other", 1, 1))):
        row = {"id": f"a{number}", "request_id": f"r1/{step}", "attempt": 1, "surface": "cli", "run": "r1", "step": step}
        row |= {"chain": "c", "provider": "p", "model_asked": "m", "outcome": "ok", "started": 0, "state": "settled"}
        row |= {"owner": "o", "deadline": 0, "spent_tokens": tokens, "cost_micro_usd": cost}
        await database.write(lambda connection, row=row: connection.execute(insert(usage).values(row)))
    clone, ask = await store.steps("r1")
    assert (clone.number, clone.kind, clone.state, clone.attempts, clone.detail) == (1, "shell", "succeeded", 1, "exit code 0")
    # Going on after the wait is the same attempt, beginning once more is another one.
    assert (ask.number, ask.state, ask.attempts, ask.tokens, ask.cost_micro_usd) == (2, "running", 2, 15, 10)
    assert (ask.ended, ask.waiting_until) == (None, None)
    detail = await store.detail("r1")
    assert (detail.run.tokens, detail.run.cost_micro_usd, detail.steps) == (16, 11, (clone, ask))
    await store.log("r1", "half\0way", step="ask")
    last = (await store.events("r1"))[-1]
    assert (last.kind, last.data, last.seq) == ("log", {"text": "half\ufffdway", "step": "ask"}, detail.run.change + 1)


async def test_an_end_closes_what_is_open(store: Runs, clock: SettableClock) -> None:
    await store.start(a_run(clock))
    await store.take("r1", "w")
    await store.step_began("r1", "clone", "shell")
    asked = await store.ask_approval("r1", "approve", "Sure?", ["starter"])
    await store.signal("r1", "go", {"n": 1})
    await store.set_state("r1", RunState.FAILED, error="it broke")
    assert [step.state for step in await store.steps("r1")] == [StepState.CANCELLED]
    assert await store.open_approvals() == []
    assert await store.signals() == []
    assert (await store.decide(asked.id, True, "telegram:1")).decision is Decision.EXPIRED
    with pytest.raises(WrongState):
        await store.signal("r1", "go", None)
    assert (await store.events("r1"))[-1].data == {"state": "failed", "error": "it broke"}


async def test_cancelling_is_at_once_where_no_worker_is_and_asked_of_the_worker_where_one_is(
    store: Runs, clock: SettableClock
) -> None:
    await store.start(a_run(clock))
    assert (await store.cancel("r1", "cli:root")).state is RunState.CANCELLED
    assert (await store.cancel("r1", "cli:root")).state is RunState.CANCELLED, "twice is once"
    assert await store.take("r1", "w") is None
    await store.start(a_run(clock, "r2"))
    await store.take("r2", "w")
    assert (await store.cancel("r2", "cli:root")).wanted == "cancel"
    change = (await store.cancel("r2", "cli:root")).change
    assert [run.id for run in await store.pending()] == ["r2"]
    await store.set_state("r2", RunState.CANCELLED)
    done = await store.get("r2")
    assert (done.wanted, done.change) == ("", change + 1)
    await store.start(a_run(clock, "r3"))
    await store.set_state("r3", RunState.SUCCEEDED)
    with pytest.raises(WrongState, match="r3 is succeeded: it cannot be cancelled"):
        await store.cancel("r3", "cli:root")
    with pytest.raises(UnknownRun):
        await store.cancel("r4", "cli:root")


async def test_only_a_failed_run_is_retried_and_it_is_the_next_generation(store: Runs, clock: SettableClock) -> None:
    await store.start(a_run(clock))
    await store.take("r1", "w")
    with pytest.raises(WrongState, match="r1 is running: it cannot be retried"):
        await store.retry("r1", "cli:root")
    await store.step_began("r1", "ask", "ask")
    await store.step_ended("r1", "ask", StepState.FAILED, "cap reached")
    await store.set_state("r1", RunState.FAILED, error="cap reached")
    again = await store.retry("r1", "cli:root", Caps(tokens=99), ("main", "spare"))
    assert again.starter.may_use == ("main", "spare")
    assert (again.state, again.generation, again.error, again.ended) == (RunState.QUEUED, 1, "", None)
    assert again.caps == Caps(tokens=99)
    with pytest.raises(WrongState):
        await store.retry("r1", "cli:root")
    took = await store.take("r1", "w2")
    assert took is not None
    assert (took.generation, took.owner) == (1, "w2")
    await store.step_began("r1", "ask", "ask")
    (step,) = await store.steps("r1")
    assert (step.attempts, step.state, step.ended) == (2, StepState.RUNNING, None)


async def test_case_57_the_first_answer_counts_and_reaches_the_run_with_it(store: Runs, clock: SettableClock) -> None:
    await store.start(a_run(clock))
    await store.take("r1", "w")
    asked = await store.ask_approval("r1", "approve", "Sure?", ["starter", "1002"], clock.now() + timedelta(days=2))
    assert await store.ask_approval("r1", "approve", "Sure?", ["starter"]) == asked, "a repeated step finds its question"
    assert len(asked.id.encode()) <= 20
    assert await store.open_approvals("r1") == [asked] == list((await store.detail("r1")).approvals)
    first = await store.decide(asked.id, False, "telegram:1002")
    assert (first.decision, first.by, first.at) == (Decision.REJECTED, "telegram:1002", clock.now())
    assert await store.decide(asked.id, True, "telegram:1001") == first
    assert await store.approval(asked.id) == first
    (told,) = await store.signals()
    assert (told.run, told.name, told.data) == (
        "r1", f"approval:{asked.id}", {"decision": "rejected", "by": "telegram:1002"},
    )  # fmt: skip
    await store.delivered([told.id])
    assert await store.signals() == []
    await store.signal("r1", "go", None)
    assert (await store.signals())[0].id > told.id, "workers know by the number what they have handed over"
    with pytest.raises(UnknownRun):
        await store.decide("nothing", True, "telegram:1001")


async def test_case_57_an_answer_after_the_time_is_an_expiry(store: Runs, clock: SettableClock) -> None:
    await store.start(a_run(clock))
    await store.take("r1", "w")
    late = await store.ask_approval("r1", "one", "Sure?", ["starter"], clock.now() + timedelta(seconds=5))
    swept = await store.ask_approval("r1", "two", "Sure?", ["starter"], clock.now() + timedelta(seconds=6))
    assert await store.expire_approvals() == []
    clock.advance(5)
    assert (await store.decide(late.id, True, "telegram:1001")).decision is Decision.EXPIRED
    clock.advance(1)
    assert [each.id for each in await store.expire_approvals()] == [swept.id]
    assert await store.expire_approvals() == []
    assert [signal.data["decision"] for signal in await store.signals()] == ["expired", "expired"]


async def test_a_retried_run_asks_again_what_had_expired(store: Runs, clock: SettableClock) -> None:
    await store.start(a_run(clock))
    first = await store.ask_approval("r1", "approve", "Sure?", ["starter"], clock.now(), "fail")
    await store.expire_approvals()
    await store.set_state("r1", RunState.FAILED, error="nobody answered")
    await store.retry("r1", "cli:root")
    again = await store.ask_approval("r1", "approve", "Sure?", ["starter"], clock.now() + timedelta(days=1))
    assert (again.id != first.id, again.decision) == (True, Decision.OPEN)


async def test_many_answers_at_once_are_decided_once(store: Runs, clock: SettableClock, database_url: str) -> None:
    await store.start(a_run(clock))
    asked = await store.ask_approval("r1", "approve", "Sure?", ["users"])
    other = Database(database_url)
    stores = (store, Runs(other, clock))
    answers = await asyncio.gather(*(stores[n % 2].decide(asked.id, n % 3 == 0, f"telegram:{n}") for n in range(20)))
    await other.close()
    assert len({(each.decision, each.by) for each in answers}) == 1
    assert len(await store.signals()) == 1


async def test_events_from_two_processes_are_numbered_without_gaps(store: Runs, clock: SettableClock, database_url: str) -> None:
    for name in ("r1", "r2"):
        await store.start(a_run(clock, name))
    other = Database(database_url)
    stores = (store, Runs(other, clock))
    await asyncio.gather(*(stores[n % 2].step_began(f"r{n % 3 % 2 + 1}", f"s{n}", "shell") for n in range(60)))
    await other.close()
    for name, count in (("r1", 40), ("r2", 20)):
        assert [event.seq for event in await store.events(name)] == list(range(1, count + 2))
        assert [step.number for step in await store.steps(name)] == list(range(1, count + 1))


async def test_a_notice_is_put_once_per_step_and_sent_at_most_once(store: Runs, clock: SettableClock) -> None:
    await store.notify("r1", "notify", "telegram:-100/7", "done", "REPORT.md")
    await store.notify("r1", "notify", "telegram:-100/7", "done again")
    await store.notify("r1", "notify#2", "file:var/out", "done")
    (notice,) = await store.notices("telegram")
    assert (notice.to, notice.text, notice.file, notice.state) == ("telegram:-100/7", "done", "REPORT.md", NoticeState.PENDING)
    assert [each.step for each in await store.notices("file")] == ["notify#2"]
    assert await store.begin_notice(notice.id)
    assert not await store.begin_notice(notice.id)
    assert await store.notices("telegram") == [], "a crash here leaves it uncertain, not sent twice"
    await store.end_notice(notice.id, NoticeState.PENDING, "flood")
    assert [each.detail for each in await store.notices("telegram")] == ["flood"]
    await store.begin_notice(notice.id)
    await store.end_notice(notice.id, NoticeState.SENT)
    assert await store.notices("telegram") == []


async def test_a_chat_is_told_of_each_change_by_its_own_bot(store: Runs, clock: SettableClock) -> None:
    await store.start(a_run(clock))
    await store.start(a_run(clock, "r2", starter=Starter("http", "ops")))
    await store.start(a_run(clock, "r3", starter=Starter("schedule", "daily", chat="5")))
    assert [(each.run.id, each.told, each.message_id) for each in await store.untold(1)] == [("r1", 0, None), ("r3", 0, None)]
    assert [each.run.id for each in await store.untold(2)] == ["r3"]
    await store.told("r1", 1, 77)
    assert [each.run.id for each in await store.untold(1)] == ["r3"]
    await store.take("r1", "w")
    assert [(each.told, each.message_id) for each in await store.untold(1)] == [(1, 77), (0, None)]
    await store.told("r1", 2, 78)
    await store.told("r1", 1, 77)
    assert [each.run.id for each in await store.untold(1)] == ["r3"], "what was told later stays told"


async def test_only_ended_runs_are_forgotten_with_all_that_is_theirs(store: Runs, clock: SettableClock) -> None:
    for name in ("r1", "r2"):
        await store.start(a_run(clock, name))
        await store.step_began(name, "s", "shell")
        await store.notify(name, "n", "file:x", "done")
    await store.set_state("r1", RunState.SUCCEEDED)
    clock.advance(1)
    assert [run.id for run in await store.ended_before(clock.now())] == ["r1"]
    await store.forget(["r1", "r2"])
    assert [run.id for run in await store.newest()] == ["r2"]
    assert (await store.steps("r1"), await store.events("r1")) == ([], [])
    assert [notice.run for notice in await store.notices("file")] == ["r2"]


async def test_a_fire_is_seen_to_once_and_the_last_one_is_remembered(database: Database, clock: SettableClock) -> None:
    fires, began = Fires(database, clock), clock.now()
    assert await fires.first_seen("daily", "0 8 * * *") == began
    clock.advance(hours=1)
    assert await fires.first_seen("daily", "0 8 * * *") == began
    assert await fires.last("daily") is None
    assert await fires.mark("daily", began)
    assert not await fires.mark("daily", began)
    assert await fires.mark("daily", clock.now())
    assert await fires.mark("other", began)
    assert await fires.last("daily") == clock.now()
    clock.advance(days=1)
    await fires.prune(clock.now())
    assert await fires.last("daily") == clock.now() - timedelta(days=1)
    assert not await fires.mark("other", began), "the latest one of each is kept"
    assert await fires.mark("daily", began)
    # With another line of times a schedule begins anew, also when the line is one that it had before.
    assert await fires.first_seen("daily", "0 9 * * *") == clock.now()
    clock.advance(days=1)
    assert await fires.first_seen("daily", "0 8 * * *") == clock.now()
