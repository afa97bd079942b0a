"""The files that people copy are right, and the reference names every key."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

from gateway.budget import SCOPE_KINDS, Budget, Unit
from gateway.settings import (
    Model,
    ProviderSettings,
    ReportSettings,
    Schedule,
    Settings,
    TelegramSettings,
    WorkflowRules,
    WorkflowsSettings,
    load,
)
from gateway.settings.environment import OWN_NAMES, read_dotenv
from gateway.settings.table import Problems, Table

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "sluicegate.example.toml"


def test_the_example_loads_with_the_variables_that_the_env_example_names(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text((ROOT / ".env.example").read_text())
    problems = Problems("x")
    named = read_dotenv(tmp_path, problems)
    assert problems.found == []
    settings = load(EXAMPLE, {name: "1:x" if name == "TELEGRAM_BOT_TOKEN" else "x" for name in named})
    assert list(settings.chains) == ["default", "thorough"]
    assert {budget.unit for budget in settings.budgets.all} == set(Unit)
    assert settings.database_url == f"sqlite:///{ROOT}/var/sluicegate.db"


def test_every_variable_of_the_env_example_is_one_that_the_program_reads() -> None:
    names = set(re.findall(r"^#?([A-Z_]+)=", (ROOT / ".env.example").read_text(), re.MULTILINE))
    wanted = set(re.findall(r"env:([A-Z_]+)", EXAMPLE.read_text()))
    assert names == wanted | {"TELEGRAM_BOT_TOKEN", "TELEGRAM_WEBHOOK_SECRET", "DATABASE_URL", "PORT"}


def test_the_reference_names_every_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: set[str] = set()
    get = Table.get

    def listening(table: Table, key: str) -> object:
        asked.add(key)
        return get(table, key)

    monkeypatch.setattr(Table, "get", listening)
    reference = (ROOT / "docs" / "configuration.md").read_text()
    text = EXAMPLE.read_text() + '\n[providers.d]\napi = "demo"\nmodel = "m"\nprice = { input = 1, output = 1 }\n'
    (tmp_path / "sluicegate.toml").write_text(re.sub(r"env:[A-Z_]+", "env:KEY", text))
    settings = load(tmp_path / "sluicegate.toml", {"KEY": "x"})
    values = {
        *settings.providers,
        *settings.chains,
        *(model for one in settings.providers.values() for model in one.models),
        *settings.workflows.rules,
        "1002",
    }
    sections = {"gateway", "defaults", "telegram", "providers", "chains", "budgets", "workflows", "schedules", "reports"}
    missing = {key for key in asked - values - sections if not re.search(rf"`[^`\n]*\b{re.escape(key)}\b[^`\n]*`", reference)}
    assert not missing
    assert all(f"`{name}`" in reference for name in {*OWN_NAMES, *SCOPE_KINDS})


def test_every_key_is_used_by_somebody() -> None:
    # A key that is read from the file and then forgotten would promise what nothing does.
    files = [path.read_text() for path in (ROOT / "gateway").rglob("*.py") if path.parent.name != "settings"]
    used = set(re.findall(r"\.([a-z_]+)\b", "\n".join(files)))
    # Names that the settings themselves resolve before anybody else sees them.
    used |= {"aliases"}
    kinds = (
        Settings,
        Model,
        ProviderSettings,
        TelegramSettings,
        WorkflowRules,
        WorkflowsSettings,
        Schedule,
        ReportSettings,
        Budget,
    )
    assert [f"{kind.__name__}.{field.name}" for kind in kinds for field in fields(kind) if field.name not in used] == []
