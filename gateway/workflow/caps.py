"""A run's caps as budgets of the same ledger: one counter for each run, named `run:<workflow>:<unit>`, for the run's lifetime.

A run with caps of its own has a standing change of its counter's limit, kept with the raises: every process sees it there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from urllib.parse import quote

from gateway.budget import CAP, Budget, Budgets, Lifetime, Unit, counter_name
from gateway.runs import Caps
from gateway.workflow.definition import Definition

UNITS = {"tokens": Unit.TOKENS, "usd": Unit.MICRO_USD, "requests": Unit.REQUESTS}
"""The fields of caps, and what counts them."""


def with_caps(budgets: Budgets, definitions: Iterable[Definition]) -> Budgets:
    """The configured budgets and those that the workflows' caps are."""
    return Budgets(
        [*budgets.all, *(made for one in definitions if one.caps is not None for made in _budgets(one.name, one.caps))]
    )


def own_limits(workflow: str, run: str, caps: Caps) -> Mapping[str, int]:
    """The counters whose limit a run's own caps are, by name, each with that limit in its budget's unit."""
    key = f"run={quote(run, safe='')}"
    return {counter_name(f"{CAP}{workflow}:{name}", key): limit for name, limit in limits(caps).items()}


def without(caps: Caps, declared: Caps | None) -> tuple[str, ...]:
    """The units that the caps name and the workflow has no cap on: there is no counter for them."""
    known = {} if declared is None else limits(declared)
    return tuple(name for name in limits(caps) if name not in known)


def _budgets(workflow: str, caps: Caps) -> list[Budget]:
    scope = {"workflow": workflow, "run": "*"}
    return [
        Budget(f"{CAP}{workflow}:{name}", UNITS[name], limit, Lifetime(), scope, label=f"one run of {workflow}")
        for name, limit in limits(caps).items()
    ]


def limits(caps: Caps) -> dict[str, int]:
    """The caps that say something, by name, in their budgets' units."""
    found = {"tokens": caps.tokens, "usd": caps.micro_usd, "requests": caps.requests}
    return {name: limit for name, limit in found.items() if limit is not None}
