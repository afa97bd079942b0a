"""What a step may ask for. Every call is one checkpoint: after a restart it gives what it gave before, without being made again.

A context makes one step at a time. What goes side by side goes through `map`, whose items have contexts of their own.
"""

from __future__ import annotations

import asyncio
import inspect
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

from gateway import effects
from gateway.chat import Message, Request
from gateway.effects import HttpResult, ShellResult
from gateway.effects.http import SIZE_MAX as HTTP_SIZE_MAX
from gateway.effects.http import TIMEOUT_S as HTTP_TIMEOUT_S
from gateway.effects.shell import OUTPUT_MAX, TIMEOUT_S
from gateway.runs import JSON, Caps, Decision, RunState, Starter, StepState
from gateway.workflow.asking import Asking, messages_of
from gateway.workflow.board import Board, insist
from gateway.workflow.budgets import BudgetFace
from gateway.workflow.definition import Definition
from gateway.workflow.engine import Branch, Checkpoints, End
from gateway.workflow.failures import SeveralAtOnce, StepFailed, sentence
from gateway.workflow.parts import Parts
from gateway.workflow.rules import operator
from gateway.workflow.schemas import Schema, Unfit
from gateway.workflow.values import as_json
from gateway.workflow.waits import Wait

T = TypeVar("T")
Item = TypeVar("Item")

NAME_MAX = 80
READ_MAX = 1_000_000
WAITING = ("ask", "sleep", "wait_for", "approve")
"""The kinds of steps that show by themselves how they begin: one that waited before a restart is not shown as running."""
AT_ONCE = 4
"""How many items of a map are worked on at the same time, unless it says otherwise."""


@dataclass(frozen=True, slots=True)
class Outcome(Generic[T]):
    """What became of one item of a map: its value, or the error that ended it."""

    value: T | None = None
    error: StepFailed | None = None

    def get(self) -> T:
        """The value. Raises the error, if there is one: a retry of the run then goes on from this item."""
        if self.error is not None:
            raise self.error
        return self.value  # type: ignore[return-value]


@dataclass(frozen=True, slots=True)
class Told:
    """What a step's row says once it has ended."""

    value: JSON
    detail: str = ""
    signals: tuple[int, ...] = ()
    """The signals that are in its checkpoint."""


