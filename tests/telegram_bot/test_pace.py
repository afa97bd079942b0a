"""The pace of sends and edits in virtual time: the limiter, the delivery and the live bubble on a strict server in process."""

from __future__ import annotations

import asyncio
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest
from lo_bot_api_emulator import ApiRefusal
from telegram.error import NetworkError, TimedOut
from telegram.ext import ExtBot
from telegram.request import BaseRequest, RequestData

from gateway.store.database import Database
from gateway.store.telegram import Inbox, Lane
from gateway.telegram_bot.delivery import Delivery, Gone, Place, Uncertain
from gateway.telegram_bot.limiter import Limiter, Shed, Weight
from gateway.telegram_bot.markup import Part
from gateway.telegram_bot.streaming import Live
from tests.doubles.botapi import TOKEN, BotApi, Fault
from tests.doubles.virtual import run


class InProcess(BaseRequest):
    """The library's transport straight into the strict server, without a socket, so that time may be virtual."""

    def __init__(self, api: BotApi) -> None:
        self.api = api
        self.latency_s = 0.05
        self.failures: list[Exception] = []
        self.times: list[tuple[float, str, int, bool]] = []

    @property
    def read_timeout(self) -> float | None:
        return 5.0

    async def initialize(self) -> None:
        pass

    async def shutdown(self) -> None:
        pass

    async def do_request(
        self, url: str, method: str, request_data: RequestData | None = None, *_: Any, **__: Any
    ) -> tuple[int, bytes]:
        endpoint = url.rsplit("/", 1)[1]
        fields = dict(request_data.json_parameters) if request_data else {}
        started = asyncio.get_running_loop().time()
        await asyncio.sleep(self.latency_s)
        if self.failures:
            cause = self.failures.pop(0)
            raise (TimedOut() if isinstance(cause, httpx.TimeoutException) else NetworkError(str(cause))) from cause
        try:
            body: dict[str, Any] = {"ok": True, "result": self.api.validate(endpoint, fields, {})}
            status = 200
        except ApiRefusal as refusal:
            status = refusal.status
            body = {"ok": False, "error_code": status, "description": refusal.description, "parameters": refusal.parameters or {}}
        self.times.append((started, endpoint, int(fields.get("chat_id", 0)), status == 200))
        return status, json.dumps(body).encode()


class Chats:
    """A bot in virtual time."""

    def __init__(self, folder: Path) -> None:
        self.api = BotApi()
        self.request = InProcess(self.api)
        self.bot: ExtBot[Any] = ExtBot(TOKEN, request=self.request, get_updates_request=self.request, rate_limiter=Limiter())
        self.delivery = Delivery(self.bot, Inbox(Database(f"sqlite:///{folder}/unused.db"), 1))
        self.kept: list[list[int]] = []

    def live(self, chat: int, bubbles: tuple[int, ...] = ()) -> Live:
        async def keep(ids: list[int]) -> None:
            self.kept.append(list(ids))

        return Live(self.delivery, Place(Lane(chat)), bubbles, keep)

    def at(self, endpoint: str, chat: int) -> list[float]:
        """When calls that were taken began, in virtual seconds."""
        return [time for time, method, where, taken in self.request.times if (method, where, taken) == (endpoint, chat, True)]


@pytest.fixture
def chats(tmp_path: Path) -> Chats:
    return Chats(tmp_path)


async def grow(live: Live, text: str, seconds: float) -> None:
    words = text.split(" ")
    for number in range(1, len(words) + 1):
        live.show(" ".join(words[:number]))
        await asyncio.sleep(seconds / len(words))


TEXT = " ".join(f"word{n}" for n in range(100))


@pytest.mark.parametrize(("chat", "interval"), [(42, 1.1), (-100, 3.1)])
def test_edits_keep_their_distance(chats: Chats, chat: int, interval: float) -> None:
    async def work() -> None:
        live = chats.live(chat)
        await grow(live, TEXT, 20)
        assert await live.finish(TEXT)

    run(work())
    (bubble,) = chats.api.bubbles(chat)
    assert bubble.text == TEXT
    edits = chats.at("editMessageText", chat)
    assert len(edits) >= 4
    seen = sorted(edits + chats.at("sendMessage", chat))
    gaps = [b - a for a, b in pairwise(seen)]
    assert min(gaps) >= interval, gaps


