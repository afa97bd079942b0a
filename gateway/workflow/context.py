"""What a step may ask for. Every call is one checkpoint: after a restart it gives what it gave before, without being made again.

A context makes one step at a time. What goes side by side goes through `map`, whose items have contexts of their own.
"""

from __future__ import annotations

import asyncio
import inspect
import re
from base64 import b64decode, b64encode
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from gateway import effects
from gateway.chat import Message, Request
from gateway.effects import HttpResult, ShellResult
from gateway.effects.http import SIZE_MAX as HTTP_SIZE_MAX
from gateway.effects.http import TIMEOUT_S as HTTP_TIMEOUT_S
from gateway.effects.shell import OUTPUT_MAX, TIMEOUT_S
from gateway.runs import JSON, Caps, Decision, RunState, Starter
from gateway.workflow.asking import Asking, messages_of
from gateway.workflow.board import Board, insist
from gateway.workflow.budgets import BudgetFace
from gateway.workflow.definition import Definition
from gateway.workflow.engine import Branch, Checkpoints, End
from gateway.workflow.failures import StepFailed
from gateway.workflow.outcomes import Outcome, outcomes_of, summary
from gateway.workflow.parts import Parts
from gateway.workflow.rules import ASKED, operator
from gateway.workflow.schemas import Schema, Unfit
from gateway.workflow.stepping import Stepper, Told
from gateway.workflow.values import as_json
from gateway.workflow.waits import Wait

T = TypeVar("T")
Item = TypeVar("Item")

READ_MAX = 1_000_000
"""The most bytes of a file that a step reads as text."""
PLACE = re.compile(r"telegram:-?[0-9]+(/[0-9]+)?|file:.+")
"""Where people can be told something."""
AT_ONCE = 4
"""How many items of a map are worked on at the same time, unless it says otherwise."""


