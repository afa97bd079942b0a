"""Sessions of the console: opened by a link once or by an admin key, hashed, and over in time."""

import asyncio
from datetime import timedelta

import pytest
from sqlalchemy import select

from gateway.budget import Budgets
from gateway.store.books import Books
from gateway.store.database import Database
from gateway.store.keys import Keys
from gateway.store.sessions import LINK_LASTS, SESSION_LASTS, Sessions
from gateway.store.tables import audit, web_links, web_sessions
from tests.doubles.clock import SettableClock


@pytest.fixture
def clock() -> SettableClock:
    return SettableClock()


@pytest.fixture
def sessions(database: Database, clock: SettableClock) -> Sessions:
    return Sessions(database, clock)


async def test_a_link_opens_one_session_also_for_many_who_come_at_once(sessions: Sessions) -> None:
    link, _ = await sessions.make_link("cli:root")
    opened = await asyncio.gather(*(sessions.open_by_link(link) for _ in range(8)))
    secrets = [secret for secret in opened if secret is not None]
    assert len(secrets) == 1
    found = await sessions.find(secrets[0])
    assert found is not None
    assert (found.actor, found.key) == ("console:cli:root", None)
    assert await sessions.open_by_link("") is None
    assert await sessions.find(link) is None


async def test_links_and_sessions_end_in_time(sessions: Sessions, clock: SettableClock) -> None:
    late, expires_at = await sessions.make_link("cli:root")
    assert expires_at == clock.now() + LINK_LASTS
    clock.advance(seconds=LINK_LASTS.total_seconds())
    assert await sessions.open_by_link(late) is None
    secret = await sessions.open_by_link((await sessions.make_link("cli:root"))[0])
    assert secret is not None
    clock.advance(seconds=(SESSION_LASTS - timedelta(seconds=1)).total_seconds())
    assert await sessions.find(secret) is not None
    clock.advance(seconds=1)
    assert await sessions.find(secret) is None


async def test_a_session_of_a_key_ends_with_the_key_and_not_with_another_of_its_name(
    sessions: Sessions, database: Database, clock: SettableClock
) -> None:
    keys = Keys(database, clock)
    await keys.create("ops", True, "cli:root")
    secret = await sessions.open_by_key("ops")
    assert await sessions.find(secret) is not None
    await keys.revoke("ops", "cli:root")
    assert await sessions.find(secret) is None
    clock.advance(seconds=1)
    await keys.create("ops", True, "cli:root")
    assert await sessions.find(secret) is None


async def test_logging_out_ends_one_session(sessions: Sessions) -> None:
    first, second = [await sessions.open_by_link((await sessions.make_link("cli:root"))[0]) for _ in range(2)]
    assert first is not None
    assert second is not None
    await sessions.close(first)
    assert await sessions.find(first) is None
    assert await sessions.find(second) is not None


async def test_no_secret_is_kept_and_each_login_is_audited(sessions: Sessions, database: Database, clock: SettableClock) -> None:
    link, _ = await sessions.make_link("cli:root")
    other, _ = await sessions.make_link("cli:root")
    secret = await sessions.open_by_link(link)
    kept = await database.read(
        lambda connection: [str(row) for table in (web_links, web_sessions, audit) for row in connection.execute(select(table))]
    )
    assert not any(word in row for row in kept for word in (link, other, str(secret)))
    entries = await Books(database, Budgets([]), clock).audit("console")
    assert [(entry.actor, entry.action) for entry in entries] == [("console:cli:root", "log in")]
    for _ in range(2):
        await sessions.close(str(secret))
    entries = await Books(database, Budgets([]), clock).audit("console")
    assert [(entry.actor, entry.action) for entry in entries] == [
        ("console:cli:root", action) for action in ("log out", "log in")
    ]
