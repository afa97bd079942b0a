"""The demo's settings: an answer, a fallback and a notice within ten messages."""

from pathlib import Path

import pytest

from gateway.budget import Unit
from gateway.errors import ConfigError
from gateway.settings import demo


@pytest.mark.parametrize("local", [True, False])
def test_the_demo_has_two_free_providers_and_a_chain(tmp_path: Path, local: bool) -> None:
    settings = demo(tmp_path, local, {})
    name, slots = settings.slots("default")
    assert name == settings.telegram.chain == "default"
    assert [slot.provider for slot in slots] == list(settings.providers) == ["main", "spare"]
    assert {provider.api for provider in settings.providers.values()} == {"local" if local else "demo"}
    assert all(settings.model(slot).free for slot in slots)
    assert settings.database_url == f"sqlite:///{tmp_path}/var/demo.db"


def test_its_request_budgets_end_within_ten_messages_and_open_again_soon(tmp_path: Path) -> None:
    budgets = [budget for budget in demo(tmp_path, True, {}).budgets.all if budget.unit is Unit.REQUESTS]
    assert {budget.scope["provider"] for budget in budgets} == {"main", "spare"}
    assert sum(budget.limit for budget in budgets) < 10
    assert {budget.window.text for budget in budgets} == {"rolling 5m"}


def test_the_environment_adds_a_bot_and_moves_the_rest(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("TELEGRAM_BOT_TOKEN=1:abc\n")
    settings = demo(tmp_path, False, {"PORT": "9", "DATABASE_URL": "postgres://u@h/d"})
    assert (settings.telegram.token, settings.host, settings.port) == ("1:abc", "127.0.0.1", 9)
    assert settings.database_url == "postgresql+psycopg://u@h/d"
    with pytest.raises(ConfigError) as caught:
        demo(tmp_path, False, {"PORT": "x", "SLUICEGATE_X": "1"})
    assert len(caught.value.problems) == 2
