"""Clients that people use, unchanged, against the endpoint: each printed the usage that the ledger has.

The official Python clients of OpenAI and Anthropic have files of their own.
"""

import asyncio
import json
import os
import re
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.clients.install import Unavailable, installed
from tests.doubles.upstream import Script, Upstream
from tests.e2e.rig import UNTIL_S, Gateway, budget, config, provider

SAID = "w0 w1 w2 w3 w4 "


@pytest.fixture
async def gateway(tmp_path: Path, up: Upstream) -> AsyncIterator[Gateway]:
    up.default = Script(cached_tokens=1)
    text = config(provider("p", up, price={"input": 1.0, "output": 2.0}), budget("tokens", tokens=5_000), chain=["p"])
    async with Gateway(tmp_path, text) as running:
        yield running


async def counted(gateway: Gateway) -> tuple[int, int, int]:
    """How many calls were answered, and their prompt and output tokens."""
    await gateway.until_nothing_is_held()
    rows = await gateway.rows()
    assert {row["outcome"] for row in rows} == {"answered"}
    prompt, output = (sum(int(row[name]) for row in rows) for name in ("prompt_tokens", "output_tokens"))
    assert (await gateway.budget("tokens"))["spent"] == prompt + output
    return len(rows), prompt, output


async def run(*command: str, **environ: str) -> tuple[str, str]:
    """What a program prints, by both ways."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=pipe, env={**os.environ, **environ})
    try:
        said, errors = await asyncio.wait_for(process.communicate(), UNTIL_S)
    finally:
        if process.returncode is None:
            process.kill()
    assert process.returncode == 0, errors.decode()
    return said.decode(), errors.decode()


async def test_langchain_openai(gateway: Gateway, up: Upstream) -> None:
    from langchain_openai import ChatOpenAI, OpenAIEmbeddings

    at: Any = {"base_url": f"{gateway.base}/v1", "api_key": gateway.keys["user"], "model": "default"}
    model = ChatOpenAI(**at, stream_usage=True)
    whole = await model.ainvoke("say something")
    streamed = None
    async for chunk in model.astream("say something"):
        streamed = chunk if streamed is None else streamed + chunk
    assert streamed is not None
    assert (whole.text, streamed.text) == (SAID, SAID)
    printed = [answer.usage_metadata for answer in (whole, streamed)]
    # With the check of lengths it would fetch a vocabulary; it sends texts without.
    vectors = await OpenAIEmbeddings(**at, check_embedding_ctx_length=False).aembed_documents(["a b", "c"])
    assert vectors == [[0.0, 2.0], [1.0, 1.0]]
    prompt, output = (sum(each[name] for each in printed if each) for name in ("input_tokens", "output_tokens"))
    assert await counted(gateway) == (3, prompt + 3, output)
    assert up.meter.tokens == prompt + 3 + output


async def test_the_llm_command(gateway: Gateway, tmp_path: Path, up: Upstream) -> None:
    models = {"model_id": "gw", "model_name": "default", "api_base": f"{gateway.base}/v1", "api_key_name": "gw"}
    # YAML reads JSON.
    (tmp_path / "extra-openai-models.yaml").write_text(json.dumps([models]))
    (tmp_path / "keys.json").write_text(json.dumps({"gw": gateway.keys["user"]}))
    # Plugins are left out: the package with the small model's weights is one, and wants a compiler's work.
    environ = {"LLM_USER_PATH": str(tmp_path), "LLM_LOAD_PLUGINS": ""}
    command = (sys.executable, "-m", "llm", "-m", "gw", "--usage", "say something")
    said, errors = await run(*command, **environ)
    assert said.strip() == SAID.strip()
    found = re.search(r"Token usage: (\d+) input, (\d+) output", errors)
    assert found is not None, errors
    assert await counted(gateway) == (1, int(found[1]), int(found[2]))
    assert up.seen[0].body["stream"] is True


@pytest.mark.parametrize("package", ["openai", "ai"])
async def test_clients_from_npm(package: str, gateway: Gateway, up: Upstream) -> None:
    try:
        folder = await asyncio.to_thread(installed)
    except Unavailable as error:
        pytest.skip(str(error))
    said, _ = await run("node", str(folder / f"{package}.mjs"), f"{gateway.base}/v1", gateway.keys["user"])
    printed = [json.loads(line) for line in said.splitlines()]
    assert [each["text"] for each in printed] == [SAID, SAID, "[[0,2],[1,1]]"]
    assert await counted(gateway) == (3, sum(each["prompt"] for each in printed), sum(each["output"] for each in printed))
    assert up.meter.tokens == sum(each["prompt"] + each["output"] for each in printed)
