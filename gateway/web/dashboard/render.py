"""How pages are drawn: templates with everything escaped, and the words for amounts and times."""

from __future__ import annotations

import hashlib
import json
import secrets
from dataclasses import dataclass
from datetime import datetime
from importlib import resources
from typing import Any
from urllib.parse import quote
from zoneinfo import ZoneInfo

from jinja2 import Environment, PackageLoader, StrictUndefined

from gateway.amounts import amount, span, unit_name
from gateway.runs import stamp
from gateway.settings import Settings
from gateway.web.dashboard import words
from gateway.web.dashboard.visit import View, Visit

KINDS = {"css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8", "svg": "image/svg+xml"}
NAVIGATION = (
    ("/", "Overview"),
    ("/budgets", "Budgets"),
    ("/chat", "Chat"),
    ("/workflows", "Workflows"),
    ("/runs", "Runs"),
    ("/usage", "Usage"),
    ("/reports", "Reports"),
    ("/keys", "Keys"),
    ("/people", "People"),
    ("/audit", "Audit"),
)
BAR = 1000
"""The width of a bar in its own units."""
FULL = 99
"""From so many percent on hardly any call fits."""


@dataclass(frozen=True, slots=True)
class File:
    """What is served as it is."""

    kind: str
    body: bytes


class Shelf:
    """The templates and files of the console, read once."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        folder = resources.files("gateway.web.dashboard") / "static"
        self.files = {
            each.name: File(KINDS[each.name.rpartition(".")[2]], each.read_bytes()) for each in folder.iterdir() if each.is_file()
        }
        digest = hashlib.sha256(b"".join(self.files[name].body for name in sorted(self.files)))
        self.stamp = digest.hexdigest()[:12]
        """Changes with the files: part of their addresses, so that a browser keeps none too long."""
        self._templates = Environment(
            loader=PackageLoader("gateway.web.dashboard"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        self._templates.filters |= {
            "amount": lambda value, unit: amount(str(unit), value),
            "usd": lambda value: amount("micro_usd", value),
            "unit": lambda unit: unit_name(str(unit)),
            "short": words.short,
            "cost": words.cost,
            "when": self._when,
            "stamp": stamp,
            "ms": words.took,
            "span": span,
            "counter": words.counter,
            "count": "{:,}".format,
            # Jinja's own leaves slashes as they are, and a name may hold one.
            "place": lambda name: quote(name, safe=""),
            "json": lambda value: json.dumps(value, ensure_ascii=False, indent=2),
            "scope": words.scope,
            "counts": words.counts,
        }
        self._templates.globals |= {
            "bar": bar,
            "navigation": NAVIGATION,
            "stamp_of_files": self.stamp,
            "number": lambda: secrets.token_hex(8),
        }

    def page(self, visit: Visit, view: View, said: str, *, bad: bool = False) -> str:
        """A whole page; `said` is what the one before has done."""
        here = visit.request.path
        more = {"title": view.title, "said": said, "bad": bad, "here": here, "live": view.live, "live_now": bool(view.live)}
        return self._templates.get_template(view.template).render(self._fields(visit, view), **more)

    def parts(self, visit: Visit, view: View) -> dict[str, str]:
        """Its live parts, by the id of their element."""
        fields = self._fields(visit, view)
        return {name: self._templates.get_template(template).render(fields) for name, template in view.live.items()}

    @property
    def _zone(self) -> ZoneInfo:
        # Looked up each time: a reload may change it.
        return self._settings.zone

    def _fields(self, visit: Visit, view: View) -> dict[str, Any]:
        return {"csrf": visit.csrf, "session": visit.session, "zone": self._zone.key, "today": self._today(visit)} | dict(
            view.fields
        )

    def _today(self, visit: Visit) -> str:
        return visit.now.astimezone(self._zone).strftime("%Y-%m-%d")

    def _when(self, instant: datetime, today: str = "", *, seconds: bool = False, ahead: bool = False) -> str:
        return words.when(instant, self._zone, today, seconds=seconds, ahead=ahead)


def bar(spent: int, held: int, limit: int) -> dict[str, Any]:
    """The widths of a bar's parts, of BAR, and how full it is: "ok", "near" (from 80 %), "full" (from 99 %).

    A limit of 0 is full.
    """
    if limit <= 0:
        return {"spent": BAR, "held": 0, "percent": 100, "level": "full"}
    first = min(BAR, max(spent * BAR // limit, 8 if spent > 0 else 0))
    second = min(BAR - first, max(held * BAR // limit, 8 if held > 0 else 0))
    percent = spent * 100 // limit
    return {
        "spent": first,
        "held": second,
        "percent": percent,
        "level": "full" if percent >= FULL else "near" if percent >= 80 else "ok",
    }
