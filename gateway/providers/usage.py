"""What providers state as usage, in every shape they use, as one Usage. Pure.

Rules: an explicit zero is kept; a missing part is not taken for zero; cached tokens are inside the prompt and reasoning
inside the output, once; of two places in one event the wire format's own wins.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import ROUND_CEILING, Decimal
from typing import Any

from gateway.amounts import AMOUNT_MAX
from gateway.chat import Usage


def find_openai(event: Mapping[str, Any]) -> Usage | None:
    """The usage in a `chat.completion` or a chunk: at the top, in the first choice (Moonshot), under `x_groq`."""
    stated = event.get("usage")
    if stated and (usage := openai(stated)):
        return usage
    choices = event.get("choices")
    if choices and isinstance(choices[0], dict) and (usage := openai(choices[0].get("usage"))):
        return usage
    groq = event.get("x_groq")
    return openai(groq.get("usage")) if isinstance(groq, dict) else None


def openai(stated: Any) -> Usage | None:
    """OpenAI's shape and its relatives; None when prompt or output tokens cannot be told."""
    if not isinstance(stated, dict):
        return None
    prompt = _first(stated, "prompt_tokens", "input_tokens")
    output = _first(stated, "completion_tokens", "output_tokens")
    total = _first(stated, "total_tokens")
    if prompt is None or (output is None and total is None):
        return None
    details = _part(stated, "prompt_tokens_details", "input_tokens_details")
    cached = _first(details, "cached_tokens")
    if cached is None:
        cached = _first(stated, "cached_tokens", "prompt_cache_hit_tokens") or 0
    reasoning = _first(_part(stated, "completion_tokens_details", "output_tokens_details"), "reasoning_tokens") or 0
    output = output or 0
    # Gemini and Grok count thoughts beside the visible output: they show only in the total, or as more than the output.
    if total is not None and total > prompt + output:
        output = total - prompt
    elif total is None and reasoning > output:
        output += reasoning
    return Usage(
        prompt=prompt,
        output=output,
        cached=min(cached, prompt),
        reasoning=min(reasoning, output),
        stated_cost_micro_usd=_cost(stated, prompt + output),
        # OpenRouter passes on what Anthropic writes to its cache.
        cache_written=min(_first(details, "cache_write_tokens") or 0, prompt),
    )


def anthropic(stated: Mapping[str, Any]) -> Usage | None:
    """Anthropic's shape, `message_start` and `message_delta` merged; cached tokens stand beside `input_tokens` there."""
    fresh, output = _first(stated, "input_tokens"), _first(stated, "output_tokens")
    if fresh is None or output is None:
        return None
    read = _first(stated, "cache_read_input_tokens") or 0
    written = _first(stated, "cache_creation_input_tokens") or 0
    return Usage(prompt=fresh + read + written, output=output, cached=read, cache_written=written)


def to_openai(usage: Usage) -> dict[str, Any]:
    """The same in OpenAI's shape, for callers who speak it."""
    return {
        "prompt_tokens": usage.prompt,
        "completion_tokens": usage.output,
        "total_tokens": usage.tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
    }


def _part(stated: Mapping[str, Any], *names: str) -> Mapping[str, Any]:
    for name in names:
        part = stated.get(name)
        if isinstance(part, dict):
            return part
    return {}


def _first(stated: Mapping[str, Any], *names: str) -> int | None:
    """The first of these that is a number, never negative."""
    for name in names:
        value = stated.get(name)
        # Nearly all of them are whole numbers, and this is asked a dozen times for each answer.
        if (type(value) is int or type(value) is float) and -1e15 < value < 1e15:
            return max(0, int(value))
    return None


def _cost(stated: Mapping[str, Any], tokens: int) -> int | None:
    """OpenRouter's `cost` in USD, rounded up to micro-USD.

    Not where it is zero with real tokens, nor where the caller brought an own key: it is then only the router's fee.
    """
    cost = stated.get("cost")
    if cost is None or isinstance(cost, bool) or stated.get("is_byok"):
        return None
    try:
        micro_usd = int((Decimal(str(cost)) * 1_000_000).to_integral_value(ROUND_CEILING))
    except (ArithmeticError, ValueError):
        return None
    return None if micro_usd < 0 or (micro_usd == 0 and tokens) else min(micro_usd, AMOUNT_MAX)