def test_case_39_a_flood_penalty_delays_one_chat_only_and_the_final_answer_arrives_once(chats: Chats) -> None:
    async def work() -> tuple[float, float]:
        loop = asyncio.get_running_loop()
        chats.api.faults.append(
            Fault(
                "editMessageText",
                "Too Many Requests: retry after 126",
                429,
                {"retry_after": 126},
                1,
                lambda f: int(f["chat_id"]) == 42,
            )
        )
        struck, other = chats.live(42), chats.live(43)

        async def one(live: Live) -> float:
            await grow(live, TEXT, 10)
            await live.finish(TEXT)
            return loop.time()

        first, second = await asyncio.gather(one(struck), one(other))
        return first, second

    first, second = run(work())
    assert 126 < first < 140
    assert second < 13, "another chat is not delayed"
    for chat in (42, 43):
        (bubble,) = chats.api.bubbles(chat)
        assert bubble.text == TEXT
    refused = [time for time, method, chat, taken in chats.request.times if chat == 42 and not taken]
    assert len(refused) == 1, "nothing knocks while the chat is silenced"


def test_case_39_penalty_after_penalty_the_final_answer_still_arrives_once(chats: Chats) -> None:
    chats.api.faults.append(Fault("sendMessage", "Too Many Requests: retry after 126", 429, {"retry_after": 126}, 3))

    async def work() -> float:
        live = chats.live(42)
        await grow(live, TEXT, 1)
        await live.finish(TEXT)
        return asyncio.get_running_loop().time()

    assert run(work()) < 3 * 127 + 10
    assert [bubble.text for bubble in chats.api.bubbles()] == [TEXT]


def test_case_40_a_final_text_equal_to_the_preview_is_one_bubble_and_no_edit(chats: Chats) -> None:
    async def work() -> None:
        live = chats.live(42)
        live.show("All of it.")
        await asyncio.sleep(3)
        assert await live.finish("All of it.")

    run(work())
    assert [(bubble.text, bubble.edits) for bubble in chats.api.bubbles()] == [("All of it.", 0)]
    assert not [call for call in chats.api.calls if call.error]


def test_case_40_not_modified_means_done(chats: Chats) -> None:
    async def work() -> None:
        bubble = await chats.delivery.send(Place(Lane(42)), Part("All of it."))
        assert await chats.live(42, (bubble,)).finish("All of it.")

    run(work())
    assert [bubble.text for bubble in chats.api.bubbles()] == ["All of it."]


def test_a_final_goes_before_other_sends_and_previews_are_shed(chats: Chats) -> None:
    order: list[str] = []

    async def send(name: str, weight: Weight) -> None:
        try:
            await chats.delivery.send(Place(Lane(42)), Part(name), weight)
            order.append(name)
        except Shed:
            order.append(f"{name} shed")

    async def work() -> None:
        for n in range(3):
            await send(f"burst {n}", Weight.NORMAL)
        sends = [send("normal", Weight.NORMAL), send("final", Weight.FINAL), send("preview", Weight.PREVIEW)]
        await asyncio.gather(*sends)

    run(work())
    assert order == ["burst 0", "burst 1", "burst 2", "preview shed", "final", "normal"]


def test_a_send_that_timed_out_is_never_repeated(chats: Chats) -> None:
    async def work() -> None:
        chats.request.failures = [httpx.ReadTimeout("late")]
        with pytest.raises(Uncertain):
            await chats.delivery.send(Place(Lane(42)), Part("once"), Weight.FINAL)

    run(work())
    assert chats.api.calls == []


def test_an_uncertain_final_ends_the_answer_without_a_second_bubble(chats: Chats) -> None:
    async def work() -> bool:
        live = chats.live(42)
        chats.request.failures = [httpx.ReadError("cut")]
        live._typing.cancel()
        return await live.finish("once")

    assert run(work()) is False
    assert chats.at("sendMessage", 42) == []


@pytest.mark.parametrize("failure", [httpx.ConnectTimeout("no"), httpx.ConnectError("no"), httpx.PoolTimeout("no")])
def test_what_was_never_sent_is_sent_again(chats: Chats, failure: Exception) -> None:
    async def work() -> None:
        chats.request.failures = [failure] * 3
        await chats.delivery.send(Place(Lane(42)), Part("once"), Weight.FINAL)

    run(work())
    assert [bubble.text for bubble in chats.api.bubbles()] == ["once"]