class Context:
    """Handed to a workflow as its first argument."""

    def __init__(
        self, parts: Parts, board: Board, definition: Definition, steps: Checkpoints, params: Mapping[str, Any], branch: str = ""
    ) -> None:
        self._parts, self._board, self._definition = parts, board, definition
        self._stepper = Stepper(parts, board, steps, branch)
        self.params: Mapping[str, Any] = params
        """The run's parameters, by name."""

    @property
    def run(self) -> str:
        """The run's id."""
        return self._board.run.id

    @property
    def folder(self) -> Path:
        """The run's own folder. What lies in it goes with the run, after its retention."""
        return self._parts.folder / self.run

    @property
    def starter(self) -> Starter:
        """Who started the run, and from where."""
        return self._board.run.starter

    @property
    def budget(self) -> Caps:
        """The most that this run may spend."""
        return (self._board.run.caps or Caps()).over(self._definition.caps)

    @property
    def budgets(self) -> BudgetFace:
        """Where the budgets stand, raises and pauses: for runs that operators start."""
        return BudgetFace(self._parts, self._board.run, self.step)

    async def ask(
        self,
        prompt: str | Sequence[Message],
        *,
        name: str | None = None,
        system: str | None = None,
        chain: str | None = None,
        max_tokens: int | None = None,
        schema: Any = None,
    ) -> Any:
        """A model's answer as text; with `schema` (a JSON Schema or a pydantic model) an object that fits it.

        Waits while budgets have no room. An answer that does not fit the schema is asked for once more, with what is wrong.
        `chain` is a chain, a provider or `provider:model`; `max_tokens` the output limit. Raises StepFailed.
        """
        target = chain or self._definition.chain or self._parts.default_chain
        shape = None if schema is None else Schema(schema)
        messages = messages_of(prompt, system)

        async def work(step: str) -> Told:
            asking = Asking(self._parts, self._board, step, target)
            if shape is None:
                reply = await asking.answer(Request(messages, max_tokens, clampable=False))
                return Told(reply.completion.text, f"{reply.slot}, {reply.usage.tokens} tokens")
            asked = shape.asked(messages)
            reply = await asking.answer(Request(asked, max_tokens, extra=shape.extra(), clampable=False))
            detail = f"{reply.slot}, {reply.usage.tokens} tokens"
            try:
                return Told(shape.read(reply.completion.text), detail)
            except Unfit as unfit:
                again = shape.repair(asked, reply.completion.text, unfit)
            reply = await asking.answer(Request(again, max_tokens, extra=shape.extra(), clampable=False), repair=1)
            try:
                return Told(shape.read(reply.completion.text), f"{detail}, asked again once")
            except Unfit as unfit:
                raise StepFailed(step, f"the answer does not fit the schema, asked twice: {unfit}") from None

        return await self._stepper.step("ask", name, work)

    async def shell(
        self,
        args: Sequence[str],
        *,
        name: str | None = None,
        cwd: str | Path | None = None,
        timeout: timedelta | float = TIMEOUT_S,
        output_limit: int = OUTPUT_MAX,
        env: Mapping[str, str] | None = None,
        fresh: str | Path | None = None,
        check: bool = True,
    ) -> ShellResult:
        """Runs a program by its argument list (no shell reads it) and gives its exit code and output.

        `cwd` is the run's folder unless it says otherwise; after `timeout` (seconds, or a timedelta) the program and all that
        it started are killed. Of a long output the beginning and the end are kept. `fresh` is a file or a folder of the run's
        folder that is removed before each try, so that what a crash left half-made is never gone on with. With `check`, an exit
        code that is not 0 and a time-out raise StepFailed.
        """
        place = self.folder if cwd is None else self.folder / cwd

        async def work(step: str) -> Told:
            seconds = _seconds(timeout)
            label = f"{self.run}/{step}"
            first = None if fresh is None else partial(effects.Folder(self.folder).remove, fresh)
            ran = await effects.run(
                args, cwd=place, label=label, timeout_s=seconds, output_max=output_limit, env=env, first=first
            )
            if check and (ran.timed_out or ran.code != 0):
                how = f"took longer than {seconds:g} s and was ended" if ran.timed_out else f"ended with code {ran.code}"
                raise StepFailed(step, f"{args[0]} {how}: {_tail(ran.output)}")
            return Told(asdict(ran), "timed out" if ran.timed_out else f"code {ran.code}")

        return ShellResult(**await self._stepper.step("shell", name, work))

    async def http(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes | str | None = None,
        timeout: timedelta | float = HTTP_TIMEOUT_S,
        size_limit: int = HTTP_SIZE_MAX,
        name: str | None = None,
    ) -> HttpResult:
        """Asks a web server, and gives its answer of whatever status. Raises StepFailed when there is none.

        For runs that were not started by an admin or on the machine, addresses that are not public are refused.
        """
        data = body.encode() if isinstance(body, str) else body

        async def work(step: str) -> Told:
            answer = await effects.fetch(
                method, url, private=operator(self.starter), headers=headers, body=data, timeout_s=_seconds(timeout),
                size_max=size_limit,
            )  # fmt: skip
            return Told(asdict(answer) | {"body": b64encode(answer.body).decode()}, f"status {answer.status}")

        kept = await self._stepper.step("http", name, work)
        return HttpResult(**{**kept, "body": b64decode(kept["body"])})

    async def read(self, path: str | Path, *, name: str | None = None) -> str:
        """The text of a file of the run's folder, at most 1 MB. Bytes that are no text become a sign for that."""

        async def work(step: str) -> Told:
            data = await effects.Folder(self.folder).read(path, READ_MAX)
            return Told(data.decode("utf-8", "replace"), str(path))

        return str(await self._stepper.step("read", name, work))

    async def write(self, path: str | Path, text: str | bytes, *, name: str | None = None) -> Path:
        """Writes a file of the run's folder, whole or not at all, and gives its path."""
        data = text.encode() if isinstance(text, str) else text

        async def work(step: str) -> Told:
            return Told(str(await effects.Folder(self.folder).write(path, data)), str(path))

        return Path(await self._stepper.step("write", name, work))

    async def sleep(self, duration: timedelta | float, *, name: str | None = None) -> None:
        """Waits for a time (seconds, or a timedelta), also over restarts."""
        span = duration if isinstance(duration, timedelta) else timedelta(seconds=duration)

        async def work(step: str) -> Told:
            until = self._until(step, span)
            assert until is not None
            while self._parts.clock.now() < until:
                await self._board.waits(Wait(self._board.run, step, RunState.SLEEPING, until), "sleep")
            return Told(None)

        await self._stepper.step("sleep", name, work)

    async def wait_for(self, signal: str, timeout: timedelta | float | None = None, *, name: str | None = None) -> JSON:
        """What is sent to the run under this name, now or before. Raises StepFailed when nothing came within `timeout`."""
        span = timeout if isinstance(timeout, timedelta) or timeout is None else timedelta(seconds=timeout)

        async def work(step: str) -> Told:
            until = self._until(step, span)
            while (found := self._board.next_signal(signal)) is None:
                if until is not None and self._parts.clock.now() >= until:
                    raise StepFailed(step, f"no signal {signal!r} came within {span}")
                await self._board.waits(Wait(self._board.run, step, RunState.WAITING, until, signal), "wait_for")
            return Told(found.data, signals=(found.id,))

        return await self._stepper.step("wait_for", name or signal, work)

    async def approve(
        self,
        question: str,
        *,
        who: Sequence[str] = ("starter", "admins"),
        expires: timedelta | float | None = None,
        otherwise: str = "reject",
        name: str | None = None,
    ) -> bool:
        """Asks people, by buttons, and waits for days if need be. True when the first answer approves.

        `who` may answer: "starter", "admins", "users", numeric ids. After `expires` (seconds, or a timedelta) nobody may, and
        `otherwise` says what then: "reject" gives False, "fail" raises StepFailed.
        """
        span = expires if isinstance(expires, timedelta) or expires is None else timedelta(seconds=expires)
        if otherwise not in ("reject", "fail"):
            raise ValueError('otherwise must be "reject" or "fail"')
        people = tuple(str(one) for one in who)
        if wrong := [one for one in people if one not in ASKED and not re.fullmatch("[0-9]+", one)]:
            raise ValueError(f"who may have {', '.join(ASKED)} and numeric ids, not {wrong[0]!r}")

        async def work(step: str) -> Told:
            board, runs = self._board, self._parts.runs
            until = None if span is None else self._parts.clock.now() + span
            asked = await insist(lambda: runs.ask_approval(self.run, step, question, people, until, otherwise))
            while asked.decision is Decision.OPEN:
                await board.waits(Wait(board.run, step, RunState.WAITING_APPROVAL, asked.expires, step), "approve")
                asked = await insist(partial(runs.approval, asked.id))
            if asked.decision is Decision.EXPIRED and asked.otherwise == "fail":
                raise StepFailed(step, "nobody answered in time")
            told = board.next_signal(f"approval:{asked.id}")
            detail = f"{asked.decision} by {asked.by}" if asked.by else str(asked.decision)
            return Told(asked.decision is Decision.APPROVED, detail, (told.id,) if told is not None else ())

        return bool(await self._stepper.step("approve", name, work))

    async def notify(self, text: str, *, to: str | None = None, file: str | Path | None = None, name: str | None = None) -> None:
        """Tells people: the chat in which the run was started, or `to` ("telegram:CHAT[/TOPIC]", "file:FOLDER").

        `file` is a file of the run's folder, to be sent along. Said once, also over restarts; a run that has nobody to tell
        keeps the text in its log.
        """

        async def work(step: str) -> Told:
            place = to or self._home()
            if place is None:
                await self._board.log(text, step)
                return Told(None, "nobody to tell: kept in the log")
            if not PLACE.fullmatch(place):
                raise StepFailed(step, f'to must be "telegram:CHAT", "telegram:CHAT/TOPIC" or "file:FOLDER", not {place!r}')
            if file is not None:
                # `write` gives the whole path: it may be handed on as it is.
                path = Path(file)
                effects.Folder(self.folder).inside(path.relative_to(self.folder) if path.is_relative_to(self.folder) else path)
            attached = None if file is None else str(file)
            await insist(lambda: self._parts.runs.notify(self.run, step, place, text, attached))
            return Told(None, place)

        await self._stepper.step("notify", name, work)

    async def step(self, function: Callable[..., Any], *args: Any, name: str | None = None) -> Any:
        """What any function gives, async or not (then in a thread), as JSON holds it. It is called again only after a crash."""
        said = name or getattr(function, "__name__", "step").strip("<>")

        async def work(step: str) -> Told:
            made = function(*args) if inspect.iscoroutinefunction(function) else asyncio.to_thread(_called, function, args)
            return Told(as_json(await made, f"the step {step}"))

        return await self._stepper.step("step", said, work)

    async def log(self, text: str) -> None:
        """A line for those who look at the run; written once."""
        step = self._stepper.begin("log", None)
        try:
            await self._stepper.checkpoint(step, lambda: self._board.log(text, ""))
        finally:
            self._stepper.ended()

    async def map(
        self,
        function: Callable[[Context, Item], Awaitable[T]],
        items: Iterable[Item],
        *,
        limit: int = AT_ONCE,
        name: str = "map",
    ) -> list[Outcome[T]]:
        """Calls `function(context, item)` for each item, at most `limit` at once, each with a context of its own.

        Gives every item's value or error, in the order of the items: one that fails does not end the others.
        """
        if limit < 1:
            raise ValueError("limit must be at least 1")
        stepper, board = self._stepper, self._board
        path, before = stepper.begin("map", name), stepper.checkpoints.here
        try:
            works = [self._branch_of(f"{path}/{number}", function, item) for number, item in enumerate(items)]
            await board.opened(path, "map", f"{len(works)} items, {limit} at once")
            ends = await stepper.checkpoints.branches(path, works, limit, board.run.generation)
        finally:
            stepper.ended()
        outcomes: list[Outcome[T]] = outcomes_of(path, ends, before + 1)
        await board.closed(path, summary(outcomes))
        return outcomes

    async def conclude(self, work: Callable[[], Awaitable[Any]]) -> End:
        """How the run, or this branch of it, ends. For whoever runs it, not for workflows."""
        return await self._stepper.conclude(work)

    def _branch_of(self, path: str, function: Callable[[Context, Item], Awaitable[T]], item: Item) -> Branch:
        async def branch(steps: Checkpoints) -> End:
            context = Context(self._parts, self._board, self._definition, steps, self.params, f"{path}/")
            return await context.conclude(lambda: function(context, item))

        return branch

    def _home(self) -> str | None:
        starter = self.starter
        if starter.chat is None:
            return starter.to or None
        return f"telegram:{starter.chat}" + ("" if starter.thread is None else f"/{starter.thread}")

    def _until(self, step: str, span: timedelta | None) -> datetime | None:
        """When a wait ends: a restart does not begin it anew."""
        standing = self._board.standing(step)
        if standing is not None and standing.waiting_until is not None:
            return standing.waiting_until
        return None if span is None else self._parts.clock.now() + span


def _called(function: Callable[..., Any], args: Sequence[Any]) -> Any:
    try:
        return function(*args)
    except StopIteration as error:
        # No future can hold it: whoever waits for the thread would wait for ever.
        raise RuntimeError(f"{type(error).__name__}: an iterator had nothing more to give") from error


def _seconds(span: timedelta | float) -> float:
    return span.total_seconds() if isinstance(span, timedelta) else span


def _tail(output: str) -> str:
    """The last lines of an output: where a program says why it failed."""
    return " ".join(output.split())[-300:] or "it said nothing"
