"""The settings as values: what the rest of the program reads. They are checked before they are made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from gateway.budget import Budgets
from gateway.chat import Slot
from gateway.cron import Cron
from gateway.errors import TargetNotAllowed, UnknownTarget

FREE_APIS = ("local", "demo")
"""Wire formats behind which nobody sends a bill."""
EMBEDDING_APIS = ("openai", "demo")
"""Wire formats that know vectors."""


@dataclass(frozen=True)
class Price:
    """USD per million tokens."""

    input: Decimal
    output: Decimal
    cached_input: Decimal
    cache_write: Decimal
    """Input that the provider also writes to its cache."""


@dataclass(frozen=True)
class Model:
    """What is known of one model of one provider."""

    name: str
    context_tokens: int | None = None
    """None: unknown, so never too small."""
    max_output_tokens: int = 2048
    """The output limit that is sent when a request names none, and the most that may be asked."""
    image_tokens: int | None = None
    """The worst case of one image; None: images are refused."""
    price: Price | None = None
    """From the configuration; None: from the price list."""
    free: bool = False
    tools: bool = True
    timeout_s: float = 120.0
    """The total time one attempt may take."""
    first_token_timeout_s: float = 20.0
    idle_timeout_s: float = 20.0
    max_attempts: int = 2


@dataclass(frozen=True)
class ProviderSettings:
    """One `[providers.<name>]`."""

    name: str
    api: str
    """openai | anthropic | local | demo"""
    model: str
    base_url: str = ""
    """Without a slash at its end; "" for local and demo."""
    api_key: str = field(default="", repr=False)
    key_source: str = ""
    """Where the key comes from ("env:GROQ_API_KEY"), for `check`; never the key."""
    aliases: tuple[str, ...] = ()
    models: Mapping[str, Model] = field(default_factory=dict)
    """By model name; always has `model`."""
    timeout_s: float = 120.0
    """These four hold for models without a section of their own; `Settings.model(slot)` has what holds for a slot."""
    first_token_timeout_s: float = 20.0
    idle_timeout_s: float = 20.0
    max_attempts: int = 2
    script: Mapping[str, object] = field(default_factory=dict)
    """For `demo`: what the scripted provider does (reply, delay_s, fail, stall_s …)."""


@dataclass(frozen=True)
class TelegramSettings:
    """`[telegram]`; on when `token` is set."""

    token: str = field(default="", repr=False)
    mode: str = "polling"
    public_url: str = ""
    webhook_secret: str = field(default="", repr=False)
    api_root: str = "https://api.telegram.org"
    admins: tuple[int, ...] = ()
    allowed_users: tuple[int, ...] = ()
    allowed_chats: tuple[int, ...] = ()
    groups: str = "mention"
    chain: str = "default"
    system_prompt: str = "You are a helpful assistant."
    max_reply_tokens: int = 1024
    notify_fallback: str = "once"
    parked_for_h: int = 24
    """A parked message expires after this many hours, and says so."""
    history_tokens: int = 6000
    """The most tokens of earlier turns that are sent along."""


@dataclass(frozen=True)
class WorkflowRules:
    """One `[workflows.<name>]`. Admins and the command line may start everything."""

    who: tuple[str, ...] = ("users",)
    """Who else: "users" (people on the list, and API keys) and numeric ids; "admins" alone means nobody else."""
    allow_repos: tuple[str, ...] = ()
    """Patterns of the repositories that those who are not admins may name, such as "https://github.com/acme/*"."""


@dataclass(frozen=True)
class WorkflowsSettings:
    """`[workflows]`."""

    path: Path = Path("workflows")
    """The folder with the operator's own workflows, absolute once it was read; it need not be there."""
    rules: Mapping[str, WorkflowRules] = field(default_factory=dict)
    """By workflow, as far as the configuration says something of one."""

    def of(self, workflow: str) -> WorkflowRules:
        """The rules of a workflow, the defaults where the configuration says nothing of it."""
        return self.rules.get(workflow, WorkflowRules())


@dataclass(frozen=True)
class Schedule:
    """One of `[[schedules]]`. It is known by its name: what fired is remembered by it."""

    name: str
    cron: Cron
    workflow: str
    params: Mapping[str, Any] = field(default_factory=dict)
    """As written, in values that JSON can hold; not yet checked against the workflow."""
    to: str = ""
    """Where notices and progress go: "telegram:CHAT[/TOPIC]" or "file:FOLDER" (absolute); "" is nowhere."""


