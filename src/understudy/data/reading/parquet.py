"""Parquet files, one or a folder of them: their header, and their rows in batches, all of them or a part."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet

from understudy.data.reading.sources import Part, TableSource
from understudy.ground.errors import SchemaError

SUFFIX = ".parquet"
SPREAD = 100_000_000  # cells: of more, a file is read by several processes
_CELLS = 1 << 22  # about so many at a time, of many columns
_EACH = 4  # parts for each process: none waits long for the last one
_MOST = 1 << 22  # rows of a part: what it says of its ids is held whole
_SIGNS = frozenset("*?[")  # of a pattern


def is_parquet(source: TableSource) -> bool:
    """Whether it is a file, a pattern of files' names, or a folder, which is one table if all files in it are parts of
    one."""
    return not source.is_database and (source.table.lower().endswith(SUFFIX) or Path(source.table).is_dir())


def files_of(table: str) -> list[str]:
    """The files that are read one after the other, by their names. Edges: none, or folders within → SchemaError."""
    path = Path(table)
    if path.is_dir():
        found = sorted(path.glob(f"*{SUFFIX}"))
        if any(one.is_dir() for one in found) or any(path.glob(f"*/**/*{SUFFIX}")):
            raise SchemaError(f"{path.name}: files within folders of it are not read. Nothing was read.")
    elif _SIGNS & set(path.name) and not path.exists():
        found = sorted(path.parent.glob(path.name))
    else:
        return [table]
    if not found:
        raise SchemaError(f"{path.name}: there is no {SUFFIX} file. Nothing was read.")
    return [str(one) for one in found]


def header_of(table: str) -> list[str]:
    """The names of columns. Edges: files of one table with other columns, or of other types → SchemaError."""
    files = files_of(table)
    own = pyarrow.parquet.read_schema(files[0])
    for file in files[1:]:
        other = pyarrow.parquet.read_schema(file)
        kinds = [(name, own.field(name).type, other.field(name).type) for name in own.names if name in other.names]
        apart = [name for name, one, two in kinds if one != two and pa.null() not in (one, two)]
        if sorted(other.names) != sorted(own.names) or apart:
            what = f'column "{apart[0]}" is of another type' if apart else "it has other columns"
            raise SchemaError(f"{Path(file).name}: {what} than in {Path(files[0]).name}. Nothing was read.")
    return list(own.names)


def rows_of(table: str) -> int:
    return sum(about.num_rows for _, about in _abouts(table))


def pieces_of(source: TableSource, columns: int) -> int:
    """Into how many parts a table is best cut for processes that read it at the same time: 1 unless it is very long.

    Edges: a file that is missing or damaged is one: reading it says so.
    """
    from understudy.ground.processes import process_count

    if not is_parquet(source) or process_count() == 1:
        return 1
    try:
        abouts = [about for _, about in _abouts(source.table)]
    except (OSError, pa.ArrowException):
        return 1
    rows, groups = (sum(getattr(about, what) for about in abouts) for what in ("num_rows", "num_row_groups"))
    return 1 if rows * columns < SPREAD else max(1, min(max(_EACH * process_count(), -(-rows // _MOST)), groups))


def _abouts(table: str) -> list[tuple[str, pyarrow.parquet.FileMetaData]]:
    return [(file, pyarrow.parquet.read_metadata(file)) for file in files_of(table)]


def long_tables(table: str, columns: list[str], part: Part, most: int) -> Iterator[tuple[int, pa.Table]]:
    """Part i of n of the rows, `most` at a time, and how many rows are before these. Text comes as lists of words."""
    abouts, (number, of) = _abouts(table), part
    groups = sum(about.num_row_groups for _, about in abouts)
    start, stop = groups * number // of, groups * (number + 1) // of
    before = 0
    for file, about in abouts:
        sizes = [about.row_group(group).num_rows for group in range(about.num_row_groups)]
        own = range(max(0, start), min(len(sizes), stop))
        if own:
            yield from _tables(file, columns, own, before + sum(sizes[: own.start]), most)
        start, stop, before = start - len(sizes), stop - len(sizes), before + about.num_rows


def _tables(path: str, columns: list[str], groups: range, before: int, most: int) -> Iterator[tuple[int, pa.Table]]:
    with pyarrow.parquet.ParquetFile(path) as file:
        fields = [file.schema_arrow.field(column) for column in columns]
    words = [field.name for field in fields if pa.types.is_string(field.type)]
    size = min(most, max(1 << 12, _CELLS // max(1, len(columns))))
    with pyarrow.parquet.ParquetFile(path, read_dictionary=words) as file:
        batches: Iterable[pa.RecordBatch] = file.iter_batches(
            size, row_groups=list(groups), columns=columns, use_threads=False
        )
        for batch in batches:
            yield before, pa.Table.from_batches([batch])
            before += len(batch)


def whole_table(table: str, columns: list[str]) -> pa.Table:
    tables = []
    for path in files_of(table):
        with pyarrow.parquet.ParquetFile(path) as file:
            tables.append(file.read(columns=columns))
    return tables[0] if len(tables) == 1 else pa.concat_tables(tables, promote_options="default")
