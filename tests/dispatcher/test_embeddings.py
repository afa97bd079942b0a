"""Vectors go through the same gate: a hold of the prompt alone, retries, fallback, settling, deduplication."""

import pytest

from gateway.chat import EmbeddingRequest, Usage
from gateway.dispatcher.breaker import FAILURES_MAX
from gateway.errors import ChainExhausted, Exhausted, NoVectors, RequestConflict
from tests.dispatcher.rig import PRICED, Rig, priced, refused, requests, tokens, unanswered, usd
from tests.doubles.provider import Play

TWENTY = EmbeddingRequest([[7] * 12, [8] * 8])
"""Twenty tokens by the rig's estimator."""


async def embed(rig: Rig, asked: EmbeddingRequest = TWENTY, **parts: object):
    return await rig.dispatcher.complete(asked, "default", rig.origin(**parts))


async def test_the_hold_is_the_prompt_alone_and_what_is_not_used_comes_back():
    rig = Rig(budgets=(tokens("t", 20), usd("u", 20), requests("r", 1)), models={"a": PRICED})
    reply = await embed(rig)
    assert reply.usage == Usage(10, 0)
    assert [entry["index"] for entry in reply.completion.body["data"]] == [0, 1]
    (bill,) = rig["a"].bills
    assert (bill.reservation.output_tokens, bill.reservation.draft.held.tokens) == (0, 20)
    assert (rig.spent("t"), rig.spent("u"), rig.spent("r"), rig.held("t")) == (10, 10, 1, 0)


async def test_one_token_less_is_refused_without_a_call_and_the_next_provider_answers():
    rig = Rig("a", "b", budgets=(tokens("t", 19, provider="a"),))
    reply = await embed(rig)
    assert reply.slot.provider == "b"
    assert rig["a"].calls == 0
    assert isinstance(reply.skipped[0].error, Exhausted)
    alone = Rig(budgets=(tokens("t", 19),))
    with pytest.raises(ChainExhausted):
        await embed(alone)
    assert alone["a"].calls == 0


async def test_a_refusal_is_tried_again_and_a_silence_counts_as_the_worst_case():
    rig = Rig("a", "b", budgets=(tokens("t", 1000),))
    rig["a"].plays(refused(), unanswered())
    assert (await embed(rig)).slot.provider == "b"
    assert rig.spent("t") == 20 + 10
    assert rig.outcomes == ["refused", "unanswered", "answered"]


async def test_without_a_stated_usage_the_hold_is_what_was_spent():
    rig = Rig(budgets=(tokens("t", 1000), usd("u", 1000)), models={"a": priced(3, 1000)})
    rig["a"].plays(Play(states_usage=False))
    reply = await embed(rig)
    assert (reply.usage, reply.estimated) == (Usage(20, 0), True)
    assert (rig.spent("t"), rig.spent("u")) == (20, 60)


async def test_a_repeated_id_gets_the_stored_vectors_and_another_text_is_a_conflict():
    rig = Rig(budgets=(tokens("t", 1000),))
    first = await embed(rig, request_id="k", dedupe=True)
    again = await embed(rig, request_id="k", dedupe=True)
    assert (again.repeated, again.cost_micro_usd) == (True, 0)
    assert again.completion.body == first.completion.body
    with pytest.raises(RequestConflict):
        await embed(rig, EmbeddingRequest([[7] * 12, [8] * 7]), request_id="k", dedupe=True)
    assert rig["a"].calls == 1


async def test_who_makes_no_vectors_is_passed_over_and_goes_on_answering_questions():
    rig = Rig("a", "b", budgets=(tokens("t", 1000),))
    for _ in range(FAILURES_MAX + 1):
        rig["a"].plays(NoVectors("a", "m", "there are none", status=404))
        assert (await embed(rig)).slot.provider == "b"
    assert (await rig.ask()).slot.provider == "a"
    alone = Rig()
    alone["a"].plays(NoVectors("a", "m", "there are none", status=404))
    with pytest.raises(ChainExhausted):
        await embed(alone)
