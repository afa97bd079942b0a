"""A real Chromium in front of the whole program."""

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.doubles.clock import SettableClock
from tests.doubles.upstream import Upstream

OPTIONS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip


@pytest.fixture
async def browser() -> AsyncIterator[object]:
    """Chromium, as the system has it: playwright's own cannot be had as a package."""
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        pytest.skip("Chromium is not installed (Debian and Ubuntu: apt-get install chromium fonts-dejavu-core)")
    playwright = pytest.importorskip("playwright.async_api", reason="playwright is not installed")
    async with playwright.async_playwright() as running:
        chromium = await running.chromium.launch(executable_path=found, args=list(OPTIONS))
        yield chromium
        await chromium.close()


@pytest.fixture
async def up() -> AsyncIterator[Upstream]:
    """A scripted upstream with its own meter."""
    async with Upstream() as upstream:
        yield upstream


@pytest.fixture
def clock() -> SettableClock:
    """A clock that the test sets."""
    return SettableClock()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the configuration and the database lie."""
    return tmp_path / "gateway"
