"""Every place of a good body, filled with what does not belong there, on the addresses beside chat completions.

Each is answered, or refused as the caller's fault. None is a fault of ours, whatever wire format the provider speaks.
"""

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.doubles.upstream import Script, Upstream
from tests.e2e.rig import Gateway, budget, config, provider

ODD: list[Any] = [
    None, True, -1, 10**40, 0.5, "", "x", "\x00", [], [[]], [None], ["x"], {}, {"": ""}, {"type": []}, {"type": "text"},
    [{"type": "text"}], [{"type": "tool_use"}], [{"type": "tool_result"}], [{"type": "image"}], [{"type": "document"}],
]  # fmt: skip
MARK = {"type": "ephemeral"}
MESSAGES: dict[str, Any] = {
    "model": "default",
    "max_tokens": 50,
    "system": [{"type": "text", "text": "be brief", "cache_control": MARK}],
    "messages": [
        {"role": "user", "content": [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "t", "signature": "s"},
                {"type": "tool_use", "id": "i", "name": "n", "input": {"a": 1}},
            ],
        },
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "i", "content": [{"type": "text", "text": "r"}]}]},
    ],
    "tools": [{"name": "n", "description": "d", "input_schema": {"type": "object"}, "cache_control": MARK}],
    "tool_choice": {"type": "tool", "name": "n"},
    "thinking": {"type": "adaptive"},
    "stop_sequences": ["END"],
    "stream": False,
    "metadata": {"user_id": "u"},
}
EMBEDDINGS: dict[str, Any] = {"model": "default", "input": ["a", "b"], "encoding_format": "float", "dimensions": 2, "user": "u"}
USAGE = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
CHAT = {"choices": [{"message": {"content": "a"}, "finish_reason": "stop"}], "data": [], "usage": USAGE}
MESSAGE = {"content": [], "stop_reason": "end_turn", "usage": {"input_tokens": 1, "output_tokens": 1}}


@pytest.fixture
async def gateway(tmp_path: Path, up: Upstream, other: Upstream) -> AsyncIterator[Gateway]:
    # Answers that do not look at the question: an upstream that stumbles over it would look like a fault of ours.
    up.default, other.default = Script(body=CHAT), Script(body=MESSAGE)
    more = {"image_tokens": 100, "max_attempts": 1}
    text = config(
        provider("plain", up, **more),
        provider("claude", other, api="anthropic", **more),
        budget("b", tokens=1_000_000_000_000),
        chain=["plain"],
        more={"other": ["claude"]},
    )
    async with Gateway(tmp_path, text) as running:
        yield running


def damaged(whole: Any) -> Iterator[Any]:
    """The body with each place of it filled with each odd value, and left out."""

    def places(value: Any, path: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
        for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
            yield (*path, key)
            yield from places(value[key], (*path, key))

    for path in places(whole, ()):
        for odd in (*ODD, damaged):
            body = json.loads(json.dumps(whole))
            holder = body
            for key in path[:-1]:
                holder = holder[key]
            if odd is damaged:
                del holder[path[-1]]
            else:
                holder[path[-1]] = odd
            yield body


@pytest.mark.parametrize(
    ("address", "whole", "target"),
    [
        ("/v1/messages", MESSAGES, "default"),
        ("/v1/messages", MESSAGES | {"stream": True}, "other"),
        ("/v1/embeddings", EMBEDDINGS, "default"),
    ],
)
async def test_no_value_at_any_place_is_a_fault_of_ours(gateway: Gateway, address: str, whole: Any, target: str) -> None:
    statuses = set()
    for body in damaged(whole | {"model": target}):
        answer = await gateway.call("POST", address, json=body)
        # The plain provider answers embeddings with too few vectors: that is its fault, and says so.
        own = answer.status < 500 or (address == "/v1/embeddings" and answer.error["code"] == "providers_unavailable")
        assert own, (body, answer.body[:300])
        statuses.add(answer.status)
    assert 400 in statuses
    await gateway.until_nothing_is_held()