class Context:
    """Handed to a workflow as its first argument."""

    def __init__(
        self, parts: Parts, board: Board, definition: Definition, steps: Checkpoints, params: Mapping[str, Any], branch: str = ""
    ) -> None:
        self._parts, self._board, self._definition, self._steps, self._branch = parts, board, definition, steps, branch
        self._names: Counter[str] = Counter()
        self._running = ""
        self._task: asyncio.Task[Any] | None = None
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

        return await self._step("ask", name, work)

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

        return ShellResult(**await self._step("shell", name, work))

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

        kept = await self._step("http", name, work)
        return HttpResult(**{**kept, "body": b64decode(kept["body"])})

    async def read(self, path: str | Path, *, name: str | None = None) -> str:
        """The text of a file of the run's folder, at most 1 MB. Bytes that are no text become a sign for that."""

        async def work(step: str) -> Told:
            data = await effects.Folder(self.folder).read(path, READ_MAX)
            return Told(data.decode("utf-8", "replace"), str(path))

        return str(await self._step("read", name, work))

    async def write(self, path: str | Path, text: str | bytes, *, name: str | None = None) -> Path:
        """Writes a file of the run's folder, whole or not at all, and gives its path."""
        data = text.encode() if isinstance(text, str) else text

        async def work(step: str) -> Told:
            return Told(str(await effects.Folder(self.folder).write(path, data)), str(path))

        return Path(await self._step("write", name, work))

    async def sleep(self, duration: timedelta | float, *, name: str | None = None) -> None:
        """Waits for a time (seconds, or a timedelta), also over restarts."""
        span = duration if isinstance(duration, timedelta) else timedelta(seconds=duration)

        async def work(step: str) -> Told:
            until = self._until(step, span)
            assert until is not None
            while self._parts.clock.now() < until:
                await self._board.waits(Wait(self._board.run, step, RunState.SLEEPING, until), "sleep")
            return Told(None)

        await self._step("sleep", name, work)

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

        return await self._step("wait_for", name or signal, work)

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

        return bool(await self._step("approve", name, work))

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
            if not place.startswith(("telegram:", "file:")):
                raise StepFailed(step, f'to must be "telegram:CHAT", "telegram:CHAT/TOPIC" or "file:FOLDER", not {place!r}')
            attached = None if file is None else str(file)
            await insist(lambda: self._parts.runs.notify(self.run, step, place, text, attached))
            return Told(None, place)

        await self._step("notify", name, work)

    async def step(self, function: Callable[..., Any], *args: Any, name: str | None = None) -> Any:
        """What any function gives, async or not (then in a thread), as JSON holds it. It is called again only after a crash."""
        said = name or getattr(function, "__name__", "step").strip("<>")

        async def work(step: str) -> Told:
            made = function(*args) if inspect.iscoroutinefunction(function) else asyncio.to_thread(function, *args)
            return Told(as_json(await made, f"the step {step}"))

        return await self._step("step", said, work)

    async def log(self, text: str) -> None:
        """A line for those who look at the run; written once."""
        step = self._path("log")
        await self._checkpoint(step, lambda: self._board.log(text, ""))

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
        path, board = self._begin("map", name), self._board
        try:
            works = [self._branch_of(f"{path}/{number}", function, item) for number, item in enumerate(items)]
            before = self._steps.here
            await board.opened(path, "map", f"{len(works)} items, {limit} at once")
            ends = await self._steps.branches(path, works, limit, board.run.generation)
        finally:
            self._running = ""
        outcomes: list[Outcome[T]] = [
            # Not Outcome[T](…): of a frozen class with slots Python cannot make one by its alias.
            Outcome(error=StepFailed(f"{path}/{number}", end.error, before + 1)) if end.error else Outcome(end.result)
            for number, end in enumerate(ends)
        ]
        await board.closed(path, _summary(outcomes))
        return outcomes

    def _branch_of(self, path: str, function: Callable[[Context, Item], Awaitable[T]], item: Item) -> Branch:
        async def branch(steps: Checkpoints) -> End:
            context = Context(self._parts, self._board, self._definition, steps, self.params, f"{path}/")
            return await concluded(context, lambda: function(context, item))

        return branch

    @property
    def ended_at(self) -> int:
        """Behind the newest step: where a retry goes on when no step failed."""
        return self._steps.here + 1

    @property
    def generation(self) -> int:
        """How often the run was retried."""
        return self._board.run.generation

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

    def _path(self, name: str) -> str:
        """The step's name in its run: with the map's before it, and numbered when it comes again."""
        if not name or len(name) > NAME_MAX or any(letter in "/#~@!" or not letter.isprintable() for letter in name):
            raise ValueError(f"a step's name has 1 to {NAME_MAX} characters and none of / # ~ @ !, not {name[:100]!r}")
        self._names[name] += 1
        again = self._names[name]
        return f"{self._branch}{name}" + ("" if again == 1 else f"#{again}")

    def _begin(self, kind: str, name: str | None) -> str:
        if self._running:
            raise SeveralAtOnce(self._running, name or kind)
        self._running = path = self._path(name or kind)
        self._task = asyncio.current_task()
        return path

    async def clear(self) -> None:
        """Ends a step that its workflow has left running."""
        if self._running and self._task is not None and self._task is not asyncio.current_task():
            self._task.cancel()
            await asyncio.wait((self._task,))

    async def _step(self, kind: str, name: str | None, work: Callable[[str], Awaitable[Told]]) -> JSON:
        """One step with a row: begun, worked and kept, and then shown as ended."""
        path, board = self._begin(kind, name), self._board
        try:

            async def attempt() -> JSON:
                if kind not in WAITING:
                    await board.began(path, kind)
                kept = await _kept(work(path))
                if not board.has(path):
                    # It had not to wait.
                    await board.began(path, kind)
                return kept

            kept = await self._checkpoint(path, attempt)
        finally:
            self._running = ""
        if "failed" in kept:
            await board.ended(path, StepState.FAILED, kept["failed"])
            raise StepFailed(path, kept["failed"], self._steps.here)
        await board.took(kept["signals"])
        await board.ended(path, StepState.SUCCEEDED, kept["detail"])
        return kept["value"]

    async def _checkpoint(self, path: str, work: Callable[[], Awaitable[JSON]]) -> JSON:
        if self._parts.closing.is_set():
            # The process stops: what is not begun yet is for the next one.
            await asyncio.Event().wait()
        return await self._steps.step(path, work)


async def _kept(work: Awaitable[Told]) -> JSON:
    """What a step's checkpoint holds: what it gave, or why it failed."""
    try:
        told = await work
    except StepFailed as error:
        return {"failed": error.reason}
    except Exception as error:
        return {"failed": sentence(error)}
    return {"value": told.value, "detail": told.detail, "signals": list(told.signals)}


async def concluded(context: Context, work: Callable[[], Awaitable[Any]]) -> End:
    """How a run or a branch ends: with its value, or with the error that it let through."""
    try:
        result = as_json(await work(), "the workflow")
    except StepFailed as error:
        return End(context.generation, error=str(error), again_from=error.place or context.ended_at)
    except Exception as error:
        return End(context.generation, error=sentence(error), again_from=context.ended_at)
    finally:
        await context.clear()
    return End(context.generation, result)


def _summary(outcomes: Sequence[Outcome[Any]]) -> str:
    """How many items did well, and which did not."""
    failed = [f"{number} ({outcome.error.reason})" for number, outcome in enumerate(outcomes) if outcome.error is not None]
    done = f"{len(outcomes) - len(failed)} of {len(outcomes)}"
    return done if not failed else f"{done}; failed: {'; '.join(failed)}"


def _seconds(span: timedelta | float) -> float:
    return span.total_seconds() if isinstance(span, timedelta) else span


def _tail(output: str) -> str:
    """The last lines of an output: where a program says why it failed."""
    return " ".join(output.split())[-300:] or "it said nothing"
