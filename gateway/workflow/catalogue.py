"""The workflows there are: the samples that travel with the program, and the files of `[workflows] path`.

A file is a workflow by its name. What is wrong with a file is said with its line and its mend, all files at once.
"""

from __future__ import annotations

import ast
import importlib.util
import inspect
import re
import sys
import traceback
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, Self

import gateway
from gateway.errors import BadParameters, ConfigError, Problem, UnknownWorkflow
from gateway.runs import Starter
from gateway.settings import Settings
from gateway.settings.table import did_you_mean
from gateway.workflow.definition import Definition, declared, docstring, version_of
from gateway.workflow.kinds import Untyped
from gateway.workflow.params import Parameters
from gateway.workflow.rules import may_start

_NAME = re.compile(r"[a-z][a-z0-9_]{0,49}")
_KEYS = ("path",)
"""Names that the section [workflows] has for itself."""
_MODULE = "sluicegate_workflow_{}"
"""The name under which a file is imported: without a dot, so that what it defines can be found again by name."""


class Catalogue:
    """Every workflow by its name."""

    def __init__(self, definitions: Mapping[str, Definition]) -> None:
        self.definitions = dict(sorted(definitions.items()))

    @classmethod
    def load(cls, settings: Settings) -> Self:
        """Imports the samples and the operator's own files. Raises ConfigError with everything that is wrong.

        A file of the operator's with a sample's name takes its place. What the configuration says of workflows that do not
        exist, and a schedule's parameters that do not fit, are wrong too.
        """
        files = {file.stem: file for folder in (samples(), settings.workflows.path) for file in files_of(folder)}
        definitions: dict[str, Definition] = {}
        problems: list[Problem] = []
        for name, file in files.items():
            try:
                definitions[name] = define(file)
            except ConfigError as error:
                problems += error.problems
        catalogue = cls(definitions)
        problems += catalogue._unknown(settings, set(files))
        if problems:
            raise ConfigError(tuple(problems))
        return catalogue

    def check(self, settings: Settings) -> None:
        """Raises ConfigError for what another configuration says of workflows that is wrong."""
        if problems := tuple(self._unknown(settings, set(self.definitions))):
            raise ConfigError(problems)

    def get(self, name: str) -> Definition:
        """The workflow of this name. Raises UnknownWorkflow."""
        if name not in self.definitions:
            raise UnknownWorkflow(name, tuple(self.definitions))
        return self.definitions[name]

    def startable(self, starter: Starter, settings: Settings) -> tuple[Definition, ...]:
        """The workflows that this person may start, by name."""
        rules = settings.workflows
        return tuple(one for name, one in self.definitions.items() if may_start(starter, rules.of(name)))

    def _unknown(self, settings: Settings, names: set[str]) -> Iterator[Problem]:
        file = settings.path.name if settings.path else "the demo configuration"
        for name in settings.workflows.rules:
            if name not in names:
                yield Problem(f"{file}: workflows.{name}", f"there is no workflow of this name{did_you_mean(name, names)}")
        for schedule in settings.schedules:
            place = f"{file}: schedules.{schedule.name}"
            if schedule.workflow not in names:
                hint = did_you_mean(schedule.workflow, names)
                yield Problem(f"{place}.workflow", f'there is no workflow "{schedule.workflow}"{hint}')
            elif schedule.workflow in self.definitions:
                starter = Starter("schedule", schedule.name)
                rules = settings.workflows.of(schedule.workflow)
                try:
                    self.definitions[schedule.workflow].parameters.parse(schedule.params, starter, rules)
                except BadParameters as error:
                    yield from (Problem(f"{place}.params.{name}", message) for name, message in error.problems)


def samples() -> Path:
    """The samples: beside the package in a checkout, inside it where the wheel is installed."""
    package = Path(gateway.__file__).parent
    inside = package / "_workflows"
    return inside if inside.is_dir() else package.parent / "workflows"


def files_of(folder: Path) -> list[Path]:
    """The workflow files of a folder, by name; none where there is no folder. A leading underscore makes a file no workflow."""
    return sorted(file for file in folder.glob("*.py") if not file.name.startswith("_")) if folder.is_dir() else []


def define(file: Path) -> Definition:
    """Imports one file and reads its workflow. Raises ConfigError, with file and line."""
    name = file.stem
    if not _NAME.fullmatch(name) or name in _KEYS:
        raise _wrong(file, 1, f'"{name}" is no name for a workflow: small letters, digits and _, at most 50, and not "path"')
    try:
        tree = ast.parse(file.read_bytes(), filename=str(file))
    except (SyntaxError, ValueError) as error:
        raise _wrong(
            file, getattr(error, "lineno", None) or 1, f"is not Python: {getattr(error, 'msg', None) or error}"
        ) from None
    except OSError as error:
        raise _wrong(file, 1, f"cannot be read: {error.strerror}") from None
    function = getattr(_imported(file, name), name, None)
    node = next((one for one in tree.body if isinstance(one, ast.AsyncFunctionDef | ast.FunctionDef) and one.name == name), None)
    line = node.lineno if node else 1
    marks = declared(function)
    if function is None or marks is None:
        raise _wrong(file, line, f"has no workflow: write `@workflow` above `async def {name}(ctx: Context, …)`")
    if not inspect.iscoroutinefunction(function):
        raise _wrong(file, line, f"its function must be async: write `async def {name}(ctx: Context, …)`")
    if not inspect.signature(function).parameters:
        raise _wrong(file, line, f"its function takes no context: write `async def {name}(ctx: Context, …)`")
    first, said = docstring(function)
    return Definition(
        name=name,
        title=marks.title or name.replace("_", " "),
        help=first,
        parameters=_parameters(file, function, node, said),
        caps=marks.caps,
        chain=marks.chain,
        version=version_of(tree),
        function=function,
        path=file,
    )


def _parameters(
    file: Path, function: Any, node: ast.AsyncFunctionDef | ast.FunctionDef | None, said: Mapping[str, str]
) -> Parameters:
    line = node.lineno if node else 1
    try:
        return Parameters.of(function, said)
    except Untyped as error:
        lines = {argument.arg: argument.lineno for argument in ast.walk(node) if isinstance(argument, ast.arg)} if node else {}
        raise _wrong(file, lines.get(error.parameter, line), f"the parameter {error.parameter} {error}") from None
    except (NameError, AttributeError, TypeError) as error:
        raise _wrong(file, line, f"a type hint cannot be read: {error}; import what it names at the top of the file") from None


def _imported(file: Path, name: str) -> ModuleType:
    """The module of a file. It stays in `sys.modules`: what is stored of its classes is read again by that name."""
    module_name = _MODULE.format(name)
    spec = importlib.util.spec_from_file_location(module_name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[module_name]
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(file)]
        mend = "; install it beside the program" if isinstance(error, ModuleNotFoundError) else ""
        message = f"cannot be imported: {type(error).__name__}: {error}{mend}"
        raise _wrong(file, (lines and lines[-1]) or 1, message) from None
    return module


def _wrong(file: Path, line: int, message: str) -> ConfigError:
    return ConfigError((Problem(f"{file.name}:{line}", message),))
