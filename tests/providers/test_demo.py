"""The scripted provider: labelled, deterministic, and it fails as it is told."""

import base64
import struct
import time
from contextlib import aclosing
from typing import Any, cast

import pytest

from gateway.chat import EmbeddingRequest, Request, Usage
from gateway.errors import Refused, Unanswered
from gateway.providers.demo import DemoProvider
from gateway.settings import ProviderSettings
from tests.doubles.clock import SettableClock
from tests.providers.calls import ASK, collect, reservation, text


def demo(**script: Any) -> DemoProvider:
    given = {"delay_s": 0, "start_s": 0, **script}
    return DemoProvider(ProviderSettings(name="p", api="demo", model="m", script=given), SettableClock())


async def test_every_answer_is_labelled_and_the_same_for_the_same_request() -> None:
    first, second = [await demo().complete(ASK, reservation()) for _ in range(2)]
    assert first == second
    assert first.text.startswith("[demo] You wrote: one two three\n")
    assert first.usage is not None
    assert first.usage.prompt == 4
    assert first.usage.output == len(first.text.split(" "))
    streamed = await collect(demo().stream(ASK, reservation()))
    assert text(streamed) == first.text
    assert streamed[-1].usage == first.usage


async def test_the_output_limit_is_kept() -> None:
    chunks = await collect(demo(output_tokens=5000).stream(ASK, reservation(output_tokens=3)))
    assert sum(chunk.visible for chunk in chunks) == 3
    assert [chunk.finish_reason for chunk in chunks if chunk.finish_reason] == ["length"]
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.output == 3


async def test_it_fails_as_told() -> None:
    with pytest.raises(Refused) as caught:
        await demo(fail="refused").complete(ASK, reservation())
    assert caught.value.status == 503
    with pytest.raises(Refused) as caught:
        await demo(fail="rate_limited", retry_after_s=7).complete(ASK, reservation())
    assert (caught.value.status, caught.value.retry_after_s) == (429, 7.0)
    with pytest.raises(Unanswered):
        await demo(fail="unanswered").complete(ASK, reservation())
    provider = demo(first_n_fail=2)
    for _ in range(2):
        with pytest.raises(Refused):
            await provider.complete(ASK, reservation())
    assert (await provider.complete(ASK, reservation())).text


async def test_it_stalls_after_the_first_word_and_is_slow_as_told() -> None:
    began = time.monotonic()
    stream = demo(reply="a b c", stall_s=0.6, start_s=0.05).stream(ASK, reservation())
    async with aclosing(stream):
        seen = [time.monotonic() - began async for chunk in stream if chunk.visible]
    assert seen[0] < 0.59
    assert seen[1] - seen[0] > 0.59
    assert len(seen) == 4


async def test_messages_of_parts_and_none_at_all() -> None:
    parts = Request([{"role": "user", "content": [{"type": "text", "text": "in parts"}]}])
    assert "You wrote: in parts" in (await demo().complete(parts, reservation())).text
    assert (await demo(reply="hi {question}").complete(cast(Any, Request([])), reservation())).text == "[demo] hi "


async def test_vectors_differ_by_input_and_come_in_the_size_and_form_that_is_asked() -> None:
    asked = EmbeddingRequest(["one two", "three"], {"dimensions": 3})
    made = await demo().embed(asked, reservation())
    first, second = (entry["embedding"] for entry in made.body["data"])
    assert (len(first), len(second)) == (3, 3)
    assert first != second
    assert made.usage == Usage(5, 0)
    packed = await demo().embed(EmbeddingRequest(["one two"], {"dimensions": 3, "encoding_format": "base64"}), reservation())
    (entry,) = packed.body["data"]
    assert struct.unpack("<3f", base64.b64decode(entry["embedding"])) == pytest.approx(first)
    with pytest.raises(Refused):
        await demo(fail="refused").embed(asked, reservation())
