"""The providers' face: one LLM API each. Translate, call, classify; no policy, no retry, no budget.

`build(settings, clock)` makes every configured provider.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from gateway.chat import Chunk, Completion, EmbeddingRequest, Request
from gateway.clock import Clock
from gateway.ledger import Reservation
from gateway.settings import ProviderSettings, Settings

if TYPE_CHECKING:
    from gateway.providers.local import LocalServer


class Provider(Protocol):
    """One LLM API. Each call takes the committed reservation that names it: there is no call without one.

    The model asked is `reservation.slot.model`, the output limit sent is `reservation.output_tokens`.
    Both raise the tree under ProviderError and nothing else (but CancelledError). A cancelled call closes its
    connection at once. Nothing is ever sent twice.
    """

    name: str

    async def complete(self, request: Request, reservation: Reservation) -> Completion:
        """A whole answer."""
        ...

    def stream(self, request: Request, reservation: Reservation) -> AsyncGenerator[Chunk, None]:
        """An answer as it comes. It ends normally only after a finish reason was seen.

        Closing the iterator (`aclose`) closes the connection. A broken or malformed stream raises Unanswered, with
        the usage only where the provider stated it as final: what it stated on the way is in the chunks.
        """
        ...

    async def close(self) -> None:
        """Frees connections and child processes."""
        ...


@runtime_checkable
class Embedder(Protocol):
    """A provider that makes vectors too: each one whose wire format is among the settings' EMBEDDING_APIS."""

    async def embed(self, request: EmbeddingRequest, reservation: Reservation) -> Completion:
        """The vectors of every input, under the rules of `Provider.complete`."""
        ...


def build(settings: Settings, clock: Clock) -> dict[str, Provider]:
    """Every configured provider by name. Nothing is connected or started yet; `close` each when done.

    All `local` providers share one model server.
    """
    server: LocalServer | None = None
    if any(provider.api == "local" for provider in settings.providers.values()):
        from gateway.providers.local import LocalServer

        server = LocalServer()
    return {name: _make(provider, clock, server) for name, provider in settings.providers.items()}


def local_available() -> bool:
    """True when the packaged model and its server are installed (extra `local`); `local.missing()` says what is not."""
    from gateway.providers.local import missing

    return missing() is None


def _make(settings: ProviderSettings, clock: Clock, server: LocalServer | None) -> Provider:
    # Imported here, so that a command that calls nobody does not pay for an HTTP client.
    if settings.api == "demo":
        from gateway.providers.demo import DemoProvider

        return DemoProvider(settings, clock)
    from gateway.providers.lean import LeanClient

    if settings.api == "local":
        from gateway.providers.local import LocalProvider

        assert server is not None
        return LocalProvider(settings, LeanClient(), clock, server)
    if settings.api == "anthropic":
        from gateway.providers.anthropic import AnthropicProvider

        return AnthropicProvider(settings, LeanClient(), clock)
    from gateway.providers.openai import OpenAIProvider

    return OpenAIProvider(settings, LeanClient(), clock)
