"""Bounds in tokens before a call is made, and the request fields whose price nobody knows beforehand.

Rules:
- A bound is never below what the provider will bill. bytes/4 is unsafe (0.35 of the truth on base64); a known
  tokenizer's count times a factor of the model's family is close, and one token per UTF-8 byte is the most there can be.
- The whole request counts: messages, tool calls, tools and schemas, what a chat template adds, images as declared.
- A model that billed more than its bound has its bounds raised, so that the same request would be covered next time.
- What has no bound is refused by name: audio, files, and the fields in REFUSED_FIELDS.

The vocabularies are inside toktok; the first count loads one, in tenths of a second.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import orjson

from gateway.chat import Asked, EmbeddingRequest, Message, Slot, Usage
from gateway.errors import CannotServe
from gateway.settings import Model

MESSAGE_TOKENS = 8
"""The most that a chat template puts around one message: its role and its marks."""
TOOL_TOKENS = 16
"""The same around one tool, besides its own text."""
REMEMBERED_MAX = 1_000
REMEMBERED_CHARS_MAX = 1_000
"""A system prompt, and what was said before, come again with each request: the bounds of so many texts up to that length
are remembered."""
LEARN_RATIO_FROM = 512
"""Below so many tokens an excess is a fixed part (a hidden prompt); above it, the tokenizer's own ratio."""

_O200K, _CL100K = "o200k_base", "cl100k_base"
_ALL = 1 << 62


@dataclass(frozen=True, slots=True, eq=False)
class Family:
    """How one kind of model's tokens relate to a vocabulary that we have. Factors are in thousandths."""

    names: re.Pattern[str]
    encoding: str
    ascii: int
    other: int
    """For text of other scripts; what lies between is blended by its share of bytes."""
    bytes_per_token: int = 0
    """Where set, each so many bytes of other scripts count as a token at least: a small or unknown vocabulary."""
    ascii_bytes_per_token: int = 0
    """The same for ASCII: another vocabulary may split its words more often than the one that is counted with."""
    text_tokens: int = 0
    """Added to each text: a word or two that another vocabulary splits weigh most in a short one."""
    digits: bool = False
    """True where every digit is a token; our vocabularies have groups of three."""
    request_tokens: int = 48
    """What the template adds to a request: its opening, a built-in system prompt."""
    tools_tokens: int = 160
    """What it adds when there are tools."""


FAMILIES = (
    Family(re.compile(r"gpt-oss"), _O200K, 1020, 1020, request_tokens=160),
    Family(re.compile(r"gpt-(4o|4\.1|4\.5|5|6)|chatgpt|^o[1-9]"), _O200K, 1020, 1020, request_tokens=16),
    Family(re.compile(r"gpt-[34]|text-embedding-(ada|3)"), _CL100K, 1020, 1020, request_tokens=16),
    Family(re.compile(r"llama-?[34]"), _CL100K, 1080, 1080),
    Family(re.compile(r"kimi|moonshot|deepseek"), _CL100K, 1150, 1000, request_tokens=24),
    Family(re.compile(r"qw|glm"), _CL100K, 1150, 1000, digits=True),
    Family(re.compile(r"gemini|gemma"), _CL100K, 1200, 1000, digits=True, request_tokens=24),
    Family(re.compile(r"claude"), _O200K, 1350, 1350, bytes_per_token=2, request_tokens=24, tools_tokens=600),
)
"""Measured where a vocabulary was to be had, otherwise assumed with a margin: settled usage corrects it upwards."""

UNKNOWN = Family(re.compile(r""), _CL100K, 1350, 1350, bytes_per_token=1, ascii_bytes_per_token=3, text_tokens=4, digits=True)
"""A model that no family claims: three bytes of ASCII are a token at least, and other scripts count by the byte."""

REFUSED_FIELDS: Mapping[str, tuple[object, ...]] = {
    "service_tier": ("auto", "default", "standard_only"),
    "models": (),
    "route": (),
    "provider": (),
    "plugins": (),
    "transforms": (),
    "preset": (),
    "fallbacks": (),
    "prediction": (),
    "modalities": (["text"],),
    "audio": (),
    "container": (),
    "mcp_servers": (),
    "inference_geo": ("global",),
    "speed": ("standard",),
    "workspace_id": (),
    "web_search_options": (),
    "web_search": (),
    "search_parameters": (),
    "enable_search": (),
    "best_of": (1,),
    "n_predict": (),
    "n_cmpl": (),
    "max_new_tokens": (),
    "max_output_tokens": (),
    "num_return_sequences": (),
    "cached_content": (),
    "extra_body": (),
    "api_base": (),
    "api_key": (),
    "base_url": (),
}
"""Request fields that change price or destination, each with the values that do not. Nothing and false never do.

Other names of the output limit and of `n` are among them: llama.cpp lets `n_predict` win over the limit that we send.
"""

