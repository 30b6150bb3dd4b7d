"""Where tables come from: CSV, Excel and Parquet files, databases, DataFrames. Nothing is judged here.

The cells of a CSV file stay text, except that a column expected to hold numbers comes as numbers when every
cell is one. A cell that is not of the file's encoding comes as bytes where that is UTF-8. Parquet's types are kept, and
those of Arrow tables and polars frames: whole numbers stay whole where others are missing. How else a table is written
is declared (`sources`).

Guarantee: what a cell is depends on no other row. Which character separates cells is seen from the header line alone.
Edges: a quote in a CSV file that is never closed makes one cell of all that follows it. A program that wrote 1 as 1.0
because some row has no value has changed the file, and nothing here can tell.
"""

import csv
import gzip
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet
from numpy.typing import NDArray

from understudy.data.reading.cells import MISSING_WORDS, Fault
from understudy.data.reading.databases import Answer, query_beginning, query_rows
from understudy.data.reading.sources import SUFFIX, TableSource, source_at
from understudy.data.reading.written import as_declared
from understudy.ground.check import nearest
from understudy.ground.errors import SchemaError

# and whatever else speaks Arrow: a polars frame, a pyarrow table
Source = str | Path | TableSource | pd.DataFrame
Want = Mapping[str, bool] | None  # column → whether it holds numbers

PLAIN_NUMBERS = ("integer", "real")  # kinds whose cells are numbers, where no form is declared
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


def as_they_came(
    source: Source, columns: Iterable[str], person: str | None, numbers: Iterable[str] = ()
) -> dict[str, bool]:
    """The columns to read, the person among them, as they came; `numbers` are read by the decimal comma that the
    source declares, if it does."""
    commas = set(numbers) if _described(source).decimal == "," else set()
    return {column: column in commas for column in [*([person] if person else []), *columns]}


def _described(source: Source) -> TableSource:
    if isinstance(source, pd.DataFrame) or hasattr(source, "__arrow_c_stream__"):
        return TableSource(table="")
    return source if isinstance(source, TableSource) else source_at(source)


def open_source(source: Source, want: Want, name: str | None = None) -> Raw:
    """Open a file, a database or a frame; `want` names the columns to read, None reads all."""
    if isinstance(source, pd.DataFrame):
        return _from_frame(source, want, name or "the table")
    if hasattr(source, "__arrow_c_stream__"):
        return from_arrow(pa.table(source), want, name or "the table")
    described = _described(source)
    return declared(_read(described, want, name or described.name), described, want)


def declared(raw: Raw, source: TableSource, want: Want) -> Raw:
    """The cells as the source says that they are written."""
    columns: dict[str, pd.Series[Any]] = {}
    faults = list(raw.faults)
    for column, cells in raw.columns.items():
        numeric = None if want is None else want[column]
        columns[column], found = as_declared(cells, source, numeric, raw.numbers, column)
        faults += found
    return replace(raw, columns=columns, faults=tuple(faults))


def _read(source: TableSource, want: Want, name: str) -> Raw:
    if source.is_database:
        return _from_database(source, want, name)
    reader = _READERS.get(suffix_of(source))
    if reader is None:
        raise SchemaError(
            f"{Path(source.table).name}: a table is a .csv, .tsv (or .csv.gz, .tsv.gz), .xlsx or .parquet file, the "
            f"URL of a database, or a NAME{SUFFIX} that says how it is read. Nothing was read."
        )
    with in_words(source):
        return reader(source, want, name)


def suffix_of(source: TableSource) -> str:
    """How a file's name ends: .csv, .csv.gz."""
    path = Path(source.table)
    return "".join(path.suffixes[-2:] if path.suffix == ".gz" else path.suffix).lower()


@contextmanager
def in_words(source: TableSource) -> Iterator[None]:
    """What goes wrong with a file, in words."""
    path = Path(source.table)
    try:
        yield
    except SchemaError:
        raise
    except OSError as error:
        why = error.strerror or "damaged"
        raise SchemaError(f"{path}: the file cannot be read ({why}). Nothing was read.") from error
    except (ValueError, EOFError, csv.Error, pa.ArrowException):
        # The cause is left out: pyarrow's messages quote whole rows.
        raise SchemaError(f"{path.name}: the file is damaged, or {_not(source)}. Nothing was read.") from None


