"""Who calls and whether they may: bearer keys, and the id that every request gets.

Every request for which a key is needed is let in here: by `admit`, before its handler, and on the short way by `admitted`.
What each route needs stands in doors.py.
"""

from __future__ import annotations

import itertools
import random

from aiohttp import web

from gateway.store.keys import Key, Keys
from gateway.web.doors import Door, door_of
from gateway.web.problems import FORBIDDEN, UNAUTHORIZED, Problem, lacking

MESSAGES = "/v1/messages"
"""The address, and the beginning of the addresses, that speak Anthropic's shape."""


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


async def admitted(authorization: str | None, door: Door, keys: Keys) -> Key:
    """The live key that this header holds, if it may come in by this door.

    Raises Denied (401 without a key, 403 for one that may not) and LedgerUnavailable.
    """
    scheme, _, secret = (authorization or "").partition(" ")
    secret = secret.strip()
    key = await keys.find(secret) if secret and scheme.lower() == "bearer" else None
    if key is None:
        raise Denied(UNAUTHORIZED)
    needed = door.needs
    if not key.admin and (needed is None or needed not in key.may):
        raise Denied(FORBIDDEN if needed is None else lacking(needed))
    return key


async def admit(request: web.Request, keys: Keys) -> None:
    """Lets a request that aiohttp has routed in, or not, and keeps who calls with it. Raises Denied, LedgerUnavailable."""
    resource = request.match_info.route.resource
    if resource is None:
        # No such address, or no such method: whoever asks is told so.
        return
    door = door_of(request.method, resource.canonical)
    if door.keyless:
        return
    authorization = request.headers.get("Authorization")
    if request.path.startswith(MESSAGES) and (own := request.headers.get("x-api-key")):
        # Anthropic's clients send the key in a header of its own.
        authorization = f"Bearer {own}"
    request[_CALLER] = await admitted(authorization, door, keys)


def caller(request: web.Request) -> Key:
    """The key that calls, on a route that lets nobody in without one."""
    return request[_CALLER]


def is_admin(request: web.Request) -> bool:
    """True when an admin key was let in with this request."""
    key = request.get(_CALLER)
    return key is not None and key.admin
