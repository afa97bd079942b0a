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

from gateway.budget import Amounts
from gateway.chat import Message, Origin, Request
from gateway.dispatcher import Dispatcher, Verdict
from gateway.effects.http import SIZE_MAX as HTTP_SIZE_MAX
from gateway.effects.http import TIMEOUT_S as HTTP_TIMEOUT_S
from gateway.effects.shell import OUTPUT_MAX, TIMEOUT_S
from gateway.errors import GatewayError
from gateway.runs import JSON, Caps, Starter
from gateway.settings import Settings
from gateway.workflow.asking import messages_of
from gateway.workflow.context import AT_ONCE, Outcome
from gateway.workflow.definition import Definition
from gateway.workflow.failures import sentence
from gateway.workflow.parts import default_chain
from gateway.workflow.schemas import Schema
from gateway.workflow.unknown import Looks, Unknowable, Unknown, is_made_of

T = TypeVar("T")
Item = TypeVar("Item")

STEPS_MAX = 200
ITEMS_MAX = 20
"""Items of a map that are rehearsed."""
TIMEOUT_ALL_S = 20.0
DETAIL_MAX = 120
RUN = "dry-run"
"""The run's id while it is rehearsed: counters of single runs are new for it."""


@dataclass(frozen=True, slots=True)
class Planned:
    """One step that a run would make. `verdicts`, of an `ask`, are the gate's for each slot of its chain, now."""

    name: str
    kind: str
    detail: str = ""
    verdicts: tuple[Verdict, ...] = ()
    at_least: bool = False
    """True when the prompt is made of what earlier steps give: its worst case is more than the verdicts say."""

    @property
    def fits(self) -> bool | None:
        """Whether some slot would serve this ask now; None for other steps."""
        return any(verdict.error is None for verdict in self.verdicts) if self.kind == "ask" else None


@dataclass(frozen=True, slots=True)
class Plan:
    """The steps that can be known, in their order. `rest` says why there may be more; "" when these are all."""

    steps: tuple[Planned, ...]
    rest: str = ""
    assumed: tuple[str, ...] = ()
    """What conditions of the workflow depend on, each taken as the usual case: another run may go another way."""
    caps: Caps = field(default_factory=Caps)
    """The most that the run may spend."""

    @property
    def worst_case(self) -> Amounts:
        """What all the asks together take at most, each by the dearest slot of its chain and answered at the first attempt."""
        asks = [step.verdicts for step in self.steps if step.kind == "ask"]
        return Amounts(
            requests=len(asks),
            tokens=sum(max((one.prompt_tokens + one.output_tokens for one in verdicts), default=0) for verdicts in asks),
            micro_usd=sum(max((one.cost_micro_usd or 0 for one in verdicts), default=0) for verdicts in asks),
        )

    @property
    def beyond(self) -> tuple[str, ...]:
        """The caps that the worst case passes: "tokens", "usd", "requests"."""
        worst, caps = self.worst_case, self.caps
        pairs = {"tokens": (worst.tokens, caps.tokens), "usd": (worst.micro_usd, caps.micro_usd)}
        pairs["requests"] = worst.requests, caps.requests
        return tuple(name for name, (amount, cap) in pairs.items() if cap is not None and amount > cap)


async def rehearse(
    definition: Definition,
    values: Mapping[str, JSON],
    starter: Starter,
    dispatcher: Dispatcher,
    settings: Settings,
    caps: Caps | None = None,
) -> Plan:
    """The plan of a run with these checked parameters. Raises LedgerUnavailable."""
    steps: list[Planned] = []
    looks = Looks()
    gate = _Gate(definition, starter, dispatcher, default_chain(settings), looks)
    context = Rehearsal(gate, steps, definition.parameters.typed(values), (caps or Caps()).over(definition.caps))
    rest = ""
    try:
        async with asyncio.timeout(TIMEOUT_ALL_S):
            await definition.function(context, **context.params)
    except Unknowable as unknowable:
        rest = f"what comes next cannot be known before the run: {unknowable.said}"
    except TimeoutError:
        rest = f"what comes next was not reached within {TIMEOUT_ALL_S:g} seconds"
    except GatewayError:
        raise
    except Exception as error:
        rest = f"what comes next cannot be known before the run: {sentence(error)}"
    return Plan(tuple(steps), rest, tuple(looks.assumed), context.budget)


@dataclass(frozen=True, slots=True)
class _Gate:
    """Asks the gate as the run would."""

    definition: Definition
    starter: Starter
    dispatcher: Dispatcher
    chain: str
    looks: Looks

    async def look(self, step: str, request: Request, chain: str | None) -> tuple[Verdict, ...]:
        starter = self.starter
        origin = Origin(
            request_id=f"{RUN}/{step}",
            surface=starter.surface,
            user=starter.user,
            chat=starter.chat,
            workflow=self.definition.name,
            run=RUN,
            step=step,
            key=starter.key,
            guest=not starter.listed,
        )
        return tuple(await self.dispatcher.explain(request, chain or self.definition.chain or self.chain, origin))


class Rehearsal:
    """Stands in the place of a run's Context, method for method."""

    def __init__(self, gate: _Gate, steps: list[Planned], params: Mapping[str, Any], budget: Caps, branch: str = "") -> None:
        self._gate, self._steps, self._branch = gate, steps, branch
        self._names: Counter[str] = Counter()
        self.params: Mapping[str, Any] = params
        """The run's parameters, by name."""
        self.budget = budget
        """The most that the run may spend."""
        self.run = RUN
        """No run has this id."""
        self.folder = Path(f"/nonexistent/runs/{RUN}")
        """Nothing is there, and nothing can be put there."""
        self.starter = gate.starter
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
        verdicts = await self._gate.look(step, request, chain)
        self._plan(Planned(step, "ask", verdicts=verdicts, at_least=any(is_made_of(str(one.get("content"))) for one in messages)))
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
        context = Rehearsal(self._gate, self._steps, self.params, self.budget, branch)
        return Outcome(value=await function(context, item))

    def _unknown(self, said: str, **known: Any) -> Any:
        return Unknown(said, self._gate.looks, **known)

    def _planned(self, kind: str, name: str | None, detail: str = "") -> str:
        step = self._name(name or kind)
        one_line = " ".join(detail.split())
        self._plan(Planned(step, kind, one_line if len(one_line) <= DETAIL_MAX else f"{one_line[: DETAIL_MAX - 1]}…"))
        return step

    def _plan(self, step: Planned) -> None:
        if len(self._steps) >= STEPS_MAX:
            raise Unknowable(f"more than {STEPS_MAX} steps")
        self._steps.append(step)

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
