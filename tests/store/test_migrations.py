"""The migrations go up and down on both databases, and end in the tables that the program uses."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import inspect, make_url

from gateway.errors import DatabaseBehind, LedgerUnavailable
from gateway.store import migrations
from gateway.store.database import make_engine
from gateway.store.tables import metadata


def differences(url: str) -> list[object]:
    engine = make_engine(make_url(url))
    with engine.connect() as connection:
        options = {"compare_type": True, "compare_server_default": True}
        found = compare_metadata(MigrationContext.configure(connection, opts=options), metadata)
    engine.dispose()
    return list(found)


def tables(url: str) -> set[str]:
    engine = make_engine(make_url(url))
    names = set(inspect(engine).get_table_names())
    engine.dispose()
    return names


def test_up_gives_exactly_the_tables_and_down_leaves_none(empty_url: str) -> None:
    assert migrations.current(empty_url) is None
    migrations.upgrade(empty_url)
    assert migrations.current(empty_url) == migrations.head()
    assert differences(empty_url) == []
    assert tables(empty_url) == {*metadata.tables, "alembic_version"}
    migrations.upgrade(empty_url)
    migrations.downgrade(empty_url, "base")
    assert tables(empty_url) == {"alembic_version"}
    migrations.upgrade(empty_url)
    assert differences(empty_url) == []


def test_a_database_that_is_behind_is_refused(empty_url: str) -> None:
    with pytest.raises(DatabaseBehind) as behind:
        migrations.require_head(empty_url)
    assert (behind.value.current, behind.value.head) == (None, migrations.head())
    assert "sluicegate db upgrade" in str(behind.value)
    migrations.upgrade(empty_url)
    migrations.require_head(empty_url)


def test_a_database_that_cannot_be_reached_is_said_without_its_password() -> None:
    for work in (migrations.upgrade, migrations.current, migrations.require_head):
        with pytest.raises(LedgerUnavailable) as caught:
            work("postgresql+psycopg://someone:hunter2@127.0.0.1:1/none")
        assert "hunter2" not in str(caught.value)


def test_the_command_alembic_finds_nothing_to_add_on_the_configured_database(empty_url: str, tmp_path: Path) -> None:
    migrations.upgrade(empty_url)
    config = tmp_path / "sluicegate.toml"
    config.write_text('[providers.p]\napi = "demo"\nmodel = "scripted"\n')
    checked = subprocess.run(
        [sys.executable, "-m", "alembic", "check"],
        cwd=Path(__file__).parents[2],
        env=os.environ | {"SLUICEGATE_CONFIG": str(config), "DATABASE_URL": empty_url.replace("+psycopg", "")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (checked.returncode, checked.stdout.strip()) == (0, "No new upgrade operations detected."), checked.stderr
