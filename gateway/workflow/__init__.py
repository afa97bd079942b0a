"""Workflows that survive everything: what their authors import, and what the rest of the house starts them with."""

from gateway.runs import Caps
from gateway.workflow.addresses import URL, Repository
from gateway.workflow.budgets import Standing
from gateway.workflow.catalogue import samples
from gateway.workflow.context import Context
from gateway.workflow.definition import Definition, workflow
from gateway.workflow.failures import StepFailed
from gateway.workflow.git import checkout_command, clone_command, git_environment
from gateway.workflow.outcomes import Outcome
from gateway.workflow.pages import visible_text

__all__ = [
    "URL",
    "Caps",
    "Context",
    "Definition",
    "Outcome",
    "Repository",
    "Standing",
    "StepFailed",
    "checkout_command",
    "clone_command",
    "git_environment",
    "samples",
    "visible_text",
    "workflow",
]
