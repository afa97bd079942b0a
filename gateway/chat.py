"""The values that travel: what is asked of a model and what comes back.

Messages keep the OpenAI chat shape, since that is what most clients and most providers speak; an adapter of another
wire format translates. Nothing here waits, reads a clock or touches the environment. What is made for each call is a tuple:
that costs half of a frozen dataclass.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

Message = Mapping[str, Any]
"""One message in the OpenAI chat shape: `role`, `content` (text or a list of parts), `tool_calls` …"""


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked of a model, whichever provider serves it.

    `max_output_tokens` is the output limit, None when the caller named none (the provider's default applies).
    `n` is the number of answers asked for. `extra` holds every other field of the body, passed through untouched
    (tools, temperature, response_format …); fields that change price or destination never get this far.
    `clampable` is false where a shortened answer is useless (a workflow's `ask`). `anthropic` is true when the caller speaks
    Anthropic's shape: what only that format knows (cache marks, thinking, `top_k` …) then stays with its providers.
    """

    messages: Sequence[Message]
    max_output_tokens: int | None = None
    n: int = 1
    extra: Mapping[str, Any] = field(default_factory=dict)
    clampable: bool = True
    anthropic: bool = False


@dataclass(frozen=True, slots=True)
class EmbeddingRequest:
    """Texts, or texts that are cut into token numbers already, of which vectors are asked. Nothing is generated: its whole
    cost is its prompt. `extra` holds every other field of the body, passed through untouched (`encoding_format` …).
    """

    inputs: Sequence[str] | Sequence[Sequence[int]]
    extra: Mapping[str, Any] = field(default_factory=dict)


Asked = Request | EmbeddingRequest
"""What is answered in one piece."""


class Usage(NamedTuple):
    """Tokens of one attempt. `prompt` includes `cached`, `output` includes `reasoning`; `tokens` is what budgets count."""

    prompt: int
    output: int
    cached: int = 0
    reasoning: int = 0
    stated_cost_micro_usd: int | None = None
    """The cost the provider stated itself (OpenRouter), None where it stated none or a zero with real tokens."""
    cache_written: int = 0
    """The part of `prompt` that was also written to the provider's cache (Anthropic's cache_creation_input_tokens)."""

    @property
    def tokens(self) -> int:
        """Prompt and output together: the number a `tokens` budget counts."""
        return self.prompt + self.output


class Completion(NamedTuple):
    """A whole answer. `usage` is None when the provider stated none. `body` is the answer in the OpenAI shape.

    Vectors are one too: without text, finished by "stop", and `body` is their `list` object.
    """

    text: str
    finish_reason: str
    model: str
    """The model that served, as the provider named it."""
    usage: Usage | None
    body: Mapping[str, Any]
    """The whole `chat.completion` object: choices, tool calls, vendor fields."""
    raw: bytes | None = None
    """The provider's own bytes, where they already are that object; forwarded as they came."""


class Chunk(NamedTuple):
    """One event of a streamed answer, or `deltas` of them that came together and add nothing but text.

    `text` is the visible content it adds ("" for role, reasoning or tool-call events). `visible` is true once a person
    or a client would see something of it (content or tool calls). `finish_reason`, `usage` and `model` are set on the
    events that carry them. `body` is the event in the OpenAI `chat.completion.chunk` shape; `raw` the provider's own
    `data:` payload where it already is that shape (several events stand in it as they do in a stream). `more` is true
    when another event came in the same block of bytes: the two can be sent on together. A tuple, since it is made for
    each event of each stream.
    """

    text: str = ""
    visible: bool = False
    reasoning: str = ""
    finish_reason: str | None = None
    usage: Usage | None = None
    model: str | None = None
    body: Mapping[str, Any] | None = None
    raw: bytes | None = None
    more: bool = False
    deltas: int = 1


@dataclass(frozen=True, slots=True)
class Origin:
    """Who asks, and from where: what scopes match on and usage rows keep. Every field but `surface` may be absent.

    `request_id` names the request in the ledger and in answers. `dedupe` says that the same id means the same
    request: its stored answer is returned for 24 h (`tg:<bot>:<update>`, `key:<key>:<Idempotency-Key>`,
    `<run>/<step>`). `patience_s` is how long the request may wait when only holds are in its way.
    """

    request_id: str
    surface: str
    """telegram | http | cli | schedule"""
    user: str | None = None
    chat: str | None = None
    workflow: str | None = None
    run: str | None = None
    step: str | None = None
    key: str | None = None
    guest: bool = False
    """True for people who are on no list: `limits.guests` applies to them."""
    dedupe: bool = False
    patience_s: float = 0.0
    may_use: tuple[str, ...] = ()
    """The only chains, providers and models that may be asked by their names; empty: every one."""


class Slot(NamedTuple):
    """One place in a chain: a provider and the model asked of it."""

    provider: str
    model: str

    def __str__(self) -> str:
        return f"{self.provider}:{self.model}"
