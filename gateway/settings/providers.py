"""`[providers]` and `[chains]`: who can answer, and in which order they are asked."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from urllib.parse import urlsplit

from gateway.chat import Slot
from gateway.settings.environment import Environment
from gateway.settings.table import Table, as_decimal, did_you_mean
from gateway.settings.values import FREE_APIS, Model, Price, ProviderSettings

APIS = ("openai", "anthropic", "local", "demo")
DEFAULT_CHAIN = "default"
ANTHROPIC_CACHE_WRITE = Decimal("1.25")
"""Times the price of input: what Anthropic takes for input that it keeps for five minutes, the only kind that is let through."""
SCRIPT_SECONDS = ("delay_s", "start_s", "stall_s", "retry_after_s")
SCRIPT_FAILURES = ("refused", "rate_limited", "unanswered")

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]*")
"""What a name may be. A colon parts a provider from its model, so a name has none."""


@dataclass
class Names:
    """The one namespace of chains, providers and aliases, while it is being read."""

    providers: dict[str, ProviderSettings] = field(default_factory=dict)
    canonical: dict[str, str] = field(default_factory=dict)
    """Every provider's name and alias, mapped to its name."""
    chains: dict[str, tuple[Slot, ...]] = field(default_factory=dict)

    def slot(self, text: str) -> Slot | None:
        """The slot that "provider", "alias" or "provider:model" names, None when nothing configured does."""
        name, _, model = text.partition(":")
        provider = self.providers.get(self.canonical.get(name, ""))
        if provider is None:
            return None
        model = model or provider.model
        return Slot(provider.name, model) if model in provider.models and not text.endswith(":") else None

    @property
    def known(self) -> list[str]:
        """All names, for suggestions."""
        models = [f"{name}:{model}" for name, provider in self.providers.items() for model in provider.models]
        return [*self.canonical, *self.chains, *models]


@dataclass(frozen=True)
class Limits:
    """What a model has where its section and its provider's say nothing."""

    max_output_tokens: int
    timeout_s: float = 120.0
    first_token_timeout_s: float = 20.0
    idle_timeout_s: float = 20.0
    max_attempts: int = 2


def read_providers(root: Table, env: Environment, max_output_tokens: int) -> Names:
    """Reads `[providers]`, noting problems; duplicate names are noted once."""
    names = Names()
    section = root.table("providers")
    if not section.raw:
        root.wrong("providers", "at least one provider is needed, such as [providers.home]")
    for name in section.raw:
        table = section.table(name)
        if not NAME.fullmatch(name):
            section.wrong(name, "a name has letters, digits and . _ / - only")
        provider = _provider(name, table, env, max_output_tokens)
        names.providers[name] = provider
        names.canonical[name] = name
    for name, provider in names.providers.items():
        _claim_aliases(section.table(name), provider, names)
    return names


def _claim_aliases(table: Table, provider: ProviderSettings, names: Names) -> None:
    for alias in provider.aliases:
        if not NAME.fullmatch(alias):
            table.wrong("aliases", "a name has letters, digits and . _ / - only")
        elif alias in names.canonical:
            taken = "is given twice" if names.canonical[alias] == provider.name else f"already means {names.canonical[alias]}"
            table.wrong("aliases", f'"{alias}" {taken}')
        else:
            names.canonical[alias] = provider.name


def _provider(name: str, table: Table, env: Environment, max_output_tokens: int) -> ProviderSettings:
    api = table.text("api", choices=APIS, required=True)
    model = table.text("model", required=True)
    base_url = _base_url(table, api)
    key, source = secret(table, "api_key", env)
    limits = _limits(table, Limits(max_output_tokens))
    models = {model: _model(model, table, limits, api)}
    further = table.table("models")
    for other in further.raw:
        section = further.table(other)
        if other == model:
            further.wrong(other, f"is the provider's own model: write its keys under [{table.path}]")
        else:
            models[other] = _model(other, section, _limits(section, limits), api)
        section.finish()
    script = _script(table, api)
    aliases = table.texts("aliases")
    table.finish()
    return ProviderSettings(
        name=name,
        api=api,
        model=model,
        base_url=base_url,
        api_key=key,
        key_source=source,
        aliases=aliases,
        models=models,
        timeout_s=limits.timeout_s,
        first_token_timeout_s=limits.first_token_timeout_s,
        idle_timeout_s=limits.idle_timeout_s,
        max_attempts=limits.max_attempts,
        script=script,
    )


def _script(table: Table, api: str) -> dict[str, object]:
    """What the scripted provider does: only what is written, its own defaults hold for the rest."""
    section = table.table("script")
    if section.raw and api != "demo":
        table.wrong("script", 'belongs to api = "demo" only')
    read: dict[str, object] = {key: section.seconds(key, 0.0, least=0.0) for key in SCRIPT_SECONDS}
    read |= {key: section.optional_integer(key) for key in ("first_n_fail", "output_tokens")}
    read |= {"reply": section.text("reply"), "fail": section.text("fail", choices=SCRIPT_FAILURES)}
    section.finish()
    return {key: value for key, value in read.items() if section.has(key)}


def _limits(table: Table, above: Limits) -> Limits:
    return Limits(
        max_output_tokens=table.integer("max_output_tokens", above.max_output_tokens, least=1),
        timeout_s=table.seconds("timeout_s", above.timeout_s),
        first_token_timeout_s=table.seconds("first_token_timeout_s", above.first_token_timeout_s),
        idle_timeout_s=table.seconds("idle_timeout_s", above.idle_timeout_s),
        max_attempts=table.integer("max_attempts", above.max_attempts, least=1),
    )


