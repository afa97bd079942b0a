"""The desk: what every surface asks of workflows, and may be refused. It writes rows; a worker, here or elsewhere, does the work.

A surface knows who acts and hands them in as a Starter. What they may is decided here, and nowhere else.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from gateway.clock import Clock
from gateway.errors import InvalidRequest, NotAllowed, UnknownRun, UnknownWorkflow, WrongState
from gateway.notice import text
from gateway.runs import JSON, Approval, Caps, Decision, Detail, Run, RunEvent, RunState, Starter
from gateway.settings import Settings
from gateway.store.runs import Runs
from gateway.workflow.caps import without
from gateway.workflow.catalogue import Catalogue
from gateway.workflow.definition import Definition
from gateway.workflow.rules import among, operator, require_start

KEY_MAX = 255
"""Characters of a key that means one run."""
_SIGNAL = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_ALPHABET = "abcdefghjkmnpqrstuvwxyz23456789"
"""Letters and digits that nobody takes for one another: people type the ids of runs."""
_ID_LENGTH = 12


class Desk:
    """One per process. Every method raises LedgerUnavailable when the database cannot be used.

    `poke` is set when there is something for a worker: one in this process need not wait for its next look.
    """

    def __init__(
        self, runs: Runs, catalogue: Catalogue, settings: Settings, clock: Clock, poke: asyncio.Event | None = None
    ) -> None:
        self._runs, self._catalogue, self._settings, self._clock = runs, catalogue, settings, clock
        self.poke = poke or asyncio.Event()

    def startable(self, starter: Starter) -> tuple[Definition, ...]:
        """The workflows that this person may start, by name."""
        return self._catalogue.startable(starter, self._settings)

    def startable_one(self, starter: Starter, name: str) -> Definition:
        """One of them. Raises UnknownWorkflow, and NotAllowed for one that others may start."""
        try:
            definition = self._catalogue.get(name)
        except UnknownWorkflow:
            raise UnknownWorkflow(name, tuple(each.name for each in self.startable(starter))) from None
        require_start(name, starter, self._settings.workflows.of(name))
        return definition

    def parse(self, name: str, raw: Mapping[str, Any], starter: Starter) -> dict[str, JSON]:
        """The parameters as a run would get them. Raises UnknownWorkflow, NotAllowed, BadParameters."""
        definition = self.startable_one(starter, name)
        return definition.parameters.parse(raw, starter, self._settings.workflows.of(name))

    async def start(
        self, name: str, raw: Mapping[str, Any], starter: Starter, *, key: str | None = None, caps: Caps | None = None
    ) -> Run:
        """Queues a run; the same key from the same surface (over HTTP: from the same API key) gives the same run.

        `caps` go before those of the workflow, in each unit that they name, and are for operators only.

        Raises UnknownWorkflow, NotAllowed, BadParameters, InvalidRequest (the key, the caps), RequestConflict (the key was used
        for something else): then there is no run.
        """
        values = self.parse(name, raw, starter)
        definition = self._catalogue.get(name)
        if caps is not None:
            _require_caps(caps, definition, starter)
        run = Run(
            id=_new_id(),
            workflow=name,
            state=RunState.QUEUED,
            params=values,
            starter=starter,
            created=self._clock.now(),
            key=None if key is None else _scoped(key, starter),
            version=definition.version,
            caps=None if caps is None else caps.over(definition.caps),
        )
        kept, _ = await self._runs.start(run)
        self.poke.set()
        return kept

    async def get(self, run: str, reader: Starter) -> Detail:
        """A run with its steps and open approvals. Raises UnknownRun, also for another's run where the reader is no operator."""
        detail = await self._runs.detail(run)
        if not _may_see(detail.run, reader):
            raise UnknownRun(run)
        return detail

    async def newest(
        self,
        reader: Starter,
        *,
        workflow: str | None = None,
        state: RunState | None = None,
        limit: int = 50,
        before: str | None = None,
    ) -> list[Run]:
        """The runs that the reader may see, newest first, older than the run `before`."""
        of = None if operator(reader) else reader
        return await self._runs.newest(workflow=workflow, state=state, of=of, limit=limit, before=before)

    async def waiting(self, reader: Starter) -> list[Approval]:
        """The open questions that the reader may answer, the oldest first."""
        found = await self._runs.open_approvals()
        if operator(reader):
            return [each for each in found if among(each.who, reader)]
        mine = {run.id: run for run in await self.newest(reader)}
        return [each for each in found if each.run in mine and among(each.who, reader, mine[each.run].starter)]

    async def events(self, run: str, after: int = 0, limit: int = 500) -> list[RunEvent]:
        """What happened to a run since the event `after`. Whoever asks has seen the run by `get`."""
        return await self._runs.events(run, after, limit)

    async def cancel(self, run: str, actor: Starter) -> Run:
        """Wants a run cancelled. Raises UnknownRun (also another's), WrongState when it ended otherwise."""
        await self.get(run, actor)
        wanted = await self._runs.cancel(run, actor.actor)
        self.poke.set()
        return wanted

    async def retry(self, run: str, actor: Starter, caps: Caps | None = None) -> Run:
        """Lets a failed run go on from the step that failed; `caps`, for operators, go before those that it has.

        Raises UnknownRun (also another's), NotAllowed, InvalidRequest (the caps), WrongState when it has not failed.
        """
        found = (await self.get(run, actor)).run
        # Who may start it now, not who might once: a run must not outlive a permission that was taken away.
        definition = self.startable_one(actor, found.workflow)
        if caps is not None:
            _require_caps(caps, definition, actor)
            caps = caps.over(found.caps or definition.caps)
        # The same holds for what it may ask: a key of the same name may be another one now.
        queued = await self._runs.retry(run, actor.actor, caps, None if operator(actor) else actor.may_use)
        self.poke.set()
        return queued

    async def signal(self, run: str, name: str, data: JSON, actor: Starter) -> None:
        """Tells a run something that it waits for. Raises UnknownRun (also another's), InvalidRequest, WrongState."""
        if not _SIGNAL.fullmatch(name):
            raise InvalidRequest("a signal's name has 1 to 64 letters, digits, _, - and .", "name", 422)
        await self.get(run, actor)
        await self._runs.signal(run, name, data)
        self.poke.set()

    async def decide(self, id: str, approve: bool, actor: Starter, *, of: str | None = None) -> Approval:
        """Answers an approval, by its own id or by that of a run that asks one question. The first answer counts.

        Raises UnknownRun (also for a question that is not one of the run `of`, if that is given), NotAllowed for somebody
        who is not asked, InvalidRequest when the run asks several questions, and WrongState when none is open or it was
        decided otherwise.
        """
        asked = await self._asked(id, approve, actor)
        run = await self._runs.get(asked.run)
        if of not in (None, run.id):
            raise UnknownRun(id)
        if not among(asked.who, actor, run.starter):
            if not _may_see(run, actor):
                raise UnknownRun(id)
            raise NotAllowed(text(actor.language, "approval_not_allowed"))
        decided = await self._runs.decide(asked.id, approve, actor.actor)
        # Also an answer that came too late has told the run: that its time has passed.
        self.poke.set()
        wanted = Decision.APPROVED if approve else Decision.REJECTED
        if decided.decision is not wanted:
            raise WrongState(id, decided.decision, _verb(approve))
        return decided

    async def _asked(self, id: str, approve: bool, actor: Starter) -> Approval:
        try:
            return await self._runs.approval(id)
        except UnknownRun:
            run = await self._runs.get(id)
        asked = await self._runs.open_approvals(id)
        if not asked:
            if not _may_see(run, actor):
                raise UnknownRun(id)
            raise WrongState(id, run.state, _verb(approve))
        if len(asked) > 1:
            ids = ", ".join(f"{each.id} ({each.step})" for each in asked if among(each.who, actor, run.starter))
            raise InvalidRequest(f"run {id} asks more than one question; answer one of {ids}", "approval", 409)
        return asked[0]


