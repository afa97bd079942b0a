"""Who calls: bearer keys, and the id that every request gets."""

from __future__ import annotations

import itertools
import random

from aiohttp import web

from gateway.store.keys import Key, Keys
from gateway.web.problems import FORBIDDEN, UNAUTHORIZED, Problem


class Denied(Exception):
    """The request is refused as it stands; `problem` says how."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.code)
        self.problem = problem


_ID = web.RequestKey("sluicegate_request_id", str)
_CALLER = web.RequestKey("sluicegate_caller", Key)


# Ids need not be secret, and asking the system for each one costs as much as parsing the request.
_chance = random.Random(random.SystemRandom().getrandbits(256))  # noqa: S311
# One process's ids follow each other, so that the index over them grows at one end instead of on every page.
_process = f"{_chance.getrandbits(32):08x}"
_numbers = itertools.count()


def new_request_id() -> str:
    """An id that no other request has."""
    return f"req_{_process}{next(_numbers):08x}{_chance.getrandbits(64):016x}"


def request_id(request: web.Request) -> str:
    """The id of this request, made when it is first asked for."""
    found = request.get(_ID)
    if found is None:
        found = request[_ID] = new_request_id()
    return found


def name_request(request: web.Request, name: str) -> None:
    """Gives a request another id: the one that its idempotency key means."""
    request[_ID] = name


async def key_of(authorization: str | None, keys: Keys) -> Key:
    """The live key that this header holds. Raises Denied (401) and LedgerUnavailable."""
    scheme, _, secret = (authorization or "").partition(" ")
    secret = secret.strip()
    key = await keys.find(secret) if secret and scheme.lower() == "bearer" else None
    if key is None:
        raise Denied(UNAUTHORIZED)
    return key


async def caller(request: web.Request, keys: Keys) -> Key:
    """The key that calls. Raises Denied (401) and LedgerUnavailable."""
    key = await key_of(request.headers.get("Authorization"), keys)
    remember_caller(request, key)
    return key


def remember_caller(request: web.Request, key: Key) -> None:
    """Keeps who calls with the request."""
    request[_CALLER] = key


async def admin(request: web.Request, keys: Keys) -> Key:
    """The admin key that calls. Raises Denied (401, 403) and LedgerUnavailable."""
    key = await caller(request, keys)
    if not key.admin:
        raise Denied(FORBIDDEN)
    return key


def is_admin(request: web.Request) -> bool:
    """True when an admin key was seen on this request."""
    key = request.get(_CALLER)
    return key is not None and key.admin
