"""The table of alerts: what operators are told of without asking. Instants are milliseconds since 1970 UTC."""

from sqlalchemy import BigInteger, Column, Index, Integer, String, Table, Text, text

from gateway.store.metadata import metadata, word

alerts = Table(
    "alerts",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("subject", String(512), nullable=False),
    Column("serial", Integer, nullable=False),
    Column("kind", String(32), nullable=False),
    Column("facts", Text, nullable=False),
    Column("opened", BigInteger, nullable=False),
    Column("seen", BigInteger, nullable=False),
    Column("told", BigInteger, nullable=False),
    Column("ended", BigInteger),
    word("by"),
    Column("at", BigInteger),
    # Of two processes that see the same thing, one says it.
    Index("uq_alerts_subject_serial", "subject", "serial", unique=True),
    Index("ix_alerts_open", "kind", postgresql_where=text("ended IS NULL"), sqlite_where=text("ended IS NULL")),
    Index("ix_alerts_told", "told"),
)
"""One row per thing that is told; `serial` counts the times that it came again. `seen` is when it was last noticed, `told`
when it was last to be told, `ended` since when it is over; `by` and `at` say who acknowledged it. `facts` is JSON.
"""
