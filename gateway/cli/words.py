"""What the command line says about itself to the gate, and about the gate's refusals to the operator."""

from __future__ import annotations

import os
from datetime import datetime
from uuid import uuid4
from zoneinfo import ZoneInfo

from gateway.chat import Origin
from gateway.cli.render import amount, moment, unit_name
from gateway.cli.session import actor
from gateway.errors import Block, BreakerOpen, CannotServe, Exhausted, GatewayError, Paused, ProviderError
from gateway.notice import Reader
from gateway.runs import Starter
from gateway.settings import Settings

PATIENCE_S = 15.0
"""How long a person at the terminal waits when only holds are in the way."""


def origin(user: str | None = None) -> Origin:
    """A fresh request from the command line."""
    return Origin(request_id="cli_" + uuid4().hex, surface="cli", user=user, patience_s=PATIENCE_S)


def starter() -> Starter:
    """The person at the terminal, who starts runs and acts on them: whoever can read the configuration may do all."""
    return Starter("cli", actor().removeprefix("cli:"), admin=True, language=language())


def reader(settings: Settings) -> Reader:
    """The person at the terminal: their language is the environment's, their zone the configuration's."""
    return Reader(language=language(), zone=settings.zone)


def language() -> str:
    """The environment's language as an IETF tag, English where it names none."""
    for name in ("LC_ALL", "LC_MESSAGES", "LANG"):
        value = os.environ.get(name, "").partition(".")[0].partition("@")[0]
        if value and value not in ("C", "POSIX"):
            return value.replace("_", "-")
    return "en"


def default_target(settings: Settings) -> str:
    """The chain that a question without `--chain` goes to: `default`, else the first one."""
    return "default" if "default" in settings.chains else next(iter(settings.chains), settings.telegram.chain)


def block_text(block: Block, zone: ZoneInfo, now: datetime) -> str:
    """Why one budget refuses, with its figures: for operators."""
    unit = block.unit
    figures = (
        f"budget {block.budget}: {amount(unit, block.spent)} spent and {amount(unit, block.held)} held "
        f"of {amount(unit, block.limit)} {unit_name(unit)}, {amount(unit, block.asked)} asked"
    )
    if block.limit == 0 and block.resets_at is None:
        return f"{figures}; nothing is allowed"
    if block.too_large:
        return f"{figures}; larger than the whole limit"
    if block.held_only:
        return f"{figures}; only holds are in the way"
    return f"{figures}; opens {moment(block.resets_at, zone, now)}"


def error_text(error: GatewayError, zone: ZoneInfo, now: datetime) -> str:
    """Why one slot did not serve, in one line: for operators."""
    if isinstance(error, Exhausted):
        return "; ".join(block_text(block, zone, now) for block in error.blocks)
    if isinstance(error, Paused):
        return "paused by an admin" + (f", goes on {moment(error.until, zone, now)}" if error.until else " until resumed")
    if isinstance(error, BreakerOpen):
        return f"left alone after failures, tried again {moment(error.until, zone, now)}: {error.reason}"
    if isinstance(error, CannotServe):
        return error.reason
    if isinstance(error, ProviderError):
        status = f" ({error.status})" if error.status else ""
        return f"failed{status}: {error.message}"
    return str(error)
