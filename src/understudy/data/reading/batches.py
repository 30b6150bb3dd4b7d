"""Long tables a batch at a time: Parquet and CSV files, and databases.

Guarantee: the cells of all batches together are those that `open_source` gives: what a cell is depends on no other row,
so it depends on no batch.
Edges: workbooks and frames are in memory as they are, and are never long. How long a CSV file is, is told by its bytes.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from understudy.data.reading.databases import count_rows, query_batches
from understudy.data.reading.files import (
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
from understudy.data.reading.sources import TableSource

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
    for raw in _parts(source, want, name):
        yield declared(raw, source, want)


def _parts(source: TableSource, want: Want, name: str) -> Iterator[Raw]:
    if source.is_database:
        yield from _numbered(from_query(answer, want, name) for answer in query_batches(source))
        return
    with in_words(source):
        if suffix_of(source) == ".parquet":
            yield from _numbered(_parquet(source, want, name))
        else:
            yield from _csv(source, want, name)


def _numbered(parts: Iterable[Raw]) -> Iterator[Raw]:
    """The same with rows numbered on from one part to the next."""
    read = 0
    for raw in parts:
        yield replace(raw, numbers=raw.numbers + read)
        read += len(raw.numbers)


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
    first = 1  # the number of the row that comes next
    with pyarrow.csv.open_csv(source.table, **file.options) as reader:
        for batch in reader:
            columns = file.columns(pa.Table.from_batches([batch]))
            rows = np.arange(first, first + len(batch) + len(file.broken))
            # those of broken rows are skipped
            numbers = rows[~np.isin(rows, list(file.broken))][: len(batch)]
            first = int(numbers[-1]) + 1 if len(numbers) else first
            yield replace(nothing, columns=columns, numbers=numbers, faults=file.faults())
    yield replace(nothing, faults=file.faults())  # of rows at the end
