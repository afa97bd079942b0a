"""The providers' face: one LLM API each. Translate, call, classify; no policy, no retry, no budget.

`build(settings)` makes every configured provider.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol

from gateway.chat import Chunk, Completion, Request
from gateway.ledger import Reservation


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

    def stream(self, request: Request, reservation: Reservation) -> AsyncIterator[Chunk]:
        """An answer as it comes. It ends normally only after a finish reason was seen.

        Closing the iterator (`aclose`) closes the connection. A broken or malformed stream raises Unanswered, with
        the usage seen so far.
        """
        ...

    async def close(self) -> None:
        """Frees connections and child processes."""
        ...
