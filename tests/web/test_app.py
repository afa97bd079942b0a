"""The application's shell over real HTTP: names, keys, errors, bodies, streams, the webhook and a graceful stop."""

import asyncio
import gzip
import logging
import socket
from typing import Any

import orjson
import pytest

from gateway.chat import Completion, Usage
from gateway.errors import Cause, ChainExhausted, InvalidRequest, LedgerUnavailable, Unanswered, UnknownTarget
from gateway.web.parsing import BODY_BYTES_MAX
from tests.web.shell import SLOT, Answer, shell

RAW = b'{"id":"x", "choices":[{"message":{"content":"hi"}}] , "vendor":1}'
WHOLE = Completion("hi", "stop", "kimi", Usage(3, 2), orjson.loads(RAW), RAW)


def error_of(answer: Answer) -> dict[str, Any]:
    return orjson.loads(answer.body)["error"]


async def test_a_whole_answer_is_forwarded_byte_for_byte_with_its_headers() -> None:
    async with shell(WHOLE) as web:
        answer = await web.chat({"temperature": 0.5, "max_completion_tokens": 9})
        request, target, origin = web.played.asked[0]
    assert (answer.status, answer.body) == (200, RAW)
    assert answer.header("Content-Type") == "application/json"
    assert answer.header("x-sluicegate-provider") == "moonshot"
    assert answer.header("x-sluicegate-cost-micro-usd") == "41"
    assert answer.header("x-sluicegate-request-id") == origin.request_id
    assert (target, request.max_output_tokens, request.extra) == ("default", 9, {"temperature": 0.5})
    assert (origin.surface, origin.user, origin.key, origin.dedupe) == ("http", "app", "app", False)


async def test_an_answer_without_the_providers_bytes_is_written_out() -> None:
    async with shell(Completion("hi", "stop", "m", None, {"id": "y"})) as web:
        assert orjson.loads((await web.chat()).body) == {"id": "y"}


async def test_the_bodys_user_never_becomes_the_origins() -> None:
    async with shell(WHOLE) as web:
        await web.chat({"user": "somebody-else"})
        request, _, origin = web.played.asked[0]
    assert origin.user == "app"
    assert request.extra == {"user": "somebody-else"}


async def test_an_idempotency_key_names_the_request_within_its_key() -> None:
    async with shell(WHOLE) as web:
        answer = await web.chat(headers={"Idempotency-Key": "order 5"})
        origin = web.played.asked[0][2]
        assert (origin.request_id, origin.dedupe) == ("key:app:order 5", True)
        assert answer.header("x-sluicegate-request-id") == "key:app:order 5"
        refused = await web.chat(headers={"Idempotency-Key": "x" * 256})
        assert (refused.status, error_of(refused)["param"]) == (400, "Idempotency-Key")


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/chat/completions"),
        ("GET", "/v1/models"),
        ("GET", "/v1/models/default"),
        ("GET", "/metrics"),
    ],
)
@pytest.mark.parametrize(
    "header", [None, "", "Bearer", "Bearer ", "Bearer sk-wrong", "Basic sk-user", "sk-user", "Bearer sk-use\u00e9"]
)
async def test_without_a_key_nothing_is_done(method: str, path: str, header: str | None) -> None:
    async with shell() as web:
        headers = {} if header is None else {"Authorization": header}
        answer = await web.call(method, path, key=None, headers=headers)
        assert not web.played.asked
    assert (answer.status, error_of(answer)["code"]) == (401, "unauthorized")
    assert answer.header("WWW-Authenticate") == "Bearer"
    assert error_of(answer)["request_id"] == answer.header("x-sluicegate-request-id")


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/api/budgets"),
        ("POST", "/api/budgets/hour/raise"),
        ("GET", "/api/usage"),
        ("GET", "/api/usage/export.csv"),
        ("GET", "/metrics"),
    ],
)
async def test_admin_routes_need_an_admin_key(method: str, path: str) -> None:
    async with shell() as web:
        answer = await web.call(method, path)
    assert (answer.status, error_of(answer)["code"]) == (403, "forbidden")


