"""The bot's people and groups: those of the configuration, and those whom an admin let in or shut out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gateway.clock import to_ms
from gateway.errors import InvalidRequest
from gateway.web.dashboard.visit import Answer, Onward, View, Visit

if TYPE_CHECKING:
    from gateway.store.telegram_talk import Role

ID_MAX = 2**52
"""Telegram's ids are smaller."""
BY_CONSOLE = 0
"""Who is kept as the one that changed it: nobody on Telegram. The audit has the name."""


async def every(visit: Visit) -> Answer:
    """Who may use the bot, and why."""
    people = visit.services.people
    return View("people.html", "People", {"bot": people is not None, "people": [] if people is None else await _listed(visit)})


async def change(visit: Visit) -> Answer:
    """Lets somebody in, or shuts them out. Raises InvalidRequest."""
    from gateway.store.telegram_talk import Role

    people = visit.services.people
    if people is None:
        raise InvalidRequest("there is no bot: TELEGRAM_BOT_TOKEN is not set", "id")
    subject = _id(visit.text("id", "the id", 20))
    role = Role.ALLOWED if visit.form.get("act") == "allow" else Role.DENIED
    if subject in visit.services.settings.telegram.admins:
        raise InvalidRequest("an admin of the configuration stays one: change the file", "id")
    await people.set_role(subject, role, BY_CONSOLE, to_ms(visit.now), visit.actor)
    return Onward("/people", f"{subject} is {'let in' if role is Role.ALLOWED else 'shut out'}.")


async def _listed(visit: Visit) -> list[dict[str, Any]]:
    telegram, people = visit.services.settings.telegram, visit.services.people
    assert people is not None
    roles: dict[int, Role] = await people.roles()
    configured = {
        **dict.fromkeys(telegram.allowed_chats, "group"),
        **dict.fromkeys(telegram.allowed_users, "user"),
        **dict.fromkeys(telegram.admins, "admin"),
    }
    return [_one(subject, configured.get(subject), roles.get(subject)) for subject in sorted(configured.keys() | roles.keys())]


def _one(subject: int, configured: str | None, role: Role | None) -> dict[str, Any]:
    """A denial by command goes before everything but the configuration's admins."""
    fixed = configured == "admin"
    may = "admin" if fixed else str(role) if role is not None else "allowed"
    source = "the configuration" if fixed or role is None else "an admin's command"
    return {"id": subject, "group": subject < 0, "may": may, "source": source, "fixed": fixed}


def _id(text: str) -> int:
    try:
        subject = int(text)
    except ValueError:
        raise InvalidRequest("an id is a whole number: /id tells people theirs", "id") from None
    if not 0 < abs(subject) < ID_MAX:
        raise InvalidRequest("there is no such id on Telegram", "id")
    return subject
