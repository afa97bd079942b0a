"""Parameters: read from type hints, checked before a run exists, every wrong one named."""

import json
import re
import subprocess
import sys
from enum import Enum, StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from annotated_types import Ge

import gateway
from gateway.errors import BadParameters
from gateway.notice import languages
from gateway.notice.catalogue import read
from gateway.runs import Starter
from gateway.settings import WorkflowRules
from gateway.workflow import URL, Repository
from gateway.workflow.kinds import Untyped
from gateway.workflow.params import Parameters

ADMIN = Starter("telegram", "1001", admin=True)
PERSON = Starter("telegram", "1002")
SHELL = Starter("cli", "ops")


class Tone(StrEnum):
    DRY = "dry"
    WARM = "warm"


class Size(Enum):
    SMALL = 1
    LARGE = 2


async def everything(
    ctx: object,
    count: int,
    share: float = 0.5,
    word: str = "hi",
    loud: bool = False,
    file: Path = Path("notes.md"),
    page: URL | None = None,
    repo: Repository = Repository("petroserver"),  # noqa: B008
    tone: Tone = Tone.DRY,
    size: Size = Size.SMALL,
    level: Literal["low", "high"] = "low",
    feeds: list[URL] = [],  # noqa: B006
    least: Annotated[int, Ge(1)] = 1,
) -> None: ...


PARAMETERS = Parameters.of(everything, {"count": "How many."})


def parse(raw: dict[str, Any], starter: Starter = PERSON, rules: WorkflowRules | None = None) -> dict[str, Any]:
    return PARAMETERS.parse({"count": 1, **raw}, starter, rules or WorkflowRules())


def problems(raw: dict[str, Any], starter: Starter = PERSON, rules: WorkflowRules | None = None) -> dict[str, str]:
    with pytest.raises(BadParameters) as caught:
        parse(raw, starter, rules)
    return dict(caught.value.problems)


def test_defaults_fill_in_and_every_value_is_one_that_json_holds() -> None:
    values = parse({})
    assert json.loads(json.dumps(values)) == values
    assert values == {
        "count": 1, "share": 0.5, "word": "hi", "loud": False, "file": "notes.md", "page": None, "repo": "petroserver",
        "tone": "dry", "size": 1, "level": "low", "feeds": [], "least": 1,
    }  # fmt: skip


def test_texts_are_taken_for_what_they_say() -> None:
    values = parse(
        {
            "count": "12", "share": "0.25", "loud": "yes", "page": "https://example.org/a", "tone": "WARM", "size": "large",
            "level": "High", "feeds": "https://a.example/x, http://b.example/y", "word": "it's \"here\"; $(rm -rf /)",
        }
    )  # fmt: skip
    assert values["count"] == 12
    assert values["share"] == 0.25
    assert values["loud"] is True
    assert values["tone"] == "warm"
    assert values["size"] == 2
    assert values["level"] == "high"
    assert values["feeds"] == ["https://a.example/x", "http://b.example/y"]
    assert values["word"] == 'it\'s "here"; $(rm -rf /)'
    assert parse({"feeds": '["https://a.example/x,y"]', "page": ""})["feeds"] == ["https://a.example/x,y"]


def test_the_function_gets_its_own_types_back() -> None:
    arguments = PARAMETERS.typed(parse({"file": "a/b.md", "size": 2, "share": 1, "feeds": ["https://a.example/"]}))
    assert arguments["file"] == Path("a/b.md")
    assert arguments["size"] is Size.LARGE
    assert arguments["tone"] is Tone.DRY
    assert isinstance(arguments["repo"], Repository)
    assert isinstance(arguments["feeds"][0], URL)
    assert isinstance(arguments["share"], float)
    assert arguments["page"] is None


def test_case_56_unknown_missing_and_wrong_parameters_are_all_named_at_once() -> None:
    with pytest.raises(BadParameters) as caught:
        PARAMETERS.parse({"colour": "red", "share": "half", "loud": "perhaps", "size": 3}, PERSON, WorkflowRules())
    found = dict(caught.value.problems)
    assert set(found) == {"colour", "count", "share", "loud", "size"}
    assert found["count"] == "is missing"
    assert "there are: count, share" in found["colour"]
    assert found["size"] == "must be one of: 1, 2"
    assert "; count: is missing; share: must be a number; loud: must be yes or no; " in str(caught.value)


