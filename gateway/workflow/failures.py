"""What goes wrong inside a run, in words for the people who read it, and what the engine keeps of it."""

from __future__ import annotations

from dataclasses import dataclass, field

from gateway.errors import GatewayError

NEVER_FITS = "it can never fit"
OWN_CAP = "the run's own cap"
"""How a step's failure speaks of a limit; a surface that names no budgets to its reader looks for this."""


@dataclass
class StepFailed(GatewayError):
    """A step did not do what it was asked. A workflow may catch it and go on; else it ends the run, which can be retried."""

    step: str
    """The step's name; of a branch of a map, with the map's name and the item's number before it."""
    reason: str
    place: int = field(default=0, repr=False)
    """The engine's place of the step, from which a retry goes on."""

    def __str__(self) -> str:
        return f"{self.step}: {self.reason}"


class SeveralAtOnce(GatewayError):
    """Two steps of one context at the same time, which a replay could not tell apart."""

    def __init__(self, running: str, wanted: str) -> None:
        super().__init__(
            f"the step {wanted} was begun while {running} runs: await each step before the next one, "
            "and use ctx.map for what goes side by side (asyncio.gather cannot be replayed after a restart)"
        )


def sentence(error: BaseException) -> str:
    """An error in a line for people: our own errors speak for themselves, others with their kind before them."""
    said = str(error).strip()
    if isinstance(error, GatewayError) and said:
        return said
    return f"{type(error).__name__}: {said}" if said else type(error).__name__
