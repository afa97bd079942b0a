"""The samples as the program loads them."""

import sys
from types import ModuleType

import pytest

from gateway.workflow.catalogue import define, samples


def sample(name: str) -> ModuleType:
    """The module of a sample's file."""

    return sys.modules[define(samples() / f"{name}.py").function.__module__]


@pytest.fixture(scope="session")
def clone_petroserver() -> ModuleType:
    return sample("clone_petroserver")


@pytest.fixture(scope="session")
def digest() -> ModuleType:
    return sample("digest")


@pytest.fixture(scope="session")
def budget_guard() -> ModuleType:
    return sample("budget_guard")
