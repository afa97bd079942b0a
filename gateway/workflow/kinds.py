"""What a type hint means: which values it takes, how they look in JSON, and what is said of one that does not fit."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from pathlib import Path
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin

from gateway.notice import text
from gateway.workflow.addresses import URL, Refusal, Repository, Trust, check_path, check_repository, check_text, check_url

if TYPE_CHECKING:
    from pydantic import TypeAdapter, ValidationInfo

ITEMS_MAX = 1_000
"""The most items of a list."""
INT_MAX = 2**63 - 1
"""The largest whole number, either side of nought: what a database holds."""
TYPES = "str, int, float, bool, Path, URL, Repository, an Enum, a Literal, a list, each of them `| None`"
_KINDS: dict[Any, str] = {
    bool: "bool",
    int: "int",
    float: "float",
    str: "str",
    Path: "path",
    URL: "url",
    Repository: "repository",
}
_DEFAULTS: dict[str, tuple[type, ...]] = {
    "bool": (bool,),
    "int": (int,),
    "float": (int, float),
    "str": (str,),
    "path": (str, Path),
    "url": (str,),
    "repository": (str,),
}
"""Of which Python types a default of the kind may be."""
_SENTENCES = {"bool": "param_bool", "int": "param_int", "float": "param_number", "list": "param_list"}
_LIMITS = ("ge", "le", "gt", "lt")


class Untyped(TypeError):
    """A parameter whose type hint is missing, or is none of those that are understood. `parameter` is its name."""

    def __init__(self, parameter: str, message: str) -> None:
        super().__init__(message)
        self.parameter = parameter


@dataclass(frozen=True, slots=True)
class Kind:
    """A type hint, understood."""

    name: str
    """bool int float str path url repository enum list"""
    optional: bool = False
    enum: type[Enum] | None = None
    choices: tuple[str | int | float, ...] = ()
    item: Kind | None = None
    extra: tuple[Any, ...] = ()
    """What Annotated adds."""

    def fits(self, value: Any) -> bool:
        """True for a default that is of this type."""
        if value is None:
            return self.optional
        if self.item:
            return isinstance(value, list) and all(map(self.item.fits, value))
        if self.name == "enum":
            return isinstance(value, self.enum) if self.enum else value in self.choices
        return isinstance(value, _DEFAULTS[self.name]) and (self.name == "bool") == isinstance(value, bool)

    def typed(self, value: Any) -> Any:
        """A value as the function takes it, from JSON."""
        if value is None:
            return None
        if self.item:
            return [self.item.typed(one) for one in value]
        if self.enum:
            return self.enum(value)
        match self.name:
            case "path":
                return Path(value)
            case "url":
                return URL(value)
            case "repository":
                return Repository(value)
            case "float":
                return float(value)
        return value

    def __str__(self) -> str:
        return f"list of {self.item}" if self.item else self.name


def plain(value: Any) -> Any:
    """A default as JSON holds it."""
    if isinstance(value, list):
        return [plain(one) for one in value]
    if isinstance(value, Enum):
        return value.value
    return str(value) if isinstance(value, Path | URL | Repository) else value


def kind_of(parameter: str, hint: Any) -> Kind:
    """The hint understood. Raises Untyped."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        inner = kind_of(parameter, arguments[0])
        return replace(inner, extra=(*inner.extra, *hint.__metadata__))
    if origin in (Union, UnionType) and NoneType in arguments and len(arguments) == 2:
        return replace(kind_of(parameter, next(one for one in arguments if one is not NoneType)), optional=True)
    if origin is list:
        item = kind_of(parameter, arguments[0])
        if item.item or item.optional:
            raise Untyped(parameter, "is a list of lists, or of values that may be None: neither can be typed into a chat")
        return Kind("list", choices=item.choices, item=item)
    if hint in _KINDS:
        return Kind(_KINDS[hint])
    enum = hint if isinstance(hint, type) and issubclass(hint, Enum) else None
    if enum is None and origin is not Literal:
        raise Untyped(parameter, f"has a type that is not understood: use {TYPES}")
    choices = tuple(member.value for member in enum) if enum else arguments
    if not choices or not all(isinstance(one, str | int | float) and not isinstance(one, bool) for one in choices):
        raise Untyped(parameter, "has choices that are neither texts nor numbers")
    return Kind("enum", enum=enum, choices=choices)