def _not(source: TableSource) -> str:
    if source.table.lower().endswith((".xlsx", ".parquet")):
        return "of another kind than its name says"
    if source.encoding != "utf-8":
        return f"not {source.encoding}"
    return 'not UTF-8 (if it is of Windows, say encoding = "cp1252")'


def _from_frame(frame: pd.DataFrame, want: Want, name: str) -> Raw:
    header = list(frame.columns)
    columns = {column: frame[column].reset_index(drop=True) for column in present(header, want)}
    return Raw(name=name, header=header, columns=columns, numbers=np.arange(1, len(frame) + 1))


def _from_parquet(source: TableSource, want: Want, name: str) -> Raw:
    with pyarrow.parquet.ParquetFile(source.table) as file:
        header = file.schema_arrow.names
        return replace(from_arrow(file.read(columns=present(header, want)), None, name), header=header)


def from_arrow(table: pa.Table, want: Want, name: str) -> Raw:
    """An Arrow table, with its types."""
    header = table.column_names
    read = _plain(table.select(present(header, want)))
    text = [column for column in read.column_names if _is_text(read.schema.field(column).type)]
    # Without pandas' own metadata an id that was saved as the index comes back as a column.
    frame = read.drop_columns(text).to_pandas(
        ignore_metadata=True, date_as_object=False, types_mapper=_WHOLE.get
    )
    columns = {
        column: _text(read[column]) if column in text else frame[column] for column in read.column_names
    }
    return Raw(name=name, header=header, columns=columns, numbers=np.arange(1, len(read) + 1))


def _plain(table: pa.Table) -> pa.Table:
    """Text as text, however it is kept: as numbers of a list of words, or in views."""
    for place, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type):
            words = [_viewless(chunk.dictionary).take(chunk.indices) for chunk in table[place].chunks]
            kind = _viewless(pa.array([], field.type.value_type)).type
            table = table.set_column(place, field.name, pa.chunked_array(words, kind))
        elif pa.types.is_string_view(field.type):
            table = table.set_column(place, field.name, _viewless(table[place]))
    return table


def _viewless(cells: Any) -> Any:
    return cells.cast(pa.large_string()) if pa.types.is_string_view(cells.type) else cells


def _from_database(source: TableSource, want: Want, name: str) -> Raw:
    header_alone = want is not None and not want
    return from_query(query_beginning(source) if header_alone else query_rows(source), want, name)


def from_query(found: Answer, want: Want, name: str) -> Raw:
    """What a query gave."""
    if isinstance(found, pa.Table):
        return from_arrow(found, want, name)
    header, cells = found
    columns = {
        column: pd.Series(cells[header.index(column)], dtype=object) for column in present(header, want)
    }
    return Raw(name=name, header=header, columns=columns, numbers=np.arange(1, len(cells[0]) + 1))


def _from_excel(source: TableSource, want: Want, name: str) -> Raw:
    try:
        with pd.ExcelFile(source.table, engine="openpyxl") as book:
            sheet = source.sheet or book.sheet_names[0]
            if sheet not in book.sheet_names:
                raise SchemaError(
                    f'{name}: there is no sheet "{sheet}".{nearest(str(sheet), map(str, book.sheet_names))} '
                    "Nothing was read."
                )
            frame = book.parse(sheet, dtype=object, na_filter=False)
    except ImportError:
        raise SchemaError(
            f"{name}: openpyxl is needed to read a workbook (pip install openpyxl). Nothing was read."
        ) from None
    except BadZipFile:
        raise ValueError("no workbook") from None
    return _from_frame(frame, want, name)


