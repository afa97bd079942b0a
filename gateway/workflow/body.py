"""One run from its first line to its end: the workflow's function with a context, on the engine's checkpoints."""

from __future__ import annotations

import asyncio

import structlog

from gateway.errors import UnknownWorkflow
from gateway.runs import Run
from gateway.workflow.board import Board, insist
from gateway.workflow.context import Context
from gateway.workflow.definition import Definition
from gateway.workflow.engine import Checkpoints, End
from gateway.workflow.parts import Parts

log = structlog.get_logger(__name__)

CHANGED = "its file changed while it waited; start it again"
GONE = "its file is gone, so it cannot go on"


class Bodies:
    """Makes runs of this process go; `boards` are those that do."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self.boards: dict[str, Board] = {}

    async def run(self, run_id: str, steps: Checkpoints) -> End:
        """As engine.Body."""
        parts = self._parts
        detail = await insist(lambda: parts.runs.detail(run_id))
        run = detail.run
        definition = self._definition(run)
        if definition is None:
            return End(run.generation, error=GONE)
        # Nothing was done yet by a run without steps: it may as well be what the file is now.
        if detail.steps and run.version != definition.version:
            return End(run.generation, error=CHANGED)
        board = self.boards[run_id] = Board(run, detail.steps, parts.runs, parts.waits)
        try:
            board.deliver(await insist(lambda: parts.runs.signals(run=run_id)))
            await asyncio.to_thread((parts.folder / run_id).mkdir, parents=True, exist_ok=True)
            context = Context(parts, board, definition, steps, definition.parameters.typed(run.params))
            return await context.conclude(lambda: definition.function(context, **context.params))
        finally:
            self.boards.pop(run_id, None)

    def _definition(self, run: Run) -> Definition | None:
        try:
            return self._parts.catalogue.get(run.workflow)
        except UnknownWorkflow:
            return None