async def test_a_key_that_cannot_be_looked_up_is_not_a_wrong_key() -> None:
    async with shell() as web:
        web.keys.error = LedgerUnavailable("gone")
        answer = await web.chat()
    assert (answer.status, error_of(answer)["code"]) == (503, "ledger_unavailable")


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (UnknownTarget("nobody", ("default",)), 404, "model_not_found"),
        (InvalidRequest("no", "x"), 400, "invalid_request"),
        (LedgerUnavailable("gone"), 503, "ledger_unavailable"),
        (
            ChainExhausted("r", "default", (Cause(SLOT, Unanswered("moonshot", "kimi", "cut")),), None),
            503,
            "providers_unavailable",
        ),
        (KeyError("a secret prompt"), 500, "internal_error"),
        (TimeoutError(), 500, "internal_error"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_an_error_is_plain_json_with_the_requests_id(error: Exception, status: int, code: str, stream: bool) -> None:
    async with shell(error) as web:
        answer = await web.chat({"stream": stream})
        assert not stream or web.played.closed == 1
    assert (answer.status, error_of(answer)["code"]) == (status, code)
    assert answer.header("Content-Type") == "application/json"
    assert error_of(answer)["request_id"] == answer.header("x-sluicegate-request-id")


async def test_a_fault_of_ours_tells_the_client_nothing_and_the_log_no_prompt(
    caplog: pytest.LogCaptureFixture, capsys: Any
) -> None:
    async with shell(KeyError("a secret prompt")) as web:
        with caplog.at_level(logging.DEBUG):
            answer = await web.chat()
    printed = capsys.readouterr()
    told = caplog.text + printed.out + printed.err
    assert "request_failed" in told
    assert answer.header("x-sluicegate-request-id") in told
    for place in (answer.body.decode(), told):
        assert "secret prompt" not in place
        assert "sk-user" not in place
    assert b"Traceback" not in answer.body


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/none", 404, "not_found"),
        ("GET", "/v1/nothing", 404, "not_found"),
        ("GET", "/v1/chat/completions", 405, "method_not_allowed"),
        ("DELETE", "/healthz", 405, "method_not_allowed"),
        ("POST", "/telegram/x", 404, "not_found"),
        ("GET", "/v1/models/nobody", 404, "model_not_found"),
        ("GET", "/%00%ff", 404, "not_found"),
    ],
)
async def test_every_refusal_has_the_same_shape(method: str, path: str, status: int, code: str) -> None:
    async with shell() as web:
        answer = await web.call(method, path)
    assert (answer.status, error_of(answer)["code"]) == (status, code)
    assert answer.header("x-sluicegate-request-id")


async def test_a_body_over_the_cap_is_refused() -> None:
    async with shell() as web:
        answer = await web.call("POST", "/v1/chat/completions", data=b" " * (BODY_BYTES_MAX + 1))
        bomb = gzip.compress(b" " * (BODY_BYTES_MAX + 1))
        packed = await web.call("POST", "/v1/chat/completions", data=bomb, headers={"Content-Encoding": "gzip"})
    assert (answer.status, packed.status) == (413, 413)
    assert error_of(answer)["code"] == error_of(packed)["code"] == "invalid_request"


async def test_a_body_that_is_not_what_it_says_is_the_callers_fault() -> None:
    async with shell() as web:
        answer = await web.call("POST", "/v1/chat/completions", data=b"not gzip", headers={"Content-Encoding": "gzip"})
    assert answer.status == 400


async def test_models_are_chains_and_provider_models() -> None:
    async with shell() as web:
        listed = orjson.loads((await web.call("GET", "/v1/models")).body)
        one = orjson.loads((await web.call("GET", "/v1/models/moonshot:kimi")).body)
        other = await web.call("GET", "/v1/models/moonshot:org/any")
    assert [model["id"] for model in listed["data"]] == ["default", "moonshot", "kimi-alias", "moonshot:kimi"]
    assert [model["owned_by"] for model in listed["data"]][:2] == ["sluicegate", "moonshot"]
    assert one == listed["data"][3]
    assert other.status == 200


