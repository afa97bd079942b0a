"""Runs the migrations on the connection that `gateway.store.migrations` hands in."""

from sqlalchemy import text

from alembic import context
from gateway.store.tables import metadata

LOCK = 7_305_121_926
"""Any number: two processes that upgrade one PostgreSQL at once take turns on it."""

connection = context.config.attributes["connection"]
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
