"""Every configured provider is made, and none of them is connected or started by that."""

import subprocess
import sys
from pathlib import Path

from gateway import settings as configuration
from gateway.providers import build
from gateway.providers.anthropic import AnthropicProvider
from gateway.providers.demo import DemoProvider
from gateway.providers.local import LocalProvider
from gateway.providers.openai import OpenAIProvider
from tests.doubles.clock import SettableClock

CONFIG = """
[providers.groq]
api = "openai"
base_url = "https://api.groq.com/openai/v1"
model = "llama"
[providers.claude]
api = "anthropic"
base_url = "https://api.anthropic.com"
model = "claude"
[providers.small]
api = "local"
model = "smollm2-135m"
[providers.other]
api = "local"
model = "smollm2-135m"
[providers.fake]
api = "demo"
model = "scripted"
[chains]
default = ["groq", "claude", "small", "other", "fake"]
"""


async def test_each_by_its_wire_format(tmp_path: Path) -> None:
    path = tmp_path / "sluicegate.toml"
    path.write_text(CONFIG)
    made = build(configuration.load(path, {}), SettableClock())
    assert {name: type(provider) for name, provider in made.items()} == {
        "groq": OpenAIProvider,
        "claude": AnthropicProvider,
        "small": LocalProvider,
        "other": LocalProvider,
        "fake": DemoProvider,
    }
    assert all(provider.name == name for name, provider in made.items())
    for provider in made.values():
        await provider.close()


def test_the_face_alone_brings_in_no_http_client() -> None:
    """A command that calls nobody must not pay for one."""
    asked = "import sys, gateway.providers; print([name for name in ('aiohttp', 'httptools', 'orjson') if name in sys.modules])"
    out = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True, timeout=100).stdout
    assert out.strip() == "[]"
