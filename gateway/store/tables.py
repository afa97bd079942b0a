"""The tables, as SQLAlchemy Core metadata: the one truth, for alembic too. Those of workflows are in run_tables.py, that of
alerts in alert_tables.py.

Instants are milliseconds since 1970 UTC; money is micro-USD. A family's tables stand together under its heading.
"""

from sqlalchemy import DDL, BigInteger, Boolean, Column, Index, Integer, LargeBinary, String, Table, Text, event, text

from gateway.store import alert_tables as alert_tables
from gateway.store import run_tables as run_tables
from gateway.store.metadata import metadata as metadata
from gateway.store.metadata import number, word

# --- The ledger ---

counters = Table(
    "counters",
    metadata,
    Column("budget", String, primary_key=True),
    Column("key", String, primary_key=True),
    Column("signature", String, nullable=False),
    # What stood in the newest bucket's window at the last change: for people. The gate reads `buckets`.
    number("spent"),
    number("held"),
    Column("buckets", Text, nullable=False, server_default="[]"),
    # Room on each page, so that PostgreSQL updates a hot row in place.
    postgresql_with={"fillfactor": 50},
)
"""One row per counter; `buckets` is JSON `[[start, spent, held], …]`."""

definitions = Table(
    "definitions",
    metadata,
    Column("budget", String, primary_key=True),
    Column("signature", String, nullable=False),
)
"""What each budget was when its counters were last built."""

in_force = Table(
    "in_force",
    metadata,
    Column("owner", String, primary_key=True),
    Column("at", BigInteger, nullable=False),
    Column("outline", Text, nullable=False),
)
"""The configuration by which each server runs, without its secrets: JSON, place by place."""

