"""`sluicegate init`: five questions, then a commented sluicegate.toml and a .env that pass `check`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import typer

from gateway.amounts import parse_amount
from gateway.budget import Unit
from gateway.cli.outcome import DONE, USAGE, CommandError
from gateway.cli.typed import own_name


@dataclass(frozen=True, slots=True)
class Preset:
    """What is known of a vendor before anything is asked."""

    api: str
    base_url: str
    key: str
    """The environment variable that holds its key; "" where none is needed."""
    model: str
    context_tokens: int


T = TypeVar("T")

PRESETS = {
    "moonshot": Preset("openai", "https://api.moonshot.ai/v1", "MOONSHOT_API_KEY", "kimi-k2.6", 262_144),
    "groq": Preset("openai", "https://api.groq.com/openai/v1", "GROQ_API_KEY", "llama-3.3-70b-versatile", 131_072),
    "openai": Preset("openai", "https://api.openai.com/v1", "OPENAI_API_KEY", "gpt-5-mini", 400_000),
    "anthropic": Preset("anthropic", "https://api.anthropic.com", "ANTHROPIC_API_KEY", "claude-haiku-4-5", 200_000),
    "gemini": Preset(
        "openai", "https://generativelanguage.googleapis.com/v1beta/openai", "GEMINI_API_KEY", "gemini-2.5-flash", 1_048_576
    ),
    "deepseek": Preset("openai", "https://api.deepseek.com/v1", "DEEPSEEK_API_KEY", "deepseek-chat", 131_072),
    "openrouter": Preset("openai", "https://openrouter.ai/api/v1", "OPENROUTER_API_KEY", "openai/gpt-oss-120b", 131_072),
    "ollama": Preset("openai", "http://127.0.0.1:11434/v1", "", "qwen3", 32_768),
}


@dataclass(frozen=True, slots=True)
class Answers:
    """What the five questions brought."""

    provider: str
    key: str
    unit: Unit
    limit: int
    token: str
    admin: int | None
    zone: str


def init(directory: Path) -> int:
    """Asks and writes. Needs a terminal, since a script has nobody to answer."""
    if not sys.stdin.isatty():
        raise CommandError("init asks questions and needs a terminal; a script can copy sluicegate.example.toml instead", USAGE)
    toml, env = directory / "sluicegate.toml", directory / ".env"
    if toml.exists() and not typer.confirm(f"{toml} exists. Write a new one over it?", default=False):
        typer.echo("Nothing was changed.")
        return DONE
    answers = ask()
    directory.mkdir(parents=True, exist_ok=True)
    _write_env(env, secrets(answers))
    toml.write_text(configuration(answers), encoding="utf-8")
    typer.echo(f"\nWrote {toml} and {env}.")
    _next_steps(toml, answers)
    return DONE


def ask() -> Answers:
    """The five questions; those that an earlier answer makes pointless are left out."""
    typer.echo("Five questions, then sluicegate.toml and .env are written here. Enter takes what stands in [brackets].\n")
    provider = _until_good("1. Who answers? (" + ", ".join(PRESETS) + ")", "groq", _known_provider)
    preset = PRESETS[provider]
    key = ""
    if preset.key:
        while not (
            key := typer.prompt(f"2. The API key for {provider} (not shown)", hide_input=True, default="", show_default=False)
        ):
            typer.echo(f"   {provider} needs a key.")
    else:
        typer.echo(f"2. {provider} needs no key.")
    unit, limit = _until_good("3. How much may it use a day? Tokens (200k) or dollars ($2)", "200k", _limit)
    token = typer.prompt(
        "4. A Telegram bot's token from @BotFather (not shown; empty: no bot)", hide_input=True, default="", show_default=False
    ).strip()
    admin = None
    if token:
        admin = _until_good("5. Your numeric Telegram id (empty: `serve` prints a pairing code)", "", _telegram_id)
    else:
        typer.echo("5. Without a bot there is nobody to be its admin.")
    return Answers(provider, key.strip(), unit, limit, token, admin, local_zone())


def _until_good(question: str, default: str, read: Callable[[str], T]) -> T:
    while True:
        try:
            return read(typer.prompt(question, default=default, show_default=bool(default)))
        except ValueError as error:
            typer.echo(f"   {error}")


def _known_provider(text: str) -> str:
    name = text.strip().lower()
    if name not in PRESETS:
        raise ValueError(f"{text!r} is not one of {', '.join(PRESETS)}; others are a few lines in sluicegate.toml")
    return name


def _limit(text: str) -> tuple[Unit, int]:
    unit = Unit.MICRO_USD if text.strip().startswith("$") else Unit.TOKENS
    return unit, parse_amount(text, unit)


def _telegram_id(text: str) -> int | None:
    if not text.strip():
        return None
    if not text.strip().isdecimal():
        raise ValueError(f"{text!r} is not a number: @userinfobot tells yours")
    return int(text)


def local_zone() -> str:
    """The machine's IANA zone, UTC where it does not say."""
    candidates = [os.environ.get("TZ", "").lstrip(":")]
    try:
        candidates.append(str(Path("/etc/localtime").resolve()).partition("zoneinfo/")[2])
    except OSError:
        candidates.append("")
    for name in candidates:
        try:
            if name and "/" in name:
                return ZoneInfo(name).key
        except (ZoneInfoNotFoundError, ValueError):
            continue
    return "UTC"


