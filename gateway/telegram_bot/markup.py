"""Markdown, as models write it, to what Telegram shows: plain text with entities, in parts that fit. Pure.

Rules:
- Nothing is lost: what is no Markdown stays as it was written.
- Offsets and lengths count UTF-16 units; a part has at most 4096 of them, which is safe whichever way Telegram counts.
- Entities are nested or apart; code holds nothing and stands in nothing but a quote; quotes are not nested.
- An entity that crosses the end of a part is closed there and opened again in the next one, code fences included.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import accumulate

from telegramify_markdown import RenderConfig, convert

PART_UNITS = 4096
"""The most UTF-16 units of one message."""

PART_ENTITIES = 100
"""The most entities that Telegram keeps of one message."""

_AUTOLINK = re.compile(r"<(?=(?:https?://|mailto:|tg://)[^\s<>]*>|[\w.+-]+@[\w-]+(?:\.[\w-]+)+>)")
_FOOTNOTE = re.compile(r"(?<!\\)\[\^")
_CODE = ("code", "pre")
_QUOTE = ("blockquote", "expandable_blockquote")


@dataclass(frozen=True, slots=True)
class Entity:
    """A style of a stretch of text; `offset` and `length` in UTF-16 units."""

    type: str
    offset: int
    length: int
    url: str | None = None
    language: str | None = None

    @property
    def end(self) -> int:
        """The offset after its last unit."""
        return self.offset + self.length


@dataclass(frozen=True, slots=True)
class Part:
    """The text of one message and its entities."""

    text: str
    entities: tuple[Entity, ...] = ()


def units(text: str) -> int:
    """The length of a text in UTF-16 units."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def well_formed(text: str) -> str:
    """The text with pairs of surrogates joined and lone ones replaced: what can be sent as UTF-8."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").replace("\x00", "")


def parts(markdown: str, limit: int = PART_UNITS) -> list[Part]:
    """The messages that show a Markdown text; [] where there is nothing to show."""
    return split(*_render(well_formed(markdown)), limit)


def plain_parts(text: str, limit: int = PART_UNITS) -> list[Part]:
    """The messages that show a text as it stands, without any style."""
    return split(well_formed(text), (), limit)


def _render(markdown: str) -> tuple[str, tuple[Entity, ...]]:
    # The converter drops raw HTML, so every `<` that opens no autolink travels as another character.
    swap = next(chr(code) for code in range(0xE000, 0xF8FF) if chr(code) not in markdown)
    links = {found.start() for found in _AUTOLINK.finditer(markdown)}
    safe = "".join(swap if char == "<" and at not in links else char for at, char in enumerate(markdown))
    text, found = convert(_FOOTNOTE.sub(r"\\[^", safe), latex_escape=False, config=_symbols())
    entities = [
        Entity(e.type, e.offset, e.length, _back(e.url, swap), _back(e.language, swap)) for e in found if e.type != "custom_emoji"
    ]
    return text.replace(swap, "<"), tuple(legal(entities))


def _back(value: str | None, swap: str) -> str | None:
    return value.replace(swap, "<") if value else None


def _symbols() -> RenderConfig:
    config = RenderConfig.isolated()
    symbols = config.markdown_symbol
    symbols.heading_level_1 = symbols.heading_level_2 = symbols.heading_level_3 = symbols.heading_level_4 = ""
    symbols.unordered_list_item, symbols.task_uncompleted, symbols.task_completed = "•", "☐", "☑"
    return config


def legal(entities: Iterable[Entity]) -> list[Entity]:
    """The entities, cut so that they obey the Bot API's rules of nesting, in order of offset."""
    found = [entity for entity in entities if entity.length > 0]
    links = [entity for entity in found if entity.type == "text_link"]
    code = [e for e in found if e.type in _CODE and not any(link.offset <= e.offset and e.end <= link.end for link in links)]
    code = _apart(code)
    quotes = _apart([entity for entity in found if entity.type in _QUOTE])
    styles = [piece for e in found if e.type not in _CODE and e.type not in _QUOTE for piece in _without(e, code)]
    return _nested([*quotes, *styles, *code])


def _apart(entities: list[Entity]) -> list[Entity]:
    """Of entities that may not be nested, the outermost."""
    kept: list[Entity] = []
    for entity in sorted(entities, key=lambda e: (e.offset, -e.length)):
        if not kept or entity.offset >= kept[-1].end:
            kept.append(entity)
    return kept


def _without(entity: Entity, holes: list[Entity]) -> list[Entity]:
    pieces, start = [], entity.offset
    for hole in holes:
        if hole.offset < entity.end and hole.end > start:
            if hole.offset > start:
                pieces.append(replace(entity, offset=start, length=hole.offset - start))
            start = hole.end
    if start < entity.end:
        pieces.append(replace(entity, offset=start, length=entity.end - start))
    return pieces


def _nested(entities: list[Entity]) -> list[Entity]:
    """Cuts each entity that would end after the one it begins in."""
    waiting = sorted(entities, key=lambda e: (e.offset, -e.length), reverse=True)
    stack: list[Entity] = []
    done: list[Entity] = []
    while waiting:
        entity = waiting.pop()
        while stack and stack[-1].end <= entity.offset:
            stack.pop()
        if stack and entity.end > stack[-1].end:
            edge = stack[-1].end
            waiting.append(replace(entity, offset=edge, length=entity.end - edge))
            waiting.sort(key=lambda e: (e.offset, -e.length), reverse=True)
            entity = replace(entity, length=edge - entity.offset)
        if not any(e.type == entity.type and e.offset == entity.offset and e.length == entity.length for e in stack):
            stack.append(entity)
            done.append(entity)
    return done


def split(text: str, entities: tuple[Entity, ...] | list[Entity], limit: int = PART_UNITS) -> list[Part]:
    """Cuts a text into parts of at most `limit` UTF-16 units: after a line where one ends late enough, else after a word."""
    offsets = [0, *accumulate(2 if ord(char) > 0xFFFF else 1 for char in text)]
    starts = sorted(entity.offset for entity in entities)
    found: list[Part] = []
    begin = 0
    while begin < len(text):
        end = bisect_right(offsets, offsets[begin] + limit) - 1
        if end < len(text):
            end = _good_end(text, begin, end)
        end = _few_entities(starts, offsets, begin, end)
        piece, low, high = text[begin:end], offsets[begin], offsets[end]
        if piece.strip():
            found.append(Part(piece, tuple(clipped for e in entities for clipped in _clip(e, low, high))))
        begin = end
    return found


def _good_end(text: str, begin: int, end: int) -> int:
    earliest = begin + (end - begin) // 2
    for mark in ("\n", " "):
        at = text.rfind(mark, earliest, end)
        if at > begin:
            return at + 1
    return end


def _few_entities(starts: list[int], offsets: list[int], begin: int, end: int) -> int:
    first = bisect_right(starts, offsets[begin])
    if len(starts) - first > PART_ENTITIES and starts[first + PART_ENTITIES - 1] < offsets[end]:
        return max(begin + 1, bisect_right(offsets, starts[first + PART_ENTITIES - 1]) - 1)
    return end


def _clip(entity: Entity, low: int, high: int) -> list[Entity]:
    start, stop = max(entity.offset, low), min(entity.end, high)
    return [replace(entity, offset=start - low, length=stop - start)] if start < stop else []