def _model(name: str, table: Table, limits: Limits, api: str) -> Model:
    price = _price(table, api)
    return Model(
        name=name,
        context_tokens=table.optional_integer("context_tokens", least=1),
        max_output_tokens=limits.max_output_tokens,
        image_tokens=table.optional_integer("image_tokens", least=0),
        price=price if isinstance(price, Price) else None,
        free=price == "free" or (api in FREE_APIS and price is None),
        tools=table.flag("tools", True),
        timeout_s=limits.timeout_s,
        first_token_timeout_s=limits.first_token_timeout_s,
        idle_timeout_s=limits.idle_timeout_s,
        max_attempts=limits.max_attempts,
    )


def _price(table: Table, api: str) -> Price | str | None:
    """A Price, "free", or None for the price list."""
    value = table.get("price")
    if value is None or value == "free":
        return "free" if value == "free" else None
    if not isinstance(value, Mapping):
        table.wrong("price", 'must be "free" or { input = …, output = … } in USD per million tokens')
        return None
    section = table.table("price")
    rates: dict[str, Decimal] = {}
    for key in ("input", "output", "cached_input", "cache_write"):
        raw = section.get(key)
        rate = as_decimal(raw)
        if raw is None:
            if key in ("input", "output"):
                section.wrong(key, "is required (USD per million tokens)")
        elif rate is None:
            section.wrong(key, "must be a number (USD per million tokens)")
        elif not 0 <= rate <= 1_000_000:
            section.wrong(key, "must not be negative" if rate < 0 else "must be at most 1_000_000")
        else:
            rates[key] = rate
    section.finish()
    if "input" not in rates or "output" not in rates:
        return None
    written = rates["input"] * (ANTHROPIC_CACHE_WRITE if api == "anthropic" else 1)
    return Price(rates["input"], rates["output"], rates.get("cached_input", rates["input"]), rates.get("cache_write", written))


def _base_url(table: Table, api: str) -> str:
    needed = api in ("openai", "anthropic")
    text = table.text("base_url", required=needed)
    if not text:
        return ""
    if api and not needed:
        table.wrong("base_url", f'has no meaning for api = "{api}"')
        return ""
    check_url(table, "base_url", text)
    return text.rstrip("/")


def check_url(table: Table, key: str, text: str, schemes: tuple[str, ...] = ("http", "https")) -> None:
    """Notes a text that is no plain URL, or that carries a password or a query."""
    try:
        url = urlsplit(text)
        good = url.scheme in schemes and bool(url.hostname) and (url.port is None or url.port > 0)
    except ValueError:
        table.wrong(key, f"must be a URL that begins with {' or '.join(f'{scheme}://' for scheme in schemes)}")
        return
    if not good:
        table.wrong(key, f"must be a URL that begins with {' or '.join(f'{scheme}://' for scheme in schemes)}")
    elif url.username or url.password:
        table.wrong(key, "must hold no user or password: secrets come from the environment")
    elif url.query or url.fragment:
        table.wrong(key, "must end before the ? or #")


def secret(table: Table, key: str, env: Environment) -> tuple[str, str]:
    """The secret that `env:NAME` names and where it comes from; ("", "") without one. The value is never shown."""
    text = table.text(key)
    if not table.has(key):
        return "", ""
    name = text.removeprefix("env:")
    if not text.startswith("env:") or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        table.wrong(key, 'must be "env:NAME": a secret is never written in this file, put it in the environment or in .env')
        return "", ""
    value = env.get(name)
    if not value:
        table.wrong(key, f"the environment variable {name} is not set (nor in .env)")
    return value, text


def read_chains(root: Table, names: Names) -> None:
    """Reads `[chains]` into `names`. Without a chain "default", it is every provider in the order of the file."""
    section = root.table("chains")
    for name in section.raw:
        if not NAME.fullmatch(name):
            section.wrong(name, "a name has letters, digits and . _ / - only")
        if name in names.canonical:
            section.wrong(name, f"the name is taken by the provider {names.canonical[name]}")
        names.chains[name] = ()
    for name in section.raw:
        names.chains[name] = _chain(name, section, names)
    if DEFAULT_CHAIN not in names.canonical and DEFAULT_CHAIN not in names.chains:
        names.chains[DEFAULT_CHAIN] = tuple(Slot(item.name, item.model) for item in names.providers.values())


def _chain(name: str, section: Table, names: Names) -> tuple[Slot, ...]:
    before = len(section.problems.found)
    entries = section.texts(name)
    if not entries and len(section.problems.found) == before:
        section.wrong(name, "is empty: name at least one provider")
    slots: list[Slot] = []
    for entry in entries:
        slot = names.slot(entry)
        if slot is None:
            section.wrong(name, _unknown(entry, names))
        elif slot in slots:
            section.wrong(name, f'"{entry}" is in the chain twice: each is tried once')
        else:
            slots.append(slot)
    return tuple(slots)


def _unknown(entry: str, names: Names) -> str:
    head, _, model = entry.partition(":")
    if entry in names.chains:
        return f'"{entry}" is a chain: a chain names providers, not chains'
    if head in names.canonical and model:
        provider = names.providers[names.canonical[head]]
        hint = did_you_mean(model, provider.models) or f', add [providers.{provider.name}.models."{model}"]'
        return f'unknown model "{model}" of {provider.name}{hint}'
    return f'unknown provider "{head}"{did_you_mean(entry, names.canonical)}'
