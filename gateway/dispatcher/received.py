"""What came of one stream so far: the text, a lower bound of its tokens, the provider's own words about usage."""

from __future__ import annotations

from gateway.chat import Chunk, Usage


class Received:
    """One stream's chunks, added up. Tokens are output tokens."""

    __slots__ = ("_reasoning", "_text", "chunks", "deltas", "finish_reason", "model", "usage", "visible")

    def __init__(self) -> None:
        self.chunks: list[Chunk] = []
        self.deltas = 0
        """Non-empty deltas: each is at least one token."""
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
    def everything(self) -> str:
        """The visible text and the reasoning so far."""
        return "".join(self._reasoning) + self.text

    def take(self, chunk: Chunk) -> None:
        """Adds one chunk."""
        self.chunks.append(chunk)
        if chunk.text:
            self._text.append(chunk.text)
            self.deltas += 1
        elif chunk.reasoning:
            self.deltas += 1
        if chunk.reasoning:
            self._reasoning.append(chunk.reasoning)
        if chunk.visible:
            self.visible = True
        if chunk.usage is not None:
            self.usage = chunk.usage
        if chunk.model is not None:
            self.model = chunk.model
        if chunk.finish_reason is not None:
            self.finish_reason = chunk.finish_reason

    def passed(self, output_tokens: int) -> bool:
        """True once it certainly passed an output limit and has not finished by itself."""
        if self.finish_reason is not None:
            return False
        return self.deltas > output_tokens or (self.usage is not None and self.usage.output > output_tokens)

    def unseen_bytes(self) -> int:
        """The size of what came in visible chunks without text (tool calls), in bytes: at most that many tokens."""
        return sum(len(chunk.raw or str(chunk.body).encode()) for chunk in self.chunks if chunk.visible and not chunk.text)
