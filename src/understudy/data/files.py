"""Where tables come from: .csv, .csv.gz and .parquet files, and DataFrames. Nothing is judged here.

The cells of a CSV file stay text, except that a column expected to hold numbers comes as numbers when every
cell is one. A cell that is not UTF-8 comes as bytes. Parquet's types are kept: whole numbers stay whole where others
are missing.

Guarantee: what a cell is depends on no other row.
Edges: a quote in a CSV file that is never closed makes one cell of all that follows it. A program that wrote 1 as 1.0
because some row has no value has changed the file, and nothing here can tell.
"""

import csv
import gzip
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet
from numpy.typing import NDArray

from understudy.data.cells import MISSING_WORDS, Fault
from understudy.errors import SchemaError

Source = str | Path | pd.DataFrame
Want = Mapping[str, bool] | None  # column → whether it holds numbers

BLOCK = 2**24  # bytes at a time: a row must fit


@dataclass(frozen=True, kw_only=True)
class Raw:
    """A source as it stands: its header, the wanted columns that it has, and the number of each row.

    Rows are numbered from 1, the header not counted.
    """

    name: str
    header: list[Any]
    columns: dict[str, "pd.Series[Any]"]
    numbers: NDArray[np.int64]
    faults: tuple[Fault, ...] = ()


def as_they_came(columns: Iterable[str], person: str | None) -> dict[str, bool]:
    """The columns to read, the person among them, as they came."""
    return dict.fromkeys([*([person] if person else []), *columns], False)


def open_source(source: Source, want: Want, name: str | None = None) -> Raw:
    """Open a file or a DataFrame; `want` names the columns to read, None reads all."""
    if isinstance(source, pd.DataFrame):
        return _from_frame(source, want, name or "the table")
    path = Path(source)
    reader = _READERS.get("".join(path.suffixes[-2:] if path.suffix == ".gz" else path.suffix).lower())
    if reader is None:
        raise SchemaError(f"{path.name}: a table is a .csv, .csv.gz or .parquet file. Nothing was read.")
    try:
        return reader(path, want, name or path.name)
    except OSError as error:
        why = error.strerror or "damaged"
        raise SchemaError(f"{path}: the file cannot be read ({why}). Nothing was read.") from error
    except (ValueError, EOFError, csv.Error, pa.ArrowException):
        # The cause is left out: pyarrow's messages quote whole rows.
        raise SchemaError(f"{path.name}: the file is damaged, or not UTF-8. Nothing was read.") from None


def _from_frame(frame: pd.DataFrame, want: Want, name: str) -> Raw:
    header = list(frame.columns)
    columns = {column: frame[column].reset_index(drop=True) for column in _present(header, want)}
    return Raw(name=name, header=header, columns=columns, numbers=np.arange(1, len(frame) + 1))


def _from_parquet(path: Path, want: Want, name: str) -> Raw:
    with pyarrow.parquet.ParquetFile(path) as file:
        header = file.schema_arrow.names
        read = file.read(columns=_present(header, want))
    text = [column for column in read.column_names if _is_text(read.schema.field(column).type)]
    # Without pandas' own metadata an id that was saved as the index comes back as a column.
    frame = read.drop_columns(text).to_pandas(
        ignore_metadata=True, date_as_object=False, types_mapper=_WHOLE.get
    )
    columns = {
        column: _text(read[column]) if column in text else frame[column] for column in read.column_names
    }
    return Raw(name=name, header=header, columns=columns, numbers=np.arange(1, len(read) + 1))


def _from_csv(path: Path, want: Want, name: str) -> Raw:
    with gzip.open(path, "rt", **_TEXT) if path.suffix == ".gz" else open(path, **_TEXT) as file:
        header = next(csv.reader(file), [])
    "".join(header).encode()  # half a letter is no name: ValueError
    include = _present(header, want)
    if not include:
        return Raw(name=name, header=header, columns={}, numbers=np.arange(0))
    broken: dict[int, int] = {}  # number of the row → its number of cells

    def note(row: Any) -> str:
        broken[row.number - 1] = row.actual_columns  # pyarrow counts the header as row 1
        return "skip"

    read = pyarrow.csv.read_csv(
        path,
        read_options=pyarrow.csv.ReadOptions(use_threads=False, block_size=BLOCK),  # threads lose row numbers
        parse_options=pyarrow.csv.ParseOptions(
            newlines_in_values=True,
            ignore_empty_lines=len(header) > 1,  # an empty line is a missing cell where there is one column
            invalid_row_handler=note,
        ),
        convert_options=pyarrow.csv.ConvertOptions(
            include_columns=include,
            column_types=dict.fromkeys(include, pa.binary()),  # text, once each cell is found to be
            strings_can_be_null=False,
        ),
    )
    rows = np.arange(1, read.num_rows + len(broken) + 1)
    return Raw(
        name=name,
        header=header,
        columns={column: _series(read[column], bool(want and want[column])) for column in include},
        numbers=np.setdiff1d(rows, list(broken), assume_unique=True),
        faults=tuple(
            Fault(rows=np.array([row]), reason=f"has {cells} cells, where the header has {len(header)}.")
            for row, cells in broken.items()
        ),
    )


def _series(cells: pa.ChunkedArray, numeric: bool) -> "pd.Series[Any]":
    if numeric:
        try:
            text = cells.cast(pa.string())
            missing = pc.is_in(text, value_set=pa.array(MISSING_WORDS))
            return pd.Series(pc.cast(pc.if_else(missing, None, text), pa.float64()).to_pandas())
        except pa.ArrowInvalid:  # some cell is no number: leave them to be looked at one by one
            pass
    return _text(cells)


def _text(cells: pa.ChunkedArray) -> "pd.Series[Any]":
    """Each different text once; what is not UTF-8 stays bytes."""
    coded = cells.cast(pa.large_binary()).dictionary_encode().combine_chunks()
    different = pd.Index([_decoded(value) for value in coded.dictionary.to_pylist()], dtype=object)
    codes = coded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    return pd.Series(pd.Categorical.from_codes(codes, categories=different))


def _decoded(value: bytes) -> str | bytes:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _present(header: list[Any], want: Want) -> list[str]:
    """The wanted columns that the header names once."""
    times = Counter(header)
    return [column for column in (header if want is None else want) if times[column] == 1]


# Read for its header; what stands below it is not judged there.
_TEXT: dict[str, Any] = {"encoding": "utf-8-sig", "newline": "", "errors": "surrogateescape"}
_WHOLE = {
    pa.int8(): pd.Int8Dtype(), pa.int16(): pd.Int16Dtype(), pa.int32(): pd.Int32Dtype(), pa.int64(): pd.Int64Dtype(),
    pa.uint8(): pd.UInt8Dtype(), pa.uint16(): pd.UInt16Dtype(), pa.uint32(): pd.UInt32Dtype(),
    pa.uint64(): pd.UInt64Dtype(),
}  # fmt: skip
_READERS = {".csv": _from_csv, ".csv.gz": _from_csv, ".parquet": _from_parquet}
