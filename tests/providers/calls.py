"""Settings, reservations and requests for the providers' tests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any, cast

from gateway.budget import Amounts
from gateway.chat import Chunk, Origin, Request, Slot
from gateway.ledger import Draft, Reservation
from gateway.providers import Provider
from gateway.providers.anthropic import AnthropicProvider
from gateway.providers.http import HttpClient
from gateway.providers.openai import OpenAIProvider
from gateway.settings import ProviderSettings
from tests.doubles.clock import SettableClock

KEY = "sk-test-0123456789abcdef"
ASK = Request(messages=[{"role": "user", "content": "one two three"}])


def reservation(provider: str = "p", model: str = "m", output_tokens: int = 100) -> Reservation:
    """A reservation as the store would commit it; only its slot and output limit matter here."""
    draft = Draft(
        id="a1",
        origin=Origin("r1", "http"),
        attempt=1,
        chain="default",
        slot=Slot(provider, model),
        held=Amounts(1, 1000, 0),
        output_tokens=output_tokens,
        prompt_tokens=100,
        deadline_ms=0,
    )
    return Reservation(draft, "owner", 0, ())


def settings(api: str, base_url: str, **more: Any) -> ProviderSettings:
    """Long deadlines, since the machine may be busy; a test of one gives a short one."""
    given = {"timeout_s": 60.0, "first_token_timeout_s": 60.0, "idle_timeout_s": 60.0, "api_key": KEY, **more}
    return ProviderSettings(name="p", api=api, model="m", base_url=base_url, **given)


def provider(api: str, base_url: str, http: HttpClient, **more: Any) -> Provider:
    """A provider of a wire format."""
    kind = OpenAIProvider if api == "openai" else AnthropicProvider
    return kind(settings(api, base_url, **more), http, SettableClock())


async def collect(chunks: AsyncIterator[Chunk], into: list[Chunk] | None = None) -> list[Chunk]:
    """All chunks of a stream; those that came before an error stay in `into`."""
    got = [] if into is None else into
    async with aclosing(cast(Any, chunks)):
        async for chunk in chunks:
            got.append(chunk)
    return got


def text(chunks: list[Chunk]) -> str:
    """The visible text."""
    return "".join(chunk.text for chunk in chunks)


async def ask(provider: Provider, streamed: bool) -> object:
    """One call of either kind."""
    if streamed:
        return await collect(provider.stream(ASK, reservation()))
    return await provider.complete(ASK, reservation())
