"""`POST /v1/embeddings` with the official client: what it printed, what the ledger says and what was billed are one."""

from collections.abc import AsyncIterator
from pathlib import Path

import openai
import pytest
from openai import AsyncOpenAI

from tests.doubles.upstream import Script, Upstream
from tests.e2e.rig import Gateway, budget, config, provider

PRICE = {"input": 2.0, "output": 0.0}


@pytest.fixture
async def gateway(tmp_path: Path, up: Upstream, other: Upstream) -> AsyncIterator[Gateway]:
    text = config(
        provider("claude", other, api="anthropic"),
        provider("first", up, price=PRICE, max_attempts=1),
        provider("second", other, price=PRICE),
        budget("tokens", tokens=1_000),
        budget("usd", usd=1),
        chain=["claude", "first", "second"],
    )
    async with Gateway(tmp_path, text) as running:
        yield running


@pytest.fixture
async def client(gateway: Gateway) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(base_url=f"{gateway.base}/v1", api_key=gateway.keys["user"]) as made:
        yield made


async def test_texts_and_tokens_become_vectors_and_the_ledger_has_what_was_billed(
    gateway: Gateway, client: AsyncOpenAI, up: Upstream
) -> None:
    printed = 0
    for given, lengths in (("a b c", [3]), (["a b", "c"], [2, 1]), ([5, 6, 7, 8], [4]), ([[1, 2], [3]], [2, 1])):
        answer = await client.embeddings.create(model="default", input=given)
        assert [vector.embedding for vector in answer.data] == [[float(i), float(n)] for i, n in enumerate(lengths)]
        printed += answer.usage.total_tokens
    raw = await client.embeddings.with_raw_response.create(model="default", input="a b", encoding_format="float", dimensions=2)
    printed += raw.parse().usage.total_tokens
    assert (raw.headers["x-sluicegate-provider"], raw.headers["x-sluicegate-cost-micro-usd"]) == ("first", "4")
    assert up.seen[-1].body == {"model": "first-model", "input": ["a b"], "encoding_format": "float", "dimensions": 2}
    rows = await gateway.rows()
    assert sum(int(row["prompt_tokens"]) for row in rows) == printed == up.meter.tokens
    assert {(row["outcome"], row["output_tokens"], row["key"]) for row in rows} == {("answered", "0", "user")}
    assert (await gateway.budget("tokens"))["spent"] == printed
    assert (await gateway.budget("usd"))["spent"] == 2 * printed


async def test_it_falls_back_along_those_that_make_vectors_and_ends_as_a_chat_does(
    gateway: Gateway, client: AsyncOpenAI, up: Upstream, other: Upstream
) -> None:
    up.default = Script(status=503)
    answer = await client.embeddings.create(model="default", input="a b c")
    assert answer.model == "second-model"
    assert [seen.path for seen in other.seen] == ["/v1/embeddings"]
    with pytest.raises(openai.BadRequestError) as unable:
        await client.embeddings.create(model="claude", input="a")
    assert "has no embeddings" in unable.value.message
    with pytest.raises(openai.RateLimitError) as refused:
        await client.embeddings.create(model="second", input=["word " * 900, "word " * 200])
    assert refused.value.code == "prompt_too_large_for_budget"
    other.queue.append(Script(status=400, error={"message": "no such size", "param": "dimensions"}))
    with pytest.raises(openai.BadRequestError) as fault:
        await client.embeddings.create(model="second", input="a", dimensions=9)
    assert fault.value.param == "dimensions"
    assert [row["outcome"] for row in await gateway.rows() if row["attempt"] != "0"][-2:] == ["answered", "caller_fault"]
