"""Rows from a database, by a query that the holder writes: any URL that SQLAlchemy knows, and DuckDB's own files.

Guarantee: the connection is read-only where the database can be told so. A password is asked for when the connection is
made, and stands in no message.
Edges: a driver that is not installed, a database that does not answer, a query that fails → SchemaError in words.
"""

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa

from understudy.data.reading.sources import TableSource, without
from understudy.ground.errors import ConfigError, SchemaError

BATCH = 50_000  # rows at a time

# an Arrow table, or names of columns and their cells
Answer: TypeAlias = pa.Table | tuple[list[str], list[list[Any]]]


def query_rows(source: TableSource) -> Answer:
    """All that the query gives."""
    parts = list(query_batches(source))
    if isinstance(parts[0], pa.Table):
        return pa.concat_tables(parts)
    header, cells = parts[0]
    for _, more in parts[1:]:
        for column, values in zip(cells, more, strict=True):
            column.extend(values)
    return header, cells


def query_batches(source: TableSource) -> Generator[Answer]:
    """What the query gives, `BATCH` rows at a time; one batch without rows where there are none."""
    with _in_words(source) as secret:
        local = source.table.startswith("duckdb:")
        yield from _duckdb(source) if local else _sqlalchemy(source, secret)


def count_rows(source: TableSource) -> int | None:
    """How many rows the query gives, by the database's own count; None where it takes no such question."""
    counting = replace(source, query=f"select count(*) as n from (\n{(source.query or '').rstrip('; ')}\n) as counted")
    try:
        found = query_rows(counting)
    # a dialect that has no order or no `with` inside brackets; a wrong query is named later
    except SchemaError:
        return None
    return int(found[0][0].as_py() if isinstance(found, pa.Table) else found[1][0][0])


@contextmanager
def _in_words(source: TableSource) -> Iterator[str | None]:
    secret = source.secret()
    try:
        yield secret
    except ImportError as error:
        missing = (error.name or "a driver").partition(".")[0]
        raise ConfigError(
            f"{source.name}: {missing} is needed to read it (pip install {_PACKAGES.get(missing, missing)}). "
            "Nothing was read."
        ) from None
    except (ConfigError, SchemaError):
        raise
    except Exception as error:  # each driver has errors of its own
        why = without(secret or "", str(getattr(error, "orig", None) or error)).strip().partition("\n")[0]
        raise SchemaError(f"{source.name}: the query was not answered ({why}). Nothing was read.") from None


_PACKAGES = {"sqlalchemy": "'understudy[databases]'", "psycopg": "'psycopg[binary]'", "duckdb": "duckdb"}


def _duckdb(source: TableSource) -> Iterator[pa.Table]:
    path = source.table.partition(":///")[2]
    _there(path, source.name)
    with import_module("duckdb").connect(path, read_only=True) as connection:
        reader = connection.sql(source.query).to_arrow_reader(BATCH)
        first = True
        for batch in reader:
            first = False
            yield pa.Table.from_batches([batch])
        if first:
            yield reader.schema.empty_table()


def _sqlalchemy(source: TableSource, secret: str | None) -> Iterator[tuple[list[str], list[list[Any]]]]:
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
        header, first = list(found.keys()), True
        for rows in found.partitions(BATCH):
            first = False
            yield header, [list(values) for values in zip(*rows, strict=True)]
        if first:
            yield header, [[] for _ in header]


def _there(path: str, name: str) -> None:
    """A file that is not there would be made, empty."""
    if not Path(path).is_file():
        raise SchemaError(f"{name}: there is no such file. Nothing was read.")
