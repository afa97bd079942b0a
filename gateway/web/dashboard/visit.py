"""One request of a person to the console, and what a page answers."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from aiohttp import web

from gateway.errors import InvalidRequest
from gateway.runs import Starter
from gateway.store.keys import CONSOLE
from gateway.store.sessions import Session

if TYPE_CHECKING:
    from gateway.web.app import Services
    from gateway.web.dashboard import Export


@dataclass(frozen=True)
class View:
    """A page to be rendered. `live` are the parts that are sent again when they change: element's id → template."""

    template: str
    title: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    live: Mapping[str, str] = field(default_factory=dict)
    status: int = 200


@dataclass(frozen=True)
class Onward:
    """Another page, which says what was done; `bad` when it was not."""

    place: str
    said: str = ""
    bad: bool = False


Answer = View | Onward | web.StreamResponse


class Missing(Exception):
    """There is nothing at this address."""


@dataclass(frozen=True)
class Visit:
    """Who asks for what. `session` is None on the pages before the login alone."""

    request: web.Request
    services: Services
    export: Export
    session: Session | None
    secret: str
    """The session's own, from the cookie; "" without one."""
    form: Mapping[str, str]
    lists: Mapping[str, list[str]]
    """The form's fields that came more than once."""

    @property
    def now(self) -> datetime:
        """The current instant."""
        return self.services.clock.now()

    @property
    def zone(self) -> ZoneInfo:
        """The configuration's zone: times are shown in it."""
        return self.services.settings.zone

    @property
    def follows(self) -> bool:
        """True where the live parts of a page are asked for, by an EventSource."""
        return self.request.method == "GET" and "text/event-stream" in self.request.headers.get("Accept", "")

    @property
    def csrf(self) -> str:
        """What each form of this session carries, and no other site knows."""
        return hmac.new(self.secret.encode(), b"form", hashlib.sha256).hexdigest()

    @property
    def actor(self) -> str:
        """Who acts, for the audit."""
        assert self.session is not None
        return self.session.actor

    @property
    def starter(self) -> Starter:
        """Who acts, for workflows."""
        assert self.session is not None
        name = self.session.key or CONSOLE
        return Starter("http", name, admin=True, key=name, acts_as=self.actor)

    def part(self, name: str) -> str:
        """A part of the address."""
        return self.request.match_info[name]

    def asked(self, name: str, default: str = "") -> str:
        """A field of the query."""
        return self.request.query.get(name, default)

    def text(self, name: str, said: str, most: int = 300) -> str:
        """A field of the form that must be there. Raises InvalidRequest with `said` as what it is called."""
        value = self.form.get(name, "").strip()
        if not value:
            raise InvalidRequest(f"{said} is missing", name)
        if len(value) > most:
            raise InvalidRequest(f"{said} is longer than {most} characters", name)
        return value
