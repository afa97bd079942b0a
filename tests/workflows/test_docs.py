"""docs/workflows.md, followed to the letter with the real program, and the first sample run by it to its end."""

import re
import subprocess
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from gateway.settings import load
from gateway.workflow import Context
from gateway.workflow.budgets import BudgetFace
from gateway.workflow.catalogue import Catalogue, samples
from tests.cli.program import COMMAND, Inside, Ran, environment, run

DOCS = Path(__file__).parents[2] / "docs/workflows.md"
PAGE = "http://127.0.0.1:{port}/"
PATIENCE_S = 100


def blocks(language: str) -> list[str]:
    """The code blocks of a language, in their order."""
    return re.findall(rf"```{language}\n(.*?)```", DOCS.read_text(), re.DOTALL)


def commands(start: str) -> list[list[str]]:
    """The commands of the documentation that begin so, as words."""
    found = re.findall(rf"^{start}.*$", DOCS.read_text(), re.MULTILINE)
    return [line.split("  #")[0].split()[1:] for line in found]


@pytest.fixture
def page() -> Iterator[str]:
    """A page on this machine in the place of the documentation's."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"<h1>Example</h1>")

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield PAGE.format(port=server.server_port)
    server.shutdown()
    server.server_close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """What the documentation asks to write: the first workflow, and the configuration to test it with."""
    (tmp_path / "workflows").mkdir()
    (tmp_path / "workflows/sum_up.py").write_text(blocks("python")[0])
    (text,) = [block for block in blocks("toml") if 'api = "demo"' in block]
    (tmp_path / "test.toml").write_text(text)
    return tmp_path


@pytest.fixture
def inside(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Inside:
    """The program in this process, in that folder."""
    return Inside(folder, monkeypatch, capsys)


def good(ran: Ran) -> Ran:
    assert ran.code == 0, ran.out + ran.err
    return ran


def test_the_first_workflow_of_the_documentation_runs_as_it_says(folder: Path, page: str, inside: Inside) -> None:
    def typed(words: list[str]) -> list[str]:
        config = [] if "--config" in words else ["--config", "test.toml"]
        return [word.replace("https://example.org", page) for word in words] + config

    for start in ("sluicegate db upgrade", "sluicegate check"):
        (command,) = commands(start)
        good(inside(*typed(command)))
    (listing,) = commands("sluicegate workflows")
    assert "sum_up: Sums up a web page." in good(inside(*typed(listing))).out
    dry, followed, tested = commands("sluicegate run ")
    assert typed(followed) == typed(tested)
    planned = good(inside(*typed(dry))).out
    assert all(step in planned for step in ("http", "ask", "write"))
    assert "[demo] A page about examples." in good(run(folder, *typed(tested), timeout_s=PATIENCE_S)).out
    (latest,) = good(inside("runs", "--json", "--config", "test.toml")).document["runs"]
    assert latest["state"] == "succeeded"


def test_every_table_of_the_documentation_names_what_there_is() -> None:
    steps = DOCS.read_text().split("| step | does |")[1].split("\n\n")[0]
    named = set(re.findall(r"^\| `(\w+)\(", steps, re.MULTILINE)) | {"write"}
    there = {name for name, one in vars(Context).items() if not name.startswith("_") and callable(one)}
    # `conclude` is the house's own: it ends what a workflow has begun.
    assert named == there - {"conclude"}
    assert all(f"{name}(" in steps for name in vars(BudgetFace) if not name.startswith("_"))


def test_the_sections_in_the_samples_and_in_the_documentation_load(tmp_path: Path) -> None:
    files = [(samples() / f"{name}.py").read_text() for name in ("digest", "budget_guard")]
    texts = [text[text.index("[[schedules]]") :].split('"""')[0] for text in files]
    texts += [block for block in blocks("toml") if "[[schedules]]" in block or "[workflows." in block]
    assert [text.count("[[schedules]]") for text in texts] == [1, 1, 0, 1]
    (tmp_path / "workflows").mkdir()
    (tmp_path / "workflows/sum_up.py").write_text(blocks("python")[0])
    base = next(block for block in blocks("toml") if 'api = "demo"' in block)
    for number, text in enumerate(texts):
        file = tmp_path / f"{number}.toml"
        file.write_text(f"{base}\n{text}")
        Catalogue.load(load(file, {}))


def test_the_sample_runs_in_the_real_program_and_waits_for_a_yes(folder: Path, inside: Inside) -> None:
    config = ("--config", "test.toml")
    good(inside("db", "upgrade", *config))
    following = subprocess.Popen(
        [*COMMAND, "run", "clone_petroserver", "--follow", *config],
        cwd=folder, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    try:
        ends = time.monotonic() + PATIENCE_S
        while not (asked := good(inside("runs", "--state", "waiting_approval", "--json", *config)).document["runs"]):
            assert following.poll() is None
            assert time.monotonic() < ends
        assert not list(folder.glob("**/reports/*"))
        good(inside("runs", "approve", asked[0]["id"], *config))
        said, _ = following.communicate(timeout=PATIENCE_S)
    finally:
        following.kill()
        following.wait()
    assert following.returncode == 0, said
    (report,) = folder.glob("**/reports/petroserver-*.md")
    assert "Look like secrets (never opened): `config/secrets.toml`" in report.read_text()
