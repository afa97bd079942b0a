"""Secrets and overrides: where they come from, and that they are never shown."""

from pathlib import Path

import pytest

from gateway.errors import ConfigError
from gateway.settings import load
from tests.settings.test_load import FULL, MINIMAL, SECRETS, problems, read


def test_dotenv_beside_the_file_stands_under_the_environment(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text(
        "# keys\nexport MOONSHOT_API_KEY='from file' # old\nGROQ_API_KEY=\"file\"\n\nTELEGRAM_BOT_TOKEN=\nDATABASE_URL=postgres://u:p@h/d\n"
    )
    settings = read(tmp_path, FULL, {"GROQ_API_KEY": "from environment"})
    assert settings.providers["moonshot"].api_key == "from file"
    assert settings.providers["groq"].api_key == "from environment"
    assert settings.database_url == "postgresql+psycopg://u:p@h/d"
    assert settings.telegram.token == ""


def test_a_broken_dotenv_line_is_named_without_its_text(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text('OK=1\nsk-secret\nKEY="sk-secret\n')
    found = problems(tmp_path, MINIMAL, {})
    assert [line.split(": must")[0] for line in found] == [".env: line 2", ".env: line 3"]
    assert "sk-secret" not in "".join(found)


def test_a_missing_or_empty_secret_is_named_by_its_variable(tmp_path: Path) -> None:
    found = problems(tmp_path, FULL, {"GROQ_API_KEY": ""})
    assert found == [
        "sluicegate.toml: providers.moonshot.api_key: the environment variable MOONSHOT_API_KEY is not set (nor in .env)",
        "sluicegate.toml: providers.groq.api_key: the environment variable GROQ_API_KEY is not set (nor in .env)",
    ]


@pytest.mark.parametrize("written", ["gsk-literal-secret", "env:", "env:not a name", ""])
def test_a_secret_in_the_file_is_refused_and_not_repeated(tmp_path: Path, written: str) -> None:
    (line,) = problems(tmp_path, FULL.replace("env:GROQ_API_KEY", written))
    assert line.startswith('sluicegate.toml: providers.groq.api_key: must be "env:NAME"')
    assert "literal" not in line


def test_a_token_or_a_password_in_the_file_is_refused(tmp_path: Path) -> None:
    text = MINIMAL.replace("http://", "http://me:hunter2@")
    text += '[telegram]\ntoken = "1:hunter2"\n[gateway]\ndatabase_url = "postgresql://u:hunter2@h/d"\n'
    found = problems(tmp_path, text, {})
    assert [line.split(": ")[1] for line in found] == ["gateway.database_url", "providers.home.base_url", "telegram.token"]
    assert "hunter2" not in "".join(found)


def test_secrets_are_not_in_the_repr(tmp_path: Path) -> None:
    environ = {**SECRETS, "DATABASE_URL": "postgres://u:hunter2@h/d", "TELEGRAM_BOT_TOKEN": "1:hunter2"}
    settings = read(tmp_path, FULL, environ)
    assert settings.telegram.token == "1:hunter2"
    shown = repr(settings) + str(settings)
    assert "hunter2" not in shown
    assert not any(value in shown for value in SECRETS.values())


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("postgres://u@h:1/d", "postgresql+psycopg://u@h:1/d"),
        ("postgresql://u@h/d?sslmode=require", "postgresql+psycopg://u@h/d?sslmode=require"),
        ("postgresql+psycopg:///d", "postgresql+psycopg:///d"),
        ("sqlite:///x/y.db", "sqlite:///{folder}/x/y.db"),
        ("sqlite:////tmp/y.db", "sqlite:////tmp/y.db"),
    ],
)
def test_database_url_overrides_in_every_spelling(tmp_path: Path, url: str, expected: str) -> None:
    settings = read(tmp_path, MINIMAL, {"DATABASE_URL": url})
    assert settings.database_url == expected.format(folder=tmp_path)


@pytest.mark.parametrize("url", ["mysql://u:hunter2@h/d", "sqlite://", "sqlite:///:memory:", "hunter2"])
def test_other_databases_are_refused_without_repeating_the_url(tmp_path: Path, url: str) -> None:
    (line,) = problems(tmp_path, MINIMAL, {"DATABASE_URL": url})
    assert line.startswith("environment: DATABASE_URL: must be sqlite:///")
    assert "hunter2" not in line


def test_port_overrides_and_opens_every_interface_unless_listen_is_written(tmp_path: Path) -> None:
    settings = read(tmp_path, MINIMAL, {"PORT": "5000"})
    assert (settings.host, settings.port) == ("0.0.0.0", 5000)
    settings = read(tmp_path, MINIMAL + '[gateway]\nlisten = "[::1]:9"\n', {"PORT": "5000"})
    assert (settings.host, settings.port) == ("::1", 5000)
    assert problems(tmp_path, MINIMAL, {"PORT": "http"}) == ["environment: PORT: must be a port number"]


def test_a_name_of_ours_that_the_file_asks_for_is_known(tmp_path: Path) -> None:
    text = FULL.replace("env:GROQ_API_KEY", "env:SLUICEGATE_GROQ")
    assert read(tmp_path, text, {**SECRETS, "SLUICEGATE_GROQ": "x", "SLUICEGATE_CONFIG": "y"}).providers["groq"].api_key == "x"


def test_case_44_a_webhook_without_a_secret_does_not_start(tmp_path: Path) -> None:
    text = MINIMAL + '[telegram]\nmode = "webhook"\n'
    assert [line.split(": ")[1] for line in problems(tmp_path, text, {"TELEGRAM_WEBHOOK_SECRET": ""})] == [
        "telegram.public_url",
        "telegram.mode",
    ]
    text += 'public_url = "https://bot.example/"\n'
    assert problems(tmp_path, text, {"TELEGRAM_WEBHOOK_SECRET": "a b"})[0].startswith("environment: TELEGRAM_WEBHOOK_SECRET")
    telegram = read(tmp_path, text, {"TELEGRAM_WEBHOOK_SECRET": "a-b"}).telegram
    assert (telegram.mode, telegram.public_url, telegram.webhook_secret) == ("webhook", "https://bot.example", "a-b")


def test_the_file_is_found_by_argument_then_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sluicegate.toml").write_text(MINIMAL)
    (tmp_path / "other.toml").write_text(MINIMAL.replace("home", "other"))
    assert "home" in load(None, {}).providers
    assert "other" in load(None, {"SLUICEGATE_CONFIG": "other.toml"}).providers
    assert "home" in load(Path("sluicegate.toml"), {"SLUICEGATE_CONFIG": "other.toml"}).providers
    with pytest.raises(ConfigError):
        load(tmp_path, {})
