"""What a reservation, its end and a refusal look like as rows: one truth for the database and the tests' memory. Pure.

Whatever a provider says is bounded and cleaned here, so that no answer of the world can break the transaction that
settles it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import orjson

from gateway.budget import Amounts, Unit
from gateway.chat import Slot
from gateway.errors import Exhausted, GatewayError
from gateway.ledger import Closing, Line, Outcome, Reservation, State, bounded

DETAIL_MAX = 500
"""Characters of a provider's error that a row keeps."""

OPENING = (
    "id", "request_id", "attempt", "surface", "user", "chat", "workflow", "run", "step", "key", "guest", "chain", "provider",
    "model_asked", "outcome", "started", "state", "owner", "deadline", "held_requests", "held_tokens", "held_micro_usd",
    "held_prompt_tokens", "output_limit", "lines",
)  # fmt: skip
"""The columns that are written with a reservation."""

ENDING = (
    "id", "state", "outcome", "model_served", "prompt_tokens", "cached_tokens", "output_tokens", "reasoning_tokens",
    "spent_requests", "spent_tokens", "cost_micro_usd", "price_source", "estimated", "uncertain", "overrun",
    "overrun_micro_usd", "latency_to_first_token_ms", "total_latency_ms", "ended", "detail",
)  # fmt: skip
"""The columns that are written when it ends."""


class Standing(NamedTuple):
    """What closing needs to know of an attempt's row, in the order of the columns of STANDING."""

    id: str
    state: State
    spent: Amounts
    held: Amounts
    held_prompt_tokens: int
    lines: tuple[Line, ...]


STANDING = (
    "id", "state", "spent_requests", "spent_tokens", "cost_micro_usd", "held_requests", "held_tokens", "held_micro_usd",
    "held_prompt_tokens", "lines",
)  # fmt: skip


def standing(row: Sequence[Any]) -> Standing:
    """From the values of the STANDING columns."""
    return Standing(row[0], _STATES[row[1]], Amounts(*row[2:5]), Amounts(*row[5:8]), row[8], load_lines(row[9]))


def opened(reservation: Reservation) -> Standing:
    """What `standing` says of an attempt that was just opened."""
    draft = reservation.draft
    return Standing(draft.id, State.PENDING, Amounts(), draft.held, draft.prompt_tokens, reservation.lines)


def opening(reservation: Reservation) -> tuple[Any, ...]:
    """The values of the OPENING columns."""
    draft, origin = reservation.draft, reservation.draft.origin
    return (
        draft.id, origin.request_id, draft.attempt, origin.surface, origin.user, origin.chat, origin.workflow, origin.run,
        origin.step, origin.key, origin.guest, draft.chain, draft.slot.provider, draft.slot.model, Outcome.PENDING.value,
        reservation.started_ms, State.PENDING.value, reservation.owner, draft.deadline_ms, draft.held.requests,
        draft.held.tokens, draft.held.micro_usd, draft.prompt_tokens, draft.output_tokens, dump_lines(reservation.lines),
    )  # fmt: skip


def ending(row: Standing, state: State, spent: Amounts, closing: Closing, at_ms: int) -> tuple[Any, ...]:
    """The values of the ENDING columns. Where the usage is not known, prompt and output sum to what was spent."""
    usage, held = closing.usage, row.held
    if usage is not None:
        tokens = (usage.prompt, usage.cached, usage.output, usage.reasoning)
    else:
        prompt = min(row.held_prompt_tokens, spent.tokens)
        tokens = (prompt, 0, spent.tokens - prompt, 0)
    return (
        row.id, state.value, closing.outcome.value, clean(closing.model_served, 200), *(bounded(count) for count in tokens),
        spent.requests, spent.tokens, spent.micro_usd, clean(closing.price_source, 200), closing.estimated, closing.uncertain,
        max(0, spent.tokens - held.tokens), max(0, spent.micro_usd - held.micro_usd), closing.first_token_ms,
        closing.total_ms, at_ms, clean(closing.detail, DETAIL_MAX),
    )  # fmt: skip


def clean(text: str | None, length_max: int) -> str | None:
    """Text that both databases can keep: no NUL, no lone surrogate, bounded."""
    if not text:
        return text
    if len(text) > length_max:
        text = text[: length_max - 1] + "…"
    if text.isascii() and "\0" not in text:
        return text
    return text.replace("\0", "�").encode("utf-8", "replace").decode()


def dump_lines(lines: Iterable[Line]) -> str:
    """Lines as JSON, one array each."""
    return orjson.dumps([list(line) for line in lines]).decode()


def load_lines(text: str) -> tuple[Line, ...]:
    """Lines from JSON."""
    return tuple(Line(budget, key, _UNITS[unit], *numbers) for budget, key, unit, *numbers in orjson.loads(text))


_UNITS = {unit.value: unit for unit in Unit}
_STATES = {state.value: state for state in State}


def refusal_kind(error: GatewayError) -> str:
    """The name under which a refusal is kept: its class."""
    return type(error).__name__


def refusal_detail(error: GatewayError) -> dict[str, object]:
    """The facts of a refusal: its fields; instants as RFC 3339."""
    if isinstance(error, Exhausted):
        return {"blocks": [_plain(dataclasses.asdict(block)) for block in error.blocks]}
    if dataclasses.is_dataclass(error):
        return {field.name: _plain(getattr(error, field.name)) for field in dataclasses.fields(error)}
    return {}


def _plain(value: object) -> object:
    if isinstance(value, Slot):
        return str(value)
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)