WEIGHED_FIELDS = frozenset(("model", "messages", "max_tokens", "max_completion_tokens", "n", "stream", "stream_options", "tools"))
"""Request fields that we read and write anew."""

TOOL_TYPES = frozenset(("function", "custom"))
"""Tools that run at the caller's. A vendor's own (web search, code, files) are billed apart, by nobody knows how much."""

TEXT_PARTS = frozenset(("text", "input_text", "output_text", "refusal"))
IMAGE_PARTS = frozenset(("image_url", "input_image", "image"))


def refused_fields(fields: Mapping[str, Any]) -> tuple[str, ...]:
    """The names of a chat body's fields that change what it costs or where it goes, so that they must be refused."""
    refused = [name for name, value in fields.items() if _otherwise_spelt(name) or not _harmless(name, value)]
    tools = fields.get("tools")
    if isinstance(tools, list) and any(isinstance(tool, dict) and tool.get("type") not in TOOL_TYPES for tool in tools):
        refused.append("tools")
    return tuple(refused)


def _otherwise_spelt(name: str) -> bool:
    """True for `N` and `Max_Tokens`: servers written in Go read names in any case, and would take them for ours."""
    folded = name.casefold()
    return folded != name and (folded in WEIGHED_FIELDS or folded in REFUSED_FIELDS)


def _harmless(name: str, value: object) -> bool:
    known = REFUSED_FIELDS.get(name)
    return known is None or value is None or value is False or value == [] or value == {} or value in known


def count_text(text: str) -> int:
    """The tokens of a text in a current vocabulary: close to what most models count, and not a bound."""
    return _count(text, _O200K)


class Learnt(NamedTuple):
    """By how much a slot billed more than its bound: never less than was ever seen."""

    ratio: int = 1000
    """In thousandths of the bound."""
    added: int = 0
    """Tokens on top of every request."""


