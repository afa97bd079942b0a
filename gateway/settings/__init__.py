"""Typed settings from sluicegate.toml and the environment. Every bad key is named at once, with its place.

Secrets come only from the environment (or `.env` beside the file): a key in the file is `env:NAME`.
"""

from gateway.settings.demo import demo
from gateway.settings.difference import Change, differences, kept_until_restart, outline
from gateway.settings.load import load, locate
from gateway.settings.values import (
    Model,
    Price,
    ProviderSettings,
    ReportSettings,
    Schedule,
    Settings,
    TelegramSettings,
    WorkflowRules,
    WorkflowsSettings,
)

__all__ = [
    "Change",
    "Model",
    "Price",
    "ProviderSettings",
    "ReportSettings",
    "Schedule",
    "Settings",
    "TelegramSettings",
    "WorkflowRules",
    "WorkflowsSettings",
    "demo",
    "differences",
    "kept_until_restart",
    "load",
    "locate",
    "outline",
]
