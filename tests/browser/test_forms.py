"""The console's door as any program meets it: whatever comes gets an answer, and only a page of the session is obeyed."""

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from gateway.web.dashboard import ROUTES
from gateway.web.dashboard.door import FORM_BYTES_MAX
from tests.doubles.clock import SettableClock
from tests.doubles.upstream import Upstream
from tests.e2e.rig import Answer, Gateway, budget, config, provider

FORM = "application/x-www-form-urlencoded"
PARTS = {"{name}": "hour", "{id}": "none", "{link}": "none", "{request_id:.+}": "none"}
RAISE = {"change": "+100", "for": "1h"}


class Visitor:
    """A program with a browser's cookie."""

    def __init__(self, gateway: Gateway, secret: str = "", token: str = "") -> None:
        self.gateway, self.secret, self.token = gateway, secret, token

    @classmethod
    async def logged_in(cls, gateway: Gateway) -> "Visitor":
        """A session of its own, and the token that its pages carry."""
        secret = await gateway.app.sessions.open_by_key("admin")
        page = (await cls(gateway, secret).get("/budgets/hour")).body.decode()
        return cls(gateway, secret, page.split('data-csrf="')[1].split('"')[0])

    async def get(self, path: str, **headers: str) -> Answer:
        return await self._call("GET", path, headers)

    async def post(self, path: str, body: Mapping[str, str] | bytes | str, **headers: str) -> Answer:
        """A form that says to come from our own page, unless the headers say otherwise ("" leaves one out)."""
        given = {"Origin": self.gateway.base, **{name.replace("_", "-"): value for name, value in headers.items()}}
        return await self._call("POST", path, {name: value for name, value in given.items() if value}, data=body)

    async def _call(self, method: str, path: str, headers: Mapping[str, str], **rest: Any) -> Answer:
        sent = {"Cookie": f"sluicegate_session={self.secret}", **headers}
        return await self.gateway.call(method, path, key=None, headers=sent, allow_redirects=False, **rest)


def small(up: Upstream) -> str:
    return config(provider("main", up), budget("hour", tokens=5000), chain=["main"])


def addresses(method: str) -> list[tuple[str, str]]:
    """Every address of the console that takes this method, with something in the place of its parts."""
    found = []
    for each, path, page in ROUTES:
        for part, value in PARTS.items():
            path = path.replace(part, value)
        found.append((path, page)) if each == method else None
    return found


async def test_no_form_is_taken_that_no_page_of_the_session_has_sent(up: Upstream, folder: Path) -> None:
    async with Gateway(folder, small(up)) as gateway:
        mine, other = await Visitor.logged_in(gateway), await Visitor.logged_in(gateway)
        before = await gateway.app.books.audit()
        fields = {
            "change": "+1",
            "for": "1h",
            "spent": "1",
            "reason": "x",
            "name": "made",
            "may": "ask",
            "id": "7",
            "alert": "1",
            "once": "1",
        }
        signed = fields | {"csrf": mine.token}
        for path, page in addresses("POST"):
            refused = [
                await mine.post(path, signed, Origin="http://evil.example"),
                await mine.post(path, signed, Origin="null"),
                await mine.post(path, signed, Origin=""),
                await mine.post(path, signed, Origin="http://["),
                await mine.post(path, signed, Origin=gateway.base + ".evil.example"),
            ]
            if page != "login:by_key":
                plain = "&".join(f"{name}={value}" for name, value in signed.items())
                refused += [
                    await mine.post(path, fields),
                    await mine.post(path, fields | {"csrf": other.token}),
                    await mine.post(path, fields | {"csrf": "é"}),
                    await mine.post(path, plain, Content_Type="text/plain"),
                    await mine.post(path, b"{}", Content_Type="application/json"),
                    await mine.post(path, b"{}", Content_Type="application/json", X_CSRF_Token=other.token),
                ]
            assert {answer.status for answer in refused} == {403}, path
            # Without a session nothing is taken at all, and a token of somebody's does not help.
            nobody = await Visitor(gateway).post(path, signed)
            assert nobody.status == (403 if page == "login:by_key" else 401), path
        assert await gateway.app.books.audit() == before
        # With the token each of them comes through to its page, but for the chat, which takes no form.
        for path, page in addresses("POST"):
            if page not in ("login:by_key", "login:leave", "budgets:pause", "chat:answer"):
                assert (await mine.post(path, signed)).status != 403, path
        done = {entry.action for entry in await gateway.app.books.audit()}
        assert {"raise", "end raise", "adjust", "create key", "reload"} <= done


