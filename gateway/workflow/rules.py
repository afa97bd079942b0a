"""Who may start which workflow, who may answer a question, and what they may name. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from gateway.errors import NotAllowed
from gateway.notice import text
from gateway.runs import Starter
from gateway.settings import WorkflowRules
from gateway.workflow.addresses import Trust

ASKED = ("starter", "admins", "users")
"""The words, beside numeric ids, for those who may answer a question."""
OPERATORS = ("cli", "schedule")
"""Surfaces behind which only somebody can be who may also change the configuration."""


def operator(starter: Starter) -> bool:
    """True for admins, the command line, and what the configuration itself starts: they may start and name everything."""
    return starter.admin or starter.surface in OPERATORS


def trust(starter: Starter, rules: WorkflowRules) -> Trust:
    """What this starter's parameters may name."""
    return Trust(local=operator(starter), allow_repos=rules.allow_repos)


def may_start(starter: Starter, rules: WorkflowRules) -> bool:
    """True when `[workflows.<name>] who` has the starter; admins and the command line always."""
    return operator(starter) or among(rules.who, starter)


def require_start(name: str, starter: Starter, rules: WorkflowRules) -> None:
    """Raises NotAllowed, in the starter's language, unless `may_start`."""
    if not may_start(starter, rules):
        raise NotAllowed(text(starter.language, "workflow_not_allowed", workflow=name))


def among(who: Iterable[str], person: Starter, started: Starter | None = None) -> bool:
    """True when the person is one of `who`: "admins", "users" (people on the list, and keys), "starter" (who started the run
    that asks: `started`), and numeric Telegram ids.

    An id counts on Telegram only: elsewhere a key or an account could be named like one.
    """
    for one in who:
        if one == "admins" and operator(person):
            return True
        if one == "users" and person.listed:
            return True
        if one == "starter" and started is not None and person.user is not None and person.name == started.name:
            return True
        if person.surface == "telegram" and one == person.user:
            return True
    return False
