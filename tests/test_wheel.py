"""The wheel works outside the checkout: the migrations and the sample workflows travel with it."""

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def run(*command: str | Path, cwd: Path) -> str:
    """Runs a command without the checkout on its path; the test fails with its output if it fails."""
    environ = {
        name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "DATABASE_URL", "SLUICEGATE_CONFIG")
    }
    done = subprocess.run(list(map(str, command)), cwd=cwd, env=environ, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` of a fresh environment with the wheel, which sees the packages of this one but not the checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder, cwd=ROOT)
    (wheel,) = folder.glob("sluicegate-*.whl")
    venv.create(folder / "env", with_pip=False, symlinks=True)
    python = folder / "env/bin/python"
    (site,) = (folder / "env/lib").glob("python3.*/site-packages")
    run(sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-deps", "--no-index", wheel, cwd=folder)
    # Packages only: a .pth file there (the editable install of the checkout) is not followed from here.
    (site / "packages.pth").write_text("\n".join(path for path in sys.path if path.endswith("site-packages")))
    return python.parent


def test_the_wheel_runs_from_its_own_files(installed: Path, tmp_path: Path) -> None:
    where = run(installed / "python", "-c", "import gateway; print(gateway.__file__)", cwd=tmp_path).strip()
    assert Path(where).is_relative_to(installed.parent)
    assert "serve" in run(installed / "sluicegate", "--help", cwd=tmp_path)


def test_the_wheel_has_the_sample_workflows(installed: Path, tmp_path: Path) -> None:
    code = (
        "from gateway.workflow.catalogue import files_of, samples\n"
        "print(*(file.stem for file in files_of(samples())), (samples() / '_petroserver/README.md').is_file(), samples())"
    )
    *names, sample, place = run(installed / "python", "-c", code, cwd=tmp_path).split()
    assert names == ["budget_guard", "clone_petroserver", "digest"]
    assert sample == "True"
    assert Path(place).is_relative_to(installed.parent)


def test_the_wheel_upgrades_a_fresh_database(installed: Path, tmp_path: Path) -> None:
    config = tmp_path / "sluicegate.toml"
    config.write_text(
        '[gateway]\ndatabase_url = "sqlite:///fresh.db"\n'
        '[providers.it]\napi = "demo"\nmodel = "demo"\n'
        '[chains]\ndefault = ["it"]\n'
    )
    run(installed / "sluicegate", "db", "upgrade", "--config", config, cwd=tmp_path)
    # The font of the picture travels too: without it the words would silently be missing.
    run(installed / "sluicegate", "report", "--config", config, cwd=tmp_path)
    fonts = "from importlib.resources import files; print((files('gateway.reports') / 'fonts/DejaVuSans.ttf').is_file())"
    assert run(installed / "python", "-c", fonts, cwd=tmp_path).strip() == "True"
    tables = run(
        installed / "python",
        "-c",
        "import sqlite3; print(sqlite3.connect('fresh.db').execute('select count(*) from sqlite_master').fetchone()[0])",
        cwd=tmp_path,
    )
    assert int(tables) > 5
