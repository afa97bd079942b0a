"""The seam to the network: one POST, an answer that comes in blocks of bytes, and three ways to fail.

A client never repeats a request, follows no redirect, uses no proxy, and says whether a byte may have left: that
decides whether a call that failed can have been billed. Compressed answers are not asked for; gzip is understood.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Protocol, Self

from gateway import __version__

USER_AGENT = f"sluicegate/{__version__}"
CONNECT_TIMEOUT_S = 5.0
IDLE_CONNECTION_S = 15.0
"""An unused connection is closed after this: well before the common servers close it themselves."""
_ENCODINGS = {"gzip": zlib.MAX_WBITS | 32, "x-gzip": zlib.MAX_WBITS | 32, "deflate": zlib.MAX_WBITS | 32}


class TransportError(Exception):
    """A call that failed below the provider's own words. `str` never holds a header, a key or a URL."""


class NotSent(TransportError):
    """No connection: no byte of the request left."""


class Broken(TransportError):
    """Reset, cut or unreadable after the request may have left."""


class TimedOut(Broken):
    """Nothing came in time, after the request may have left."""


class Response(Protocol):
    """An answer whose head has come."""

    status: int
    headers: Mapping[str, str]
    """By lower-case name."""

    async def block(self, timeout_s: float) -> bytes:
        """The next bytes as they came, b"" at the end. Raises Broken, TimedOut."""
        ...

    def close(self) -> None:
        """Closes the connection at once, or keeps it for the next call if the answer was read to its end."""
        ...


class HttpClient(Protocol):
    """Makes calls over kept connections."""

    async def post(self, url: str, headers: Mapping[str, str], body: bytes, timeout_s: float) -> Response:
        """Sends once; returns when the head of the answer has come. Raises NotSent, Broken, TimedOut."""
        ...

    async def close(self) -> None:
        """Closes every connection."""
        ...


class Unpacker:
    """Takes a content encoding off. Answers are asked for without one, but not every server listens."""

    def __init__(self, encoding: str) -> None:
        if encoding not in _ENCODINGS:
            raise Broken(f"the answer came with the unknown content encoding {encoding[:20]!r}")
        self._zlib = zlib.decompressobj(_ENCODINGS[encoding])

    @classmethod
    def of(cls, headers: Mapping[str, str]) -> Self | None:
        """The unpacker that these headers ask for, None for plain bytes."""
        encoding = headers.get("content-encoding", "identity").strip().lower()
        return None if encoding in ("", "identity") else cls(encoding)

    def __call__(self, block: bytes) -> bytes:
        """The plain bytes of a block; may be b"" in the middle. A block may not unpack to more than 16 MiB."""
        try:
            plain = self._zlib.decompress(block, 16 << 20)
        except zlib.error as error:
            raise Broken(f"the answer's compression is damaged: {error}") from None
        if self._zlib.unconsumed_tail:
            raise Broken("the answer unpacks to more than is sensible")
        return plain
