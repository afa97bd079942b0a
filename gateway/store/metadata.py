"""Where every table is entered, and the columns that many have. Tables say what they are in tables.py and run_tables.py."""

from sqlalchemy import BigInteger, Column, MetaData, String, text

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_name)s",
        "uq": "uq_%(table_name)s_%(column_0_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)


def number(name: str) -> Column[int]:
    """A whole number, 0 at first."""
    return Column(name, BigInteger, nullable=False, server_default="0")


def word(name: str) -> Column[str]:
    """A short text, empty at first."""
    return Column(name, String, nullable=False, server_default=text("''"))
