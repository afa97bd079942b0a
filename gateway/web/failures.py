"""What is answered when a request fails, and what the log keeps of a fault of our own: enough to find it, nothing of
what was asked.
"""

from __future__ import annotations

import traceback
from datetime import datetime
from pathlib import PurePath

import orjson
import structlog

from gateway.errors import GatewayError
from gateway.web.auth import Denied
from gateway.web.exchange import Whole
from gateway.web.problems import INTERNAL, REQUEST_ID, Problem, problem

log = structlog.get_logger(__name__)

FRAMES_MAX = 8


def failure(error: Exception, request_id: str, now: datetime, *, admin: bool) -> Problem:
    """The HTTP form of whatever a handler raised. What is nobody else's fault is logged."""
    if isinstance(error, Denied):
        return error.problem
    found = problem(error, now, admin=admin) if isinstance(error, GatewayError) else INTERNAL
    if found is INTERNAL:
        log_crash(request_id, error)
    return found


def refusal(found: Problem, request_id: str) -> Whole:
    """The JSON answer that says it."""
    headers = {"Content-Type": "application/json", REQUEST_ID: request_id, **found.headers}
    return Whole(found.status, headers, orjson.dumps({"error": found.error(request_id)}))


def log_crash(request_id: str, error: Exception) -> None:
    """One event with the error's type and place. Not its own words: they may quote a prompt."""
    frames = traceback.extract_tb(error.__traceback__)[-FRAMES_MAX:]
    log.error(
        "request_failed",
        request_id=request_id,
        error=type(error).__name__,
        where=[f"{PurePath(frame.filename).name}:{frame.lineno} {frame.name}" for frame in frames],
    )
