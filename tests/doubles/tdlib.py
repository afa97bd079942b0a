"""Telegram's own text rules, offline: TDLib's synchronous calls, and the nesting rules that the Bot API documents."""

from __future__ import annotations

import json
from typing import Any

import tdjson

_TYPES = {
    "bold": "Bold", "italic": "Italic", "underline": "Underline", "strikethrough": "Strikethrough", "spoiler": "Spoiler",
    "blockquote": "BlockQuote", "expandable_blockquote": "ExpandableBlockQuote", "code": "Code", "pre": "Pre",
    "text_link": "TextUrl",
}  # fmt: skip
_CODE, _QUOTE = ("code", "pre"), ("blockquote", "expandable_blockquote")


def execute(request: dict[str, Any]) -> dict[str, Any]:
    """One synchronous TDLib call."""
    answer: dict[str, Any] = json.loads(tdjson.td_execute(json.dumps(request).encode()))
    return answer


execute({"@type": "setLogVerbosityLevel", "new_verbosity_level": 0})


def problem(text: str, entities: list[dict[str, Any]]) -> str | None:
    """What Telegram would refuse or quietly change in this message; None when it is well-formed."""
    if not text.strip():
        return "message text is empty"
    if len(text.encode("utf-16-le")) // 2 > 4096:
        return "message is too long"
    if len(entities) > 100:
        return "more than 100 entities"
    formatted = {"@type": "formattedText", "text": text, "entities": [_td(entity) for entity in entities]}
    answer = execute({"@type": "getMarkdownText", "text": formatted})
    if answer["@type"] == "error":
        return str(answer["message"])
    spans = [(e["offset"], e["offset"] + e["length"], e["type"]) for e in entities]
    for index, (low, high, kind) in enumerate(spans):
        if high <= low:
            return f"empty entity {kind}"
        for other_low, other_high, other in spans[index + 1 :]:
            if other_low >= high or other_high <= low:
                continue
            if not (low <= other_low and other_high <= high) and not (other_low <= low and high <= other_high):
                return f"{kind} and {other} overlap"
            if (kind in _CODE and other not in _QUOTE) or (other in _CODE and kind not in _QUOTE):
                return f"{kind} and {other} are nested"
            if kind in _QUOTE and other in _QUOTE:
                return "nested quotes"
    return None


def _td(entity: dict[str, Any]) -> dict[str, Any]:
    kind: dict[str, Any] = {"@type": "textEntityType" + _TYPES[entity["type"]]}
    if entity["type"] == "text_link":
        kind["url"] = entity["url"]
    if entity.get("language"):
        kind = {"@type": "textEntityTypePreCode", "language": entity["language"]}
    return {"@type": "textEntity", "offset": entity["offset"], "length": entity["length"], "type": kind}
