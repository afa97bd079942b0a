"""The database's version: brought to the newest, and refused while it is behind.

A server only compares two words, so alembic is imported where a migration runs: it costs a start a tenth of a second, and
the process ten megabytes.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import inspect, make_url, text

import gateway
from gateway.errors import DatabaseBehind
from gateway.store.database import make_engine
from gateway.store.faults import is_unavailable, unavailable

if TYPE_CHECKING:
    from alembic.config import Config


def upgrade(url: str, revision: str = "head") -> None:
    """Brings the database to a revision, the newest by default. Raises LedgerUnavailable."""
    from alembic import command

    _run(url, lambda config: command.upgrade(config, revision))


def downgrade(url: str, revision: str) -> None:
    """Takes the database back to a revision, "base" for an empty one. What the later ones kept is lost."""
    from alembic import command

    _run(url, lambda config: command.downgrade(config, revision))


def current(url: str) -> str | None:
    """The database's revision, None for an empty one. Raises LedgerUnavailable."""
    engine = make_engine(make_url(url))
    try:
        with engine.connect() as connection:
            if not inspect(connection).has_table("alembic_version"):
                return None
            found: str | None = connection.scalar(text("SELECT version_num FROM alembic_version"))
            return found
    except Exception as error:
        if is_unavailable(error):
            raise unavailable(error) from None
        raise
    finally:
        engine.dispose()


def head() -> str:
    """The newest revision that this program knows: the files are named for theirs, one after the other."""
    return max(path.name.partition("_")[0] for path in (_scripts() / "versions").glob("[0-9]*.py"))


def require_head(url: str) -> None:
    """Raises DatabaseBehind unless the database is at the newest revision, and LedgerUnavailable."""
    found, needed = current(url), head()
    if found != needed:
        raise DatabaseBehind(found, needed)


def _run(url: str, work: Callable[[Config], None]) -> None:
    engine = make_engine(make_url(url))
    try:
        with engine.connect() as connection:
            # The same locking as every other write: two processes that start at once upgrade one after the other.
            config = _config()
            config.attributes["connection"] = connection.execution_options(writes=True)
            work(config)
    except Exception as error:
        if is_unavailable(error):
            raise unavailable(error) from None
        raise
    finally:
        engine.dispose()


def _config() -> Config:
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(_scripts()).replace("%", "%%"))
    return config


def _scripts() -> Path:
    """The migrations: beside the package in a checkout, inside it where the wheel is installed."""
    package = Path(gateway.__file__).parent
    inside = package / "_alembic"
    return inside if inside.is_dir() else package.parent / "alembic"