async def test_whatever_is_sent_gets_a_page_for_an_answer(up: Upstream, folder: Path, empty_url: str) -> None:
    async with Gateway(folder, small(up), database_url=empty_url) as gateway:
        mine = await Visitor.logged_in(gateway)
        signed, path = {"csrf": mine.token, **RAISE, "change": "none"}, "/budgets/hour/raise"
        plain = "&".join(f"{name}={value}" for name, value in signed.items())
        answers = [
            await mine.post(path, plain, Content_Type=f"{FORM}; charset=none"),
            await mine.post(path, b"csrf=%ED%A0%80%FF", Content_Type=FORM),
            await mine.post(path, b"csrf=1", Content_Type="multipart/form-data"),
            await mine.post(path, b"--x\r\nrubbish", Content_Type="multipart/form-data; boundary=x"),
            await mine.post(path, b"a=1&" * 1000, Content_Type=FORM),
            await mine.post(path, b"a=" + b"x" * FORM_BYTES_MAX, Content_Type=FORM),
            await Visitor(gateway).post("/login", b"a=" + b"x" * FORM_BYTES_MAX, Content_Type=FORM),
            await mine.post(path, signed, Referer="http://["),
            # The page where a form came from is gone back to, and never to another site.
            await mine.post(path, signed, Referer=f"{gateway.base}//evil.example/x"),
            await mine.post("/keys/revoke", {"csrf": mine.token, "name": "a\0b"}),
            await mine.get("/usage?from=0001-01-01&to=9999-12-31"),
            await mine.get("/runs?state=none"),
            *[await mine.get(address) for address in ("/budgets/none", "/runs/none", "/why/none", "/workflows/none")],
        ]
        assert [answer.status for answer in answers] == [400, 403, 403, 403, 400, 413, 413, 400, 400, 400, 400, 400] + [404] * 4
        for answer in answers:
            assert answer.headers["content-type"] == "text/html; charset=utf-8"
            assert "location" not in answer.headers
        for address in ("//evil.example", "/%5Cevil.example", "/%09/evil.example", "http://evil.example", "/%0d%0aX-Evil:1"):
            assert (await mine.get(f"/login?next={address}")).headers["location"] == "/"
        for address in ("/budgets/%00", "/runs/%00", "/why/%00", "/workflows/%00"):
            assert (await mine.get(address)).status == 404
        assert (await mine.get("/runs?workflow=%00")).status == 400
        assert (await gateway.call("GET", "/api/runs/%00", key="admin")).status == 404
        for address in ("/static/..%2fdoor.py", "/static/%2e%2e/door.py", "/static/none.css"):
            assert (await mine.get(address)).status == 404


async def test_a_session_that_has_ended_is_said_to_forms_and_to_pages_that_follow(up: Upstream, folder: Path) -> None:
    async with Gateway(folder, small(up)) as gateway:
        mine = await Visitor.logged_in(gateway)
        await gateway.app.sessions.close(mine.secret)
        signed = {"csrf": mine.token, **RAISE}
        answer = await mine.post("/budgets/hour/raise", signed, Referer=f"{gateway.base}/budgets/hour")
        assert answer.status == 401
        assert "Your session has ended" in answer.body.decode()
        assert 'name="next" value="/budgets/hour"' in answer.body.decode()
        assert (await mine.post("/chat", b"{}", Content_Type="application/json")).status == 401
        followed = await mine.get("/budgets/hour", Accept="text/event-stream")
        assert (followed.status, followed.body) == (200, b"event: over\ndata: {}\n\n")
        assert (await gateway.budget("hour"))["limit"] == 5000


async def test_a_form_that_is_sent_twice_is_done_once_and_both_are_answered(up: Upstream, folder: Path) -> None:
    async with Gateway(folder, small(up)) as gateway:
        mine = await Visitor.logged_in(gateway)

        async def number(path: str) -> str:
            return (await mine.get(path)).body.decode().split('name="sent" value="')[1].split('"')[0]

        first, second = await number("/budgets/hour"), await number("/budgets/hour")
        signed = {"csrf": mine.token, **RAISE, "sent": first}
        twice = await asyncio.gather(*(mine.post("/budgets/hour/raise", signed) for _ in range(2)))
        assert [answer.headers["location"] for answer in twice] == ["/budgets/hour"] * 2
        assert (await gateway.budget("hour"))["limit"] == 5100
        # A browser gives the first up when the second is sent.
        third = signed | {"sent": "third"}
        async with gateway.database_gone():
            given_up = asyncio.create_task(mine.post("/budgets/hour/raise", third))
            await asyncio.sleep(0.2)
            given_up.cancel()
            again = asyncio.create_task(mine.post("/budgets/hour/raise", third))
            await asyncio.sleep(0.2)
        assert (await again).status == 303
        assert (await gateway.budget("hour"))["limit"] == 5200
        # One that was not taken may come again when it is right, and another form is another one.
        assert (await mine.post("/budgets/hour/raise", signed | {"sent": second, "for": "long"})).status == 400
        await mine.post("/budgets/hour/raise", signed | {"sent": second})
        assert (await gateway.budget("hour"))["limit"] == 5300
        # Who presses twice sees the second answer alone: it has the key too.
        named = {"csrf": mine.token, "name": "laptop", "may": "ask", "sent": await number("/keys")}
        made = await asyncio.gather(*(mine.post("/keys", named) for _ in range(2)))
        assert [answer.body.count(b'id="secret"') for answer in made] == [1, 1]


async def test_nothing_private_is_kept_by_a_browser(up: Upstream, folder: Path) -> None:
    async with Gateway(folder, small(up)) as gateway:
        mine = await Visitor.logged_in(gateway)
        for path, _ in addresses("GET"):
            answer = await mine.get(path)
            assert answer.headers["cache-control"] == "no-store", path
            assert answer.headers["x-content-type-options"] == "nosniff", path


async def test_what_opens_later_is_said_to_the_minute_and_never_too_early(up: Upstream, folder: Path) -> None:
    clock = SettableClock(datetime(2026, 3, 2, 12, 0, 25, tzinfo=UTC))
    text = config(provider("main", up), budget("hour", requests=1, per="rolling 5m"), chain=["main"])
    async with Gateway(folder, text, clock) as gateway:
        assert (await gateway.chat()).status == 200
        mine = await Visitor.logged_in(gateway)
        opens = (await gateway.app.books.balances())[0].resets_at
        assert opens is not None
        assert opens.second
        said = (opens + timedelta(minutes=1)).strftime("%H:%M")
        for path in ("/", "/budgets", "/budgets/hour"):
            page = (await mine.get(path)).body.decode()
            assert f">{said}</time>" in page, path
            assert f">{opens:%H:%M}</time>" not in page, path
