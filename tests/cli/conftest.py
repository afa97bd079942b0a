"""A folder with a configuration whose providers are scripted, and its database."""

import shutil
from pathlib import Path

import pytest

from tests.cli.program import run

CONFIG = """
[gateway]
timezone = "Europe/Madrid"
listen = "127.0.0.1:0"

[providers.first]
api = "demo"
model = "scripted"

[providers.second]
api = "demo"
model = "scripted"

[providers.paid]
api = "openai"
base_url = "http://127.0.0.1:9/v1"
api_key = "env:PAID_KEY"
model = "gpt-5-mini"
price = { input = 0.25, output = 2 }

[chains]
default = ["first", "second"]
costly = ["paid"]

[[budgets]]
name = "first-requests"
provider = "first"
requests = 2
per = "rolling 10m"

[[budgets]]
name = "second-requests"
provider = "second"
requests = 1
per = "day"
resets = "06:00"

[[budgets]]
name = "person-day"
user = "*"
tokens = 40_000
per = "day"

[[budgets]]
name = "all-money"
usd = 1.5
per = "month"
"""


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The configuration and an empty database at the newest migration, made once."""
    made = tmp_path_factory.mktemp("program")
    (made / "sluicegate.toml").write_text(CONFIG)
    (made / ".env").write_text("PAID_KEY=pk-very-secret-1234\n")
    upgraded = run(made, "db", "upgrade")
    assert upgraded.code == 0, upgraded.err
    return made


@pytest.fixture
def folder(template: Path, tmp_path: Path) -> Path:
    """A copy of the template."""
    shutil.copytree(template, tmp_path, dirs_exist_ok=True)
    return tmp_path
