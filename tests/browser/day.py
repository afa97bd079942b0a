"""The team's day: runs in every state, budgets that were raised or are gone, and a provider that does not answer."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from gateway.chat import Usage
from gateway.clock import to_ms
from gateway.ledger import Amounts, Closing, Outcome, State
from gateway.runs import Run, RunState, Starter, StepState
from gateway.store.alerts import Sign
from tests.browser.team import CALLERS, NOW, Caller, Team
from tests.doubles.upstream import Script

SAMPLE = {"ask_first": True, "submodules": False}
TENDER = {"customer": "Northwind", "pages": 4, "tone": "formal", "parts": ["price", "plan"], "attach": True}
ANA, BEN = Starter("http", "laptop-ana", admin=True, key="laptop-ana"), Starter("telegram", "1002", chat="1002")
OPENS = datetime(2026, 5, 19, 22, 0, tzinfo=UTC)
"""The next midnight in Madrid."""


class Day:
    """What happens after the team's month. `live` is to be called once."""

    def __init__(self, team: Team) -> None:
        self.team, self._app, self._clock = team, team.app, team.clock
        self.runs: dict[str, str] = {}
        """The ids of runs by what they show."""
        self.fallback = self.refusal = ""
        """Request ids with a story."""

    async def live(self) -> None:
        """Until NOW."""
        self._clock.set(NOW - timedelta(hours=2, minutes=50))
        ends_ms = to_ms(NOW + timedelta(days=2, hours=3))
        await self._app.store.raise_limit("repositories-week", "%", 20, ends_ms, "telegram:1001")
        await self._app.books.adjust("money-month", -420_000, "the invoice of 30 April has a credit", "console:ana")
        await self._failed()
        await self._digest()
        await self._cancelled()
        await self._succeeded()
        await self._waiting()
        await self._emptied()
        await self._running()
        await self._outage()
        await self._calls()
        self._clock.set(NOW)
        self._clock.halt()

    async def _run(self, workflow: str, params: dict[str, Any], starter: Starter, name: str) -> str:
        id = self.team.new_id()
        run = Run(id, workflow, RunState.QUEUED, params, starter, self._clock.now(), version="1")
        await self._app.runs.start(run)
        self.runs[name] = id
        return id

    async def _taken(self, workflow: str, params: dict[str, Any], starter: Starter, name: str) -> str:
        id = await self._run(workflow, params, starter, name)
        self._clock.advance(0.4)
        assert await self._app.runs.take(id, "worker-1") is not None
        return id

    async def _step(self, run: str, name: str, kind: str, seconds: float, detail: str = "", *, fails: bool = False) -> None:
        await self._app.runs.step_began(run, name, kind)
        self._clock.advance(seconds)
        await self._app.runs.step_ended(run, name, StepState.FAILED if fails else StepState.SUCCEEDED, detail)

    async def _model_step(self, run: str, name: str, workflow: str, tokens: int, seconds: float) -> None:
        await self._app.runs.step_began(run, name, "ask")
        caller = Caller("http", "laptop-ana", 1, tokens, "thorough", key="laptop-ana")
        held = await self.team.hold(
            self.team.origin(caller, workflow=workflow, run=run, step=name), "thorough", "moonshot", tokens
        )
        self._clock.advance(seconds)
        assert held is not None
        usage, spent = Usage(tokens * 4 // 5, tokens // 5), Amounts(1, tokens, round(tokens * 0.98))
        closing = Closing(State.SETTLED, spent, Outcome.ANSWERED, usage, "kimi-k2.6", "configured", first_token_ms=810)
        await self._app.store.close(held, closing._replace(total_ms=round(seconds * 1000)))
        await self._app.runs.step_ended(run, name, StepState.SUCCEEDED)

    async def _failed(self) -> None:
        wrong = {"repo": "https://github.com/acme/billing-backend.git"} | SAMPLE
        id = await self._taken("clone_petroserver", wrong, BEN, "failed")
        await self._step(id, "clone", "shell", 31.2, "exit status 128: could not read Username for github.com", fails=True)
        said = "clone: exit status 128\nfatal: could not read Username for 'https://github.com': terminal prompts disabled"
        await self._app.runs.set_state(id, RunState.FAILED, error=said)

    async def _digest(self) -> None:
        self._clock.set(NOW - timedelta(hours=2, minutes=21))
        params = {"topic": "oil prices", "hours": 24, "items": 20}
        id = await self._taken("digest", params, Starter("schedule", "ana"), "digest")
        await self._step(id, "since when", "step", 0.02)
        await self._step(id, "feeds/0/fetch", "http", 1.9, "200, 84,113 bytes")
        await self._step(id, "feeds/0/read", "step", 0.3)
        await self._model_step(id, "sum up", "digest", 6_812, 7.4)
        await self._step(id, "post", "notify", 0.1)
        said = "Brent settles at 71.40 as stocks fall for a third week. [1]"
        await self._app.runs.set_state(id, RunState.SUCCEEDED, result=said)

    async def _cancelled(self) -> None:
        self._clock.set(NOW - timedelta(hours=1, minutes=44))
        id = await self._taken("answer_tender", TENDER, ANA, "cancelled")
        await self._model_step(id, "draft", "answer_tender", 5_140, 11.3)
        await self._app.runs.cancel(id, "telegram:1001")
        await self._app.runs.set_state(id, RunState.CANCELLED)

    async def _succeeded(self) -> None:
        runs, keep = self._app.runs, "Keep the report on petroserver as reports/petroserver.md?"
        self._clock.set(NOW - timedelta(hours=1, minutes=12))
        id = await self._taken("clone_petroserver", {"repo": "petroserver"} | SAMPLE, ANA, "succeeded")
        await self._repository(id)
        asked = await runs.ask_approval(id, "approve", keep, ("users",))
        await runs.set_state(id, RunState.WAITING_APPROVAL, waiting_for="approve")
        await runs.step_waits(id, "approve", "approve", detail=keep)
        self._clock.advance(minutes=1)
        await runs.decide(asked.id, True, "console:laptop-ana")
        await runs.set_state(id, RunState.RUNNING)
        await runs.step_ended(id, "approve", StepState.SUCCEEDED, "approved by console:laptop-ana")
        await self._step(id, "keep the report", "step", 0.1)
        await self._step(id, "notify", "notify", 0.1)
        said = "The report on petroserver is ready: 41 files, 118.2 kB. It is kept as reports/petroserver.md."
        await runs.set_state(id, RunState.SUCCEEDED, result=said)

    async def _waiting(self) -> None:
        """One for an answer, one for a budget."""
        runs, send = self._app.runs, "Send the answer to Contoso Energía, S.A.?"
        self._clock.set(NOW - timedelta(minutes=52))
        tender = TENDER | {"customer": "Contoso Energía, S.A.", "tone": "warm"}
        id = await self._taken("answer_tender", tender, BEN, "approval")
        await self._model_step(id, "draft", "answer_tender", 9_470, 14.8)
        await self._model_step(id, "read again", "answer_tender", 12_204, 9.1)
        expires = NOW + timedelta(hours=22)
        await runs.ask_approval(id, "agree", send, ("admins",), expires)
        await runs.set_state(id, RunState.WAITING_APPROVAL, waiting_for="agree", waiting_until=expires)
        await runs.step_waits(id, "agree", "approve", expires, send)

        self._clock.set(NOW - timedelta(minutes=18))
        id = await self._taken("digest", {"topic": "grid storage", "hours": 48, "items": 12}, ANA, "budget")
        await self._step(id, "since when", "step", 0.02)
        await self._step(id, "feeds/0/fetch", "http", 2.6, "200, 61,907 bytes")
        await runs.step_began(id, "sum up", "ask")
        await runs.step_waits(id, "sum up", "ask", OPENS, "openai-day is used up")
        await runs.set_state(id, RunState.WAITING_BUDGET, waiting_for="openai-day", waiting_until=OPENS)

    async def _repository(self, run: str) -> None:
        await self._step(run, "plant the sample", "step", 0.6)
        await self._step(run, "clone", "shell", 3.1, "exit status 0")
        await self._step(run, "look at the files", "step", 1.2, "41 files")
        await self._step(run, "check out", "shell", 0.9, "exit status 0")
        for number, (tokens, seconds) in enumerate(((9_820, 12.7), (10_344, 16.1), (9_106, 8.2))):
            await self._model_step(run, f"questions/{number}/ask", "clone_petroserver", tokens, seconds)
        await self._step(run, "write the report", "write", 0.1, "REPORT.md, 7.9 kB")

    async def _emptied(self) -> None:
        """A budget that a nightly job has used up."""
        team, nightly = self.team, CALLERS[4]
        self._clock.set(NOW - timedelta(minutes=14))
        for tokens in (16_000, 4_000, 1_000, 250, 60, 40):
            while (held := await team.hold(team.origin(nightly), "night", "openai", tokens)) is not None:
                await team.closed(held, "openai", tokens)
                self._clock.advance(1)

    async def _calls(self) -> None:
        """A call or two of everybody's."""
        self._clock.set(NOW - timedelta(seconds=95))
        for caller in (*CALLERS, CALLERS[1], CALLERS[3]):
            await self.team.asked(caller, left_alone="groq")
            self._clock.advance(11)

    async def _running(self) -> None:
        team, params = self.team, {"repo": "petroserver"} | SAMPLE
        id = await self._taken("clone_petroserver", params, Starter("telegram", "1001"), "running")
        await self._step(id, "plant the sample", "step", 0.6)
        await self._step(id, "clone", "shell", 2.8, "exit status 0")
        await self._step(id, "look at the files", "step", 1.1, "41 files")
        await self._model_step(id, "questions/0/ask", "clone_petroserver", 9_711, 13.9)
        for name in ("questions/1/ask", "questions/2/ask"):
            await self._app.runs.step_began(id, name, "ask")
            origin = team.origin(CALLERS[3], workflow="clone_petroserver", run=id, step=name)
            assert await team.hold(origin, "thorough", "moonshot", 8_300) is not None

    async def _outage(self) -> None:
        """The first of the chain does not answer, the next one does; and somebody is refused."""
        team, gateway, models = self.team, self.team.gateway, self.team.upstream.models
        self._clock.set(NOW - timedelta(minutes=2, seconds=10))
        body = {"error": {"message": "Service is over capacity", "type": "server_error"}}
        models["llama-3.3-70b-versatile"] = Script(status=503, body=body, start_delay_s=0.2)
        models["kimi-k2.6"] = Script(text="A reservoir is where water waits.", start_delay_s=0.3, delay_s=0.02)
        for _ in range(6):
            answer = await gateway.chat(content="What is a reservoir?", max_tokens=400)
            assert answer.status == 200, answer.body
            self.fallback = self.fallback or answer.headers["x-sluicegate-request-id"]
            self._clock.advance(4)
        answer = await gateway.chat(model="openai", content="What is a reservoir?", max_tokens=8000)
        assert answer.status == 429, answer.body
        self.refusal = answer.headers["x-sluicegate-request-id"]
        await self._run("digest", {"topic": "tariffs", "hours": 24, "items": 20}, ANA, "queued")
        spent = {"budget": "openai-day", "unit": "micro_usd", "spent": 244_120, "limit": 250_000, "key": "", "scope": {}}
        more = {"window": "day", "asked": 16_120, "leaves_ms": to_ms(OPENS)}
        await team.app.alerts.note([Sign("budget_exhausted:openai-day", "budget_exhausted", spent | more)])
