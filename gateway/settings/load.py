"""Reads sluicegate.toml: the sections one by one, every problem collected, and one ConfigError at the end."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from gateway.errors import ConfigError, Problem
from gateway.settings.budgets import read_budgets
from gateway.settings.environment import Environment, read_dotenv
from gateway.settings.providers import Names, check_url, read_chains, read_providers
from gateway.settings.reports import read_reports
from gateway.settings.table import Problems, Table, did_you_mean
from gateway.settings.values import Settings, TelegramSettings
from gateway.settings.workflows import read_schedules, read_workflows

DEFAULT_FILE = "sluicegate.toml"
DEFAULT_DATABASE = "sqlite:///var/sluicegate.db"
DEFAULT_LISTEN = "127.0.0.1:8080"

UTC_ZONE = ZoneInfo("UTC")


def locate(path: Path | None, environ: Mapping[str, str]) -> Path:
    """The configuration file: `path`, else SLUICEGATE_CONFIG, else sluicegate.toml in the working directory."""
    return (path or Path(environ.get("SLUICEGATE_CONFIG") or DEFAULT_FILE)).expanduser().absolute()


def load(path: Path | None, environ: Mapping[str, str]) -> Settings:
    """Reads and checks the configuration at `locate(path, environ)`. Raises ConfigError with every problem.

    `environ` is the process's environment; `.env` beside the file stands under it.
    """
    file = locate(path, environ)
    problems = Problems(file.name)
    root = Table(_read(file), "", problems)
    env = Environment(environ, read_dotenv(file.parent, problems), problems)
    settings = _settings(file, root, env)
    root.finish()
    env.finish()
    if problems.found:
        raise ConfigError(tuple(problems.found))
    return settings


def _read(file: Path) -> dict[str, Any]:
    place = file.name
    try:
        return tomllib.loads(file.read_text("utf-8-sig"), parse_float=Decimal)
    except FileNotFoundError:
        message = f"there is no such file in {file.parent}: `sluicegate init` writes one, `sluicegate demo` needs none"
    except UnicodeDecodeError:
        message = "is not UTF-8 text"
    except OSError as error:
        message = f"cannot be read: {error.strerror}"
    except tomllib.TOMLDecodeError as error:
        message = f"is not valid TOML: {error}"
    raise ConfigError((Problem(place, message),))


def _settings(file: Path, root: Table, env: Environment) -> Settings:
    section = root.table("gateway")
    url = _database(section, env, file.parent)
    zone = _zone(section)
    host, port = _listen(section, env)
    chain_timeout_s = section.seconds("chain_timeout_s", 300.0)
    section.finish({"database": 'unknown key, did you mean "database_url"?'})
    defaults = root.table("defaults")
    max_output_tokens = defaults.integer("max_output_tokens", 2048, least=1)
    min_reply_tokens = defaults.integer("min_reply_tokens", 64, least=1)
    defaults.finish()
    names = read_providers(root, env, max_output_tokens)
    read_chains(root, names)
    return Settings(
        path=file,
        database_url=url,
        zone=zone,
        host=host,
        port=port,
        max_output_tokens=max_output_tokens,
        min_reply_tokens=min_reply_tokens,
        providers=names.providers,
        chains=names.chains,
        budgets=read_budgets(root, names, zone),
        telegram=read_telegram(root.table("telegram"), env, names),
        chain_timeout_s=chain_timeout_s,
        workflows=read_workflows(root, file.parent),
        schedules=read_schedules(root, zone, file.parent),
        reports=read_reports(root, zone, file.parent),
    )


def _database(section: Table, env: Environment, folder: Path) -> str:
    """The database's URL in SQLAlchemy's form. Its text is never part of a message: it may hold a password."""
    written = section.text("database_url", DEFAULT_DATABASE)
    if _has_password(written):
        section.wrong("database_url", "must hold no password: set DATABASE_URL in the environment or in .env")
    override = env.get("DATABASE_URL")
    url = database_url(override or written, folder)
    if url is None:
        message = (
            "must be sqlite:///path or postgresql://user@host/database "
            "(a database in memory would forget what was spent at a restart)"
        )
        if override:
            section.problems.elsewhere("environment: DATABASE_URL", message)
        else:
            section.wrong("database_url", message)
    return url or ""


def database_url(text: str, folder: Path) -> str | None:
    """The SQLAlchemy URL for a configured one, a relative SQLite path taken from `folder`; None when it is neither kind."""
    scheme, _, rest = text.partition("://")
    if scheme in ("postgres", "postgresql", "postgresql+psycopg") and rest:
        return f"postgresql+psycopg://{rest}"
    path = rest.removeprefix("/")
    if scheme != "sqlite" or not rest.startswith("/") or not path or path.startswith(":memory:"):
        return None
    return f"sqlite:///{folder / path}"


def _has_password(url: str) -> bool:
    try:
        return bool(urlsplit(url).password) or "password=" in url
    except ValueError:
        return False


def _zone(section: Table) -> ZoneInfo:
    name = section.text("timezone", "UTC")
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        section.wrong("timezone", f'no such time zone "{name}"{did_you_mean(name, available_timezones())}')
        return UTC_ZONE


def _listen(section: Table, env: Environment) -> tuple[str, int]:
    """Host and port. A host that sets PORT expects every interface, unless `listen` says otherwise."""
    text = section.text("listen", DEFAULT_LISTEN)
    matched = re.fullmatch(r"(\[[0-9a-fA-F:.]+\]|[^:\s\[\]]+):([0-9]{1,5})", text)
    if matched is None or int(matched[2]) > 65_535:
        section.wrong("listen", 'must be "host:port", such as "127.0.0.1:8080"')
        return "127.0.0.1", 8080
    host, port = matched[1].strip("[]"), int(matched[2])
    override = env.get("PORT")
    if not override:
        return host, port
    return (host if section.has("listen") else "0.0.0.0"), port_number(override, section.problems)  # noqa: S104


def port_number(text: str, problems: Problems) -> int:
    """The number in PORT; notes anything else."""
    if not re.fullmatch(r"[0-9]{1,5}", text) or int(text) > 65_535:
        problems.elsewhere("environment: PORT", "must be a port number")
        return 8080
    return int(text)


def read_telegram(table: Table, env: Environment, names: Names) -> TelegramSettings:
    """Reads `[telegram]`; the token and the webhook's secret come from the environment."""
    token = env.get("TELEGRAM_BOT_TOKEN")
    if token and not re.fullmatch(r"[0-9]+:[A-Za-z0-9_-]+", token):
        table.problems.elsewhere("environment: TELEGRAM_BOT_TOKEN", "is no bot token (digits, a colon, letters)")
    mode = table.text("mode", "polling", choices=("polling", "webhook"))
    public_url = table.text("public_url")
    webhook_secret = env.get("TELEGRAM_WEBHOOK_SECRET")
    if public_url:
        check_url(table, "public_url", public_url, ("https",))
    if mode == "webhook":
        if not public_url:
            table.wrong("public_url", 'is required with mode = "webhook"')
        if not webhook_secret:
            table.wrong("mode", '"webhook" needs TELEGRAM_WEBHOOK_SECRET in the environment or in .env, and not empty')
        elif not re.fullmatch(r"[A-Za-z0-9_-]{1,256}", webhook_secret):
            table.problems.elsewhere(
                "environment: TELEGRAM_WEBHOOK_SECRET", "may have letters, digits, _ and - only, at most 256"
            )
    api_root = table.text("api_root", "https://api.telegram.org")
    check_url(table, "api_root", api_root)
    chain = table.text("chain", "default")
    if chain not in names.chains and names.slot(chain) is None:
        table.wrong("chain", f'unknown chain "{chain}"{did_you_mean(chain, names.known)}')
    settings = TelegramSettings(
        token=token,
        mode=mode,
        public_url=public_url.rstrip("/"),
        webhook_secret=webhook_secret,
        api_root=api_root.rstrip("/"),
        admins=table.ids("admins"),
        allowed_users=table.ids("allowed_users"),
        allowed_chats=table.ids("allowed_chats"),
        groups=table.text("groups", "mention", choices=("mention", "all", "commands")),
        chain=chain,
        system_prompt=table.text("system_prompt", "You are a helpful assistant."),
        max_reply_tokens=table.integer("max_reply_tokens", 1024, least=1),
        notify_fallback=table.text("notify_fallback", "once", choices=("once", "never")),
        parked_for_h=table.integer("parked_for_h", 24, least=1),
        history_tokens=table.integer("history_tokens", 6000),
    )
    in_environment = "is a secret: set TELEGRAM_{} in the environment or in .env, never in this file"
    table.finish(
        {
            "token": in_environment.format("BOT_TOKEN"),
            "bot_token": in_environment.format("BOT_TOKEN"),
            "webhook_secret": in_environment.format("WEBHOOK_SECRET"),
        }
    )
    return settings