def _verb(approve: bool) -> str:
    return "approve" if approve else "reject"


def _may_see(run: Run, reader: Starter) -> bool:
    return operator(reader) or (reader.user is not None and run.starter.name == reader.name)


def _require_caps(caps: Caps, definition: Definition, starter: Starter) -> None:
    """Raises NotAllowed for people who are no operators, InvalidRequest for a unit that nothing counts for a single run."""
    if not operator(starter):
        raise NotAllowed(text(starter.language, "caps_not_allowed"))
    if missing := without(caps, definition.caps):
        declare = ", ".join(f"{unit}=…" for unit in missing)
        told = f"{definition.name} has no cap on {' and '.join(missing)}: its file must say so, with budget=Caps({declare})"
        raise InvalidRequest(told, "caps", 422)


def _scoped(key: str, starter: Starter) -> str:
    """A key under which nobody on another surface, and no other API key, can come."""
    if not 1 <= len(key) <= KEY_MAX or not key.isprintable():
        raise InvalidRequest(f"a run's key has 1 to {KEY_MAX} printable characters", "key", 422)
    owner = f"{quote(starter.key or '', safe='')}:" if starter.surface == "http" else ""
    return f"{starter.surface}:{owner}{key}"


def _new_id() -> str:
    return "".join(secrets.choice(_ALPHABET) for _ in range(_ID_LENGTH))
