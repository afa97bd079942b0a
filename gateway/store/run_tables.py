"""The tables of workflows. Instants are milliseconds since 1970 UTC.

What a run's calls cost is not kept here: the usage rows name run and step, and are its one truth.
"""

from sqlalchemy import BigInteger, Boolean, Column, Index, Integer, LargeBinary, String, Table, Text, text

from gateway.store.metadata import metadata, number, word

runs = Table(
    "runs",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("workflow", String(128), nullable=False),
    Column("state", String(24), nullable=False),
    Column("params", Text, nullable=False),
    Column("key", String(512), unique=True),
    Column("surface", String(16), nullable=False),
    Column("user", String(128)),
    Column("admin", Boolean, nullable=False),
    Column("listed", Boolean, nullable=False),
    Column("chat", String(64)),
    Column("thread", BigInteger),
    Column("api_key", String(128)),
    Column("language", String(16), nullable=False),
    Column("bot", BigInteger),
    word("to"),
    Column("may_use", Text, nullable=False),
    Column("version", String(128), nullable=False),
    Column("caps", Text),
    Column("created", BigInteger, nullable=False),
    Column("started", BigInteger),
    Column("ended", BigInteger),
    Column("waiting_until", BigInteger),
    word("waiting_for"),
    Column("error", Text, nullable=False, server_default=text("''")),
    Column("result", Text),
    number("generation"),
    word("wanted"),
    word("owner"),
    number("change"),
    number("told"),
    Column("message_id", BigInteger),
    Index("ix_runs_created", "created", "id"),
    Index("ix_runs_state_waiting_until", "state", "waiting_until"),
    Index("ix_runs_wanted", "wanted", postgresql_where=text("wanted <> ''"), sqlite_where=text("wanted <> ''")),
    Index("ix_runs_untold", "created", postgresql_where=text("change > told"), sqlite_where=text("change > told")),
)
"""One row per execution of a workflow. `params`, `caps` and `result` are JSON; `change` is the number of the newest event,
`told` the one up to which the chat was told, in the message `message_id`.
"""

run_steps = Table(
    "run_steps",
    metadata,
    Column("run", String(64), primary_key=True),
    Column("name", String(255), primary_key=True),
    Column("number", Integer, nullable=False),
    Column("kind", String(24), nullable=False),
    Column("state", String(16), nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("started", BigInteger, nullable=False),
    Column("ended", BigInteger),
    Column("waiting_until", BigInteger),
    Column("detail", Text, nullable=False),
)
"""What a person sees of a run's checkpoints; the checkpoints themselves are the engine's."""

run_events = Table(
    "run_events",
    metadata,
    Column("run", String(64), primary_key=True),
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("at", BigInteger, nullable=False),
    Column("kind", String(16), nullable=False),
    Column("data", Text, nullable=False),
)
"""Every change of a run, written with it."""

run_signals = Table(
    "run_signals",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("run", String(64), nullable=False),
    Column("name", String(128), nullable=False),
    Column("data", Text, nullable=False),
    Column("at", BigInteger, nullable=False),
    Index("ix_run_signals_run", "run"),
    # A number is never used twice: workers know by it which signals they have handed over.
    sqlite_autoincrement=True,
)
"""What was told to runs and not yet handed over."""

approvals = Table(
    "approvals",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("run", String(64), nullable=False),
    Column("step", String(255), nullable=False),
    Column("generation", BigInteger, nullable=False),
    Column("question", Text, nullable=False),
    Column("who", Text, nullable=False),
    Column("asked", BigInteger, nullable=False),
    Column("expires", BigInteger),
    Column("otherwise", String(16), nullable=False),
    Column("decision", String(16), nullable=False),
    Column("by", String(160), nullable=False),
    Column("at", BigInteger),
    Index("uq_approvals_run_step_generation", "run", "step", "generation", unique=True),
    Index("ix_approvals_open", "expires", postgresql_where=text("decision = ''"), sqlite_where=text("decision = ''")),
)
"""Questions of runs; `who` is a JSON list. A step asks once per generation of its run."""

outbox = Table(
    "outbox",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("run", String(64), nullable=False),
    Column("step", String(255), nullable=False),
    Column("to", String(1024), nullable=False),
    Column("text", Text, nullable=False),
    Column("file", Text),
    Column("created", BigInteger, nullable=False),
    Column("state", String(16), nullable=False),
    Column("detail", Text, nullable=False),
    Column("bot", BigInteger),
    Index("uq_outbox_run_step", "run", "step", unique=True),
    Index("ix_outbox_pending", "id", postgresql_where=text("state = 'pending'"), sqlite_where=text("state = 'pending'")),
)
"""What runs want told, one row per step; and what the program itself tells, with `run` "" and the bot that tells it."""

outbox_files = Table(
    "outbox_files",
    metadata,
    Column("notice", Integer, primary_key=True, autoincrement=False),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("name", String(255), nullable=False),
    Column("picture", Boolean, nullable=False),
    Column("content", LargeBinary, nullable=False),
)
"""What goes with a notice of the program's own: whoever sends it may be on another machine."""

schedules = Table(
    "schedules",
    metadata,
    Column("name", String(128), primary_key=True),
    Column("line", Text, nullable=False),
    Column("first_seen", BigInteger, nullable=False),
)
"""Since when each schedule is known with its line: one that is seen first now has no missed fires."""

schedule_fires = Table(
    "schedule_fires",
    metadata,
    Column("name", String(128), primary_key=True),
    Column("fire", BigInteger, primary_key=True, autoincrement=False),
    Column("at", BigInteger, nullable=False),
)
"""Which fires of a schedule were seen to: each by one process, once."""