@pytest.mark.parametrize(
    ("raw", "name", "message"),
    [
        ({"count": "1.5"}, "count", "must be a whole number"),
        ({"count": True}, "count", "must be a number"),
        ({"count": None}, "count", "must be a whole number"),
        ({"count": 2**63}, "count", "must be at most 9,223,372,036,854,775,807"),
        ({"count": "9" * 5000}, "count", "must be a whole number"),
        ({"share": "nan"}, "share", "must be a number"),
        ({"share": "1e999"}, "share", "must be a number"),
        ({"word": 5}, "word", "must be text"),
        ({"word": ["a"]}, "word", "must be text"),
        ({"word": "a\0b"}, "word", "has characters that cannot be shown"),
        ({"word": "\ud800"}, "word", "has characters that cannot be shown"),
        ({"word": "x" * 20_001}, "word", "is too long: at most 20000 characters"),
        ({"loud": 3}, "loud", "must be yes or no"),
        ({"tone": "loud"}, "tone", "must be one of: dry, warm"),
        ({"level": None}, "level", "must be one of: low, high"),
        ({"least": 0}, "least", "must be at least 1"),
        ({"feeds": "ftp://a.example/"}, "feeds[1]", "must be a web address that begins with https:// or http://"),
        ({"feeds": ["https://a.example/", 7]}, "feeds[2]", "must be text"),
        ({"feeds": "[1"}, "feeds", "must be a list, with commas between its parts"),
        ({"feeds": {"a": 1}}, "feeds", "must be a list, with commas between its parts"),
        ({"feeds": ["https://a.example/"] * 1001}, "feeds", "has too many parts: at most 1,000"),
        ({"page": "javascript:alert(1)"}, "page", "must be a web address that begins with https:// or http://"),
        ({"page": "https://user:secret@a.example/"}, "page", "must hold no user or password"),
        ({"page": "https://a.example/a b"}, "page", "must be a web address"),
        ({"page": "https:///etc/passwd"}, "page", "must be a web address"),
        ({"page": "https://a.example:99999/"}, "page", "must be a web address"),
        ({"page": "https://a.example/\r\nHost: b"}, "page", "has characters that cannot be shown"),
    ],
)
def test_case_56_a_wrong_value_is_refused_by_name_with_its_mend(raw: dict[str, Any], name: str, message: str) -> None:
    found = problems(raw)
    assert set(found) == {name}
    assert found[name].startswith(message)
    assert "secret" not in found[name]


@pytest.mark.parametrize(
    "path",
    ["../secrets", "a/../../b", "/etc/passwd", "~/.ssh/id_rsa", "C:\\secrets", "..\\up", "\\\\host\\share", "-rf", "", "a\nb"],
)
def test_case_56_a_path_of_somebody_who_is_no_admin_stays_in_the_runs_folder(path: str) -> None:
    assert set(problems({"file": path})) == {"file"}


def test_admins_and_the_command_line_may_name_paths_of_the_machine() -> None:
    for starter in (ADMIN, SHELL, Starter("schedule", "nightly"), Starter("http", "ops", admin=True, key="ops")):
        assert parse({"file": "/etc/hosts"}, starter)["file"] == "/etc/hosts"
        assert set(problems({"file": "-rf"}, starter)) == {"file"}
    assert set(problems({"file": "/etc/hosts"}, Starter("http", "app", key="app"))) == {"file"}


def test_the_reader_gets_their_own_language() -> None:
    assert problems({"count": "x"}, Starter("telegram", "1002", language="es-MX")) == {"count": "debe ser un número entero"}


def test_fields_tell_a_form_what_to_ask() -> None:
    fields = {field.name: field for field in PARAMETERS.fields}
    assert list(fields)[:2] == ["count", "share"]
    assert fields["count"].required
    assert fields["count"].help == "How many."
    assert fields["tone"].choices == ("dry", "warm")
    assert fields["tone"].default == "dry"
    assert (fields["feeds"].kind, fields["feeds"].item, fields["feeds"].default) == ("list", "url", [])
    assert fields["page"].optional
    assert fields["repo"].kind == "repository"


def test_the_schema_is_one_flat_object() -> None:
    schema = PARAMETERS.schema()
    assert json.loads(json.dumps(schema)) == schema
    assert schema["required"] == ["count"]
    assert schema["additionalProperties"] is False
    properties = schema["properties"]
    assert properties["count"]["type"] == "integer"
    assert properties["count"]["description"] == "How many."
    assert properties["tone"] == {"enum": ["dry", "warm"], "type": "string", "default": "dry"}
    assert properties["feeds"]["items"]["format"] == "uri"
    assert properties["least"]["minimum"] == 1
    assert properties["share"]["default"] == 0.5


async def no_type(ctx, thing) -> None: ...  # type: ignore[no-untyped-def]
async def a_dict(ctx: object, thing: dict[str, int]) -> None: ...
async def a_union(ctx: object, thing: int | str) -> None: ...
async def nested(ctx: object, thing: list[list[int]]) -> None: ...
async def stars(ctx: object, *thing: int) -> None: ...
async def wrong_default(ctx: object, thing: int = "1") -> None: ...  # type: ignore[assignment]
async def flag_for_number(ctx: object, thing: int = True) -> None: ...
async def odd_choice(ctx: object, thing: Literal[True, "a"]) -> None: ...


@pytest.mark.parametrize("function", [no_type, a_dict, a_union, nested, stars, wrong_default, flag_for_number, odd_choice])
def test_a_parameter_that_cannot_be_checked_is_named(function: Any) -> None:
    with pytest.raises(Untyped) as caught:
        Parameters.of(function)
    assert caught.value.parameter == "thing"


def test_a_workflow_without_parameters_says_so() -> None:
    async def bare(ctx: object) -> None: ...

    parameters = Parameters.of(bare)
    assert parameters.parse({}, PERSON, WorkflowRules()) == {}
    with pytest.raises(BadParameters, match="takes no parameters"):
        parameters.parse({"x": 1}, PERSON, WorkflowRules())


def test_every_sentence_about_a_parameter_is_in_every_language() -> None:
    house = Path(gateway.__file__).parent / "workflow"
    keys = {key for file in house.glob("*.py") for key in re.findall(r'"(param_[a-z_]+)"', file.read_text())}
    assert len(keys) > 15
    for language in languages():
        assert keys <= set(read(language))


def test_importing_workflows_does_not_import_pydantic() -> None:
    code = "import sys, gateway.workflow.catalogue; sys.exit('pydantic' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0
