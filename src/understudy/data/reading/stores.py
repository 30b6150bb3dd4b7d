"""Rows from databases and from Parquet files, in batches, all of them or a part.

A database is asked by a query that the holder writes: any URL that SQLAlchemy knows,
and DuckDB's own files. Parquet is one file, a pattern of files' names, or a folder,
which is one table if all files in it are parts of one.

Guarantee: the connection is read-only where the database can be told so. A password is
asked for when the connection is made, and stands in no message.
Edges: a driver that is not installed, a database that does not answer, a query that
fails → SchemaError in words.
"""

import os
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import pyarrow as pa
import pyarrow.parquet

from understudy.data.reading.sources import Part, TableSource, without
from understudy.ground.errors import ConfigError, Effect, SchemaError
from understudy.ground.extras import install_library

T = TypeVar("T")
BATCH = 50_000  # rows of a query at a time
SUFFIX = ".parquet"
SPREAD = 100_000_000  # cells: of more, a file is read by several processes
_CELLS = 1 << 22  # about so many at a time, of many columns
_EACH = 16  # parts for each process, at most: none waits long for the last one
_MOST = 1 << 22  # rows of a part: what it says of its ids is held whole
_SIGNS = frozenset("*?[")  # of a pattern

# an Arrow table, or names of columns and their cells
Answer: TypeAlias = pa.Table | tuple[list[str], list[list[Any]]]


def query_rows(source: TableSource) -> Answer:
    parts = list(query_batches(source))
    if isinstance(parts[0], pa.Table):
        return pa.concat_tables(parts)
    header, cells = parts[0]
    for _, more in parts[1:]:
        for column, values in zip(cells, more, strict=True):
            column.extend(values)
    return header, cells


def query_batches(source: TableSource) -> Generator[Answer]:
    """What the query gives, `BATCH` rows at a time; one batch without rows where there
    are none.
    """
    with _in_words(source) as secret:
        local = source.table.startswith("duckdb:")
        yield from _duckdb(source) if local else _sqlalchemy(source, secret)


def count_rows(source: TableSource) -> int | None:
    """How many rows the query gives, by the database's own count; None where it takes
    no such question.
    """
    counting = replace(
        source,
        query=f"select count(*) as n from (\n{(source.query or '').rstrip('; ')}\n) "
        "as counted",
    )
    try:
        answer = query_rows(counting)
    # a dialect that has no order or no `with` inside brackets; a wrong query is named
    # later
    except SchemaError:
        return None
    return int(
        answer[0][0].as_py() if isinstance(answer, pa.Table) else answer[1][0][0]
    )


@contextmanager
def _in_words(source: TableSource) -> Iterator[str | None]:
    secret = source.secret()
    try:
        yield secret
    except ImportError as error:
        missing = (error.name or "a driver").partition(".")[0]
        raise ConfigError(
            f"{source.name}: {missing} is needed to read it "
            f"({install_library(missing)}).",
            effect=Effect.NOTHING_READ,
        ) from None
    except (ConfigError, SchemaError):
        raise
    except Exception as error:  # each driver has errors of its own
        why = (
            without(secret or "", str(getattr(error, "orig", None) or error))
            .strip()
            .partition("\n")[0]
        )
        raise SchemaError(
            f"{source.name}: the query was not answered ({why}).",
            effect=Effect.NOTHING_READ,
        ) from None


def _duckdb(source: TableSource) -> Iterator[pa.Table]:
    path = source.table.partition(":///")[2]
    _require_file(path, source.name)
    with import_module("duckdb").connect(path, read_only=True) as connection:
        reader = connection.sql(source.query).to_arrow_reader(BATCH)
        yield from _some(
            (pa.Table.from_batches([batch]) for batch in reader),
            reader.schema.empty_table(),
        )


