"""Parquet files: their header, and their rows in batches, all of them or a part."""

from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.parquet

from understudy.data.reading.sources import Part, TableSource

SPREAD = 100_000_000  # cells: of more, a file is read by several processes
_CELLS = 1 << 22  # about so many at a time, of many columns


def header_of(path: str) -> list[str]:
    with pyarrow.parquet.ParquetFile(path) as file:
        return list(file.schema_arrow.names)


def rows_of(path: str) -> int:
    return int(pyarrow.parquet.read_metadata(path).num_rows)


def pieces_of(source: TableSource, columns: int) -> int:
    """Into how many parts a table is best cut for processes that read it at the same time: 1 unless it is very long.

    Edges: a file that is missing or damaged is one: reading it says so.
    """
    from understudy.ground.processes import process_count

    if source.is_database or not source.table.lower().endswith(".parquet"):
        return 1
    try:
        about = pyarrow.parquet.read_metadata(source.table)
    except (OSError, pa.ArrowException):
        return 1
    return 1 if about.num_rows * columns < SPREAD else max(1, min(process_count(), about.num_row_groups))


def long_tables(path: str, columns: list[str], part: Part, most: int) -> Iterator[tuple[int, pa.Table]]:
    """Part i of n of the rows, `most` at a time, and how many rows are before these. Text comes as lists of words."""
    with pyarrow.parquet.ParquetFile(path) as file:
        fields = [file.schema_arrow.field(column) for column in columns]
    words = [field.name for field in fields if pa.types.is_string(field.type)]
    with pyarrow.parquet.ParquetFile(path, read_dictionary=words) as file:
        number, of = part
        groups = range(file.num_row_groups * number // of, file.num_row_groups * (number + 1) // of)
        before = sum(file.metadata.row_group(group).num_rows for group in range(groups.start))
        size = min(most, max(1 << 12, _CELLS // max(1, len(columns))))
        batches: Iterable[pa.RecordBatch] = file.iter_batches(
            size, row_groups=list(groups), columns=columns, use_threads=False
        )
        for batch in batches:
            yield before, pa.Table.from_batches([batch])
            before += len(batch)


def whole_table(path: str, columns: list[str]) -> pa.Table:
    with pyarrow.parquet.ParquetFile(path) as file:
        return file.read(columns=columns)