usage = Table(
    "usage",
    metadata,
    Column("id", String, primary_key=True),
    Column("request_id", String, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("surface", String, nullable=False),
    Column("user", String),
    Column("chat", String),
    Column("workflow", String),
    Column("run", String),
    Column("step", String),
    Column("key", String),
    Column("guest", Boolean, nullable=False, server_default=text("false")),
    Column("chain", String, nullable=False),
    Column("provider", String, nullable=False),
    Column("model_asked", String, nullable=False),
    Column("model_served", String),
    number("prompt_tokens"),
    number("cached_tokens"),
    number("output_tokens"),
    number("reasoning_tokens"),
    number("cost_micro_usd"),
    word("price_source"),
    Column("outcome", String, nullable=False),
    Column("estimated", Boolean, nullable=False, server_default=text("false")),
    Column("uncertain", Boolean, nullable=False, server_default=text("false")),
    number("overrun"),
    number("overrun_micro_usd"),
    Column("latency_to_first_token_ms", BigInteger),
    Column("total_latency_ms", BigInteger),
    Column("started", BigInteger, nullable=False),
    Column("ended", BigInteger),
    Column("state", String, nullable=False),
    Column("owner", String, nullable=False),
    Column("deadline", BigInteger, nullable=False),
    number("held_requests"),
    number("held_tokens"),
    number("held_micro_usd"),
    number("held_prompt_tokens"),
    number("output_limit"),
    number("spent_requests"),
    number("spent_tokens"),
    word("detail"),
    Column("lines", Text, nullable=False, server_default="[]"),
    Index("ix_usage_request_id", "request_id"),
    Index("ix_usage_started", "started"),
    Index("ix_usage_run", "run", postgresql_where=text("run IS NOT NULL"), sqlite_where=text("run IS NOT NULL")),
    Index(
        "ix_usage_pending",
        "owner",
        postgresql_where=text("state = 'pending'"),
        sqlite_where=text("state = 'pending'"),
    ),
)
"""One row per attempt, written `pending` with its reservation and completed when that ends.

`cost_micro_usd` is what counts as spent money, `spent_tokens` and `spent_requests` what counts of the other units;
`overrun` and `overrun_micro_usd` are what went beyond the hold. `lines` is JSON
`[[budget, key, unit, bucket, amount, limit, spent, held], …]`.
"""

refusals = Table(
    "refusals",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("request_id", String, nullable=False),
    Column("at", BigInteger, nullable=False),
    Column("chain", String, nullable=False),
    Column("provider", String, nullable=False),
    Column("model", String, nullable=False),
    Column("kind", String, nullable=False),
    word("message"),
    Column("detail", Text, nullable=False, server_default="{}"),
    Index("ix_refusals_request_id", "request_id"),
    Index("ix_refusals_at", "at"),
)
"""A slot that was passed over; `kind` is the error's class, `detail` its facts as JSON."""

requests = Table(
    "requests",
    metadata,
    Column("id", String, primary_key=True),
    Column("fingerprint", String, nullable=False),
    Column("owner", String, nullable=False),
    Column("reply", LargeBinary),
    Column("expires", BigInteger, nullable=False),
    Index("ix_requests_expires", "expires"),
)
"""Deduplicated requests: claimed by an owner while `reply` is null, answered afterwards."""

owners = Table(
    "owners",
    metadata,
    Column("id", String, primary_key=True),
    Column("seen", BigInteger, nullable=False),
    # Tells on the same machine that the process is gone, without waiting for the lease.
    word("mark"),
)
"""One lease per living process."""

raises = Table(
    "raises",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("budget", String, nullable=False),
    Column("operation", String, nullable=False),
    Column("amount", BigInteger, nullable=False),
    Column("starts", BigInteger, nullable=False),
    Column("ends", BigInteger),
    word("actor"),
    Index("ix_raises_budget", "budget"),
)
"""Temporary changes of limits, in the budget's unit; the budget `*` is a pause of every call."""

adjustments = Table(
    "adjustments",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("budget", String, nullable=False),
    Column("key", String, nullable=False),
    # Unit and scope of the budget at the time: an entry counts only while both are the same.
    Column("basis", String, nullable=False),
    Column("amount", BigInteger, nullable=False),
    Column("at", BigInteger, nullable=False),
    word("reason"),
    word("actor"),
    Index("ix_adjustments_budget", "budget"),
)
"""Corrections of what is spent, as new entries: nothing is ever edited."""

calibrations = Table(
    "calibrations",
    metadata,
    Column("provider", String, primary_key=True),
    Column("model", String, primary_key=True),
    Column("ratio", BigInteger, nullable=False),
    Column("added", BigInteger, nullable=False),
)
"""By how much each model billed more than its bound: thousandths of the bound, and tokens on top."""

# --- People ---

audit = Table(
    "audit",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("at", BigInteger, nullable=False),
    Column("actor", String, nullable=False),
    Column("action", String, nullable=False),
    Column("subject", String, nullable=False),
    Column("detail", Text, nullable=False, server_default="{}"),
    Index("ix_audit_subject", "subject"),
)
"""Who changed what, and when. Only ever added to: the database itself refuses to change or delete a row."""

for _dialect, _statement in (
    ("sqlite", "CREATE TRIGGER audit_update BEFORE UPDATE ON audit BEGIN SELECT RAISE(ABORT, 'only ever added to'); END"),
    ("sqlite", "CREATE TRIGGER audit_delete BEFORE DELETE ON audit BEGIN SELECT RAISE(ABORT, 'only ever added to'); END"),
    (
        "sqlite",
        # By itself, INSERT OR REPLACE deletes a row without its trigger.
        "CREATE TRIGGER audit_replace BEFORE INSERT ON audit WHEN EXISTS (SELECT 1 FROM audit WHERE id = NEW.id) "
        "BEGIN SELECT RAISE(ABORT, 'only ever added to'); END",
    ),
    (
        "postgresql",
        "CREATE FUNCTION audit_kept() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RAISE EXCEPTION 'only ever added to'; END$$",
    ),
    (
        "postgresql",
        "CREATE TRIGGER audit_kept BEFORE UPDATE OR DELETE OR TRUNCATE ON audit EXECUTE FUNCTION audit_kept()",
    ),
):
    event.listen(audit, "after_create", DDL(_statement).execute_if(dialect=_dialect))  # type: ignore[no-untyped-call]

api_keys = Table(
    "api_keys",
    metadata,
    Column("name", String, primary_key=True),
    Column("digest", String, nullable=False, unique=True),
    Column("admin", Boolean, nullable=False),
    Column("may", Text, nullable=False),
    Column("chains", Text, nullable=False),
    Column("created", BigInteger, nullable=False),
    Column("revoked", BigInteger),
)
"""HTTP keys, as SHA-256 of a 256-bit random key. `may` and `chains` are lists, as JSON."""

web_sessions = Table(
    "web_sessions",
    metadata,
    Column("digest", String(64), primary_key=True),
    Column("actor", String, nullable=False),
    Column("key", String),
    Column("made", BigInteger, nullable=False),
    Column("expires", BigInteger, nullable=False),
)
"""Who is logged in to the web console, as SHA-256 of a 256-bit random secret."""

web_links = Table(
    "web_links",
    metadata,
    Column("digest", String(64), primary_key=True),
    Column("made_by", String, nullable=False),
    Column("expires", BigInteger, nullable=False),
)
"""One-time links that open a session, hashed; one that was used is gone."""

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

tg_posts = Table(
    "tg_posts",
    metadata,
    # Without the bot: of two bots on one database one sends it.
    Column("subject", String(80), primary_key=True),
    Column("chat_id", BigInteger, primary_key=True, autoincrement=False),
    Column("bot_id", BigInteger, nullable=False),
    Column("thread_id", BigInteger, nullable=False),
    Column("state", String(16), nullable=False),
    Column("message_id", BigInteger),
    Column("claimed_ms", BigInteger, nullable=False),
    Column("shown", String(16), nullable=False),
    Index("ix_tg_posts_bot_id_shown", "bot_id", "shown"),
)
"""The messages that show runs (`run:<id>`) and ask for approvals (`ask:<id>`), claimed before they are sent."""

tg_forms = Table(
    "tg_forms",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("bot_id", BigInteger, nullable=False),
    Column("chat_id", BigInteger, nullable=False),
    Column("thread_id", BigInteger, nullable=False),
    Column("user_id", BigInteger, nullable=False),
    Column("workflow", String(128), nullable=False),
    Column("update_id", BigInteger, nullable=False),
    Column("given", Text, nullable=False),
    Column("passed", Text, nullable=False),
    Column("step", Integer, nullable=False),
    Column("heard", BigInteger, nullable=False),
    Column("message_id", BigInteger),
    Column("begun_ms", BigInteger, nullable=False),
    Index("uq_tg_forms_bot_id_chat_id_thread_id_user_id", "bot_id", "chat_id", "thread_id", "user_id", unique=True),
)
"""Workflows whose parameters are being asked for, one form per person and conversation; `given` and `passed` are JSON."""