class Estimator:
    """Bounds for every slot, and what was learnt of them. `learnt` is what must survive a restart."""

    def __init__(self) -> None:
        self._families: dict[str, Family] = {}
        self._remembered: dict[tuple[Family, str], int] = {}
        self.learnt: dict[Slot, Learnt] = {}

    def remember(self, learnt: Mapping[Slot, Learnt]) -> None:
        """Takes over what an earlier or another process learnt; keeps the larger of both."""
        for slot, theirs in learnt.items():
            ours = self.learnt.get(slot, Learnt())
            self.learnt[slot] = Learnt(max(ours.ratio, theirs.ratio), max(ours.added, theirs.added))

    def load(self, models: Iterable[str]) -> None:
        """Loads the vocabularies of these models, so that no call has to wait for one."""
        for encoding in {self._family(model).encoding for model in models}:
            _count("a", encoding)

    def prompt_bound(self, slot: Slot, model: Model, request: Asked) -> int:
        """The most prompt tokens that this request can cost on this slot.

        Raises CannotServe for images without a declared `image_tokens`, and for audio, files and the like.
        """
        bound = self._bound(slot, model, request)
        ratio, added = self.learnt.get(slot, Learnt())
        return -(-bound * ratio // 1000) + added

    def received_bound(self, slot: Slot, text: str) -> int:
        """The most output tokens that this text of an answer can have cost on this slot."""
        return -(-_text_bound(self._family(slot.model), text) * self.learnt.get(slot, Learnt()).ratio // 1000)

    def longest_input(self, slot: Slot, request: EmbeddingRequest) -> int:
        """The most tokens that one of its inputs can be."""
        family = self._family(slot.model)
        return max((self._input_bound(family, each) for each in request.inputs), default=0)

    def learn(self, slot: Slot, model: Model, request: Asked, usage: Usage) -> None:
        """Raises the slot's bounds where a settled call used more prompt tokens than they said; never lowers them."""
        known = self.prompt_bound(slot, model, request)
        if usage.prompt <= known:
            return
        ratio, added = self.learnt.get(slot, Learnt())
        bound = self._bound(slot, model, request)
        if bound < LEARN_RATIO_FROM:
            added += usage.prompt - known
        else:
            ratio = max(ratio, -(-(usage.prompt - added) * 1000 // bound))
        self.learnt[slot] = Learnt(ratio, added)

    def _family(self, model: str) -> Family:
        known = self._families.get(model)
        if known is None:
            if len(self._families) >= 1000:
                self._families.clear()
            known = self._families[model] = family_of(model)
        return known

    def _bound(self, slot: Slot, model: Model, request: Asked) -> int:
        family = self._family(slot.model)
        if isinstance(request, EmbeddingRequest):
            inputs = sum(self._input_bound(family, each) for each in request.inputs)
            return family.request_tokens + inputs + _extra_bound(family, request.extra)
        total = family.request_tokens + MESSAGE_TOKENS * len(request.messages)
        for message in request.messages:
            for text in _texts(slot, message):
                total += self._text_bound(family, text)
            images = _images(message)
            if images:
                if model.image_tokens is None:
                    raise CannotServe(slot, "images are refused: no image_tokens is configured")
                total += images * model.image_tokens
        if request.extra:
            total += _extra_bound(family, request.extra)
        return total

    def _input_bound(self, family: Family, given: str | Sequence[int]) -> int:
        """One input with the marks around it: a text by its bound, tokens by their number."""
        return MESSAGE_TOKENS + (self._text_bound(family, given) if isinstance(given, str) else len(given))

    def _text_bound(self, family: Family, text: str) -> int:
        bound = self._remembered.get((family, text))
        if bound is None:
            bound = _text_bound(family, text)
            if len(text) <= REMEMBERED_CHARS_MAX:
                if len(self._remembered) >= REMEMBERED_MAX:
                    self._remembered.clear()
                self._remembered[family, text] = bound
        return bound


def family_of(model: str) -> Family:
    """The family that a model's name belongs to; the part before a slash is a vendor's."""
    name = model.lower().rpartition("/")[2]
    return next((family for family in FAMILIES if family.names.search(name)), UNKNOWN)


def _texts(slot: Slot, message: Message) -> Iterator[str]:
    """Every text of a message. Raises CannotServe for a part that has no bound."""
    if message.get("audio"):
        raise CannotServe(slot, "audio is refused: its worst case is not known")
    content = message.get("content")
    if isinstance(content, str):
        yield content
    elif isinstance(content, list | tuple):
        for part in content:
            yield _part(slot, part)
    elif content is not None:
        yield _json(content)
    if len(message) > ("role" in message) + ("content" in message):
        rest = {key: value for key, value in message.items() if key not in ("content", "role")}
        if rest:
            yield _json(rest)


def _part(slot: Slot, part: object) -> str:
    if not isinstance(part, Mapping):
        return part if isinstance(part, str) else _json(part)
    kind = part.get("type", "text")
    if kind in IMAGE_PARTS:
        return ""
    if kind not in TEXT_PARTS:
        raise CannotServe(slot, f"{kind} parts are refused: their worst case is not known")
    text = part.get("text")
    return text if isinstance(text, str) and len(part) <= 2 else _json(part)


def _images(message: Message) -> int:
    content = message.get("content")
    if not isinstance(content, list | tuple):
        return 0
    return sum(1 for part in content if isinstance(part, Mapping) and part.get("type") in IMAGE_PARTS)


def _extra_bound(family: Family, extra: Mapping[str, Any]) -> int:
    """Tools and schemas, and any other field that might become part of the prompt: numbers do not."""
    texts = {key: value for key, value in extra.items() if isinstance(value, str | list | dict) and value}
    if not texts:
        return 0
    # Templates write schemas with spaces or indented: the same JSON in its shortest form would count too little.
    total = _text_bound(family, orjson.dumps(texts, default=str, option=orjson.OPT_INDENT_2).decode())
    for key in ("tools", "functions"):
        tools = texts.get(key)
        if isinstance(tools, Sequence):
            total += family.tools_tokens + TOOL_TOKENS * len(tools)
    return total


def _text_bound(family: Family, text: str) -> int:
    """The most tokens of one text: the vocabulary's count by the family's factors, at most a token per byte."""
    if not text:
        return 0
    if text.isascii():
        size = len(text)
        bound = _count(text, family.encoding) * family.ascii
        if family.ascii_bytes_per_token:
            bound = max(bound, size * 1000 // family.ascii_bytes_per_token)
        raw = text.encode() if family.digits else b""
    else:
        raw = text.encode("utf-8", "surrogatepass")
        size = len(raw)
        other_size = len(raw.translate(None, _ASCII))
        ascii_size = size - other_size
        counted = _count(text, family.encoding)
        bound = counted * (family.ascii * ascii_size + family.other * other_size) // size
        if family.bytes_per_token:
            in_ascii = min(ascii_size * 1000, counted * family.ascii)
            if family.ascii_bytes_per_token:
                in_ascii = max(in_ascii, ascii_size * 1000 // family.ascii_bytes_per_token)
            bound = max(bound, in_ascii + other_size * 1000 // family.bytes_per_token)
    if family.digits:
        bound += (size - len(raw.translate(None, _DIGITS))) * 667
    return min(-(-bound // 1000) + family.text_tokens, size)


_ASCII = bytes(range(128))
_DIGITS = b"0123456789"


def _count(text: str, encoding: str) -> int:
    import toktok  # type: ignore[import-untyped]  # it ships no types

    try:
        # Counting is a by-product of truncating, without the fixed price of a batch's threads.
        return int(toktok.truncate(text, _ALL, encoding)[1])
    except UnicodeEncodeError:
        # A lone surrogate is no text; a token per byte is the most it can be.
        return len(text.encode("utf-8", "surrogatepass"))


def _json(value: object) -> str:
    return orjson.dumps(value, default=str).decode()