def adapter(kind: Kind) -> TypeAdapter[Any]:
    """What checks a value of this kind, with a Trust as the context; its results are values that JSON holds."""
    from pydantic import TypeAdapter

    return TypeAdapter(_annotation(kind))


def _annotation(kind: Kind) -> Any:
    from pydantic import BeforeValidator

    # What goes before comes last: a constraint that stands behind it is lost to the JSON Schema.
    found: Any = Annotated[(_base(kind), *kind.extra, BeforeValidator(partial(_before, kind)))]
    if not kind.optional:
        return found
    if kind.name == "str":
        return found | None
    # A form, a chat and a command line have no other word for nothing than an empty text.
    return Annotated[found | None, BeforeValidator(lambda value: None if value == "" else value)]


def _base(kind: Kind) -> Any:
    from pydantic import AfterValidator, Field

    match kind.name:
        case "bool":
            return bool
        case "int":
            return Annotated[int, Field(ge=-INT_MAX, le=INT_MAX)]
        case "float":
            return Annotated[float, Field(allow_inf_nan=False)]
        case "path":
            return Annotated[str, _judged(check_path)]
        case "repository":
            return Annotated[str, _judged(check_repository)]
        case "url":
            return Annotated[str, AfterValidator(check_url), Field(json_schema_extra={"format": "uri"})]
        case "enum":
            return Literal[kind.choices]
        case "list":
            assert kind.item is not None
            whole: Any = list
            return Annotated[whole[_annotation(kind.item)], Field(max_length=ITEMS_MAX)]
    return Annotated[str, AfterValidator(check_text)]


def _judged(check: Callable[[str, Trust], str]) -> Any:
    """A check that depends on who starts."""
    from pydantic import AfterValidator

    def judge(value: str, info: ValidationInfo[Any]) -> str:
        return check(value, info.context)

    return AfterValidator(judge)


def _before(kind: Kind, value: Any) -> Any:
    """What a text means for this kind, before it is checked."""
    match kind.name:
        case "int" | "float" if isinstance(value, bool):
            # true is no number, though Python counts it as 1.
            raise Refusal("param_number")
        case "enum":
            return _choice(kind, value)
        case "list":
            return _items(value)
    return value


def _choice(kind: Kind, value: Any) -> Any:
    """A choice by its value, by its text, or by an enum member's name, in whatever case it was typed."""
    if not isinstance(value, str):
        return value
    typed = value.strip().casefold()
    members: Iterable[Enum] = kind.enum or ()
    named = {member.name.casefold(): member.value for member in members}
    return next((choice for choice in kind.choices if str(choice).casefold() == typed), named.get(typed, value))


def _items(value: Any) -> Any:
    """The items of a list that came as a text: a JSON list, or texts with commas between them."""
    if not isinstance(value, str):
        return value
    if value.lstrip().startswith("["):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            raise Refusal("param_list") from None
    return [part.strip() for part in value.split(",") if part.strip()]


def sentence(fault: Mapping[str, Any], kind: Kind, language: str) -> str:
    """What is wrong, in the reader's language. The value is never repeated: it may be a secret."""
    context = fault.get("ctx") or {}
    refusal = context.get("error")
    if isinstance(refusal, Refusal):
        return text(language, refusal.key, **refusal.fields)
    inner = kind.item if kind.item and any(isinstance(part, int) for part in fault["loc"]) else kind
    what = str(fault["type"])
    if what in ("greater_than_equal", "less_than_equal", "greater_than", "less_than"):
        limit = next(value for name, value in context.items() if name in _LIMITS)
        return text(language, f"param_{what}", limit=f"{limit:,}")
    if what == "too_long" and inner.name == "list":
        return text(language, "param_many", most=f"{context['max_length']:,}")
    if inner.name == "enum":
        return text(language, "param_choice", choices=", ".join(map(str, inner.choices)))
    if what.endswith(("_type", "_parsing", "_parsing_size", "_from_float")) or what == "finite_number":
        return text(language, _SENTENCES.get(inner.name, "param_str"))
    # A rule that the author added through Annotated: pydantic's own words are the best there are.
    return str(fault["msg"])
