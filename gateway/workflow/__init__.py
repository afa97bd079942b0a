"""Workflows that survive everything: what their authors import, and what the rest of the house starts them with."""

from gateway.runs import Caps
from gateway.workflow.addresses import URL, Repository
from gateway.workflow.definition import Definition, workflow

__all__ = ["URL", "Caps", "Definition", "Repository", "workflow"]
