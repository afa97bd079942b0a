"""A dry run: the workflow's function with a context that does nothing, for as far as its steps can be known beforehand.

A step gives a stand-in, of which the usual is assumed: programs end with code 0, web servers answer 200, people approve, every
item of a map does well, and conditions on what a step gives are met. What was assumed is told with the plan. An `ask` is put
to the gate as it stands now: nothing is called, nothing is held.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

from gateway.chat import Message, Origin, Request
from gateway.effects.http import SIZE_MAX as HTTP_SIZE_MAX
from gateway.effects.http import TIMEOUT_S as HTTP_TIMEOUT_S
from gateway.effects.shell import OUTPUT_MAX, TIMEOUT_S
from gateway.errors import GatewayError
from gateway.runs import JSON, Caps, Run
from gateway.workflow.asking import messages_of
from gateway.workflow.context import AT_ONCE
from gateway.workflow.definition import Definition
from gateway.workflow.failures import StepFailed, sentence
from gateway.workflow.fitting import Fit, Room
from gateway.workflow.outcomes import Outcome
from gateway.workflow.parts import Parts
from gateway.workflow.schemas import Schema
from gateway.workflow.unknown import Looks, Unknowable, Unknown, is_made_of

T = TypeVar("T")
Item = TypeVar("Item")

STEPS_MAX = 200
ITEMS_MAX = 20
"""Items of a map that are rehearsed."""
TIMEOUT_ALL_S = 20.0
DETAIL_MAX = 120


@dataclass(frozen=True, slots=True)
class Planned:
    """One step that would be made."""

    name: str
    kind: str
    detail: str = ""
    known: bool = True
    """False for a call whose prompt holds what earlier steps give: it is at least so long."""
    fit: Fit | None = None
    """Of a call."""


@dataclass(slots=True)
class Plan:
    """What is known of a run."""

    steps: list[Planned] = field(default_factory=list)
    reason: str = ""
    """Why the steps behind the last one are not known; "" when there are none."""
    assumed: tuple[str, ...] = ()
    """What conditions of the workflow depend on, each taken as the usual case: another run may go another way."""

    @property
    def calls(self) -> list[Fit]:
        """Its calls of models, in their order."""
        return [step.fit for step in self.steps if step.fit is not None]

    @property
    def fits(self) -> bool:
        """True when every call that is known has room now."""
        return all(fit.slot is not None for fit in self.calls)


async def rehearse(parts: Parts, definition: Definition, run: Run) -> Plan:
    """The plan of a run that is not started. Calls nobody and holds nothing. Raises LedgerUnavailable, UnknownTarget."""
    stage = _Stage(parts, definition, run)
    plan = stage.plan
    context = Rehearsal(stage, definition.parameters.typed(run.params))
    try:
        async with asyncio.timeout(TIMEOUT_ALL_S):
            await definition.function(context, **context.params)
    except Unknowable as unknowable:
        plan.reason = f"{unknowable.said} cannot be known before the run"
    except TimeoutError:
        plan.reason = f"what comes then was not reached within {TIMEOUT_ALL_S:g} seconds"
    except GatewayError as error:
        if not isinstance(error, StepFailed):
            raise
        plan.reason = f"the run would fail: {error}"
    except (Exception, SystemExit) as error:
        plan.reason = f"what comes then depends on what the steps give ({sentence(error)})"
    plan.assumed = tuple(stage.looks.assumed)
    return plan


class _Stage:
    """What the contexts of one rehearsal share."""

    def __init__(self, parts: Parts, definition: Definition, run: Run) -> None:
        self._parts, self._definition, self.run = parts, definition, run
        self.plan, self.looks, self._room = Plan(), Looks(), Room(run)
        self.caps = (run.caps or Caps()).over(definition.caps)

    def note(self, step: Planned) -> None:
        """Adds a step to the plan."""
        if len(self.plan.steps) >= STEPS_MAX:
            raise Unknowable(f"more than {STEPS_MAX} steps")
        self.plan.steps.append(step)

    async def fit(self, step: str, request: Request, chain: str | None) -> Fit:
        """Asks the gate as the run would."""
        run, starter = self.run, self.run.starter
        origin = Origin(
            request_id=f"{run.id}/{step}",
            surface=starter.surface,
            user=starter.user,
            chat=starter.chat,
            workflow=run.workflow,
            run=run.id,
            step=step,
            key=starter.key,
            guest=not starter.listed,
            may_use=starter.may_use,
        )
        target = chain or self._definition.chain or self._parts.default_chain
        return self._room.fit(await self._parts.dispatcher.explain(request, target, origin))


class Rehearsal:
    """Stands in the place of a run's Context, method for method."""

    def __init__(self, stage: _Stage, params: Mapping[str, Any], branch: str = "") -> None:
        self._stage, self._branch = stage, branch
        self._names: Counter[str] = Counter()
        self.params: Mapping[str, Any] = params
        """The run's parameters, by name."""
        self.budget = stage.caps
        """The most that the run may spend."""
        self.run = stage.run.id
        """No run has this id."""
        self.folder = Path("/nonexistent/runs") / self.run
        """Nothing is there, and nothing can be put there."""
        self.starter = stage.run.starter
        """Who would start it."""
        self.budgets = RehearsedBudgets(self.step)
        """The budgets, which stay as they are."""

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
        """What the gate says of it now."""
        step, messages = self._name(name or "ask"), messages_of(prompt, system)
        extra: dict[str, Any] = {}
        if schema is not None:
            shape = Schema(schema)
            messages, extra = shape.asked(messages), shape.extra()
        request = Request(messages, max_tokens, extra=extra, clampable=False)
        known = not any(is_made_of(str(one.get("content"))) for one in messages)
        self._stage.note(Planned(step, "ask", known=known, fit=await self._stage.fit(step, request, chain)))
        return self._unknown(f"the answer of {step}")

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
    ) -> Any:
        """The program is named."""
        step = self._planned("shell", name, " ".join(map(str, args)))
        certain = {"code": 0, "timed_out": False} if check else {}
        return self._unknown(f"the output of {step}", **certain)

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
    ) -> Any:
        """The address is named."""
        return self._unknown(f"the answer of {self._planned('http', name, f'{method} {url}')}", status=200)

    async def read(self, path: str | Path, *, name: str | None = None) -> str:
        """The file is named."""
        read: str = self._unknown(f"what {self._planned('read', name, str(path))} reads")
        return read

    async def write(self, path: str | Path, text: str | bytes, *, name: str | None = None) -> Path:
        """The file is named."""
        self._planned("write", name, str(path))
        return self.folder / path

    async def sleep(self, duration: timedelta | float, *, name: str | None = None) -> None:
        """The time is named."""
        span = duration if isinstance(duration, timedelta) else timedelta(seconds=duration)
        self._planned("sleep", name, str(span))

    async def wait_for(self, signal: str, timeout: timedelta | float | None = None, *, name: str | None = None) -> JSON:
        """The signal is named."""
        return self._unknown(f"the signal {self._planned('wait_for', name or signal, signal)}")

    async def approve(
        self,
        question: str,
        *,
        who: Sequence[str] = ("starter", "admins"),
        expires: timedelta | float | None = None,
        otherwise: str = "reject",
        name: str | None = None,
    ) -> bool:
        """The question is named, and taken as approved."""
        self._planned("approve", name, f"{question} ({', '.join(map(str, who))})")
        return True

    async def notify(self, text: str, *, to: str | None = None, file: str | Path | None = None, name: str | None = None) -> None:
        """The place is named."""
        self._planned("notify", name, to or "the chat in which it was started")

    async def step(self, function: Callable[..., Any], *args: Any, name: str | None = None) -> Any:
        """The function is named, not called."""
        said = name or getattr(function, "__name__", "step").strip("<>")
        return self._unknown(f"the result of {self._planned('step', said)}")

    async def log(self, text: str) -> None:
        """Nothing."""

    async def map(
        self,
        function: Callable[[Any, Item], Awaitable[T]],
        items: Iterable[Item],
        *,
        limit: int = AT_ONCE,
        name: str = "map",
    ) -> list[Outcome[T]]:
        """Each item's steps, of the first ITEMS_MAX."""
        unknown = isinstance(items, Unknown)
        found = list(items)
        how_many = f"as many as there are in {items}" if unknown else f"{len(found)} items"
        shown = found[:ITEMS_MAX]
        left_out = f", the first {ITEMS_MAX} are shown" if len(shown) < len(found) else ""
        path = self._planned("map", name, f"{how_many}, {limit} at once{left_out}")
        outcomes = [await self._item(f"{path}/{number}/", function, item) for number, item in enumerate(shown)]
        others: list[Outcome[Any]] = [
            Outcome(value=self._unknown(f"item {number} of {path}")) for number in range(len(shown), len(found))
        ]
        return outcomes + others

    async def _item(self, branch: str, function: Callable[[Any, Item], Awaitable[T]], item: Item) -> Outcome[T]:
        context = Rehearsal(self._stage, self.params, branch)
        return Outcome(value=await function(context, item))

    def _unknown(self, said: str, **known: Any) -> Any:
        return Unknown(said, self._stage.looks, **known)

    def _planned(self, kind: str, name: str | None, detail: str = "") -> str:
        step = self._name(name or kind)
        one_line = " ".join(detail.split())
        self._stage.note(Planned(step, kind, one_line if len(one_line) <= DETAIL_MAX else f"{one_line[: DETAIL_MAX - 1]}…"))
        return step

    def _name(self, name: str) -> str:
        self._names[name] += 1
        again = self._names[name]
        return f"{self._branch}{name}" + ("" if again == 1 else f"#{again}")


class RehearsedBudgets:
    """Stands in the place of a run's BudgetFace, method for method."""

    def __init__(self, step: Callable[..., Awaitable[Any]]) -> None:
        self._step = step

    async def standing(self) -> Any:
        """Not looked at: a run sees them as they are then."""
        return await self._step(self.standing, name="budgets")

    async def raise_to(self, budget: str, limit: int, until: datetime) -> None:
        """Nothing is raised."""
        await self._step(self.raise_to, name="raise a budget")

    async def pause(self, until: datetime) -> None:
        """Nothing is paused."""
        await self._step(self.pause, name="pause")
