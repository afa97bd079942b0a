"""How a command ends: errors become one clear line on standard error and an exit code, never a traceback for a person."""

from __future__ import annotations

import errno
from collections.abc import Callable, Coroutine
from typing import Any

import typer

from gateway.errors import (
    BadParameters,
    ChainExhausted,
    ConfigError,
    GatewayError,
    InvalidRequest,
    UnknownRun,
    UnknownTarget,
    UnknownWorkflow,
)

CANNOT_LISTEN = (errno.EADDRINUSE, errno.EADDRNOTAVAIL, errno.EACCES)
DONE, FAILED, USAGE, EXHAUSTED = 0, 1, 2, 3
_USAGE_ERRORS = (UnknownTarget, InvalidRequest, UnknownWorkflow, UnknownRun, BadParameters)


class CommandError(Exception):
    """A command cannot go on: `text` says what is wrong and what mends it."""

    def __init__(self, text: str, code: int = FAILED) -> None:
        super().__init__(text)
        self.code = code


class Debug:
    """Whether `--debug` was given: the one flag that stands before every command."""

    on = False


def run(make: Callable[[], int | Coroutine[Any, Any, int]]) -> None:
    """Runs a command to its end and leaves with its exit code."""
    import asyncio

    try:
        work = make()
        code = work if isinstance(work, int) else asyncio.run(work)
    except KeyboardInterrupt:
        code = FAILED
    except (BrokenPipeError, typer.Abort, typer.Exit):
        raise
    except Exception as error:
        if Debug.on:
            raise
        code = _explain(error)
    raise typer.Exit(code)


def _explain(error: Exception) -> int:
    """Says what went wrong on standard error; returns the exit code."""
    if isinstance(error, ConfigError):
        complain("the configuration is wrong:")
        for problem in error.problems:
            typer.echo(f"  {problem}", err=True)
        return USAGE
    if isinstance(error, CommandError):
        complain(str(error))
        return error.code
    if isinstance(error, GatewayError):
        complain(str(error))
        if isinstance(error, ChainExhausted):
            return EXHAUSTED if error.budgets_only else FAILED
        return USAGE if isinstance(error, _USAGE_ERRORS) else FAILED
    if isinstance(error, OSError) and error.errno in CANNOT_LISTEN:
        complain(f"cannot listen there: {error.strerror}; PORT in the environment or `listen` under [gateway] names another")
        return FAILED
    said = (str(error).splitlines() or [""])[0]
    complain(f"unexpected {type(error).__name__}: {said} (`sluicegate --debug …` shows where)")
    return FAILED


def complain(text: str) -> None:
    """One line on standard error, in the form in which every command complains."""
    typer.echo(f"sluicegate: {text}", err=True)
