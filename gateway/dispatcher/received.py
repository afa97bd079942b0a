"""What came of one stream so far: the text, a lower bound of its tokens, the provider's own words about usage."""

from __future__ import annotations

from gateway.chat import Chunk, Usage


class Received:
    """One stream's chunks, added up. Tokens are output tokens.

    `keeps_all`: every chunk is kept, because text alone does not say what came (tool calls, several answers) or the
    whole reply is to be stored; otherwise the last one only.
    """

    __slots__ = (
        "_reasoning",
        "_text",
        "chunks",
        "deltas",
        "finish_reason",
        "keeps_all",
        "last",
        "model",
        "unseen_bytes",
        "usage",
        "visible",
    )

    def __init__(self, *, keeps_all: bool) -> None:
        self.keeps_all = keeps_all
        self.chunks: list[Chunk] = []
        self.last: Chunk | None = None
        self.unseen_bytes = 0
        """The size of visible chunks without text (tool calls): at most that many tokens."""
        self.deltas = 0
        """Events with non-empty deltas, of whichever answer: each is at least one token."""
        self.visible = False
        self.finish_reason: str | None = None
        self.usage: Usage | None = None
        """The last one stated."""
        self.model: str | None = None
        self._text: list[str] = []
        self._reasoning: list[str] = []

    @property
    def text(self) -> str:
        """The visible text so far."""
        return "".join(self._text)

    @property
    def reasoning(self) -> str:
        """The reasoning so far."""
        return "".join(self._reasoning)

    def take(self, chunk: Chunk) -> None:
        """Adds one chunk."""
        self.last = chunk
        if self.keeps_all:
            self.chunks.append(chunk)
        if chunk.text:
            self._text.append(chunk.text)
        if chunk.reasoning:
            self._reasoning.append(chunk.reasoning)
        if chunk.visible or chunk.reasoning:
            self.deltas += chunk.deltas
        if chunk.visible:
            self.visible = True
            if not chunk.text:
                self.unseen_bytes += len(chunk.raw or str(chunk.body).encode())
        if chunk.usage is not None:
            self.usage = chunk.usage
        if chunk.model is not None:
            self.model = chunk.model
        if chunk.finish_reason is not None:
            self.finish_reason = chunk.finish_reason

    def passed(self, output_tokens: int) -> bool:
        """True once it certainly passed an output limit and goes on, though a finish reason may have come."""
        last = self.last
        if last is None or last.finish_reason is not None:
            return False
        if self.finish_reason is not None and not (last.visible or last.reasoning):
            return False
        return self.deltas > output_tokens or (self.usage is not None and self.usage.output > output_tokens)
