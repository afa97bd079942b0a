"""Streams of providers that do not keep to the output limit, beside the plain case of text without end."""

import asyncio

import pytest

from gateway.chat import Chunk, Usage
from tests.dispatcher.rig import Rig, tokens

FLOODS = {
    "another answer, or tool calls": (Chunk("one", True), Chunk(visible=True, body={})),
    "after the end": (Chunk("one", True, finish_reason="stop"), Chunk("more ", True)),
}


@pytest.mark.parametrize("name", FLOODS)
async def test_case_66_whatever_goes_on_past_the_limit_is_cut_off(name: str):
    closed, (first, again) = [], FLOODS[name]

    class Floods:
        name = "a"

        async def stream(self, request, reservation):
            try:
                yield first
                while True:
                    yield again
                    await asyncio.sleep(0)
            finally:
                closed.append(True)

    rig = Rig(budgets=(tokens("t", 1000),))
    rig.providers["a"] = Floods()
    heard = await asyncio.wait_for(rig.read(), 60)
    assert heard.reply is not None
    assert (closed, rig.outcomes, rig.spent("t"), rig.held("t")) == ([True], ["cut_off"], 111, 0)


async def test_usage_that_comes_late_is_taken_though_the_limit_was_passed_by_the_last_words():
    class Tells:
        name = "a"

        async def stream(self, request, reservation):
            for _ in range(100):
                yield Chunk("w ", True)
            yield Chunk("w", True, finish_reason="length")
            yield Chunk(usage=Usage(10, 101))

    rig = Rig(budgets=(tokens("t", 1000),))
    rig.providers["a"] = Tells()
    assert (await rig.read()).reply is not None
    assert (rig.outcomes, rig.spent("t"), rig.rows[0]["estimated"]) == (["answered"], 111, False)
