"""The benchmark's own parts: what they measure must be what happened."""

from pathlib import Path

import pytest

from bench import servers
from bench.load import measure


@pytest.mark.parametrize("stream", [False, True])
async def test_the_load_counts_what_it_asked_and_stops(tmp_path: Path, stream: bool) -> None:
    with servers.upstream(0, tmp_path) as url, servers.passthrough(url, 0, tmp_path) as bare:
        done = await measure(
            f"{bare.url}/v1/chat/completions", key="k", connections=4, stream=stream, seconds=10, most=50, model="wait-50"
        )
    assert done.requests == 50
    assert done.first_p50_ms >= 50
    assert done.p99_ms >= done.p50_ms >= done.first_p50_ms


async def test_an_answer_that_is_no_success_ends_the_round(tmp_path: Path) -> None:
    with (
        servers.upstream(0, tmp_path) as url,
        servers.passthrough(url, 0, tmp_path) as bare,
        pytest.raises(RuntimeError, match="404"),
    ):
        await measure(f"{bare.url}/nowhere", key="k", connections=2, stream=False, seconds=10)


async def test_load_goes_to_loopback_only() -> None:
    with pytest.raises(RuntimeError, match=r"127\.0\.0\.1"):
        await measure("http://192.0.2.1:80/", key="k", connections=1, stream=False, seconds=0.1)
