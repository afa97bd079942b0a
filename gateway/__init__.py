"""Sluicegate: a Telegram and workflow bot gateway that cannot overspend."""

__version__ = "0.1.0"
