"""The built-in demo configuration: two providers with small budgets, so that a reader soon sees what the gate does."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from zoneinfo import ZoneInfo

from gateway.budget import Budget, Budgets, Rolling, Unit
from gateway.chat import Slot
from gateway.errors import ConfigError
from gateway.settings.environment import Environment, read_dotenv
from gateway.settings.load import DEFAULT_DATABASE, database_url, port_number, read_telegram
from gateway.settings.providers import Names
from gateway.settings.table import Problems, Table
from gateway.settings.values import Model, ProviderSettings, Settings, WorkflowsSettings
from gateway.settings.workflows import DEFAULT_PATH

LOCAL_MODEL = "smollm2-135m"
SCRIPTED_MODEL = "scripted"
FIRST, SECOND = "main", "spare"
_WINDOW = Rolling(300, "rolling 5m")
_REPLY_TOKENS = 160
_CONTEXT_TOKENS = 4096
_SYSTEM_PROMPT = "Answer in English, in one or two short sentences."
"""Tried out: without it, or with a longer one, the packaged model rambles."""


def demo(base_dir: Path, local: bool, environ: Mapping[str, str]) -> Settings:
    """The demo's settings, its database under `base_dir`/var. Raises ConfigError when the environment is wrong.

    `local` serves the packaged small model, else the scripted provider stands in. TELEGRAM_BOT_TOKEN (also in
    `base_dir`/.env) brings the bot up; DATABASE_URL and PORT override. The first provider answers four messages, or
    fewer long ones, and the second three; then there is a notice, and after five minutes room again.
    """
    problems = Problems("demo")
    env = Environment(environ, read_dotenv(base_dir, problems), problems)
    names = Names()
    for name in (FIRST, SECOND):
        names.providers[name] = _provider(name, local)
        names.canonical[name] = name
    names.chains["default"] = tuple(Slot(name, provider.model) for name, provider in names.providers.items())
    url = database_url(env.get("DATABASE_URL") or DEFAULT_DATABASE.replace("sluicegate.db", "demo.db"), base_dir.absolute())
    if url is None:
        problems.elsewhere("environment: DATABASE_URL", "must be sqlite:///path or postgresql://user@host/database")
    telegram = {"system_prompt": _SYSTEM_PROMPT, "max_reply_tokens": _REPLY_TOKENS, "history_tokens": _CONTEXT_TOKENS // 8}
    settings = Settings(
        path=None,
        database_url=url or "",
        zone=ZoneInfo("UTC"),
        host="127.0.0.1",
        port=port_number(env.get("PORT") or "8080", problems),
        max_output_tokens=_REPLY_TOKENS,
        min_reply_tokens=32,
        providers=names.providers,
        chains=names.chains,
        budgets=_budgets(),
        telegram=read_telegram(Table(telegram, "telegram", problems), env, names),
        workflows=WorkflowsSettings(path=base_dir.absolute() / DEFAULT_PATH),
    )
    env.finish()
    if problems.found:
        raise ConfigError(tuple(problems.found))
    return settings


def _provider(name: str, local: bool) -> ProviderSettings:
    model = LOCAL_MODEL if local else SCRIPTED_MODEL
    known = Model(
        name=model,
        context_tokens=_CONTEXT_TOKENS,
        max_output_tokens=_REPLY_TOKENS,
        free=True,
        # The packaged model has to load, on whatever machine this is, before its first answer.
        first_token_timeout_s=60.0,
    )
    return ProviderSettings(
        name=name,
        api="local" if local else "demo",
        model=model,
        models={model: known},
        first_token_timeout_s=known.first_token_timeout_s,
    )


def _budgets() -> Budgets:
    """A count of requests bounds the demo whatever is typed; the tokens show how an answer is held and settled."""
    return Budgets(
        [
            Budget("main-tokens", Unit.TOKENS, 1500, _WINDOW, {"provider": FIRST}),
            Budget("main-requests", Unit.REQUESTS, 4, _WINDOW, {"provider": FIRST}),
            Budget("spare-requests", Unit.REQUESTS, 3, _WINDOW, {"provider": SECOND}),
            Budget("everyone", Unit.TOKENS, 100_000, Rolling(86_400, "rolling 1d"), {}),
        ]
    )
