"""What a driver's error means to the store, for sqlite3 and psycopg alike, wrapped by SQLAlchemy or not.

Names are compared instead of classes, so that psycopg is only imported where PostgreSQL is used.
"""

from __future__ import annotations

from gateway.errors import LedgerUnavailable

_UNAVAILABLE = frozenset({"OperationalError", "InterfaceError", "InternalError"})
_CONFLICTS = frozenset({"40001", "40P01"})
"""SQLSTATE of a serialization failure and of a deadlock: the same transaction may well succeed now."""


def _driver_error(error: BaseException) -> BaseException:
    original = getattr(error, "orig", None)
    return original if isinstance(original, BaseException) else error


def _names(error: BaseException) -> set[str]:
    return {kind.__name__ for kind in type(error).__mro__}


def is_unavailable(error: BaseException) -> bool:
    """True when the database could not be used; the statement itself is not to blame."""
    error = _driver_error(error)
    if isinstance(error, LedgerUnavailable | OSError) or is_missing(error):
        return True
    if _is_too_wide(error):
        return False
    # sqlite3 raises the bare class for a file that is damaged or no database.
    return bool(_names(error) & _UNAVAILABLE) or type(error).__name__ == "DatabaseError"


def _is_too_wide(error: BaseException) -> bool:
    """True when a batch has more values than one statement of SQLite takes: its halves may well fit."""
    return type(error).__module__.startswith("sqlite3") and "too many SQL variables" in str(error)


def is_missing(error: BaseException) -> bool:
    """True when a table or column is not there: the database was never upgraded."""
    return getattr(_driver_error(error), "sqlstate", None) in ("42P01", "42703")


def is_conflict(error: BaseException) -> bool:
    """True when another transaction was in the way and this one may be tried again at once."""
    return getattr(_driver_error(error), "sqlstate", None) in _CONFLICTS


def is_lost(error: BaseException) -> bool:
    """True when the connection broke, as it does after a restart of the server: a new one may work."""
    driver = _driver_error(error)
    state = getattr(driver, "sqlstate", None)
    if state is not None:
        return str(state).startswith(("08", "57P"))
    return "OperationalError" in _names(driver) and type(driver).__module__.startswith("psycopg")


def unavailable(error: BaseException) -> LedgerUnavailable:
    """The error for callers. Its reason never holds a URL, a host or a password."""
    driver = _driver_error(error)
    if isinstance(driver, LedgerUnavailable):
        return driver
    if type(driver).__module__.startswith("sqlite3"):
        return LedgerUnavailable(str(driver))
    state = getattr(driver, "sqlstate", None)
    if state is not None:
        primary = getattr(getattr(driver, "diag", None), "message_primary", None)
        return LedgerUnavailable(f"{primary or type(driver).__name__} ({state})")
    return LedgerUnavailable(f"no connection to the database ({type(driver).__name__})")
