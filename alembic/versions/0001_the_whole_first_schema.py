"""The whole first schema"""

from collections.abc import Sequence

import sqlalchemy as sa

from alembic import op

revision: str = "0001"
down_revision: str | None = None
branch_labels: Sequence[str] | None = None
depends_on: Sequence[str] | None = None


AUDIT_IS_KEPT = {
    "sqlite": (
        "CREATE TRIGGER audit_update BEFORE UPDATE ON audit BEGIN SELECT RAISE(ABORT, 'only ever added to'); END",
        "CREATE TRIGGER audit_delete BEFORE DELETE ON audit BEGIN SELECT RAISE(ABORT, 'only ever added to'); END",
        # By itself, INSERT OR REPLACE deletes a row without its trigger.
        "CREATE TRIGGER audit_replace BEFORE INSERT ON audit WHEN EXISTS (SELECT 1 FROM audit WHERE id = NEW.id) "
        "BEGIN SELECT RAISE(ABORT, 'only ever added to'); END",
    ),
    "postgresql": (
        "CREATE FUNCTION audit_kept() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RAISE EXCEPTION 'only ever added to'; END$$",
        "CREATE TRIGGER audit_kept BEFORE UPDATE OR DELETE OR TRUNCATE ON audit EXECUTE FUNCTION audit_kept()",
    ),
}
"""The audit's rows are neither changed nor deleted by anybody."""