def _sqlalchemy(
    source: TableSource, secret: str | None
) -> Iterator[tuple[list[str], list[list[Any]]]]:
    sql: Any = import_module("sqlalchemy")
    url = sql.make_url(source.table)
    if url.drivername == "postgresql":
        url = url.set(drivername="postgresql+psycopg")
    if url.get_backend_name() == "sqlite":
        _require_file(url.database or "", source.name)
        url = sql.make_url(
            f"sqlite:///file:{Path(url.database).resolve()}?mode=ro&uri=true"
        )
    if secret is not None:
        url = url.set(password=secret)
    engine = sql.create_engine(url, poolclass=sql.pool.NullPool)
    options: dict[str, Any] = {"stream_results": True, "max_row_buffer": BATCH}
    if url.get_backend_name() == "postgresql":
        options["postgresql_readonly"] = True
    with engine.connect().execution_options(**options) as connection:
        result = connection.execute(sql.text(source.query))
        header = list(result.keys())
        parts = (
            (header, [list(column) for column in zip(*rows, strict=True)])
            for rows in result.partitions(BATCH)
        )
        yield from _some(parts, (header, [[] for _ in header]))


def _some(parts: Iterator[T], nothing: T) -> Iterator[T]:
    first = next(parts, None)
    yield nothing if first is None else first
    yield from parts


def _require_file(path: str, name: str) -> None:
    """A file that is not there would be made, empty."""
    if not Path(path).is_file():
        raise SchemaError(f"{name}: there is no such file.", effect=Effect.NOTHING_READ)


# Parquet files

_SHOWN = 4  # names of files in a message


def files_of(table: str) -> list[str]:
    """The files that are read one after the other, by their names. Edges: none, or
    folders within → SchemaError.
    """
    path = Path(table)
    if path.is_dir():
        files = sorted(path.glob(f"*{SUFFIX}"))
        if any(file.is_dir() for file in files) or any(path.glob(f"*/**/*{SUFFIX}")):
            raise SchemaError(
                f"{path.name}: files within folders of it are not read.",
                effect=Effect.NOTHING_READ,
            )
    elif _SIGNS & set(path.name) and not path.exists():
        files = sorted(path.parent.glob(path.name))
    else:
        return [table]
    if not files and path.is_dir():
        raise SchemaError(_no_table_in(path), effect=Effect.NOTHING_READ)
    if not files:
        raise SchemaError(
            f"{path.name}: there is no {SUFFIX} file.", effect=Effect.NOTHING_READ
        )
    return [str(file) for file in files]


def _no_table_in(folder: Path) -> str:
    """What a folder may hold, and what is in this one."""
    names = sorted(file.name for file in folder.iterdir() if file.is_file())
    shown = (
        names
        if len(names) <= _SHOWN
        else [*names[: _SHOWN - 1], f"{len(names) - _SHOWN + 1:,} more"]
    )
    contents = (
        " and ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)
        or "no file"
    )
    return (
        f"{folder.name}: a folder is one table of {SUFFIX} files, or people and events "
        f"(people.csv and events.csv, see docs/visits.md), and it holds {contents}. "
        "Name one file, or call them so."
    )


def header_of(table: str) -> list[str]:
    """The names of columns. Edges: files of one table with other columns, or of other
    types → SchemaError.
    """
    files = files_of(table)
    first_schema = _about(files[0]).schema.to_arrow_schema()
    for file in files[1:]:
        other = _about(file).schema.to_arrow_schema()
        kinds = [
            (name, first_schema.field(name).type, other.field(name).type)
            for name in first_schema.names
            if name in other.names
        ]
        unlike = [
            name
            for name, type_here, type_there in kinds
            if type_here != type_there and pa.null() not in (type_here, type_there)
        ]
        if sorted(other.names) != sorted(first_schema.names) or unlike:
            difference = (
                f'column "{unlike[0]}" is of another type'
                if unlike
                else "it has other columns"
            )
            raise SchemaError(
                f"{Path(file).name}: {difference} than in {Path(files[0]).name}.",
                effect=Effect.NOTHING_READ,
            )
    return list(first_schema.names)


def rows_of(table: str) -> int:
    return sum(about.num_rows for _, about in _abouts(table))


