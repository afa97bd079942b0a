"""Server-sent events: bytes in, `data` payloads out, whatever the pieces in which the bytes come. Pure.

Lines end with LF, CRLF or CR; the `data` lines of an event are joined with LF; comments and other fields are dropped.
"""

from __future__ import annotations

EVENT_BYTES_MAX = 8 << 20


class EventTooLarge(ValueError):
    """An event, or something that never becomes one, is larger than EVENT_BYTES_MAX."""


class SseParser:
    """Give it every block of a stream in order; it gives back the payloads that are complete."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._after_cr = False
        self._started = False

    def feed(self, block: bytes) -> list[bytes]:
        """The payloads completed by this block. Raises EventTooLarge."""
        if not self._started:
            block = self._without_mark(block)
        if self._after_cr or b"\r" in block:
            block = self._with_line_feeds(block)
        if not self._rest and (payloads := _whole_events(block)):
            return payloads
        if b"\n" not in block:
            self._rest += block
            self._check()
            return []
        events = (bytes(self._rest) + block if self._rest else block).split(b"\n\n")
        self._rest = bytearray(events.pop())
        self._check()
        return [data for event in events if (data := _data(event))]

    def end(self) -> list[bytes]:
        """What an event without its closing empty line held, when the stream has ended."""
        data = _data(bytes(self._rest))
        self._rest.clear()
        return [data] if data else []

    def _check(self) -> None:
        if len(self._rest) > EVENT_BYTES_MAX:
            raise EventTooLarge(f"an event of more than {EVENT_BYTES_MAX} bytes")

    def _without_mark(self, block: bytes) -> bytes:
        """Takes off the byte-order mark that may stand before the first line, also when it comes in pieces."""
        if not self._rest and len(block) >= 3:
            self._started = True
            return block.removeprefix(b"\xef\xbb\xbf")
        self._rest += block
        if len(self._rest) < 3 and b"\xef\xbb\xbf".startswith(bytes(self._rest)):
            return b""
        self._started = True
        block = bytes(self._rest).removeprefix(b"\xef\xbb\xbf")
        self._rest.clear()
        return block

    def _with_line_feeds(self, block: bytes) -> bytes:
        # A CR at a block's end is a line end already; an LF that comes first in the next one belongs to it.
        if self._after_cr and block:
            self._after_cr = False
            block = block.removeprefix(b"\n")
        if block.endswith(b"\r"):
            self._after_cr = True
        return block.replace(b"\r\n", b"\n").replace(b"\r", b"\n")


def _whole_events(block: bytes) -> list[bytes]:
    """The payloads of a block that holds whole events of one `data` line each, as most do; [] for any other block."""
    if not block.startswith(b"data: ") or not block.endswith(b"\n\n"):
        return []
    payloads = block[6:-2].split(b"\n\ndata: ")
    return payloads if b"\n" not in b"".join(payloads) and b"" not in payloads else []


def _data(event: bytes) -> bytes:
    if event.startswith(b"data: ") and b"\n" not in event:
        return event[6:]
    lines = []
    for line in event.split(b"\n"):
        if line == b"data":
            lines.append(b"")
        elif line.startswith(b"data:"):
            lines.append(line[6:] if line[5:6] == b" " else line[5:])
    return b"\n".join(lines)
