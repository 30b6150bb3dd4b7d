"""Rows from a database, by a query that the holder writes: any URL that SQLAlchemy knows, and DuckDB's own files.

Guarantee: the connection is read-only where the database can be told so. A password is asked for when the connection is
made, and stands in no message.
Edges: a driver that is not installed, a database that does not answer, a query that fails → SchemaError in words.
"""

from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow as pa

from understudy.data.sources import TableSource
from understudy.errors import ConfigError, SchemaError

BATCH = 50_000  # rows at a time


def query_rows(source: TableSource) -> pa.Table | tuple[list[str], list[list[Any]]]:
    """What the query gives: an Arrow table, or the names of columns and their cells."""
    secret = source.secret()
    try:
        return _duckdb(source) if source.table.startswith("duckdb:") else _sqlalchemy(source, secret)
    except ImportError as error:
        missing = (error.name or "a driver").partition(".")[0]
        raise ConfigError(
            f"{source.name}: {missing} is needed to read it (pip install {_PACKAGES.get(missing, missing)}). "
            "Nothing was read."
        ) from None
    except (ConfigError, SchemaError):
        raise
    except Exception as error:  # each driver has errors of its own
        why = str(getattr(error, "orig", None) or error).strip().partition("\n")[0]
        if secret:
            why = why.replace(secret, "…")
        raise SchemaError(f"{source.name}: the query was not answered ({why}). Nothing was read.") from None


_PACKAGES = {"sqlalchemy": "'understudy[databases]'", "psycopg": "'psycopg[binary]'", "duckdb": "duckdb"}


def _duckdb(source: TableSource) -> pa.Table:
    path = source.table.partition(":///")[2]
    _there(path, source.name)
    with import_module("duckdb").connect(path, read_only=True) as connection:
        return connection.sql(source.query).to_arrow_table()


def _sqlalchemy(source: TableSource, secret: str | None) -> tuple[list[str], list[list[Any]]]:
    sql: Any = import_module("sqlalchemy")
    url = sql.make_url(source.table)
    if url.drivername == "postgresql":
        url = url.set(drivername="postgresql+psycopg")
    if url.get_backend_name() == "sqlite":
        _there(url.database or "", source.name)
        url = sql.make_url(f"sqlite:///file:{Path(url.database).resolve()}?mode=ro&uri=true")
    if secret is not None:
        url = url.set(password=secret)
    engine = sql.create_engine(url, poolclass=sql.pool.NullPool)
    options: dict[str, Any] = {"stream_results": True, "max_row_buffer": BATCH}
    if url.get_backend_name() == "postgresql":
        options["postgresql_readonly"] = True
    with engine.connect().execution_options(**options) as connection:
        found = connection.execute(sql.text(source.query))
        header = list(found.keys())
        cells: list[list[Any]] = [[] for _ in header]
        for rows in found.partitions(BATCH):
            for place, values in enumerate(zip(*rows, strict=True)):
                cells[place].extend(values)
        return header, cells


def _there(path: str, name: str) -> None:
    """A file that is not there would be made, empty."""
    if not Path(path).is_file():
        raise SchemaError(f"{name}: there is no such file. Nothing was read.")