def pieces_of(source: TableSource, columns: int) -> int:
    """Into how many parts a table is best cut for processes that read it at the same
    time: 1 unless it is very long.
    Edges: a file that is missing or damaged is one: reading it says so.
    """
    from understudy.ground.processes import process_count

    parquet = source.table.lower().endswith(SUFFIX) or Path(source.table).is_dir()
    if source.is_database or not parquet or process_count() == 1:
        return 1
    try:
        abouts = [about for _, about in _abouts(source.table)]
    except (OSError, pa.ArrowException):
        return 1
    rows, groups = (
        sum(getattr(about, quantity) for about in abouts)
        for quantity in ("num_rows", "num_row_groups")
    )
    return (
        1
        if rows * columns < SPREAD
        else max(1, min(max(_EACH * process_count(), -(-rows // _MOST)), groups))
    )


def _abouts(table: str) -> list[tuple[str, pyarrow.parquet.FileMetaData]]:
    return [(file, _about(file)) for file in files_of(table)]


def _about(file: str) -> pyarrow.parquet.FileMetaData:
    """What a file says of itself: looked up once, until it is another file."""
    now = os.stat(file)
    return _said_by(file, now.st_ino, now.st_size, now.st_mtime_ns)


@lru_cache(maxsize=512)
def _said_by(file: str, *as_it_is: int) -> pyarrow.parquet.FileMetaData:
    return pyarrow.parquet.read_metadata(file)


def long_tables(
    table: str, columns: list[str], part: Part, batch_rows: int
) -> Iterator[tuple[int, pa.Table]]:
    """Part i of n of the rows, `batch_rows` at a time, and how many rows are before
    these. Text comes as lists of words.
    """
    abouts, (number, of) = _abouts(table), part
    groups = sum(about.num_row_groups for _, about in abouts)
    start = groups * number // of
    stop = groups * (number + 1) // of
    rows_before = 0
    for file, about in abouts:
        sizes = [
            about.row_group(group).num_rows for group in range(about.num_row_groups)
        ]
        own_groups = range(max(0, start), min(len(sizes), stop))
        if own_groups:
            yield from _in_file(
                file,
                columns,
                own_groups,
                rows_before + sum(sizes[: own_groups.start]),
                batch_rows,
            )
        start = start - len(sizes)
        stop = stop - len(sizes)
        rows_before = rows_before + about.num_rows


def _in_file(
    path: str, columns: list[str], groups: range, rows_before: int, batch_rows: int
) -> Iterator[tuple[int, pa.Table]]:
    about = _about(path)
    schema = about.schema.to_arrow_schema()
    words = [
        column for column in columns if pa.types.is_string(schema.field(column).type)
    ]
    size = min(batch_rows, max(1 << 12, _CELLS // max(1, len(columns))))
    with pyarrow.parquet.ParquetFile(
        path, metadata=about, read_dictionary=words
    ) as file:
        for batch in file.iter_batches(
            size, row_groups=list(groups), columns=columns, use_threads=False
        ):
            yield rows_before, pa.Table.from_batches([batch])
            rows_before += len(batch)


def schema_of(table: str) -> pa.Schema:
    """The types of all files together: a column that is empty in one has the type that
    it has in another.
    """
    header = header_of(table)
    first_schema = _about(files_of(table)[0]).schema.to_arrow_schema()
    schemas = [about.schema.to_arrow_schema() for _, about in _abouts(table)]
    every = pa.unify_schemas(schemas)
    return pa.schema(
        [every.field(name) for name in header], metadata=first_schema.metadata
    )


def all_tables(table: str) -> Iterator[pa.Table]:
    """All rows, some at a time, with the types of their file."""
    for path in files_of(table):
        with pyarrow.parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(BATCH, use_threads=False):
                yield pa.Table.from_batches([batch])


def whole_table(table: str, columns: list[str]) -> pa.Table:
    tables = []
    for path in files_of(table):
        with pyarrow.parquet.ParquetFile(path) as file:
            tables.append(file.read(columns=columns))
    return (
        tables[0]
        if len(tables) == 1
        else pa.concat_tables(tables, promote_options="default")
    )