def _from_csv(source: TableSource, want: Want, name: str) -> Raw:
    file = CsvFile(source, want)
    if not file.include:
        return Raw(name=name, header=file.header, columns={}, numbers=np.arange(0))
    read = pyarrow.csv.read_csv(source.table, **file.options)
    rows = np.arange(1, read.num_rows + len(file.broken) + 1)
    numbers = np.setdiff1d(rows, list(file.broken), assume_unique=True)
    return Raw(
        name=name, header=file.header, columns=file.columns(read), numbers=numbers, faults=file.faults()
    )


class CsvFile:
    """How one CSV file is read: its header, the wanted columns that it has, and what pyarrow is told."""

    def __init__(self, source: TableSource, want: Want) -> None:
        path, plain = Path(source.table), source.encoding == "utf-8"
        text: dict[str, Any] = {
            "encoding": "utf-8-sig" if plain else source.encoding,
            "newline": "",
            "errors": "surrogateescape" if plain else "strict",
        }
        # Read for its header; what stands below it is not judged there.
        with gzip.open(path, "rt", **text) if path.suffix == ".gz" else open(path, **text) as file:
            line = file.readline()
            separator = source.separator or _separator(line, path, want)
            file.seek(0)
            self.header = next(csv.reader(file, delimiter=separator), [])
        "".join(self.header).encode()  # half a letter is no name: ValueError
        self.include = present(self.header, want)
        points = source.decimal == "."  # else a number is text still
        self._numeric = {column: points and bool(want and want[column]) for column in self.include}
        self.broken: dict[int, int] = {}  # number of the row → its number of cells
        self.options: dict[str, Any] = {
            "read_options": pyarrow.csv.ReadOptions(
                use_threads=False, block_size=BLOCK, encoding="utf8" if plain else source.encoding
            ),  # threads lose row numbers
            "parse_options": pyarrow.csv.ParseOptions(
                delimiter=separator,
                newlines_in_values=True,
                ignore_empty_lines=len(self.header) > 1,  # an empty line is a missing cell of a single column
                invalid_row_handler=self._note,
            ),
            "convert_options": pyarrow.csv.ConvertOptions(
                include_columns=self.include,
                column_types=dict.fromkeys(self.include, pa.binary()),  # text, once each cell is found to be
                strings_can_be_null=False,
            ),
        }

    def _note(self, row: Any) -> str:
        self.broken[row.number - 1] = row.actual_columns  # pyarrow counts the header as row 1
        return "skip"

    def columns(self, read: pa.Table) -> dict[str, "pd.Series[Any]"]:
        """The cells of a part of the file, or of all of it."""
        return {column: _series(read[column], numeric) for column, numeric in self._numeric.items()}

    def faults(self) -> tuple[Fault, ...]:
        """What is wrong with rows that have too few cells, or too many."""
        return tuple(
            Fault(rows=np.array([row]), reason=f"has {cells} cells, where the header has {len(self.header)}.")
            for row, cells in self.broken.items()
        )


def _separator(line: str, path: Path, want: Want) -> str:
    """What splits the header line into the most names that are wanted, or where none are known, into the most."""
    if ".tsv" in path.suffixes[-2:] and "\t" in line:
        return "\t"

    def names(separator: str) -> int:
        cells = next(csv.reader([line], delimiter=separator), [])
        return len(cells) if not want else len(want.keys() & set(cells))

    return max(",;\t|", key=names)


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


def present(header: list[Any], want: Want) -> list[str]:
    """The wanted columns that the header names once."""
    times = Counter(header)
    return [column for column in (header if want is None else want) if times[column] == 1]


_WHOLE = {
    pa.int8(): pd.Int8Dtype(), pa.int16(): pd.Int16Dtype(), pa.int32(): pd.Int32Dtype(), pa.int64(): pd.Int64Dtype(),
    pa.uint8(): pd.UInt8Dtype(), pa.uint16(): pd.UInt16Dtype(), pa.uint32(): pd.UInt32Dtype(),
    pa.uint64(): pd.UInt64Dtype(),
}  # fmt: skip
_READERS = {
    ".csv": _from_csv, ".csv.gz": _from_csv, ".tsv": _from_csv, ".tsv.gz": _from_csv,
    ".xlsx": _from_excel, ".parquet": _from_parquet,
}  # fmt: skip
