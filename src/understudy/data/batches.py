"""Long tables a batch at a time: Parquet and CSV files, and databases.

Guarantee: the cells of all batches together are those that `open_source` gives: what a cell is depends on no other row,
so it depends on no batch.
Edges: workbooks and frames are in memory as they are, and are never long. How long a CSV file is, is told by its bytes.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from understudy.data.databases import count_rows, query_batches
from understudy.data.files import (
    CsvFile,
    Raw,
    Want,
    declared,
    from_arrow,
    from_query,
    in_words,
    present,
    suffix_of,
)
from understudy.data.sources import TableSource

LONG = 20_000_000  # cells: of more, a table is read in batches
BATCH = 1 << 16  # rows of a Parquet file; a CSV file comes in blocks of bytes, a query as `databases` says
_BYTES = 8  # of a cell in a CSV file, about
_PACKED = 4  # by how much one is shorter as .gz, about


def is_long(source: TableSource, columns: int) -> bool:
    """Whether so many columns of it are too much to hold at once.

    Edges: a file that is missing or damaged is not: reading it says so.
    """
    if source.is_database:
        return (count_rows(source) or 0) * columns > LONG
    suffix = suffix_of(source)
    try:
        if suffix == ".parquet":
            return int(pyarrow.parquet.read_metadata(source.table).num_rows) * columns > LONG
        if suffix.startswith((".csv", ".tsv")):
            size = Path(source.table).stat().st_size * (_PACKED if suffix.endswith(".gz") else 1)
            return size > LONG * _BYTES
    except (OSError, pa.ArrowException):
        pass
    return False


def batches_of(source: TableSource, want: Want, name: str) -> Iterator[Raw]:
    """The table in parts, in order. A row's number is its place in the whole."""
    read = 0
    for raw in _parts(source, want, name):
        found = declared(replace(raw, numbers=raw.numbers + read), source, want)
        read += len(raw.numbers)
        yield found


def _parts(source: TableSource, want: Want, name: str) -> Iterator[Raw]:
    if source.is_database:
        for answer in query_batches(source):
            yield from_query(answer, want, name)
        return
    with in_words(source):
        yield from (_parquet if suffix_of(source) == ".parquet" else _csv)(source, want, name)


def _parquet(source: TableSource, want: Want, name: str) -> Iterator[Raw]:
    with pyarrow.parquet.ParquetFile(source.table, pre_buffer=False) as file:
        header = file.schema_arrow.names
        for batch in file.iter_batches(BATCH, columns=present(header, want), use_threads=False):
            yield replace(from_arrow(pa.Table.from_batches([batch]), None, name), header=header)


def _csv(source: TableSource, want: Want, name: str) -> Iterator[Raw]:
    file = CsvFile(source, want)
    nothing = Raw(name=name, header=file.header, columns={}, numbers=np.arange(0))
    if not file.include:
        yield nothing
        return
    with pyarrow.csv.open_csv(source.table, **file.options) as reader:
        for batch in reader:
            # A row that is broken ends the reading, so that no number after it is needed.
            numbers, columns = np.arange(1, len(batch) + 1), file.columns(pa.Table.from_batches([batch]))
            yield replace(nothing, columns=columns, numbers=numbers, faults=file.faults())
    yield replace(nothing, faults=file.faults())  # of rows at the end