async def test_health_is_open_and_readiness_names_what_is_missing() -> None:
    async def yes() -> bool:
        return True

    async def no() -> bool:
        raise LedgerUnavailable("gone")

    async with shell(ready={"database": yes}) as web:
        assert (await web.call("GET", "/healthz", key=None)).status == 200
        ready = await web.call("GET", "/readyz", key=None)
        assert (ready.status, orjson.loads(ready.body)["database"]) == (200, True)
    async with shell(ready={"database": no, "bot": yes}) as web:
        answer = await web.call("GET", "/readyz", key=None)
        assert answer.status == 503
        assert orjson.loads(answer.body) == {"status": "not ready", "database": False, "bot": True}
        assert (await web.call("GET", "/healthz", key=None)).status == 200


class Inbox:
    """Takes updates for one secret."""

    def __init__(self) -> None:
        self.got: list[bytes] = []
        self.error: Exception | None = None

    def admits(self, path: str, secret: str) -> bool:
        return (path, secret) == ("bot", "s3cret")

    async def receive(self, body: bytes) -> bool:
        if self.error:
            raise self.error
        self.got.append(body)
        return body.startswith(b"{")


async def test_case_44_a_webhook_without_the_right_secret_does_nothing() -> None:
    inbox = Inbox()
    async with shell(receiver=inbox) as web:
        for secret in (None, "", "wrong"):
            headers = {} if secret is None else {"X-Telegram-Bot-Api-Secret-Token": secret}
            answer = await web.call("POST", "/telegram/bot", key=None, data=b"{}", headers=headers)
            assert (answer.status, error_of(answer)["code"]) == (403, "forbidden")
        assert not inbox.got
        right = {"X-Telegram-Bot-Api-Secret-Token": "s3cret"}
        assert (await web.call("POST", "/telegram/bot", key=None, data=b"{}", headers=right)).status == 200
        assert (await web.call("POST", "/telegram/bot", key=None, data=b"junk", headers=right)).status == 400
        inbox.error = LedgerUnavailable("gone")
        assert (await web.call("POST", "/telegram/bot", key=None, data=b"{}", headers=right)).status == 503
    assert inbox.got == [b"{}", b"junk"]


async def test_pipelined_and_broken_requests_do_not_break_the_server() -> None:
    async with shell(WHOLE) as web:
        port = int(web.base.rsplit(":", 1)[1])
        for junk in (b"\x16\x03\x01", b"GET\r\n\r\n", b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: x\r\n\r\n"):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(junk)
            writer.write_eof()
            assert b" 500 " not in await asyncio.wait_for(reader.read(), 30)
            writer.close()
        assert (await web.chat()).status == 200


async def test_an_answer_leaves_without_waiting_for_more_to_send() -> None:
    """Nagle's algorithm would hold a stream's last event back for tens of milliseconds."""
    async with shell("wait") as web:
        call = asyncio.create_task(web.chat())
        await web.played.waiting.wait()
        nodelay = [
            transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            for transport in _server_transports()
        ]
        assert nodelay
        assert all(nodelay)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)


def _server_transports() -> list[Any]:
    import gc

    from aiohttp.web_protocol import RequestHandler

    from gateway.web.express import Connection

    kinds = (RequestHandler, Connection)
    return [found.transport for found in gc.get_objects() if isinstance(found, kinds) and found.transport]


async def test_answers_are_counted_by_status() -> None:
    async with shell(WHOLE) as web:
        await web.chat()
        await web.chat(key=None)
        value = web.metrics.registry.get_sample_value
        assert value("sluicegate_http_answers_total", {"status": "200"}) == 1
        assert value("sluicegate_http_answers_total", {"status": "401"}) == 1
