"""Every text a person reads when no answer can be given: from facts with fields to text, in the person's language.

No internal names, amounts or money to people who are not admins.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from zoneinfo import ZoneInfo

from gateway.errors import GatewayError


class Action(StrEnum):
    """A button under a notice."""

    ANSWER_LATER = "answer_later"
    OTHER_MODEL = "other_model"
    ASK_ADMIN = "ask_admin"
    CANCEL = "cancel"


@dataclass(frozen=True, slots=True)
class Reader:
    """Who reads: language is an IETF tag ("es-MX"); the zone is the one times are said in."""

    language: str
    zone: ZoneInfo
    admin: bool = False
    group: bool = False


@dataclass(frozen=True, slots=True)
class Notice:
    """Text for a person and the buttons that work now. `opens_at` is the time named in it, None where there is none."""

    text: str
    actions: tuple[Action, ...] = ()
    opens_at: datetime | None = None


def notice(error: GatewayError, reader: Reader, now: datetime, *, saved: bool = False, other_models: bool = False) -> Notice:
    """The notice for any GatewayError. `saved`: the question is kept; `other_models`: another chain or model can be picked."""
    raise NotImplementedError