def upgrade() -> None:
    op.create_table(
        "adjustments",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("budget", sa.String(), nullable=False),
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("basis", sa.String(), nullable=False),
        sa.Column("amount", sa.BigInteger(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("reason", sa.String(), server_default=sa.text("('')"), nullable=False),
        sa.Column("actor", sa.String(), server_default=sa.text("('')"), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_adjustments")),
    )
    op.create_index("ix_adjustments_budget", "adjustments", ["budget"], unique=False)
    op.create_table(
        "alerts",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("subject", sa.String(length=512), nullable=False),
        sa.Column("serial", sa.Integer(), nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("facts", sa.Text(), nullable=False),
        sa.Column("opened", sa.BigInteger(), nullable=False),
        sa.Column("seen", sa.BigInteger(), nullable=False),
        sa.Column("told", sa.BigInteger(), nullable=False),
        sa.Column("ended", sa.BigInteger(), nullable=True),
        sa.Column("by", sa.String(), server_default=sa.text("('')"), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_alerts")),
    )
    op.create_index("uq_alerts_subject_serial", "alerts", ["subject", "serial"], unique=True)
    op.create_index(
        "ix_alerts_open",
        "alerts",
        ["kind"],
        unique=False,
        postgresql_where=sa.text("ended IS NULL"),
        sqlite_where=sa.text("ended IS NULL"),
    )
    op.create_index("ix_alerts_told", "alerts", ["told"], unique=False)
    op.create_table(
        "in_force",
        sa.Column("owner", sa.String(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("outline", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("owner", name=op.f("pk_in_force")),
    )
    op.create_table(
        "api_keys",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("admin", sa.Boolean(), nullable=False),
        sa.Column("may", sa.Text(), nullable=False),
        sa.Column("chains", sa.Text(), nullable=False),
        sa.Column("created", sa.BigInteger(), nullable=False),
        sa.Column("revoked", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_api_keys")),
        sa.UniqueConstraint("digest", name=op.f("uq_api_keys_digest")),
    )
    op.create_table(
        "audit",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("actor", sa.String(), nullable=False),
        sa.Column("action", sa.String(), nullable=False),
        sa.Column("subject", sa.String(), nullable=False),
        sa.Column("detail", sa.Text(), server_default="{}", nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_audit")),
    )
    op.create_index("ix_audit_subject", "audit", ["subject"], unique=False)
    for statement in AUDIT_IS_KEPT[op.get_context().dialect.name]:
        op.execute(statement)
    op.create_table(
        "calibrations",
        sa.Column("provider", sa.String(), nullable=False),
        sa.Column("model", sa.String(), nullable=False),
        sa.Column("ratio", sa.BigInteger(), nullable=False),
        sa.Column("added", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("provider", "model", name=op.f("pk_calibrations")),
    )
    op.create_table(
        "counters",
        sa.Column("budget", sa.String(), nullable=False),
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("signature", sa.String(), nullable=False),
        sa.Column("spent", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("held", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("buckets", sa.Text(), server_default="[]", nullable=False),
        sa.PrimaryKeyConstraint("budget", "key", name=op.f("pk_counters")),
        postgresql_with={"fillfactor": 50},
    )
    op.create_table(
        "definitions",
        sa.Column("budget", sa.String(), nullable=False),
        sa.Column("signature", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("budget", name=op.f("pk_definitions")),
    )
    op.create_table(
        "owners",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("seen", sa.BigInteger(), nullable=False),
        sa.Column("mark", sa.String(), server_default=sa.text("('')"), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_owners")),
    )
    op.create_table(
        "raises",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("budget", sa.String(), nullable=False),
        sa.Column("operation", sa.String(), nullable=False),
        sa.Column("amount", sa.BigInteger(), nullable=False),
        sa.Column("starts", sa.BigInteger(), nullable=False),
        sa.Column("ends", sa.BigInteger(), nullable=True),
        sa.Column("actor", sa.String(), server_default=sa.text("('')"), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_raises")),
    )
    op.create_index("ix_raises_budget", "raises", ["budget"], unique=False)
    op.create_table(
        "refusals",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("request_id", sa.String(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("chain", sa.String(), nullable=False),
        sa.Column("provider", sa.String(), nullable=False),
        sa.Column("model", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("message", sa.String(), server_default=sa.text("('')"), nullable=False),
        sa.Column("detail", sa.Text(), server_default="{}", nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_refusals")),
    )
    op.create_index("ix_refusals_at", "refusals", ["at"], unique=False)
    op.create_index("ix_refusals_request_id", "refusals", ["request_id"], unique=False)
    op.create_table(
        "requests",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("fingerprint", sa.String(), nullable=False),
        sa.Column("owner", sa.String(), nullable=False),
        sa.Column("reply", sa.LargeBinary(), nullable=True),
        sa.Column("expires", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_requests")),
    )
    op.create_index("ix_requests_expires", "requests", ["expires"], unique=False)
    op.create_table(
        "tg_buttons",
        sa.Column("token", sa.String(length=32), nullable=False),
        sa.Column("bot_id", sa.BigInteger(), nullable=False),
        sa.Column("action", sa.String(length=24), nullable=False),
        sa.Column("argument", sa.String(length=255), nullable=False),
        sa.Column("update_id", sa.BigInteger(), nullable=True),
        sa.Column("chat_id", sa.BigInteger(), nullable=False),
        sa.Column("user_id", sa.BigInteger(), nullable=False),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.Column("used_ms", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("token", name=op.f("pk_tg_buttons")),
    )
    op.create_table(
        "tg_choices",
        sa.Column("bot_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("chat_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("thread_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("target", sa.String(length=255), nullable=False),
        sa.PrimaryKeyConstraint("bot_id", "chat_id", "thread_id", name=op.f("pk_tg_choices")),
    )
    op.create_table(
        "tg_pairing",
        sa.Column("bot_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("code_hash", sa.String(length=64), nullable=False),
        sa.Column("tries", sa.Integer(), nullable=False),
        sa.Column("made_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("bot_id", name=op.f("pk_tg_pairing")),
    )
    op.create_table(
        "tg_forms",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("bot_id", sa.BigInteger(), nullable=False),
        sa.Column("chat_id", sa.BigInteger(), nullable=False),
        sa.Column("thread_id", sa.BigInteger(), nullable=False),
        sa.Column("user_id", sa.BigInteger(), nullable=False),
        sa.Column("workflow", sa.String(length=128), nullable=False),
        sa.Column("update_id", sa.BigInteger(), nullable=False),
        sa.Column("given", sa.Text(), nullable=False),
        sa.Column("passed", sa.Text(), nullable=False),
        sa.Column("step", sa.Integer(), nullable=False),
        sa.Column("heard", sa.BigInteger(), nullable=False),
        sa.Column("message_id", sa.BigInteger(), nullable=True),
        sa.Column("begun_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tg_forms")),
    )
    op.create_index(
        "uq_tg_forms_bot_id_chat_id_thread_id_user_id",
        "tg_forms",
        ["bot_id", "chat_id", "thread_id", "user_id"],
        unique=True,
    )
    op.create_table(
        "tg_posts",
        sa.Column("subject", sa.String(length=80), nullable=False),
        sa.Column("chat_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("bot_id", sa.BigInteger(), nullable=False),
        sa.Column("thread_id", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("message_id", sa.BigInteger(), nullable=True),
        sa.Column("claimed_ms", sa.BigInteger(), nullable=False),
        sa.Column("shown", sa.String(length=16), nullable=False),
        sa.PrimaryKeyConstraint("subject", "chat_id", name=op.f("pk_tg_posts")),
    )
    op.create_index("ix_tg_posts_bot_id_shown", "tg_posts", ["bot_id", "shown"], unique=False)
    op.create_table(
        "tg_people",
        sa.Column("bot_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("subject_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("role", sa.String(length=16), nullable=False),
        sa.Column("actor_id", sa.BigInteger(), nullable=False),
        sa.Column("changed_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("bot_id", "subject_id", name=op.f("pk_tg_people")),
    )
    op.create_table(
        "tg_said",
        sa.Column("bot_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("chat_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("key", sa.String(length=128), nullable=False),
        sa.Column("until_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("bot_id", "chat_id", "key", name=op.f("pk_tg_said")),
    )
    op.create_table(
        "tg_turns",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("bot_id", sa.BigInteger(), nullable=False),
        sa.Column("chat_id", sa.BigInteger(), nullable=False),
        sa.Column("thread_id", sa.BigInteger(), nullable=False),
        sa.Column("request_id", sa.String(length=255), nullable=False),
        sa.Column("question", sa.Text(), nullable=False),
        sa.Column("answer", sa.Text(), nullable=False),
        sa.Column("tokens", sa.Integer(), nullable=False),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tg_turns")),
    )
    op.create_index("ix_tg_turns_bot_id_chat_id_thread_id", "tg_turns", ["bot_id", "chat_id", "thread_id"], unique=False)
    op.create_index("uq_tg_turns_bot_id_request_id", "tg_turns", ["bot_id", "request_id"], unique=True)
    op.create_table(
        "tg_updates",
        sa.Column("bot_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("update_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("chat_id", sa.BigInteger(), nullable=False),
        sa.Column("thread_id", sa.BigInteger(), nullable=False),
        sa.Column("user_id", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("outcome", sa.String(length=24), nullable=False),
        sa.Column("raw", sa.Text(), nullable=False),
        sa.Column("bubbles", sa.Text(), nullable=False),
        sa.Column("target", sa.String(length=255), nullable=True),
        sa.Column("lead_id", sa.BigInteger(), nullable=True),
        sa.Column("notice_id", sa.BigInteger(), nullable=True),
        sa.Column("received_ms", sa.BigInteger(), nullable=False),
        sa.Column("due_ms", sa.BigInteger(), nullable=True),
        sa.Column("parked_ms", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("bot_id", "update_id", name=op.f("pk_tg_updates")),
    )
    op.create_index("ix_tg_updates_bot_id_lead_id", "tg_updates", ["bot_id", "lead_id"], unique=False)
    op.create_index("ix_tg_updates_bot_id_state_due_ms", "tg_updates", ["bot_id", "state", "due_ms"], unique=False)
    op.create_table(
        "usage",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("request_id", sa.String(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("surface", sa.String(), nullable=False),
        sa.Column("user", sa.String(), nullable=True),
        sa.Column("chat", sa.String(), nullable=True),
        sa.Column("workflow", sa.String(), nullable=True),
        sa.Column("run", sa.String(), nullable=True),
        sa.Column("step", sa.String(), nullable=True),
        sa.Column("key", sa.String(), nullable=True),
        sa.Column("guest", sa.Boolean(), server_default=sa.text("(false)"), nullable=False),
        sa.Column("chain", sa.String(), nullable=False),
        sa.Column("provider", sa.String(), nullable=False),
        sa.Column("model_asked", sa.String(), nullable=False),
        sa.Column("model_served", sa.String(), nullable=True),
        sa.Column("prompt_tokens", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("cached_tokens", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("output_tokens", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("reasoning_tokens", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("cost_micro_usd", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("price_source", sa.String(), server_default=sa.text("('')"), nullable=False),
        sa.Column("outcome", sa.String(), nullable=False),
        sa.Column("estimated", sa.Boolean(), server_default=sa.text("(false)"), nullable=False),
        sa.Column("uncertain", sa.Boolean(), server_default=sa.text("(false)"), nullable=False),
        sa.Column("overrun", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("overrun_micro_usd", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("latency_to_first_token_ms", sa.BigInteger(), nullable=True),
        sa.Column("total_latency_ms", sa.BigInteger(), nullable=True),
        sa.Column("started", sa.BigInteger(), nullable=False),
        sa.Column("ended", sa.BigInteger(), nullable=True),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("owner", sa.String(), nullable=False),
        sa.Column("deadline", sa.BigInteger(), nullable=False),
        sa.Column("held_requests", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("held_tokens", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("held_micro_usd", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("held_prompt_tokens", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("output_limit", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("spent_requests", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("spent_tokens", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("detail", sa.String(), server_default=sa.text("('')"), nullable=False),
        sa.Column("lines", sa.Text(), server_default="[]", nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_usage")),
    )
    op.create_index(
        "ix_usage_pending",
        "usage",
        ["owner"],
        unique=False,
        postgresql_where=sa.text("state = 'pending'"),
        sqlite_where=sa.text("state = 'pending'"),
    )
    op.create_index("ix_usage_request_id", "usage", ["request_id"], unique=False)
    op.create_index("ix_usage_started", "usage", ["started"], unique=False)
    op.create_table(
        "approvals",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("run", sa.String(length=64), nullable=False),
        sa.Column("step", sa.String(length=255), nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("question", sa.Text(), nullable=False),
        sa.Column("who", sa.Text(), nullable=False),
        sa.Column("asked", sa.BigInteger(), nullable=False),
        sa.Column("expires", sa.BigInteger(), nullable=True),
        sa.Column("otherwise", sa.String(length=16), nullable=False),
        sa.Column("decision", sa.String(length=16), nullable=False),
        sa.Column("by", sa.String(length=160), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_approvals")),
    )
    op.create_index(
        "ix_approvals_open",
        "approvals",
        ["expires"],
        unique=False,
        postgresql_where=sa.text("decision = ''"),
        sqlite_where=sa.text("decision = ''"),
    )
    op.create_index("uq_approvals_run_step_generation", "approvals", ["run", "step", "generation"], unique=True)
    op.create_table(
        "outbox",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("run", sa.String(length=64), nullable=False),
        sa.Column("step", sa.String(length=255), nullable=False),
        sa.Column("to", sa.String(length=1024), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("file", sa.Text(), nullable=True),
        sa.Column("created", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.Column("bot", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_outbox")),
    )
    op.create_index(
        "ix_outbox_pending",
        "outbox",
        ["id"],
        unique=False,
        postgresql_where=sa.text("state = 'pending'"),
        sqlite_where=sa.text("state = 'pending'"),
    )
    op.create_index("uq_outbox_run_step", "outbox", ["run", "step"], unique=True)
    op.create_table(
        "outbox_files",
        sa.Column("notice", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("picture", sa.Boolean(), nullable=False),
        sa.Column("content", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("notice", "number", name=op.f("pk_outbox_files")),
    )
    op.create_table(
        "run_events",
        sa.Column("run", sa.String(length=64), nullable=False),
        sa.Column("seq", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("data", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("run", "seq", name=op.f("pk_run_events")),
    )
    op.create_table(
        "run_signals",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("run", sa.String(length=64), nullable=False),
        sa.Column("name", sa.String(length=128), nullable=False),
        sa.Column("data", sa.Text(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_run_signals")),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_run_signals_run", "run_signals", ["run"], unique=False)
    op.create_table(
        "run_steps",
        sa.Column("run", sa.String(length=64), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("kind", sa.String(length=24), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("started", sa.BigInteger(), nullable=False),
        sa.Column("ended", sa.BigInteger(), nullable=True),
        sa.Column("waiting_until", sa.BigInteger(), nullable=True),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("run", "name", name=op.f("pk_run_steps")),
    )
    op.create_table(
        "runs",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("workflow", sa.String(length=128), nullable=False),
        sa.Column("state", sa.String(length=24), nullable=False),
        sa.Column("params", sa.Text(), nullable=False),
        sa.Column("key", sa.String(length=512), nullable=True),
        sa.Column("surface", sa.String(length=16), nullable=False),
        sa.Column("user", sa.String(length=128), nullable=True),
        sa.Column("admin", sa.Boolean(), nullable=False),
        sa.Column("listed", sa.Boolean(), nullable=False),
        sa.Column("chat", sa.String(length=64), nullable=True),
        sa.Column("thread", sa.BigInteger(), nullable=True),
        sa.Column("api_key", sa.String(length=128), nullable=True),
        sa.Column("language", sa.String(length=16), nullable=False),
        sa.Column("bot", sa.BigInteger(), nullable=True),
        sa.Column("to", sa.String(), server_default=sa.text("''"), nullable=False),
        sa.Column("may_use", sa.Text(), nullable=False),
        sa.Column("version", sa.String(length=128), nullable=False),
        sa.Column("caps", sa.Text(), nullable=True),
        sa.Column("created", sa.BigInteger(), nullable=False),
        sa.Column("started", sa.BigInteger(), nullable=True),
        sa.Column("ended", sa.BigInteger(), nullable=True),
        sa.Column("waiting_until", sa.BigInteger(), nullable=True),
        sa.Column("waiting_for", sa.String(), server_default=sa.text("''"), nullable=False),
        sa.Column("error", sa.Text(), server_default=sa.text("''"), nullable=False),
        sa.Column("result", sa.Text(), nullable=True),
        sa.Column("generation", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("wanted", sa.String(), server_default=sa.text("''"), nullable=False),
        sa.Column("owner", sa.String(), server_default=sa.text("''"), nullable=False),
        sa.Column("change", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("told", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("message_id", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_runs")),
        sa.UniqueConstraint("key", name=op.f("uq_runs_key")),
    )
    op.create_index("ix_runs_created", "runs", ["created", "id"], unique=False)
    op.create_index("ix_runs_state_waiting_until", "runs", ["state", "waiting_until"], unique=False)
    op.create_index(
        "ix_runs_untold",
        "runs",
        ["created"],
        unique=False,
        postgresql_where=sa.text("change > told"),
        sqlite_where=sa.text("change > told"),
    )
    op.create_index(
        "ix_runs_wanted",
        "runs",
        ["wanted"],
        unique=False,
        postgresql_where=sa.text("wanted <> ''"),
        sqlite_where=sa.text("wanted <> ''"),
    )
    op.create_table(
        "schedule_fires",
        sa.Column("name", sa.String(length=128), nullable=False),
        sa.Column("fire", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name", "fire", name=op.f("pk_schedule_fires")),
    )
    op.create_table(
        "schedules",
        sa.Column("name", sa.String(length=128), nullable=False),
        sa.Column("line", sa.Text(), nullable=False),
        sa.Column("first_seen", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_schedules")),
    )
    op.create_index(
        "ix_usage_run",
        "usage",
        ["run"],
        unique=False,
        postgresql_where=sa.text("run IS NOT NULL"),
        sqlite_where=sa.text("run IS NOT NULL"),
    )

    op.create_table(
        "web_links",
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("made_by", sa.String(), nullable=False),
        sa.Column("expires", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("digest", name=op.f("pk_web_links")),
    )
    op.create_table(
        "web_sessions",
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("actor", sa.String(), nullable=False),
        sa.Column("key", sa.String(), nullable=True),
        sa.Column("made", sa.BigInteger(), nullable=False),
        sa.Column("expires", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("digest", name=op.f("pk_web_sessions")),
    )


def downgrade() -> None:
    op.drop_table("web_sessions")
    op.drop_table("web_links")
    op.drop_table("schedules")
    op.drop_table("schedule_fires")
    op.drop_table("runs")
    op.drop_table("run_steps")
    op.drop_table("run_signals")
    op.drop_table("run_events")
    op.drop_table("outbox_files")
    op.drop_table("outbox")
    op.drop_table("approvals")
    op.drop_index("ix_usage_started", table_name="usage")
    op.drop_index("ix_usage_request_id", table_name="usage")
    op.drop_index(
        "ix_usage_pending",
        table_name="usage",
        postgresql_where=sa.text("state = 'pending'"),
        sqlite_where=sa.text("state = 'pending'"),
    )
    op.drop_table("usage")
    op.drop_index("ix_tg_updates_bot_id_state_due_ms", table_name="tg_updates")
    op.drop_index("ix_tg_updates_bot_id_lead_id", table_name="tg_updates")
    op.drop_table("tg_updates")
    op.drop_index("uq_tg_turns_bot_id_request_id", table_name="tg_turns")
    op.drop_index("ix_tg_turns_bot_id_chat_id_thread_id", table_name="tg_turns")
    op.drop_table("tg_turns")
    op.drop_table("tg_said")
    op.drop_table("tg_people")
    op.drop_index("ix_tg_posts_bot_id_shown", table_name="tg_posts")
    op.drop_table("tg_posts")
    op.drop_index("uq_tg_forms_bot_id_chat_id_thread_id_user_id", table_name="tg_forms")
    op.drop_table("tg_forms")
    op.drop_table("tg_pairing")
    op.drop_table("tg_choices")
    op.drop_table("tg_buttons")
    op.drop_index("ix_requests_expires", table_name="requests")
    op.drop_table("requests")
    op.drop_index("ix_refusals_request_id", table_name="refusals")
    op.drop_index("ix_refusals_at", table_name="refusals")
    op.drop_table("refusals")
    op.drop_index("ix_raises_budget", table_name="raises")
    op.drop_table("raises")
    op.drop_table("owners")
    op.drop_table("definitions")
    op.drop_table("counters")
    op.drop_table("calibrations")
    op.drop_index("ix_audit_subject", table_name="audit")
    op.drop_table("audit")
    if op.get_context().dialect.name == "postgresql":
        op.execute("DROP FUNCTION audit_kept()")
    op.drop_table("api_keys")
    op.drop_table("in_force")
    op.drop_table("alerts")
    op.drop_index("ix_adjustments_budget", table_name="adjustments")
    op.drop_table("adjustments")