@dataclass(frozen=True)
class ReportSettings:
    """One of `[[reports]]`. It is known by its name: what was sent is remembered by it."""

    name: str
    cron: Cron
    to: str
    """Where it goes: "telegram:CHAT[/TOPIC]" or "file:FOLDER" (absolute)."""
    period: str = "day"
    """day, week or month."""
    language: str = "en"
    csv: bool = False
    """True where the figures go with it as a table."""


@dataclass
class Settings:
    """The whole configuration, checked. One object per program: nothing changes it but a reload, all at once."""

    path: Path | None
    """The file it came from; None for the built-in demo."""
    database_url: str = field(repr=False)
    """Always absolute, with `sqlite:///` or `postgresql+psycopg://`. May hold a password: never printed."""
    zone: ZoneInfo
    host: str
    port: int
    max_output_tokens: int
    min_reply_tokens: int
    providers: Mapping[str, ProviderSettings]
    chains: Mapping[str, tuple[Slot, ...]]
    """Aliases resolved; in configured order."""
    budgets: Budgets
    telegram: TelegramSettings
    workflows: WorkflowsSettings = WorkflowsSettings()
    schedules: tuple[Schedule, ...] = ()
    """In the order of the file."""
    chain_timeout_s: float = 300.0
    """The total deadline of one request over all slots and retries."""
    reports: tuple[ReportSettings, ...] = ()
    """In the order of the file."""

    def become(self, other: Settings) -> None:
        """Holds what another one holds: whoever has this object goes by the other configuration from now on."""
        values = dict(vars(other))
        vars(self).clear()
        vars(self).update(values)

    @property
    def folder(self) -> Path:
        """What relative paths are taken from: where the configuration lies, for the demo the working directory."""
        return self.path.parent if self.path is not None else Path.cwd()

    @property
    def runs_folder(self) -> Path:
        """Where each run of a workflow has its folder: beside the database's file, or in `var` beside the configuration."""
        database = self.database_url.removeprefix("sqlite:///")
        if database != self.database_url:
            return Path(database).parent / "runs"
        return self.folder / "var" / "runs"

    @property
    def secrets(self) -> tuple[str, ...]:
        """What no line of the log may show."""
        keys = (provider.api_key for provider in self.providers.values())
        return (self.telegram.token, self.telegram.webhook_secret, *keys)

    def slots(self, target: str, only: Sequence[str] = ()) -> tuple[str, tuple[Slot, ...]]:
        """The chain's name and slots for a chain, a provider, an alias or `provider:model`.

        Raises UnknownTarget, and TargetNotAllowed for whatever `only` does not name, if that names anything.

        For a single provider the chain's name is the target's own, with an alias resolved: two names of one thing
        count into one budget. A model after the colon need not be configured: the provider knows its models best.
        """
        if only and not self.allows(only, target):
            raise TargetNotAllowed(target, tuple(only))
        if target in self.chains:
            return target, self.chains[target]
        if target in self._names:
            provider = self.providers[self._names[target]]
            return provider.name, (Slot(provider.name, provider.model),)
        name, _, model = target.partition(":")
        if model and name in self._names:
            slot = Slot(self._names[name], model)
            return str(slot), (slot,)
        raise UnknownTarget(target, self.targets)

    def allows(self, names: Sequence[str], target: str) -> bool:
        """True when one of the names means what `target` means: the same chain, or the same model of the same provider.

        A provider's name means its own model alone, and a chain's none of its providers by itself.
        """
        meant = self._meaning(target)
        return meant is not None and any(self._meaning(name) == meant for name in names)

    def _meaning(self, name: str) -> str | Slot | None:
        """A chain's name, or the one slot; None for a name that means nothing."""
        if name in self.chains:
            return name
        try:
            return self.slots(name)[1][0]
        except UnknownTarget:
            return None

    def model(self, slot: Slot) -> Model:
        """What is known of the slot's model (the provider's defaults where it has no section of its own)."""
        provider = self.providers[slot.provider]
        known = provider.models.get(slot.model)
        if known is not None:
            return known
        return Model(
            name=slot.model,
            max_output_tokens=self.max_output_tokens,
            free=provider.api in FREE_APIS,
            timeout_s=provider.timeout_s,
            first_token_timeout_s=provider.first_token_timeout_s,
            idle_timeout_s=provider.idle_timeout_s,
            max_attempts=provider.max_attempts,
        )

    @cached_property
    def targets(self) -> tuple[str, ...]:
        """Everything that a request's `model` may name: chains first, then providers and their configured models."""
        models = [str(Slot(name, model)) for name, provider in self.providers.items() for model in provider.models]
        return (*self.chains, *self._names, *models)

    @cached_property
    def _names(self) -> dict[str, str]:
        """Every provider's name and alias, mapped to its name."""
        return {name: provider.name for provider in self.providers.values() for name in (provider.name, *provider.aliases)}
