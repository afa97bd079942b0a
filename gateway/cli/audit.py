"""`sluicegate audit`: who changed what, newest first."""

from __future__ import annotations

from pathlib import Path

from gateway.cli.outcome import DONE
from gateway.cli.render import document, moment, show, stamp
from gateway.cli.session import load_settings, opened
from gateway.clock import from_ms


async def audit(config: Path | None, subject: str | None, *, as_json: bool) -> int:
    """The newest entries, of one subject or of all."""
    settings = load_settings(config)
    async with opened(settings) as app:
        entries, now = await app.books.audit(subject), app.clock.now()
    if as_json:
        fields = ("actor", "action", "subject")
        found = [
            {"at": stamp(from_ms(entry.at_ms))} | {name: getattr(entry, name) for name in fields} | {"detail": dict(entry.detail)}
            for entry in entries
        ]
        document({"audit": found})
        return DONE
    rows = [
        [
            moment(from_ms(entry.at_ms), settings.zone, now),
            entry.actor,
            entry.action,
            entry.subject,
            ", ".join(f"{name} {_said(value)}" for name, value in entry.detail.items() if value not in (None, "", [])),
        ]
        for entry in entries
    ]
    show(["at", "who", "did", "to", "how"], rows)
    return DONE


def _said(value: object) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)
