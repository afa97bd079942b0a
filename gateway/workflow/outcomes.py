"""What became of the items of a map."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from gateway.workflow.engine import End
from gateway.workflow.failures import StepFailed

T = TypeVar("T")


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


def outcomes_of(path: str, ends: Sequence[End], place: int) -> list[Outcome[Any]]:
    """The outcomes in the order of the items; `place` is the map's, from which a retry goes on."""
    return [
        Outcome(error=StepFailed(f"{path}/{number}", end.error, place)) if end.error else Outcome(end.result)
        for number, end in enumerate(ends)
    ]


def summary(outcomes: Sequence[Outcome[Any]]) -> str:
    """How many items did well, and which did not."""
    failed = [f"{number} ({outcome.error.reason})" for number, outcome in enumerate(outcomes) if outcome.error is not None]
    done = f"{len(outcomes) - len(failed)} of {len(outcomes)}"
    return done if not failed else f"{done}; failed: {'; '.join(failed)}"
