"""Who reads, and what is read."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from zoneinfo import ZoneInfo


class Action(StrEnum):
    """A button under a notice. Its label is the text `button_<action>`, or `button_answer_at` where a time is known."""

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
