"""Structured logs: one event with fields; JSON unless a person reads. Never a prompt, never a key.

What other libraries log passes the same way, at WARNING, since httpx writes the bot's token into its URLs at INFO.
Whatever looks like a token, and every secret of the configuration, is struck out of every line.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, MutableMapping
from typing import TextIO

import structlog
from structlog.stdlib import ProcessorFormatter
from structlog.typing import EventDict, Processor, WrappedLogger

from gateway.clock import Clock

QUIET = ("httpx", "httpcore", "telegram", "aiohttp", "asyncio", "alembic", "apscheduler", "sqlalchemy")
"""Loggers of other libraries: only their warnings are of use to an operator."""

TOKENS = re.compile(r"\d{6,12}:[A-Za-z0-9_-]{30,}|\b(?:sk|sg|gsk|xai|pk)[-_][A-Za-z0-9_-]{12,}|(?<=://)[^/\s:@]+:[^/\s@]+(?=@)")
"""A Telegram bot's token, an API key of the usual shapes, the name and password of a URL."""

REDACTED = "***"


class Redactor:
    """Strikes out every known secret, and what looks like one."""

    def __init__(self, secrets: Collection[str]) -> None:
        self._secrets: list[str] = []
        self.learn(secrets)

    def learn(self, secrets: Collection[str]) -> None:
        """Strikes these out too; what was a secret stays one."""
        known = {*self._secrets, *(secret for secret in secrets if len(secret) >= 4)}
        self._secrets = sorted(known, key=len, reverse=True)

    def text(self, text: str) -> str:
        """The text without secrets."""
        for secret in self._secrets:
            text = text.replace(secret, REDACTED)
        return TOKENS.sub(REDACTED, text)

    def __call__(self, _logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        """As a structlog processor: every text and every error of the event, whatever its depth."""
        return {key: self._value(value) for key, value in event.items() if not key.startswith("_")} | {
            key: value for key, value in event.items() if key.startswith("_")
        }

    def _value(self, value: object) -> object:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, BaseException):
            return self.text(f"{type(value).__name__}: {value}")
        if isinstance(value, MutableMapping):
            return {key: self._value(entry) for key, entry in value.items()}
        if isinstance(value, list | tuple):
            return [self._value(entry) for entry in value]
        return value


def hide(secrets: Collection[str]) -> None:
    """Strikes these out of every later line too, where logging was set up."""
    for processor in structlog.get_config()["processors"]:
        if isinstance(processor, Redactor):
            processor.learn(secrets)


def configure(clock: Clock, stream: TextIO, secrets: Collection[str], level: int = logging.INFO) -> None:
    """Sets the process's logging up, once, when it starts to serve. Colour and columns where `stream` is a terminal."""

    def stamp(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        event["at"] = clock.now().isoformat(timespec="milliseconds").replace("+00:00", "Z")
        return event

    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.PositionalArgumentsFormatter(),
        stamp,
        structlog.processors.StackInfoRenderer(),
        structlog.processors.format_exc_info,
        Redactor(secrets),
    ]
    last: Processor = (
        structlog.dev.ConsoleRenderer(timestamp_key="at", exception_formatter=structlog.dev.plain_traceback)
        if stream.isatty()
        else structlog.processors.JSONRenderer(ensure_ascii=False)
    )
    structlog.configure(
        processors=[structlog.stdlib.filter_by_level, *shared, ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        # What is below the level costs nothing, not even the making of an event.
        wrapper_class=structlog.make_filtering_bound_logger(level),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        ProcessorFormatter(processors=[ProcessorFormatter.remove_processors_meta, last], foreign_pre_chain=shared)
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    for name in QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)
