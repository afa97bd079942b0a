"""Runs the migrations: on the connection that `gateway.store.migrations` hands in, or, for the command `alembic` itself
(`alembic check`, `alembic revision --autogenerate`), on the configured database.
"""

import os

from sqlalchemy import Connection, make_url, text

from alembic import context
from gateway.errors import ConfigError
from gateway.settings import load
from gateway.store.database import make_engine
from gateway.store.tables import metadata

LOCK = 7_305_121_926
"""Any number: two processes that upgrade one PostgreSQL at once take turns on it."""


def migrate(connection: Connection) -> None:
    """Runs what the command asks for, in one transaction."""
    context.configure(
        connection=connection,
        target_metadata=metadata,
        compare_type=True,
        compare_server_default=True,
        render_as_batch=connection.dialect.name == "sqlite",
        transactional_ddl=True,
    )
    with context.begin_transaction():
        if connection.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": LOCK})
        context.run_migrations()


handed_in = context.config.attributes.get("connection")
if handed_in is not None:
    migrate(handed_in)
else:
    try:
        url = load(None, os.environ).database_url
    except ConfigError as error:
        raise SystemExit(str(error)) from None
    engine = make_engine(make_url(url))
    with engine.connect() as connection:
        migrate(connection)
    engine.dispose()
