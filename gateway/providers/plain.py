"""Events of OpenAI's wire format that have nothing but content: nearly all of a stream. Pure.

One stream's plain events differ in the text alone, so the first one that was read whole is a template: an event with the
same bytes before and after one JSON string is that event with another text. Whatever does not match is read whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import repeat
from typing import Any, NamedTuple

import orjson

from gateway.providers.call import from_json

LEARN_MAX = 4
"""How many events of a stream are tried as a template: the first one often has a role that the others have not, and
some providers give each event something of its own."""
BETWEEN = b"\n\ndata: "
"""What stands between the payloads of two events."""
_PROBE = "?"
_FIELDS = frozenset({"role", "content"})


class Plain(NamedTuple):
    """Events that have nothing but content, `deltas` of them: `like` is one that has the same as each but for its text."""

    content: str
    like: Mapping[str, Any]
    data: bytes
    """Their payloads, as they stand in a stream."""
    deltas: int


class PlainEvents:
    """Finds the plain events of one stream."""

    def __init__(self) -> None:
        self._before = self._after = b""
        """The bytes of the template around the text, quotes included; nothing matches before one was learnt."""
        self._around = 0
        self._like: Mapping[str, Any] = {}
        self._learnt = 0

    def runs(self, payloads: list[bytes]) -> Iterator[Plain | bytes]:
        """The events of a block in order: neighbours that are plain as one, any other one's payload by itself."""
        run: list[Plain] = []
        at, glanced = 0, False
        while at < len(payloads):
            if self._around and not glanced:
                # Once for each block: what stands here is plain to its end, but for the last events of a stream.
                glanced, end = True, len(payloads)
                while end > at and not payloads[end - 1].endswith(self._after):
                    end -= 1
                if end - at > 1 and (found := self._at_a_glance(payloads[at:end])) is not None:
                    run.append(found)
                    at = end
                    continue
            found = self.read(payloads[at])
            if found is not None:
                run.append(found)
            else:
                if run:
                    yield _joined(run)
                    run = []
                yield payloads[at]
            at += 1
        if run:
            yield _joined(run)

    def _at_a_glance(self, payloads: list[bytes]) -> Plain | None:
        """The events as one if each of them matches the template and has a text of letters that need no second look."""
        before, after = self._before, self._after
        if not all(map(bytes.startswith, payloads, repeat(before))) or not all(map(bytes.endswith, payloads, repeat(after))):
            return None
        start, end = len(before), -len(after)
        texts = [data[start:end] for data in payloads]
        content = b"".join(texts)
        # Without escapes and without letters of several bytes, each text is a JSON string just if all together are one.
        if b"" in texts or b'"' in content or b"\\" in content or not content.isascii():
            return None
        try:
            return Plain(orjson.loads(b'"%b"' % content), self._like, BETWEEN.join(payloads), len(texts))
        except orjson.JSONDecodeError:
            return None

    def read(self, data: bytes) -> Plain | None:
        """The event if it is plain and on one line; None for any other, and for what is no event."""
        around = self._around
        if around and len(data) > around and data.startswith(self._before) and data.endswith(self._after):
            try:
                # One JSON string and nothing else: then the rest of the event is the template's.
                return Plain(orjson.loads(data[len(self._before) - 1 : len(data) - len(self._after) + 1]), self._like, data, 1)
            except orjson.JSONDecodeError:
                # More than the text differs, or the text is such that only the slower reader can mend it.
                pass
        try:
            event = from_json(data)
            content = plain_content(event)
        except (ValueError, AttributeError, TypeError, LookupError):
            return None
        if not content or b"\n" in data:
            return None
        if self._learnt < LEARN_MAX:
            self._learn(event, content, data)
        return Plain(content, event, data, 1)

    def _learn(self, event: Mapping[str, Any], content: str, data: bytes) -> None:
        self._learnt += 1
        written = orjson.dumps(content)
        at = data.rfind(written)
        if at < 0:
            return
        before, after = data[: at + 1], data[at + len(written) - 1 :]
        # The place is right if another text there makes the same event with that text as its content. Between two names
        # stands `","` too: what is put there makes no JSON.
        try:
            right = from_json(before + _PROBE.encode() + after) == with_content(event, _PROBE)
        except ValueError:
            return
        if right:
            self._before, self._after, self._around, self._like = before, after, len(before) + len(after), event


def _joined(run: list[Plain]) -> Plain:
    """Neighbours as one."""
    if len(run) == 1:
        return run[0]
    texts, datas = [part.content for part in run], [part.data for part in run]
    return Plain("".join(texts), run[-1].like, BETWEEN.join(datas), sum(part.deltas for part in run))


def with_content(event: Mapping[str, Any], content: str) -> dict[str, Any]:
    """A plain event with another text."""
    choice = event["choices"][0]
    return {**event, "choices": [{**choice, "delta": {**choice["delta"], "content": content}}]}


def plain_content(event: dict[str, Any]) -> str | None:
    """The text of an event that has nothing else. Raises what a malformed event raises."""
    choices = event.get("choices") or []
    if len(choices) != 1 or event.get("usage") or "error" in event or "x_groq" in event:
        return None
    choice = choices[0]
    delta = choice.get("delta")
    if not delta or choice.get("finish_reason") or choice.get("index") or "usage" in choice or "error" in choice:
        return None
    content = delta.get("content")
    return content if type(content) is str and (len(delta) == 1 or delta.keys() <= _FIELDS) else None
