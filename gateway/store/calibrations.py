"""What was learnt of each model's bounds: kept, so that a restart does not hold too little again."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import Connection, case, select
from sqlalchemy.dialects import postgresql, sqlite

from gateway.chat import Slot
from gateway.estimate import Learnt
from gateway.store.tables import calibrations


def known(connection: Connection) -> dict[Slot, Learnt]:
    """Everything that any process learnt, by slot."""
    return {Slot(row.provider, row.model): Learnt(row.ratio, row.added) for row in connection.execute(select(calibrations))}


def keep(connection: Connection, learnt: Mapping[Slot, Learnt]) -> None:
    """Writes what was learnt; of two processes' figures the larger stays."""
    dialect = sqlite if connection.dialect.name == "sqlite" else postgresql
    for slot, (ratio, added) in sorted(learnt.items(), key=lambda item: str(item[0])):
        insert = dialect.insert(calibrations).values(provider=slot.provider, model=slot.model, ratio=ratio, added=added)
        new, old = insert.excluded, calibrations.c
        larger = {
            "ratio": case((new.ratio > old.ratio, new.ratio), else_=old.ratio),
            "added": case((new.added > old.added, new.added), else_=old.added),
        }
        connection.execute(insert.on_conflict_do_update(index_elements=["provider", "model"], set_=larger))
