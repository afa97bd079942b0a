"""What a workflow is: an async function in a file of its own, marked with `@workflow`, and what its file says of it."""

from __future__ import annotations

import ast
import hashlib
import inspect
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, overload

from gateway.runs import Caps
from gateway.workflow.params import Parameters

F = TypeVar("F", bound=Callable[..., Awaitable[Any]])
_WITH_DOCSTRING = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
_MARK = "__sluicegate_workflow__"


@dataclass(frozen=True, slots=True)
class Declared:
    """What `@workflow(…)` was given."""

    title: str
    caps: Caps | None
    chain: str | None


@dataclass(frozen=True, slots=True)
class Definition:
    """One workflow, ready to be started."""

    name: str
    title: str
    help: str
    """The docstring's first line; "" without one."""
    parameters: Parameters
    caps: Caps | None
    """What one run may spend, unless it is started with caps of its own; None: only the configured budgets hold."""
    chain: str | None
    """The chain of its `ask` steps that name none; None: the default one."""
    version: str
    """A stamp of what the file does: comments, docstrings and layout do not change it."""
    function: Callable[..., Awaitable[Any]]
    path: Path


@overload
def workflow(function: F, /) -> F: ...
@overload
def workflow(*, title: str = "", budget: Caps | None = None, chain: str | None = None) -> Callable[[F], F]: ...
def workflow(
    function: F | None = None, /, *, title: str = "", budget: Caps | None = None, chain: str | None = None
) -> F | Callable[[F], F]:
    """Marks the one workflow of a file: an async function that is named like the file and whose first parameter is its context.

    `title` is what people read in lists (the name, if none); `budget` caps what one run may spend; `chain` answers where an
    `ask` names none.
    """

    def mark(marked: F) -> F:
        setattr(marked, _MARK, Declared(title, budget, chain))
        return marked

    return mark if function is None else mark(function)


def declared(function: object) -> Declared | None:
    """What the function was marked with; None when it is no workflow."""
    found = getattr(function, _MARK, None)
    return found if isinstance(found, Declared) else None


def docstring(function: Callable[..., Any]) -> tuple[str, dict[str, str]]:
    """The first line of the docstring, and what its `Args:` say of each parameter."""
    lines = (inspect.getdoc(function) or "").splitlines()
    said: dict[str, str] = {}
    inside = False
    name = ""
    for line in lines[1:]:
        if re.fullmatch(r"\w+:", line):
            inside, name = line == "Args:", ""
        elif inside and (begun := re.fullmatch(r"\s{1,4}(\w+)\s*(?:\([^)]*\))?:\s*(.+)", line)):
            name = begun[1]
            said[name] = begun[2].strip()
        elif inside and name and line.strip():
            said[name] += f" {line.strip()}"
    return (lines[0].strip() if lines else ""), said


def version_of(tree: ast.Module) -> str:
    """A short hash of what the code does: docstrings, comments and layout left out.

    The code is written out again from its tree, so that it is the same on every Python that writes it alike.
    """
    plain = _Undocumented().visit(ast.parse(ast.unparse(tree)))
    return hashlib.sha256(ast.unparse(plain).encode()).hexdigest()[:16]


class _Undocumented(ast.NodeTransformer):
    """Takes the docstrings out of a tree that nobody else uses."""

    def generic_visit(self, node: ast.AST) -> ast.AST:
        super().generic_visit(node)
        if isinstance(node, _WITH_DOCSTRING) and ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:] or [ast.Pass()]
        return node
