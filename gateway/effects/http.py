"""One web request: http or https, bounded in time, size and redirects.

For people who are not admins, addresses that are not public are refused (loopback, private, link-local and the like), each
time where the connection is made: a name that resolves to another address the second time gains nothing.
"""

from __future__ import annotations

import asyncio
import socket
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import Any

from aiohttp import ClientError, ClientResponse, ClientSession, ClientTimeout, DummyCookieJar, TCPConnector, ThreadedResolver
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from gateway import __version__
from gateway.effects.values import EffectError

SIZE_MAX = 5_000_000
"""The most bytes of an answer, unpacked."""
TIMEOUT_S = 30.0
REDIRECTS_MAX = 5
_BLOCK = 65_536
_REDIRECTS = (301, 302, 303, 307, 308)
_SECRET_HEADERS = ("authorization", "cookie", "proxy-authorization")
_UNICAST = IPv6Network("2000::/3")
_NAT64 = IPv6Network("64:ff9b::/96")


@dataclass(frozen=True, slots=True)
class HttpResult:
    """An answer, whole."""

    status: int
    headers: Mapping[str, str]
    """By lower-case name."""
    body: bytes
    url: str
    """Where it came from, after redirects."""
    charset: str = "utf-8"

    @property
    def text(self) -> str:
        """The body as text; bytes that are none become a sign for that."""
        try:
            return self.body.decode(self.charset, "replace")
        except LookupError:
            return self.body.decode("utf-8", "replace")


async def fetch(
    method: str,
    url: str,
    *,
    private: bool,
    headers: Mapping[str, str] | None = None,
    body: bytes | None = None,
    timeout_s: float = TIMEOUT_S,
    size_max: int = SIZE_MAX,
) -> HttpResult:
    """Asks once, follows at most REDIRECTS_MAX redirects. `private`: addresses that are not public may be asked too.

    An answer of any status is a result. Raises EffectError: no connection, too long, too large, refused.
    """
    target = _checked(url, private)
    connector = TCPConnector(resolver=ThreadedResolver() if private else PublicResolver(), force_close=True, use_dns_cache=False)
    limits = ClientTimeout(total=timeout_s, sock_connect=min(10.0, timeout_s))
    session = ClientSession(connector=connector, cookie_jar=DummyCookieJar(), auto_decompress=False, timeout=limits)
    sent = {"User-Agent": f"sluicegate/{__version__}", "Accept-Encoding": "gzip, deflate", **(headers or {})}
    try:
        async with session, asyncio.timeout(timeout_s):
            for _ in range(REDIRECTS_MAX + 1):
                async with session.request(method, target, headers=sent, data=body, allow_redirects=False) as response:
                    place = response.headers.get("Location")
                    if response.status not in _REDIRECTS or place is None:
                        return await _result(response, size_max)
                following = _checked(str(target.join(URL(place))), private)
                if following.origin() != target.origin():
                    sent = {name: value for name, value in sent.items() if name.lower() not in _SECRET_HEADERS}
                if response.status == 303 or (response.status in (301, 302) and method == "POST"):
                    method, body = "GET", None
                target = following
    except TimeoutError:
        raise EffectError(f"{target.host} did not answer within {timeout_s:g} s") from None
    except _NotPublic as error:
        raise EffectError(str(error)) from None
    except (ClientError, OSError, ValueError, zlib.error) as error:
        raise EffectError(f"{target.host} could not be asked: {_why(error)}") from None
    raise EffectError(f"{target.host} redirects more than {REDIRECTS_MAX} times")


def public(address: str) -> bool:
    """True for an address of the public internet; one that carries another inside is judged by that one."""
    found: IPv4Address | IPv6Address = ip_address(address.partition("%")[0])
    if isinstance(found, IPv6Address):
        inner = found.ipv4_mapped or found.sixtofour or (found.teredo[1] if found.teredo else None)
        if inner is None and found in _NAT64:
            inner = IPv4Address(int(found) & 0xFFFF_FFFF)
        found = inner or found
    # Python counts more than the internet's unicast block as global in IPv6.
    outside = isinstance(found, IPv6Address) and found not in _UNICAST
    return found.is_global and not found.is_multicast and not found.is_reserved and not outside


class PublicResolver(AbstractResolver):
    """Resolves names to public addresses only. The connection goes to what comes from here, and nowhere else."""

    def __init__(self) -> None:
        self._inner = ThreadedResolver()

    async def resolve(self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET) -> list[ResolveResult]:
        """The addresses. Raises a refusal when one of them is not public."""
        found = await self._inner.resolve(host, port, family)
        if not all(public(one["host"]) for one in found):
            raise _NotPublic(host)
        return found

    async def close(self) -> None:
        """Nothing is held."""
        await self._inner.close()


class _NotPublic(Exception):
    """Neither an OSError nor one of aiohttp's own: those would be taken for a failed connection."""

    def __init__(self, host: str) -> None:
        super().__init__(f"{host} is not a public address: only admins and the command line may ask such")


def _checked(text: str, private: bool) -> URL:
    """The address of a request or of a redirect. Raises EffectError."""
    try:
        url = URL(text)
    except ValueError:
        raise EffectError("the address is no URL") from None
    if url.scheme not in ("http", "https") or not url.host:
        raise EffectError("an address begins with https:// or http:// and names a host")
    if url.user is not None or url.password is not None:
        raise EffectError(f"the address of {url.host} holds a user or a password: send it as a header")
    # A host that is an address already is never resolved, so the resolver does not see it.
    if not private and _is_address(url.host) and not public(url.host):
        raise EffectError(str(_NotPublic(url.host)))
    return url.with_fragment(None)


def _is_address(host: str) -> bool:
    try:
        ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True


async def _result(response: ClientResponse, size_max: int) -> HttpResult:
    headers = {name.lower(): value for name, value in response.headers.items()}
    unpack = _unpacker(headers.get("content-encoding", ""))
    body = bytearray()
    async for block in response.content.iter_chunked(_BLOCK):
        # One byte more than may be: a small block can unpack to a thousand times its size.
        body += unpack.decompress(block, size_max + 1 - len(body)) if unpack else block
        if len(body) > size_max:
            raise EffectError(f"{response.url.host} answers with more than {size_max:,} bytes")
    if unpack and not unpack.eof and body:
        raise EffectError(f"{response.url.host} answers with less than it began")
    return HttpResult(response.status, headers, bytes(body), str(response.url), response.charset or "utf-8")


def _unpacker(encoding: str) -> Any:
    match encoding.strip().lower():
        case "" | "identity":
            return None
        case "gzip" | "x-gzip" | "deflate":
            return zlib.decompressobj(zlib.MAX_WBITS | 32)
    raise ValueError("an unknown content encoding")


def _why(error: Exception) -> str:
    """Why it failed, without the address: it may hold a secret."""
    if isinstance(error, zlib.error):
        return "its compression is damaged"
    inner = getattr(error, "os_error", None) or error
    return getattr(inner, "strerror", None) or type(inner).__name__
