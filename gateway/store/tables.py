"""The tables, as SQLAlchemy Core metadata: the one truth, for alembic too.

Instants are milliseconds since 1970 UTC; money is micro-USD. A family's tables stand together under its heading.
"""

from sqlalchemy import BigInteger, Column, Index, Integer, MetaData, String, Table, Text

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_name)s",
        "uq": "uq_%(table_name)s_%(column_0_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)

# --- telegram -------------------------------------------------------------------------------------------------------

tg_updates = Table(
    "tg_updates",
    metadata,
    Column("bot_id", BigInteger, primary_key=True, autoincrement=False),
    Column("update_id", BigInteger, primary_key=True, autoincrement=False),
    Column("chat_id", BigInteger, nullable=False),
    Column("thread_id", BigInteger, nullable=False),
    Column("user_id", BigInteger, nullable=False),
    Column("state", String(16), nullable=False),
    Column("outcome", String(24), nullable=False),
    Column("raw", Text, nullable=False),
    Column("bubbles", Text, nullable=False),
    Column("target", String(255)),
    Column("lead_id", BigInteger),
    Column("notice_id", BigInteger),
    Column("received_ms", BigInteger, nullable=False),
    Column("due_ms", BigInteger),
    Column("parked_ms", BigInteger),
    Index("ix_tg_updates_bot_id_state_due_ms", "bot_id", "state", "due_ms"),
    Index("ix_tg_updates_bot_id_lead_id", "bot_id", "lead_id"),
)
"""The inbox: each update as it came, until it is answered. `raw` is emptied then; `lead_id` joins pieces of one message."""

tg_turns = Table(
    "tg_turns",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("bot_id", BigInteger, nullable=False),
    Column("chat_id", BigInteger, nullable=False),
    Column("thread_id", BigInteger, nullable=False),
    Column("request_id", String(255), nullable=False),
    Column("question", Text, nullable=False),
    Column("answer", Text, nullable=False),
    Column("tokens", Integer, nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    Index("ix_tg_turns_bot_id_chat_id_thread_id", "bot_id", "chat_id", "thread_id"),
    Index("uq_tg_turns_bot_id_request_id", "bot_id", "request_id", unique=True),
)
"""The conversations: one row per question with its answer as it was shown."""

tg_buttons = Table(
    "tg_buttons",
    metadata,
    Column("token", String(32), primary_key=True),
    Column("bot_id", BigInteger, nullable=False),
    Column("action", String(24), nullable=False),
    Column("argument", String(255), nullable=False),
    Column("update_id", BigInteger),
    Column("chat_id", BigInteger, nullable=False),
    Column("user_id", BigInteger, nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    Column("used_ms", BigInteger),
)
"""What a button does and for whom; the button itself carries only the token."""

tg_people = Table(
    "tg_people",
    metadata,
    Column("bot_id", BigInteger, primary_key=True, autoincrement=False),
    Column("subject_id", BigInteger, primary_key=True, autoincrement=False),
    Column("role", String(16), nullable=False),
    Column("actor_id", BigInteger, nullable=False),
    Column("changed_ms", BigInteger, nullable=False),
)
"""People and groups that an admin let in or shut out by command; negative ids are groups."""

tg_choices = Table(
    "tg_choices",
    metadata,
    Column("bot_id", BigInteger, primary_key=True, autoincrement=False),
    Column("chat_id", BigInteger, primary_key=True, autoincrement=False),
    Column("thread_id", BigInteger, primary_key=True, autoincrement=False),
    Column("target", String(255), nullable=False),
)
"""The chain or model that a chat chose with /model."""

tg_said = Table(
    "tg_said",
    metadata,
    Column("bot_id", BigInteger, primary_key=True, autoincrement=False),
    Column("chat_id", BigInteger, primary_key=True, autoincrement=False),
    Column("key", String(128), primary_key=True),
    Column("until_ms", BigInteger, nullable=False),
)
"""What was said to a chat and need not be said again until then."""

tg_pairing = Table(
    "tg_pairing",
    metadata,
    Column("bot_id", BigInteger, primary_key=True, autoincrement=False),
    Column("code_hash", String(64), nullable=False),
    Column("tries", Integer, nullable=False),
    Column("made_ms", BigInteger, nullable=False),
)
"""The one-time code that makes the first admin, hashed."""
