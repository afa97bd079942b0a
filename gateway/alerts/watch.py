"""The job that looks for what operators should know. Apart from the gate: no call waits for it, and it waits for none."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime, timedelta

import structlog

from gateway.alerts import rules
from gateway.budget import Budgets
from gateway.clock import Clock, to_ms
from gateway.errors import LedgerUnavailable
from gateway.ledger import Raises
from gateway.store.alerts import Alerts, Sign
from gateway.store.standings import Standings

log = structlog.get_logger(__name__)

LOOK_EVERY_S = 1.0
HEARD_MAX = 1000
"""Events that wait for the database, at most."""
CHECKED_MAX = 500
"""Of so many open alerts one look asks whether they are over; the next look asks it of the next ones."""
PATIENCE = timedelta(seconds=5)
"""A ledger that is gone for less is not worth a word: calls wait about as long."""
STUCK_AFTER = timedelta(minutes=10)
STUCK_EVERY = timedelta(seconds=30)

Limits = Callable[[], tuple[Budgets, Raises]]
"""What holds now. Raises LedgerUnavailable while nothing can be written."""
Directly = Callable[[str, Mapping[str, object]], Awaitable[None]]
"""Tells admins without the database."""


class AlertWatch:
    """One per process. `looks`: also at budgets and deliveries, not only at what this process hears of its own calls."""

    def __init__(self, alerts: Alerts, standings: Standings, limits: Limits, clock: Clock, *, looks: bool) -> None:
        self._alerts, self._standings, self._limits, self._clock = alerts, standings, limits, clock
        self._looks = looks
        self._heard: deque[Sign] = deque(maxlen=HEARD_MAX)
        self._gone: tuple[datetime, str] | None = None
        self._said = False
        self._stuck_at: datetime | None = None
        self._checked = 0
        """Up to this id open alerts were asked whether they are over; 0: from the first one on."""
        self.directly: Directly | None = None
        """Set by a bot of this process."""

    def hear(self, event: str, fields: Mapping[str, object]) -> None:
        """Takes an event of a call; returns at once."""
        sign = rules.of_event(event, fields)
        if sign is not None:
            self._heard.append(sign)

    async def watch(self) -> None:
        """Looks once. A ledger that cannot be used is what is told then."""
        try:
            await self._look()
        except LedgerUnavailable as error:
            # What was seen and could not be entered is looked at again.
            self._standings.forget()
            await self._outage(error.reason)

    async def _look(self) -> None:
        limits = self._limits()
        signs, over = (await self._seen(*limits)) if self._looks else ([], [])
        heard = list(self._heard)
        taken = len(heard)
        if self._gone is not None and self._said:
            since, reason = self._gone
            heard.append(rules.of_outage(to_ms(since), to_ms(self._clock.now()), reason))
        signs += heard
        if signs or over or (self._looks and await self._alerts.due()):
            for alert in await self._alerts.note(signs, over):
                log.warning("alert", kind=alert.kind, subject=alert.subject, alert=alert.id)
        for _ in range(min(len(self._heard), taken)):
            self._heard.popleft()
        self._gone, self._said = None, False

    async def _seen(self, budgets: Budgets, raises: Raises) -> tuple[list[Sign], list[str]]:
        """What budgets, refusals and deliveries say, and which alerts are over."""
        signs = [sign for one in await self._standings.risen(budgets, raises) for sign in rules.of_standing(one)]
        priced, lacking = rules.of_passed(await self._standings.passed(), budgets)
        signs += priced
        if lacking:
            for one in await self._standings.of(list(lacking), budgets, raises):
                signs += rules.of_refusal(one, lacking[one.budget.name, one.key])
        over = []
        open_ = await self._alerts.lasting(rules.BUDGET_KINDS, after=self._checked, limit=CHECKED_MAX)
        self._checked = open_[-1].id if len(open_) == CHECKED_MAX else 0
        if open_:
            names = list({(str(alert.facts["budget"]), str(alert.facts["key"])) for alert in open_})
            over = rules.over(open_, await self._standings.of(names, budgets, raises))
        now = self._clock.now()
        if self._stuck_at is None or now - self._stuck_at >= STUCK_EVERY:
            stuck = await self._standings.stuck(to_ms(now - STUCK_AFTER))
            signs += rules.of_stuck(stuck)
            over += [one.subject for one in await self._alerts.lasting([rules.STUCK]) if one.facts["where"] not in stuck]
            self._stuck_at = now
        return signs, over

    async def _outage(self, reason: str) -> None:
        """Says once per outage, without the database, that there is one; its row is entered when it is over."""
        now = self._clock.now()
        if self._gone is None:
            self._gone = (now, reason)
        if not self._said and now - self._gone[0] >= PATIENCE:
            self._said = True
            log.error("alert", kind=rules.LEDGER, reason=reason)
            if self.directly is not None:
                await self.directly(rules.LEDGER, {"reason": reason})
