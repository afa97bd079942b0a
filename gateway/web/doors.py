"""Who may come in where: the one table of what each route needs. A route that is not in it needs an admin key."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum

from gateway.store.keys import May
from gateway.web.dashboard import ROUTES as PAGES
from gateway.web.dashboard import STATIC


class Door(StrEnum):
    """What lets somebody in."""

    OPEN = "nobody needs a key"
    ASK = "a key that may ask"
    RUN = "a key that may run"
    READ = "a key that may read"
    ADMIN = "an admin key"
    SECRET = "Telegram's own secret header"  # noqa: S105  (what is needed, not one)
    SESSION = "somebody who is logged in to the console"

    @property
    def needs(self) -> May | None:
        """What a key must be allowed; None where that is not enough, or nothing is needed."""
        return _NEEDS.get(self)

    @property
    def keyless(self) -> bool:
        """True where no key is asked for: what is behind it is open, or finds out by itself who comes."""
        return self in (Door.OPEN, Door.SECRET, Door.SESSION)


_NEEDS = {Door.ASK: May.ASK, Door.RUN: May.RUN, Door.READ: May.READ}

DOORS: Mapping[tuple[str, str], Door] = {
    ("POST", "/v1/chat/completions"): Door.ASK,
    ("POST", "/v1/embeddings"): Door.ASK,
    ("POST", "/v1/messages"): Door.ASK,
    ("POST", "/v1/messages/count_tokens"): Door.ASK,
    ("GET", "/v1/models"): Door.ASK,
    ("GET", "/v1/models/{model}"): Door.ASK,
    ("GET", "/api/budgets"): Door.READ,
    ("POST", "/api/budgets/{name}/raise"): Door.ADMIN,
    ("GET", "/api/usage"): Door.READ,
    ("GET", "/api/usage/export.csv"): Door.READ,
    ("GET", "/api/usage/export.jsonl"): Door.READ,
    ("GET", "/api/workflows"): Door.RUN,
    ("POST", "/api/workflows/{name}/runs"): Door.RUN,
    ("GET", "/api/runs"): Door.RUN,
    ("GET", "/api/runs/{id}"): Door.RUN,
    ("GET", "/api/runs/{id}/events"): Door.RUN,
    ("POST", "/api/runs/{id}/cancel"): Door.RUN,
    ("POST", "/api/runs/{id}/retry"): Door.RUN,
    ("POST", "/api/runs/{id}/approve"): Door.RUN,
    ("POST", "/api/runs/{id}/reject"): Door.RUN,
    ("POST", "/api/runs/{id}/signals/{name}"): Door.RUN,
    ("GET", "/metrics"): Door.ADMIN,
    ("GET", "/healthz"): Door.OPEN,
    ("GET", "/readyz"): Door.OPEN,
    ("GET", "/openapi.json"): Door.OPEN,
    ("GET", "/docs"): Door.OPEN,
    ("POST", "/telegram/{path}"): Door.SECRET,
    # As aiohttp names a route: without the pattern of a part.
    **{(method, re.sub(r":[^}]+", "", path)): Door.SESSION for method, path, _ in PAGES},
    **{("GET", path): Door.OPEN for path in STATIC},
}
"""By method and address."""


def door_of(method: str, path: str) -> Door:
    """What a route needs. A HEAD is a GET without the body."""
    return DOORS.get(("GET" if method == "HEAD" else method, path), Door.ADMIN)