def secrets(answers: Answers) -> dict[str, str]:
    """The lines of .env."""
    values = {}
    if PRESETS[answers.provider].key:
        values[PRESETS[answers.provider].key] = answers.key
    if answers.token:
        values["TELEGRAM_BOT_TOKEN"] = answers.token
    return values


def _write_env(path: Path, values: dict[str, str]) -> None:
    """Adds to a .env that exists, after asking where a line would change; only its owner can read it."""
    old = path.read_text(encoding="utf-8").splitlines() if path.exists() else ["# Secrets. Never commit this file."]
    lines = []
    for line in old:
        name = line.partition("=")[0].removeprefix("export ").strip()
        if name not in values:
            lines.append(line)
        elif line.partition("=")[2].strip() == values[name] or not typer.confirm(
            f"{path} has another {name}. Put the new one in its place?", default=False
        ):
            lines.append(line)
            del values[name]
    lines += [f"{name}={value}" for name, value in values.items()]
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.fchmod(descriptor, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")


def configuration(answers: Answers) -> str:
    """The commented sluicegate.toml."""
    preset = PRESETS[answers.provider]
    quota = f"usd      = {answers.limit / 1_000_000:g}" if answers.unit is Unit.MICRO_USD else f"tokens   = {answers.limit:_}"
    admins = str(answers.admin) if answers.admin is not None else ""
    provider = [
        f"[providers.{answers.provider}]",
        f'api      = "{preset.api}"'.ljust(47) + "# wire format: openai, anthropic, local or demo",
        f'base_url = "{preset.base_url}"',
        f'model    = "{preset.model}"',
        f"context_tokens = {preset.context_tokens:_}",
    ]
    if preset.key:
        provider.insert(3, f'api_key  = "env:{preset.key}"'.ljust(47) + "# the key itself stands in .env")
    else:
        provider.append('price    = "free"')
    return TEMPLATE.format(
        zone=answers.zone, admins=admins, provider="\n".join(provider), name=answers.provider, quota=quota.ljust(46)
    )


TEMPLATE = """\
# Sluicegate's configuration. `sluicegate check` names every mistake in it; sluicegate.example.toml shows everything there is.

[gateway]
database_url = "sqlite:///var/sluicegate.db"   # relative to this file; or postgresql://user@host/db
timezone     = "{zone}"
listen       = "127.0.0.1:8080"

[telegram]                                     # on when TELEGRAM_BOT_TOKEN is set in .env
admins        = [{admins}]                     # numeric ids; none yet: serve prints a code, /start CODE makes the first admin
allowed_users = []                             # who else may use the bot
allowed_chats = []                             # groups
chain         = "default"

{provider}

[chains]
default = ["{name}"]                           # tried in this order: a second one answers when the first is used up

[[budgets]]
name     = "{name}-day"
provider = "{name}"                            # no scope line at all: every call counts
{quota} # exactly one of tokens, usd, requests; 0 is nothing allowed
per      = "day"                               # minute hour day week month lifetime, or "rolling 1h"
warn_at  = [0.8, 0.95]
"""


def _next_steps(toml: Path, answers: Answers) -> None:
    place = "" if toml.parent == Path() else f" --config {toml}"
    program = own_name()
    typer.echo("Next:")
    typer.echo(f"  {program} check{place}")
    typer.echo(f"  {program} db upgrade{place}")
    typer.echo(f'  {program} chat "Say hello"{place}')
    typer.echo(f"  {program} serve{place}" + ("" if not answers.token else "   # the bot answers from then on"))
