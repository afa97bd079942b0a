"""The workflows there are, and what is said of a file that is none."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.errors import ConfigError, UnknownWorkflow
from gateway.runs import Caps, Starter
from gateway.settings import Settings, load
from gateway.workflow.catalogue import Catalogue, define, samples

GOOD = '''
"""What this file is for."""
from gateway.workflow import Caps, Repository, workflow


@workflow(title="Say hello", budget=Caps(tokens=5), chain="fast")
async def hello(ctx: object, name: str, repo: Repository = "petroserver", loud: bool = False) -> str:
    """Greets somebody.

    More is said here.

    Args:
        name: Whom to greet,
            by name.
        loud (bool): With a shout.
    """
    # A comment.
    return f"Hello {name}"
'''

CONFIG = """
[gateway]
database_url = "sqlite:///x.db"
[providers.it]
api = "demo"
model = "demo"
[chains]
default = ["it"]
"""


def write(folder: Path, name: str, source: str) -> Path:
    folder.mkdir(exist_ok=True)
    file = folder / f"{name}.py"
    file.write_text(source)
    return file


def configured(folder: Path, more: str = "") -> Settings:
    (folder / "sluicegate.toml").write_text(CONFIG + more)
    return load(folder / "sluicegate.toml", {})


def test_a_file_is_a_workflow_by_its_name(tmp_path: Path) -> None:
    found = define(write(tmp_path, "hello", GOOD))
    assert (found.name, found.title, found.help) == ("hello", "Say hello", "Greets somebody.")
    assert (found.caps, found.chain) == (Caps(tokens=5), "fast")
    fields = {field.name: field for field in found.parameters.fields}
    assert fields["name"].help == "Whom to greet, by name."
    assert fields["loud"].help == "With a shout."
    assert fields["repo"].default == "petroserver"


def test_a_workflow_needs_no_word_but_its_mark(tmp_path: Path) -> None:
    found = define(write(tmp_path, "say_it", "from gateway.workflow import workflow\n@workflow\nasync def say_it(ctx): ...\n"))
    assert (found.title, found.help, found.caps, found.parameters.fields) == ("say it", "", None, ())


def test_the_version_is_what_the_code_does(tmp_path: Path) -> None:
    version = define(write(tmp_path, "hello", GOOD)).version
    same = GOOD.replace("# A comment.", "").replace("Greets somebody.", "Greets everybody.").replace('"Say hello"', "'Say hello'")
    same = same.replace('"""What this file is for."""', "")
    assert define(write(tmp_path, "hello", same)).version == version
    assert define(write(tmp_path, "hello", GOOD.replace("Hello {", "Hullo {"))).version != version
    assert define(write(tmp_path, "hello", GOOD.replace("tokens=5", "tokens=6"))).version != version


MARK = "from gateway.workflow import workflow\n@workflow\n"


@pytest.mark.parametrize(
    ("name", "source", "place", "message"),
    [
        ("hello", "x = 1\n\ndef broken(:\n", "hello.py:3", "is not Python"),
        (
            "hello",
            "import nothing_of_this_name\n",
            "hello.py:1",
            "No module named 'nothing_of_this_name'; install",
        ),
        ("hello", "\n\nraise SystemExit(3)\n", "hello.py:3", "cannot be imported: SystemExit"),
        ("hello", "def f():\n    return 1 / 0\nf()\n", "hello.py:2", "ZeroDivisionError"),
        ("hello", "async def other(ctx): ...\n", "hello.py:1", "write `@workflow` above `async def hello(ctx: Context, …)`"),
        ("hello", "\nasync def hello(ctx): ...\n", "hello.py:2", "write `@workflow` above"),
        ("hello", f"{MARK}def hello(ctx): ...\n", "hello.py:3", "must be async"),
        ("hello", f"{MARK}async def hello(): ...\n", "hello.py:3", "takes no context"),
        (
            "hello",
            f"{MARK}async def hello(\n  ctx,\n  a: str,\n  b,\n): ...\n",
            "hello.py:6",
            "b has no type: write `b: str`",
        ),
        (
            "hello",
            f"{MARK}async def hello(ctx, a: dict): ...\n",
            "hello.py:3",
            "a has a type that is not understood",
        ),
        ("hello", f"{MARK}async def hello(ctx, a: 'Missing'): ...\n", "hello.py:3", "name 'Missing' is not defined"),
        ("path", f"{MARK}async def path(ctx): ...\n", "path.py:1", "is no name for a workflow"),
        ("Hello", f"{MARK}async def Hello(ctx): ...\n", "Hello.py:1", "is no name for a workflow"),
    ],
)
def test_a_file_that_is_no_workflow_is_named_with_line_and_mend(
    tmp_path: Path, name: str, source: str, place: str, message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        define(write(tmp_path, name, source))
    (problem,) = caught.value.problems
    assert problem.place == place
    assert message in problem.message


def test_the_samples_are_always_there(tmp_path: Path) -> None:
    catalogue = Catalogue.load(configured(tmp_path))
    assert set(catalogue.definitions) == {file.stem for file in samples().glob("[a-z]*.py")}


def test_a_file_of_the_operators_takes_a_samples_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shipped = write(tmp_path / "shipped", "hello", GOOD)
    own = write(tmp_path / "workflows", "hello", GOOD.replace("Say hello", "Our own hello"))
    monkeypatch.setattr("gateway.workflow.catalogue.samples", lambda: shipped.parent)
    write(own.parent, "_helpers", "not python at all")
    catalogue = Catalogue.load(configured(tmp_path))
    assert catalogue.get("hello").title == "Our own hello"
    assert catalogue.get("hello").path == own
    with pytest.raises(UnknownWorkflow, match=r"'nope'.*hello"):
        catalogue.get("nope")


def test_everything_that_is_wrong_is_said_at_once(tmp_path: Path) -> None:
    write(tmp_path / "workflows", "hello", GOOD)
    write(tmp_path / "workflows", "broken", "(")
    write(tmp_path / "workflows", "empty", "")
    more = """
    [workflows.helo]
    who = ["admins"]
    [[schedules]]
    name = "one"
    cron = "0 8 * * *"
    workflow = "hell"
    [[schedules]]
    name = "two"
    cron = "0 8 * * *"
    workflow = "hello"
    params = { nam = "x" }
    [[schedules]]
    name = "three"
    cron = "0 8 * * *"
    workflow = "broken"
    """
    with pytest.raises(ConfigError) as caught:
        Catalogue.load(configured(tmp_path, more))
    said = {problem.place: problem.message for problem in caught.value.problems}
    assert list(said) == [
        "broken.py:1",
        "empty.py:1",
        "sluicegate.toml: workflows.helo",
        "sluicegate.toml: schedules.one.workflow",
        "sluicegate.toml: schedules.two.params.nam",
        "sluicegate.toml: schedules.two.params.name",
    ]
    assert 'did you mean "hello"?' in said["sluicegate.toml: workflows.helo"]


def test_people_see_what_they_may_start(tmp_path: Path) -> None:
    write(tmp_path / "workflows", "hello", GOOD)
    settings = configured(tmp_path, '[workflows.hello]\nwho = ["admins"]\n')
    catalogue = Catalogue.load(settings)
    names = [one.name for one in catalogue.startable(Starter("telegram", "1"), settings)]
    assert "hello" not in names
    assert "hello" in [one.name for one in catalogue.startable(Starter("telegram", "1", admin=True), settings)]


def test_what_a_file_defines_can_be_stored_and_read_again(tmp_path: Path) -> None:
    import pickle

    source = f"from dataclasses import dataclass\n@dataclass\nclass Found:\n    a: int\n{MARK}async def hello(ctx): ...\n"
    function = define(write(tmp_path, "hello", source)).function
    found = function.__globals__["Found"](3)
    assert pickle.loads(pickle.dumps(found)) == found


def test_a_folder_that_is_not_there_has_no_workflows(tmp_path: Path) -> None:
    settings = configured(tmp_path)
    gone = replace(settings, workflows=replace(settings.workflows, path=tmp_path / "gone"))
    shutil.rmtree(tmp_path / "gone", ignore_errors=True)
    assert Catalogue.load(gone).definitions.keys() == Catalogue.load(settings).definitions.keys()
