"""The tables, as SQLAlchemy Core metadata: the one truth, for alembic too.

Instants are milliseconds since 1970 UTC; money is micro-USD. A family's tables stand together under its heading.
"""

from sqlalchemy import MetaData

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_name)s",
        "uq": "uq_%(table_name)s_%(column_0_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)
