"""Reports of the money: figures, text, chart and table, and their way to chats and folders."""

from gateway.reports.desk import Made, Reports

__all__ = ["Made", "Reports"]
