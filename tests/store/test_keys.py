"""HTTP keys: shown once, kept hashed, dead within a second of being revoked."""

import pytest
from sqlalchemy import select

from gateway.errors import InvalidRequest
from gateway.store.books import Books
from gateway.store.database import Database
from gateway.store.keys import PREFIX, Keys
from gateway.store.tables import api_keys, audit
from tests.doubles.clock import SettableClock


async def test_a_key_is_found_by_its_secret_and_the_secret_is_kept_nowhere(database: Database) -> None:
    keys = Keys(database, SettableClock())
    secret = await keys.create("ops", True, "cli:root")
    found = await keys.find(secret)
    assert found is not None
    assert (found.name, found.admin) == ("ops", True)
    assert await keys.find(secret + "x") is None
    assert await keys.find("") is None
    kept = await database.read(
        lambda connection: [str(row) for table in (api_keys, audit) for row in connection.execute(select(table))]
    )
    assert not any(secret.removeprefix(PREFIX) in row for row in kept)


async def test_two_keys_have_two_secrets_and_one_name_belongs_to_one_live_key(database: Database) -> None:
    keys = Keys(database, SettableClock())
    first = await keys.create("one", False, "cli:root")
    assert first != await keys.create("two", False, "cli:root")
    with pytest.raises(InvalidRequest):
        await keys.create("one", False, "cli:root")
    for name in ("", "x" * 101, "a\nb"):
        with pytest.raises(InvalidRequest):
            await keys.create(name, False, "cli:root")
    assert await keys.revoke("one", "cli:root")
    assert not await keys.revoke("one", "cli:root")
    assert await keys.find(first) is None
    again = await keys.create("one", True, "cli:root")
    found = await keys.find(again)
    assert found is not None
    assert found.admin
    assert [key.name for key in await keys.list()] == ["one", "two"]


async def test_a_key_revoked_or_made_by_another_process_is_seen_within_a_second(database: Database, database_url: str) -> None:
    clock = SettableClock()
    here = Keys(database, clock)
    secret = await here.create("ops", False, "cli:root")
    assert await here.find(secret) is not None
    other = Database(database_url)
    there = Keys(other, clock)
    await there.revoke("ops", "cli:root")
    made = await there.create("new", False, "cli:root")
    clock.advance(1)
    assert await here.find(secret) is None
    assert await here.find(made) is not None
    await other.close()
    entries = await Books(database, None, clock).audit()  # type: ignore[arg-type]
    assert [(entry.action, entry.subject) for entry in entries] == [
        ("create key", "new"), ("revoke key", "ops"), ("create key", "ops"),
    ]  # fmt: skip


async def test_a_key_that_another_process_made_is_taken_at_once(database: Database) -> None:
    clock = SettableClock()
    ours, theirs = Keys(database, clock), Keys(database, clock)
    assert await ours.find("sk-unknown") is None
    secret = await theirs.create("late", False, "cli:root")
    clock.advance(0.06)
    assert await ours.find(secret) is not None
