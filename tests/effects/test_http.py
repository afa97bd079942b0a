"""Web requests: bounded in time, size and redirects, and never to an address that the starter may not reach."""

import asyncio
import gzip
import socket
import time
import tracemalloc
import zlib
from collections.abc import AsyncIterator

import pytest
from aiohttp import ThreadedResolver, web
from aiohttp.abc import ResolveResult
from aiohttp.test_utils import TestServer

from gateway.effects import EffectError, fetch
from gateway.effects import http as effects_http
from gateway.effects.http import public

LONG_S = 30.0
BOMB = zlib.compress(bytes(60_000_000))
"""A small answer that unpacks to a thousand times its size."""


class Site:
    """A small server on this machine which remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, dict[str, str], bytes]] = []
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self.answer)
        self.server = TestServer(app)

    def url(self, path: str) -> str:
        return str(self.server.make_url(path))

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append((request.method, request.path_qs, dict(request.headers), await request.read()))
        match request.path:
            case "/text":
                return web.Response(text="héllo", content_type="text/plain", charset="latin-1")
            case "/echo":
                return web.Response(body=self.asked[-1][3], status=201)
            case "/missing":
                raise web.HTTPNotFound
            case "/moved":
                return web.Response(status=int(request.query.get("status", "302")), headers={"Location": request.query["to"]})
            case "/loop":
                return web.Response(status=302, headers={"Location": "/loop"})
            case "/zipped":
                return web.Response(body=gzip.compress(b"plain words"), headers={"Content-Encoding": "gzip"})
            case "/cut":
                return web.Response(body=gzip.compress(b"plain words" * 1000)[:-20], headers={"Content-Encoding": "gzip"})
            case "/damaged":
                return web.Response(body=b"no zip at all", headers={"Content-Encoding": "gzip"})
            case "/odd":
                return web.Response(body=b"x", headers={"Content-Encoding": "br"})
            case "/bomb":
                return web.Response(body=BOMB, headers={"Content-Encoding": "deflate"})
        return await self.endless(request)

    async def endless(self, request: web.Request) -> web.StreamResponse:
        """Bytes without an end: fast ones, or one at a time."""
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b"x" * (65_536 if request.path == "/endless" else 1))
            await asyncio.sleep(0 if request.path == "/endless" else 0.05)


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    site = Site()
    await site.server.start_server()
    yield site
    await site.server.close()


async def test_an_answer_comes_whole_whatever_its_status(site: Site) -> None:
    result = await fetch("GET", site.url("/text"), private=True)
    assert (result.status, result.text) == (200, "héllo")
    assert result.headers["content-type"].startswith("text/plain")
    result = await fetch("POST", site.url("/echo"), private=True, body=b"abc", headers={"X-Own": "1"})
    assert (result.status, result.body) == (201, b"abc")
    assert site.asked[-1][2]["X-Own"] == "1"
    assert (await fetch("GET", site.url("/missing"), private=True)).status == 404


async def test_a_zipped_answer_comes_unpacked(site: Site) -> None:
    assert (await fetch("GET", site.url("/zipped"), private=True)).text == "plain words"


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/endless", "more than 100,000 bytes"),
        ("/bomb", "more than 100,000 bytes"),
        ("/cut", "less than it began"),
        ("/damaged", "compression is damaged"),
        ("/odd", "could not be asked"),
        ("/loop", "redirects more than 5 times"),
        ("/moved?to=ftp://a.example/", "begins with https://"),
        ("/moved?to=file:///etc/passwd", "begins with https://"),
        ("/moved?to=http://u:p@a.example/", "holds a user or a password"),
        ("/moved?to=http://[bad/", "could not be asked|no URL"),
    ],
)
async def test_a_hostile_answer_ends_in_words(site: Site, path: str, message: str) -> None:
    with pytest.raises(EffectError, match=message):
        await asyncio.wait_for(fetch("GET", site.url(path), private=True, size_max=100_000), LONG_S)


async def test_what_a_bomb_would_unpack_to_is_never_made(site: Site) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(EffectError, match="more than"):
            await fetch("GET", site.url("/bomb"), private=True, size_max=100_000)
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()


async def test_a_server_that_trickles_is_given_up(site: Site) -> None:
    begun = time.monotonic()
    with pytest.raises(EffectError, match=r"did not answer within 0\.5 s"):
        await fetch("GET", site.url("/trickle"), private=True, timeout_s=0.5)
    assert time.monotonic() - begun < LONG_S


async def test_redirects_are_followed_and_secrets_stay_with_the_first_host(site: Site) -> None:
    secret = {"Authorization": "Bearer s", "Cookie": "c", "X-Own": "1"}
    result = await fetch("GET", site.url("/moved?to=/text"), private=True, headers=secret)
    assert result.url == site.url("/text")
    assert site.asked[-1][2]["Authorization"] == "Bearer s"
    elsewhere = site.url("/text").replace("127.0.0.1", "localhost")
    await fetch("GET", site.url(f"/moved?to={elsewhere}"), private=True, headers=secret)
    assert site.asked[-1][2]["Host"].startswith("localhost")
    assert not {"Authorization", "Cookie"} & set(site.asked[-1][2])
    assert site.asked[-1][2]["X-Own"] == "1"


@pytest.mark.parametrize(("status", "method", "body"), [(302, "GET", b""), (303, "GET", b""), (307, "POST", b"abc")])
async def test_a_redirected_post_keeps_its_body_only_where_it_should(site: Site, status: int, method: str, body: bytes) -> None:
    await fetch("POST", site.url(f"/moved?status={status}&to=/text"), private=True, body=b"abc")
    assert (site.asked[-1][0], site.asked[-1][3]) == (method, body)


@pytest.mark.parametrize(
    "url", ["ftp://a.example/", "file:///etc/passwd", "gopher://a", "//a.example", "a", "", "http://", "http://u:p@a/"]
)
async def test_what_is_no_web_address_is_not_asked(url: str) -> None:
    with pytest.raises(EffectError):
        await fetch("GET", url, private=True)


async def test_nobody_there_is_said_without_the_address() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(EffectError, match=r"127\.0\.0\.1 could not be asked") as caught:
        await fetch("GET", f"http://127.0.0.1:{port}/?token=secret", private=True)
    assert "secret" not in str(caught.value)


async def test_a_header_cannot_smuggle_another(site: Site) -> None:
    with pytest.raises(EffectError):
        await fetch("GET", site.url("/text"), private=True, headers={"X": "a\r\nY: b"})
    with pytest.raises(EffectError):
        await fetch("GET / HTTP/1.1\r\nX: y\r\n", site.url("/text"), private=True)
    assert site.asked == []


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "127.9.9.9", "0.0.0.0", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1",
        "224.0.0.1", "255.255.255.255", "192.0.2.1", "::1", "::", "fe80::1", "fe80::1%eth0", "fc00::1", "fec0::1", "ff02::1",
        "::ffff:127.0.0.1", "::127.0.0.1", "2002:7f00:1::", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "2001:db8::1",
    ],
)  # fmt: skip
def test_case_56_addresses_that_are_not_public_are_known_in_every_writing(address: str) -> None:
    assert not public(address)


@pytest.mark.parametrize("address", ["1.1.1.1", "93.184.215.14", "2606:4700::1111", "64:ff9b::101:101"])
def test_public_addresses_are_public(address: str) -> None:
    assert public(address)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "0", "2130706433", "0x7f.1", "127.1"])
async def test_case_56_people_do_not_reach_what_is_not_public(site: Site, host: str) -> None:
    with pytest.raises(EffectError, match=r"not a public address|could not be asked"):
        await fetch("GET", f"http://{host}:{site.server.port}/text", private=False)
    assert site.asked == []


async def test_case_56_a_redirect_to_what_is_not_public_is_not_followed(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(effects_http, "public", lambda address: address == "127.0.0.1")
    for place in ("http://127.0.0.2/", "http://[::1]/", f"http://localhost.localdomain:{site.server.port}/text"):
        with pytest.raises(EffectError, match=r"not a public address|could not be asked"):
            await fetch("GET", site.url(f"/moved?to={place}"), private=False)
    assert [path.partition("?")[0] for _, path, _, _ in site.asked] == ["/moved"] * 3


async def test_case_56_a_name_that_turns_to_another_address_gains_nothing(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter(["127.0.0.1", "127.0.0.2"])
    asked: list[str] = []

    async def resolve(self: ThreadedResolver, host: str, port: int = 0, family: int = 0) -> list[ResolveResult]:
        asked.append(host)
        return [
            {"hostname": host, "host": next(answers), "port": port, "family": socket.AF_INET, "proto": 0, "flags": 0},
        ]

    monkeypatch.setattr(ThreadedResolver, "resolve", resolve)
    monkeypatch.setattr(effects_http, "public", lambda address: address == "127.0.0.1")
    here = f"http://rebind.example:{site.server.port}"
    with pytest.raises(EffectError, match=r"rebind\.example is not a public address"):
        await fetch("GET", f"{here}/moved?to={here}/text", private=False)
    # The first connection went to the address that was looked at, and the second was looked at again.
    assert asked == ["rebind.example", "rebind.example"]
    assert len(site.asked) == 1
