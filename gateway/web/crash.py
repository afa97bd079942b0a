"""What the log keeps of a fault of our own: enough to find it, nothing of what was asked."""

from __future__ import annotations

import traceback
from pathlib import PurePath

import structlog

log = structlog.get_logger(__name__)

FRAMES_MAX = 8


def log_crash(request_id: str, error: Exception) -> None:
    """One event with the error's type and place. Not its own words: they may quote a prompt."""
    frames = traceback.extract_tb(error.__traceback__)[-FRAMES_MAX:]
    log.error(
        "request_failed",
        request_id=request_id,
        error=type(error).__name__,
        where=[f"{PurePath(frame.filename).name}:{frame.lineno} {frame.name}" for frame in frames],
    )
