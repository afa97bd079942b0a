"""A workflow's parameters, from its function's own type hints: help, forms, JSON Schema, values checked before a run exists.

Types: bool, int, float, str, Path, URL, Repository, an Enum or a Literal, a list of these, and each of them `| None`.
`Annotated[int, …]` may add what pydantic understands. Texts are taken for what they say ("12", "yes", "a,b"), since chats
and command lines have nothing else. pydantic is imported at the first check: a process at rest does without it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self, get_type_hints

from gateway.errors import BadParameters
from gateway.notice import text
from gateway.runs import Starter
from gateway.settings import WorkflowRules
from gateway.workflow.addresses import Trust
from gateway.workflow.kinds import TYPES, Kind, Untyped, adapter, kind_of, plain, sentence
from gateway.workflow.rules import trust

if TYPE_CHECKING:
    from pydantic import TypeAdapter


@dataclass(frozen=True, slots=True)
class Field:
    """One parameter, for help and forms."""

    name: str
    kind: str
    """bool int float str path url repository enum list"""
    required: bool
    default: Any = None
    """As JSON holds it; None also when it is required."""
    help: str = ""
    choices: tuple[str | int | float, ...] = ()
    """The values of an enum (or of a list's enum)."""
    item: str = ""
    """The kind of a list's items."""
    optional: bool = False
    """True where None is a value."""


class Parameters:
    """The parameters of one workflow."""

    def __init__(self, kinds: Mapping[str, Kind], fields: tuple[Field, ...]) -> None:
        self.fields = fields
        self._kinds = kinds

    @classmethod
    def of(cls, function: Callable[..., Any], said: Mapping[str, str] | None = None) -> Self:
        """Reads the function's signature; its first parameter is the context. `said` is what is said of each parameter.

        Raises Untyped for a parameter that a value cannot be checked for.
        """
        hints = get_type_hints(function, include_extras=True)
        kinds: dict[str, Kind] = {}
        fields = []
        for parameter in list(inspect.signature(function).parameters.values())[1:]:
            name = parameter.name
            if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
                raise Untyped(name, "must be an ordinary parameter: no *args, no **kwargs, no `/`")
            if name not in hints:
                raise Untyped(name, f"has no type: write `{name}: str`, or another of {TYPES}")
            kind = kinds[name] = kind_of(name, hints[name])
            required = parameter.default is parameter.empty
            if not required and not kind.fits(parameter.default):
                raise Untyped(name, f"has a default that is no {kind}")
            default = None if required else plain(parameter.default)
            item = kind.item.name if kind.item else ""
            said_of = (said or {}).get(name, "")
            fields.append(Field(name, kind.name, required, default, said_of, kind.choices, item, kind.optional))
        return cls(kinds, tuple(fields))

    def parse(self, raw: Mapping[str, Any], starter: Starter, rules: WorkflowRules) -> dict[str, Any]:
        """The values of every parameter, checked, as JSON holds them; defaults filled in.

        Raises BadParameters with every wrong one by name, in the starter's language.
        """
        trusted, language = trust(starter, rules), starter.language
        problems = [(name[:80], self._unknown(language)) for name in raw if name not in self._kinds]
        values: dict[str, Any] = {}
        for field in self.fields:
            name = field.name
            # A repository that the author chose needs nobody's leave.
            if name not in raw or (field.kind == "repository" and raw[name] == field.default and not field.required):
                values[name] = field.default
                if field.required:
                    problems.append((name, text(language, "param_missing")))
                continue
            value, wrong = self._value(name, raw[name], trusted, language)
            values[name] = value
            problems += wrong
        if problems:
            raise BadParameters(tuple(problems))
        return values

    def typed(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments for the function, from what `parse` gave."""
        return {name: kind.typed(values[name]) for name, kind in self._kinds.items() if name in values}

    def schema(self) -> dict[str, Any]:
        """The JSON Schema of the parameters as one object."""
        properties = {}
        for field in self.fields:
            described = self._adapters[field.name].json_schema()
            if field.help:
                described["description"] = field.help
            if not field.required:
                described["default"] = field.default
            properties[field.name] = described
        required = [field.name for field in self.fields if field.required]
        return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}

    def _unknown(self, language: str) -> str:
        known = ", ".join(self._kinds)
        return text(language, "param_unknown", known=known) if known else text(language, "param_none")

    def _value(self, name: str, raw: Any, trusted: Trust, language: str) -> tuple[Any, list[tuple[str, str]]]:
        """The value and no problem, or None and what is wrong with it, one sentence for each place."""
        from pydantic import ValidationError

        try:
            return self._adapters[name].validate_python(raw, context=trusted), []
        except ValidationError as error:
            found: dict[str, str] = {}
            for fault in error.errors(include_url=False, include_input=False):
                place = "".join(f"[{part + 1}]" for part in fault["loc"] if isinstance(part, int))
                found.setdefault(f"{name}{place}", sentence(fault, self._kinds[name], language))
            return None, list(found.items())

    @cached_property
    def _adapters(self) -> dict[str, TypeAdapter[Any]]:
        return {name: adapter(kind) for name, kind in self._kinds.items()}