@pytest.mark.parametrize("status", [500, 502, 503])
def test_what_telegram_says_that_it_could_not_take_is_sent_again(chats: Chats, status: int) -> None:
    chats.api.faults.append(Fault("sendMessage", "Internal Server Error", status, times=3))

    async def work() -> None:
        await chats.delivery.send(Place(Lane(42)), Part("once"), Weight.FINAL)

    run(work())
    assert [bubble.text for bubble in chats.api.bubbles()] == ["once"]


def test_a_gateway_that_waited_in_vain_leaves_it_open_whether_a_message_was_sent(chats: Chats) -> None:
    chats.api.faults.append(Fault("sendMessage", "Gateway Timeout", 504))

    async def work() -> None:
        with pytest.raises(Uncertain):
            await chats.delivery.send(Place(Lane(42)), Part("once"), Weight.FINAL)

    run(work())
    assert chats.api.bubbles() == []


def test_an_edit_that_timed_out_is_repeated(chats: Chats) -> None:
    async def work() -> None:
        bubble = await chats.delivery.send(Place(Lane(42)), Part("a"))
        chats.request.failures = [httpx.ReadTimeout("late")]
        await chats.delivery.edit(Place(Lane(42)), bubble, Part("b"), Weight.FINAL)

    run(work())
    assert [bubble.text for bubble in chats.api.bubbles()] == ["b"]


def test_case_37_a_text_that_still_fails_to_parse_is_sent_once_as_plain_text(chats: Chats) -> None:
    chats.api.faults.append(
        Fault("sendMessage", "Bad Request: can't parse entities: strange", match=lambda f: "entities" in f, times=9)
    )

    async def work() -> None:
        await chats.live(42).finish("**bold** move")

    run(work())
    assert [(bubble.text, bubble.entities) for bubble in chats.api.bubbles()] == [("bold move", [])]
    assert len(chats.at("sendMessage", 42)) == 1


def test_case_38_a_long_answer_grows_over_several_bubbles_with_its_fence_reopened(chats: Chats) -> None:
    code = "\n".join(f"line_{n} = {n} < 3" for n in range(700))
    text = f"Here:\n\n```python\n{code}\n```\n\nDone."

    async def work() -> None:
        live = chats.live(42)
        for end in range(0, len(text), 400):
            live.show(text[:end])
            await asyncio.sleep(0.3)
        await live.finish(text)

    run(work())
    bubbles = chats.api.bubbles()
    assert len(bubbles) > 2
    assert all(any(e["type"] == "pre" and e["language"] == "python" for e in bubble.entities) for bubble in bubbles[:-1])
    assert "".join(bubble.text for bubble in bubbles).count("line_") == 700
    assert not [call.error for call in chats.api.calls if call.error]


def test_case_45_a_bubble_that_the_person_deleted_is_sent_anew(chats: Chats) -> None:
    async def work() -> None:
        live = chats.live(42)
        live.show("So far")
        await asyncio.sleep(1)
        (bubble,) = chats.api.bubbles()
        del chats.api.chats[42, bubble.message_id]
        await live.finish("So far, so good.")

    run(work())
    assert [bubble.text for bubble in chats.api.bubbles()] == ["So far, so good."]


def test_case_45_a_person_who_blocked_the_bot_ends_the_stream(chats: Chats) -> None:
    chats.api.faults.append(Fault("sendMessage", "Forbidden: bot was blocked by the user", 403, times=99))

    async def work() -> None:
        live = chats.live(42)
        live.show("So far")
        await asyncio.wait_for(live.gone.wait(), 5)
        with pytest.raises(Gone):
            await live.finish("So far, so good.")

    run(work())


def test_typing_is_kept_alive_and_goes_into_the_topic(chats: Chats) -> None:
    async def work() -> None:
        live = Live(chats.delivery, Place(Lane(-100, 7)), (), chats.live(1)._keep)
        await asyncio.sleep(30)
        await live.finish("x")

    run(work())
    typing = chats.api.made("sendChatAction", -100)
    assert len(typing) >= 6
    assert {call.thread for call in typing} == {7}
